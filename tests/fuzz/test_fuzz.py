"""A short slice of the fuzz tests under sanitizers, and whether the harness finds what is planted."""

import os
import random
import shutil
import subprocess
import sys

import pytest

from tests.fuzz.build import ROOT, NoSanitizersError, build, environment, plain_environment, runtimes
from tests.fuzz.harness import Run, replay
from tests.fuzz.mutate import mutated
from tests.fuzz.targets import TARGETS
from tests.thorough import cases

INPUTS = cases(150, 500)
PLANTED = """
from libc.stdint cimport int64_t, uint8_t
from libc.stdlib cimport free, malloc

def overrun(Py_ssize_t size):
    cdef uint8_t *room = <uint8_t *>malloc(size)
    cdef uint8_t found
    room[size] = 1  # the overrun
    found = room[size]
    free(room)
    return found

def shift(int64_t by):
    cdef int64_t one = 1
    return one << by  # the shift

def index(const uint8_t[::1] data):
    return data[data.shape[0]]
"""
TARGET = """
import time
from alltrace.trace.errors import AlltraceError

def corpus():
    return [{sound}]

def run(data):
    if any(data):
        {statement}
"""


@pytest.fixture(scope="session")
def sanitized():
    try:
        return build()
    except NoSanitizersError as error:
        pytest.skip(str(error))


@pytest.mark.nightly
@pytest.mark.slow
@pytest.mark.parametrize("target", TARGETS)
def test_a_slice_of_each_target(sanitized, tmp_path, target):
    [result] = Run({target: TARGETS[target]}, INPUTS, seed=1, failures=tmp_path).run(jobs=1)
    assert not result.failures, result.failures[0].with_suffix(".txt").read_text()
    assert result.inputs == INPUTS
    assert result.answered > INPUTS // 20


@pytest.fixture(scope="session")
def planted(sanitized, tmp_path_factory):
    """The folder of a compiled module with mistakes, made with the flags of the package."""
    root = tmp_path_factory.mktemp("planted")
    core = root / "src" / "alltrace" / "core"
    core.mkdir(parents=True)
    for path in (core.parent / "__init__.py", core / "__init__.py"):
        path.touch()
    (core / "planted.pyx").write_text(PLANTED)
    shutil.copy(ROOT / "setup.py", root)
    build(root, root / "build" / "sanitized")
    return root / "build" / "sanitized" / "alltrace" / "core"


def run_statement(statement, folder, more=(), sound="bytes(8)", **options):
    """The result of a target that runs `statement` on each input that is not all zeros, and the environment it ran
    in."""
    (folder / "planted_target.py").write_text(TARGET.format(statement=statement, sound=sound))

    def variables(scratch):
        base = (environment if more else plain_environment)(scratch)
        return {**base, "PYTHONPATH": os.pathsep.join((base["PYTHONPATH"], str(folder), *map(str, more)))}

    run = Run({"planted": "planted_target"}, 40, seed=3, failures=folder / "failures", environment=variables, **options)
    return run.run(jobs=2)[0], variables


def test_an_exception_is_a_failure_and_can_be_run_again(tmp_path):
    result, variables = run_statement("raise KeyError('planted')", tmp_path)
    assert result.failures
    path = result.failures[0]
    assert "KeyError: 'planted'" in path.with_suffix(".txt").read_text()
    assert any(path.read_bytes())
    assert replay(path, "planted_target", variables) == 1
    path.write_bytes(bytes(8))
    assert replay(path, "planted_target", variables) == 0


def test_an_answer_and_an_error_for_people_are_none(tmp_path):
    result, _ = run_statement("raise AlltraceError('planted')", tmp_path)
    assert not result.failures
    assert result.inputs == 40
    assert 0 < result.answered == 40 - result.refused < 40


@pytest.mark.parametrize(
    "statement", ["raise AlltraceError('planted')", "raise KeyError('planted')", "import os; os._exit(9)"]
)
def test_a_sound_input_without_an_answer_is_a_failure(tmp_path, statement):
    result, _ = run_statement(statement, tmp_path, sound="b'sound'")
    assert result.failures[0].read_bytes() == b"sound"
    assert result.answered == 0


def test_an_input_that_takes_too_long_is_a_failure(tmp_path):
    result, _ = run_statement("time.sleep(600)", tmp_path, longest_s=0.5)
    assert "did not end within" in result.failures[0].with_suffix(".txt").read_text()


def test_a_process_that_ends_is_a_failure_and_the_other_inputs_are_run(tmp_path):
    result, _ = run_statement("import os; os._exit(9) if data[:3] == bytes(3) and len(data) > 7 else None", tmp_path)
    assert result.failures
    assert "ended with 9" in result.failures[0].with_suffix(".txt").read_text()
    assert result.inputs > len(result.failures)


@pytest.mark.nightly
@pytest.mark.slow
@pytest.mark.parametrize(
    ("statement", "found", "line"),
    [
        ("import planted; planted.overrun(len(data))", "heap-buffer-overflow", "# the overrun"),
        ("import planted; planted.shift(len(data) + 64)", "shift exponent", "# the shift"),
        ("import planted; planted.index(data)", "IndexError", ""),
    ],
)
def test_a_report_of_a_sanitizer_is_a_failure_and_names_the_line(planted, tmp_path, statement, found, line):
    result, _ = run_statement(statement, tmp_path, more=[planted])
    report = result.failures[0].with_suffix(".txt").read_text()
    assert found in report
    if line:
        number = next(n for n, text in enumerate(PLANTED.splitlines(), 1) if line in text)
        assert f"planted.pyx:{number}" in report


@pytest.mark.nightly
@pytest.mark.slow
def test_nothing_is_built_twice(sanitized):
    before = {path: path.stat().st_mtime_ns for path in sanitized.rglob("*.so")}
    assert before
    build()
    assert {path: path.stat().st_mtime_ns for path in sanitized.rglob("*.so")} == before


@pytest.mark.parametrize("script", [None, 'echo "${1#*=}"'])
def test_a_compiler_without_sanitizers_is_named_in_one_sentence(tmp_path, monkeypatch, script):
    compiler = tmp_path / "poorcc"
    if script is not None:
        compiler.write_text(f"#!/bin/sh\n{script}\n")
        compiler.chmod(0o700)
    monkeypatch.setenv("CC", str(compiler))
    with pytest.raises(NoSanitizersError, match=r"poorcc.*install gcc"):
        runtimes()
    said = subprocess.run(
        [sys.executable, "-m", "tests.fuzz", "build"], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert said.returncode == 2
    assert said.stderr.count("\n") == 1
    assert "poorcc" in said.stderr


@pytest.mark.parametrize(
    "arguments", [["run", "--targets", "sqlite,other"], ["run", "--inputs", "0"], ["replay", "sqlite-1-1.bin"]]
)
def test_a_wrong_command_line_is_answered_in_one_sentence(arguments):
    said = subprocess.run(
        [sys.executable, "-m", "tests.fuzz", *arguments], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert (said.returncode, said.stderr.count("\n")) == (2, 1), said.stderr


def test_inputs_are_those_of_their_seed():
    corpus = [b"one 12345 input", bytes(range(256)), b""]
    made = [[mutated(corpus, random.Random(f"{seed}/{n}")) for n in range(2_000)] for seed in (1, 1, 2)]
    assert made[0] == made[1] != made[2]
    assert corpus == [b"one 12345 input", bytes(range(256)), b""]
    assert set(corpus) < set(made[0])  # some stay as they are
    assert len(set(made[0])) > 1_500
    assert any(len(data) < 15 for data in made[0])
    assert any(len(data) > 256 for data in made[0])

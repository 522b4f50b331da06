"""One answer to each question: of files, of an imported run and of the library, in any order, on one cache."""

from __future__ import annotations

import json
import os
import random

import pytest

import alltrace
from alltrace.cli.main import main
from alltrace.cli.output import to_json
from alltrace.recipes.registry import find
from alltrace.run.importer import import_reports
from alltrace.synth import write_run
from alltrace.trace.errors import AlltraceError
from tests.recipes.test_every_recipe import EVERY, option_sets

SEED = "ALLTRACE_TEST_SEED"
MORE = {
    "stats:um_sum": {"rows": 3},
    "stats:network_congestion": {"ticks_threshold": 100},
    "gpu_gaps": {"gap": 0},
    "cuda_gpu_kern_sum": {"filter_time": "0/1ms"},
    "nvtx_pace": {"name": "step"},
    "durations": {"what": "copy,step"},
}


def command(name, options, of):
    """The command line that asks `of` files or of a run."""
    flags = {key.replace("_", "-"): value for key, value in options.items()}
    if name.startswith("stats:"):
        spelled = [key if value is True else f"{key}={value}" for key, value in flags.items()]
        return ["stats", ":".join([name.removeprefix("stats:"), *spelled]), of, "--format", "json"]
    given = [word for key, value in flags.items() for word in (f"--{key}", *([] if value is True else [str(value)]))]
    return ["recipe", name, of, *given, "--format", "json"]


def by_command(name, options, of, capsys):
    code = main(command(name, options, of))
    printed = capsys.readouterr()
    return printed.err if code else printed.out


def by_library(name, options, of):
    run = alltrace.open(of)
    try:
        answer = run.recipe(name, **options).answer
    except AlltraceError as error:
        return f"alltrace: {error}\n"
    return to_json("stats" if name.startswith("stats:") else name, answer, answer.table, run.facts())


def check_all(reports, folder, monkeypatch, capsys):
    """Ask each question in each way, all of them shuffled, and compare what is answered to the byte."""
    monkeypatch.setenv("ALLTRACE_CACHE_DIR", str(folder / "cache"))
    import_reports([str(reports)], folder / "run", jobs=1)
    ways = {
        "files": lambda *question: by_command(*question, str(reports), capsys),
        "run": lambda *question: by_command(*question, str(folder / "run"), capsys),
        "library": lambda *question: by_library(*question, str(reports)),
    }
    questions = [*((name, options) for name in EVERY for options in option_sets(find(name))), *MORE.items()]
    asked = [(*question, way) for question in questions for way in ways]
    seed = int(os.environ.get(SEED, random.SystemRandom().randrange(1 << 32)))
    random.Random(seed).shuffle(asked)
    answers = {}
    for name, options, way in asked:
        answers.setdefault((name, *options.items()), {})[way] = ways[way](name, options)
    different = [question for question, found in answers.items() if len(set(found.values())) > 1]
    assert not different, f"{SEED}={seed}"
    assert len(answers) > 150
    facts = [json.loads(found["files"])["run"] for found in answers.values() if found["files"].startswith("{")]
    assert len(facts) > 0.9 * len(answers)
    assert all(f == facts[0] for f in facts)
    assert len([p for p in (folder / "cache" / "runs").iterdir() if p.is_dir()]) == 1
    return {question: found["files"] for question, found in answers.items()}


def test_one_answer_for_a_simulated_run(tmp_path, monkeypatch, capsys):
    write_run("tiny", tmp_path / "reports")
    answers = check_all(tmp_path / "reports", tmp_path, monkeypatch, capsys)
    # a range in front of a kernel's name is seen by those asked of files too
    plain, named = (json.loads(answers["stats:cuda_gpu_kern_sum", *o])["rows"] for o in ((), (("nvtx_name", True),)))
    assert len(named) > len(plain)
    assert any("/" in row["Name"] for row in named)


def test_one_answer_for_a_real_report(corpus, tmp_path, monkeypatch, capsys):
    check_all(corpus / "nsys" / "v100x4_mpi_openacc_one_report_nsys2022.3.sqlite", tmp_path, monkeypatch, capsys)


@pytest.mark.parametrize("only", ["kernels", "ranges,marks"])
def test_what_was_not_imported_is_an_error(tmp_path, monkeypatch, capsys, only):
    """Each question is answered as of the whole run, or refused by a sentence that names what it lacks."""
    monkeypatch.setenv("ALLTRACE_CACHE_DIR", str(tmp_path / "cache"))
    write_run("tiny", tmp_path / "reports")
    import_reports([str(tmp_path / "reports")], tmp_path / "whole", jobs=1)
    assert main(["import", str(tmp_path / "reports"), "-o", str(tmp_path / "part"), "--only", only]) == 0
    capsys.readouterr()
    answered = set()
    for name in EVERY:
        for options in option_sets(find(name)):
            told = by_command(name, options, str(tmp_path / "part"), capsys)
            if "not imported" in told:
                assert "name these tables too" in told
                assert told.count("\n") == 1
            elif name != "info":
                answered.add(name)
                rows, whole = (json.loads(t)["rows"] for t in (told, by_command(name, options, str(tmp_path / "whole"), capsys)))
                assert rows == whole
    assert {"kernels": "kernels", "ranges,marks": "stats:nvtx_sum"}[only] in answered
    assert not answered & {"breakdown", "gpu_gaps", "collectives"}
    assert main(["sql", str(tmp_path / "part"), "SELECT count(*) FROM api"]) == 2
    assert "not imported: " in capsys.readouterr().err

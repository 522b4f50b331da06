"""The verb `demo`: its cases, the output for each, and the truth at the end."""

import argparse
import re
import shlex

import pytest
from tests.together import together

import alltrace as library
from alltrace.cli.registry import VERBS
from alltrace.cli.verbs.demo import CASES
from alltrace.run.store import Run
from alltrace.synth import SCENARIOS, write_run
from alltrace.synth.faults import FAULTS


def test_demo_simulates_imports_and_answers(alltrace, tmp_path):
    done = alltrace("demo", "-o", tmp_path / "my demo", "--ranks", "4")
    assert (done.code, done.err) == (0, "")
    assert "simulating: 4 ranks on 2 hosts" in done.out
    assert f"alltrace info '{tmp_path / 'my demo' / 'run'}'" in done.out
    for part in ("who ran where", "where the time went", "what the devices ran", "Where to look next"):
        assert part in done.out
    assert re.search(
        r"truth\.json: slow-rank on rank 3 \(factor 1\.25\); without it the run ends \d+\.\d ms earlier\.", done.out
    )
    assert len(Run(tmp_path / "my demo" / "run").ranks) == 4
    assert (tmp_path / "my demo" / "reports" / "truth.json").is_file()


@pytest.mark.slow
def test_demo_of_a_case_tells_what_was_planted(alltrace, tmp_path):
    done = alltrace("demo", "-o", tmp_path, "--case", "data-stall", "--ranks", "2")
    assert done.code == 0
    assert "data-stall on all ranks (stall_ns 25000000, every 1); without it" in done.out
    assert CASES["data-stall"].about in done.out
    done = alltrace("demo", "-o", tmp_path, "--case", "healthy", "--ranks", "2")
    assert "truth.json: no fault was simulated.\n" in done.out
    assert alltrace("demo", "-o", tmp_path, "--case", "brisk").code == 2


@pytest.mark.sampled(6)
@pytest.mark.parametrize("name", [c for c in CASES if c not in ("healthy", "missing-rank")])
def test_the_first_finding_of_a_case_is_about_what_was_planted(name, tmp_path):
    case = CASES[name]
    values = {"faults": list(case.faults)} if case.faults else {}
    ranks = 16 if case.scenario == "experts" else 8  # the experts of one host alone have no gradients to reduce
    truth = write_run(
        case.scenario, tmp_path / "reports", ranks=ranks, steps=5, payloads=True, **values
    )  # as the demo does
    first = library.open(tmp_path / "reports").recipe("diagnose").to_arrow().slice(0, 1).to_pylist()[0]
    assert first["kind"] == truth.faults[0]["finding"]
    assert set(truth.faults[0]["ranks"]) == set(first["ranks"])


@together("name", CASES)
def test_the_commands_of_a_case_exist(name):
    case = CASES[name]
    assert case.scenario in SCENARIOS
    assert all(fault.partition(":")[0] in FAULTS for fault in case.faults)
    for command in case.look:
        program, verb, *values = shlex.split(command.format(run="run"))
        assert program == "alltrace"
        parser_of(verb).parse_args(values)


def parser_of(verb):
    parser = argparse.ArgumentParser(exit_on_error=True)
    next(v for v in VERBS if v.name == verb).command().configure(parser)
    return parser

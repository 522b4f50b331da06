"""One answer to each question: of files, of an imported run and of the library, in any order, on one cache."""

import json
import os
import random

import pytest

from alltrace.cli.main import main
from alltrace.recipes.registry import find
from alltrace.run.importer import import_reports
from alltrace.synth import write_run
from tests.fuzz.same_answers import Question, ask_all, by_command, differences, hashed, questions, two_at_once
from tests.recipes.test_every_recipe import EVERY, option_sets

SEED = "ALLTRACE_TEST_SEED"
NAMED = (Question("stats:cuda_gpu_kern_sum", ()), Question("stats:cuda_gpu_kern_sum", (("nvtx_name", True),)))


def check_some(reports, folder, monkeypatch, most):
    """Ask `most` of all questions in each way, all of them shuffled, and compare what is answered to the byte."""
    monkeypatch.setenv("ALLTRACE_CACHE_DIR", str(folder / "cache"))
    import_reports([str(reports)], folder / "run", jobs=1)
    seed = int(os.environ.get(SEED, random.SystemRandom().randrange(1 << 32)))
    draw = random.Random(seed)
    asked = list(dict.fromkeys([*questions(draw, most), *NAMED]))
    answers = ask_all(asked, str(reports), folder / "run", draw)
    assert not differences(answers), f"{SEED}={seed}"
    facts = [json.loads(found["files"])["run"] for found in answers.values() if found["files"].startswith("{")]
    assert len(facts) > 0.3 * len(answers)
    assert all(f == facts[0] for f in facts)
    assert len([p for p in (folder / "cache" / "runs").iterdir() if p.is_dir()]) == 1
    return {question: found["files"] for question, found in answers.items()}


@pytest.mark.slow
def test_one_answer_for_a_simulated_run(tmp_path, monkeypatch):
    write_run("tiny", tmp_path / "reports", ideal=True)
    answers = check_some(tmp_path / "reports", tmp_path, monkeypatch, 60)
    # a range in front of a kernel's name is seen by those asked of files too
    plain, named = (json.loads(answers[question])["rows"] for question in NAMED)
    assert len(named) > len(plain)
    assert any("/" in row["Name"] for row in named)


@pytest.mark.slow
def test_one_answer_for_a_real_report(corpus, tmp_path, monkeypatch):
    check_some(corpus / "nsys" / "v100x4_mpi_openacc_one_report_nsys2022.3.sqlite", tmp_path, monkeypatch, 30)


def test_one_answer_for_two_processes_at_once(tmp_path):
    """Both find the cache empty and ask in an order of their own."""
    write_run("tiny", tmp_path / "reports", ideal=True)
    asked = [
        Question(name, ()) for name in ("breakdown", "stats:nvtx_sum", "collectives", "diagnose", "cuda_gpu_kern_sum")
    ]
    answers = two_at_once(asked, str(tmp_path / "reports"), tmp_path, 1)
    assert {len(found) for found in answers.values()} == {2}
    assert not differences(answers)
    assert answers[asked[0]]["process 0"] != hashed("")


def test_a_difference_is_found():
    one, other = Question("kernels", ()), Question("gaps", ())
    assert differences({one: {"files": "a", "run": "a"}, other: {"files": "a", "run": "b"}}) == [other]


@pytest.mark.parametrize("only", ["kernels", "ranges,marks"])
def test_what_was_not_imported_is_an_error(tmp_path, monkeypatch, capsys, only):
    """Each question is answered as of the whole run, or refused by a sentence that names what it lacks."""
    monkeypatch.setenv("ALLTRACE_CACHE_DIR", str(tmp_path / "cache"))
    write_run("tiny", tmp_path / "reports", ideal=True)
    import_reports([str(tmp_path / "reports")], tmp_path / "whole", jobs=1)
    assert main(["import", str(tmp_path / "reports"), "-o", str(tmp_path / "part"), "--only", only]) == 0
    capsys.readouterr()
    answered = set()
    for name in EVERY:
        for options in option_sets(find(name)):
            question = Question(name, tuple(options.items()))
            told = by_command(question, str(tmp_path / "part"))
            if "not imported" in told:
                assert "name these tables too" in told
                assert told.count("\n") == 1
            elif (
                name != "info" and options.get("source") != "inspector"
            ):  # files of NCCL Inspector, which no run here has
                answered.add(name)
                assert json.loads(told)["rows"] == json.loads(by_command(question, str(tmp_path / "whole")))["rows"]
    assert {"kernels": "kernels", "ranges,marks": "stats:nvtx_sum"}[only] in answered
    assert not answered & {"breakdown", "gpu_gaps", "collectives"}
    assert main(["sql", str(tmp_path / "part"), "SELECT count(*) FROM api"]) == 2
    assert "not imported: " in capsys.readouterr().err

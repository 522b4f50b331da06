"""The verb `hang`: its forms, exit codes and options; `diagnose` of a folder without a profile."""

import json

import pytest
from tests.hang_writing import HangFault, Job, Layout, write_job

from alltrace.cli.verbs.demo import HANG_CASES
from alltrace.synth.hanging_jobs import FAULTS

JOB = Job(Layout(), HangFault("killed", (7,), 4, 2))


@pytest.fixture
def folder(tmp_path):
    write_job(tmp_path / "job", JOB)
    return tmp_path / "job"


def test_the_verdict_in_cards_and_json(alltrace, folder):
    done = alltrace("hang", folder)
    assert (done.code, done.err) == (0, "")
    assert done.out.startswith("Rank 7 died (signal 9 (SIGKILL)); the other 15 wait for it")
    assert "ranks     Rank 7 on node0" in done.out
    assert "note: skipped 1 file without a word of a hang: truth.json" in done.out
    answer = json.loads(alltrace("hang", folder, "--format", "json").out)
    assert answer["verb"] == "hang"
    assert answer["verdict"].startswith("Rank 7 died")
    row = answer["rows"][0]
    assert list(row) == ["kind", "ranks", "devices", "hosts", "where", "evidence", "advice", "confidence"]
    assert (row["kind"], row["ranks"], row["hosts"]) == ("dead-rank", [7], ["node0"])
    assert (row["evidence"]["signal"], row["evidence"]["missing_dumps"]) == (9.0, 1.0)


@pytest.mark.parametrize("form", ["table", "md", "csv"])
def test_other_forms(alltrace, folder, form):
    done = alltrace("hang", folder, "--format", form)
    assert done.code == 0
    assert "dead-rank" in done.out
    assert (form == "csv") != ("Rank 7 died" in done.out)


def test_exit_codes(alltrace, folder, tmp_path):
    assert alltrace("hang", folder, "--fail").code == 1
    write_job(tmp_path / "well", Job(Layout(), HangFault()), age_s=0.5)
    done = alltrace("hang", tmp_path / "well", "--fail")
    assert (done.code, done.out.startswith("No hang")) == (0, True)
    done = alltrace("hang", tmp_path / "nowhere")
    assert (done.code, "there is no such folder" in done.err) == (3, True)
    done = alltrace("hang", folder, "--at", "noon")
    assert (done.code, "--at is 'noon'; expected a time" in done.err) == (2, True)


def test_at_is_when_the_dumps_were_written(alltrace, tmp_path):
    job = Job(Layout(), HangFault("stuck", (3,), 4, 1))
    write_job(tmp_path / "job", job)
    seconds = job.last_ns / 1e9
    for at, kind in (
        (f"{seconds + 1:.3f}", "no-hang"),
        (f"{seconds + 100:.3f}", "missing-call"),
        ("2026-06-01T00:00:00+00:00", "missing-call"),
    ):
        answer = json.loads(alltrace("hang", tmp_path / "job", "--at", at, "--format", "json").out)
        assert answer["rows"][0]["kind"] == kind


def test_a_shared_answer_has_no_host(alltrace, folder):
    done = alltrace("hang", folder, "--share", "--format", "json")
    assert "node0" not in done.out
    assert "host1" in done.out


def test_diagnose_of_a_folder_without_a_profile_is_the_same_answer(alltrace, folder, tmp_path):
    one, other = (json.loads(alltrace(verb, folder, "--format", "json").out) for verb in ("hang", "diagnose"))
    assert (one["rows"], one["verdict"]) == (other["rows"], other["verdict"])
    (tmp_path / "empty").mkdir()
    done = alltrace("diagnose", tmp_path / "empty")
    assert (done.code, "no file in it says how a job ended" in done.err) == (3, True)
    assert alltrace("breakdown", folder).code == 3


def test_diagnose_has_its_verdict_in_json(alltrace, run):
    answer = json.loads(alltrace("diagnose", run, "--format", "json").out)
    assert isinstance(answer["verdict"], str)
    assert answer["verdict"].endswith(".")


@pytest.mark.parametrize("case", HANG_CASES)
def test_a_demo_of_a_hang_names_what_was_planted(alltrace, tmp_path, case):
    done = alltrace("demo", "--case", case, "-o", tmp_path / "demo")
    assert (done.code, done.err) == (0, "")
    kind = FAULTS[HANG_CASES[case].fault]
    ranks = HANG_CASES[case].ranks
    assert f"truth.json: {kind} of ranks {', '.join(map(str, ranks))}." in done.out
    first = done.out.partition("$ alltrace hang")[2].splitlines()[2]
    assert first.startswith(f"Ranks {ranks[0]} and {ranks[1]}" if len(ranks) == 2 else f"Rank {ranks[0]} ")

from __future__ import annotations

import errno
import shutil
from dataclasses import replace

import pytest
from tests.making import flip

from alltrace.recipes.execution import kept_findings
from alltrace.recipes.execution.ask import ask
from alltrace.recipes.execution.ask_all import ask_all
from alltrace.recipes.questions import diagnose
from alltrace.recipes.registry import find
from alltrace.run.importer import import_reports
from alltrace.run.manifest import read_manifest, write_manifest
from alltrace.run.store import Run
from alltrace.run.verify import verify
from alltrace.synth import write_run


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """Four simulated ranks of which one is slow, imported."""
    folder = tmp_path_factory.mktemp("findings")
    write_run("straggler", folder / "reports", ranks=4, hosts=2, steps=6, layers=4, ideal=True)
    import_reports([str(folder / "reports")], folder / "run", jobs=1)
    return folder / "run"


@pytest.fixture
def run(made, tmp_path, monkeypatch):
    monkeypatch.setenv("ALLTRACE_CACHE_DIR", str(tmp_path / "cache"))
    shutil.copytree(made, tmp_path / "run")
    return tmp_path / "run"


@pytest.fixture
def asked(monkeypatch):
    """The ranks whose tables `diagnose` looks at."""
    ranks = []
    real = diagnose.QUESTION.map

    def look(rank, options):
        ranks.append(rank.rank)
        return real(rank, options)

    monkeypatch.setitem(vars(diagnose.QUESTION), "map", look)
    return ranks


def findings(run, **about):
    return ask(Run(run), "diagnose", jobs=1, **about)


def same(one, other):
    return (
        one.table.equals(other.table, check_metadata=True) and one.notes == other.notes and one.columns == other.columns
    )


def test_findings_of_an_unchanged_run_are_kept_with_it(run, asked):
    first = findings(run)
    assert first.table.num_rows
    assert asked == [0, 1, 2, 3]
    assert same(first, findings(run))
    assert same(first, ask_all(Run(run), [(find("diagnose"), {})], jobs=1)[0].answer)
    assert asked == [0, 1, 2, 3]
    assert [p.name for p in (run / "findings").iterdir()] == ["diagnose.arrow"]


def test_what_is_asked_with_other_questions_is_kept_too(run, asked):
    replies = ask_all(Run(run), [(find("diagnose"), {}), (find("overlap"), {})], jobs=1)
    assert same(replies[0].answer, findings(run))
    assert len(asked) == 4


@pytest.mark.sampled(3)
@pytest.mark.parametrize("about", [{"ranks": [0, 1]}, {"steps": "2:4"}, {"skip_warmup": True}])
def test_findings_of_a_part_are_not_kept(run, asked, about):
    findings(run, **about)
    assert not (run / "findings").exists()
    findings(run)
    findings(run, **about)
    assert len(asked) > 4 + 2


def test_a_changed_run_is_looked_at_again(run, asked):
    findings(run)
    manifest = read_manifest(run)
    write_manifest(run, replace(manifest, notes=(*manifest.notes, "a rank was left out")))
    findings(run)
    assert len(asked) == 8


def test_changed_code_looks_again(run, asked, monkeypatch):
    findings(run)
    monkeypatch.setattr(kept_findings, "code_version", lambda: "another")
    findings(run)
    assert len(asked) == 8


def test_findings_that_are_damaged_are_found_anew(run, asked):
    first = findings(run)
    kept = run / "findings" / "diagnose.arrow"
    flip(kept)
    assert [d.file for d in verify(run)] == ["findings/diagnose.arrow"]
    assert same(first, findings(run))
    assert len(asked) == 8
    assert verify(run) == []


def test_findings_of_a_run_that_cannot_be_written_lie_in_the_cache(run, asked, monkeypatch):
    Run(run)
    monkeypatch.setattr("os.access", lambda *_: False)
    first = findings(run)
    assert not (run / "findings").exists()
    assert same(first, findings(run))
    assert len(asked) == 4


def test_a_full_disk_costs_no_answer(run, asked, monkeypatch):
    def full(*_):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(kept_findings, "write_table", full)
    assert findings(run).table.num_rows
    assert same(findings(run), findings(run))
    assert len(asked) == 12
    assert not list((run / "findings").iterdir())

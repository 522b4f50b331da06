"""All stages of data derived from a run, one after the other, with a damaged run or disk."""

from __future__ import annotations

import errno
import shutil

import numpy as np
import pytest

from alltrace.align.store import aligned
from alltrace.recipes.execution.ask import ask
from alltrace.run.importer import import_reports
from alltrace.run.store import Run
from alltrace.run.verify import verify
from alltrace.synth import write_run
from alltrace.tiles.build import pyramid
from alltrace.trace.errors import AlltraceError, UsageError

SMALL = {"ranks": 8, "hosts": 4, "steps": 6, "layers": 4, "kernels_per_layer": 2}


@pytest.fixture(scope="module")
def simulated(tmp_path_factory):
    """The reports of two jobs of eight ranks; one rank of the first is slow."""
    folder = tmp_path_factory.mktemp("jobs")
    write_run("straggler", folder / "first", **SMALL, ideal=True)
    write_run("sharded", folder / "second", **SMALL, ideal=True)
    return folder


@pytest.fixture(scope="module")
def imported(simulated, tmp_path_factory):
    """The run of the first job."""
    folder = tmp_path_factory.mktemp("imported")
    import_reports([str(simulated / "first")], folder / "run", jobs=1)
    return folder / "run"


def reports_of(job):
    return sorted(job.glob("*.sqlite"))


def all_stages(folder):
    """The alignment, the pyramid and the findings of a run, all kept afterwards."""
    run = Run(folder)
    made = aligned(run, jobs=1), pyramid(run, jobs=1), ask(run, "diagnose", jobs=1)
    assert verify(folder) == []
    return made


def test_ranks_that_are_missing_in_the_middle(simulated, tmp_path):
    reports = reports_of(simulated / "first")
    import_reports([str(p) for p in (*reports[:3], *reports[5:])], tmp_path / "run", jobs=1)
    alignment, tiles, found = all_stages(tmp_path / "run")
    assert {c.component for c in alignment.clocks} == {0}
    assert np.unique(alignment.members.column("rank")).tolist() == [0, 1, 2, 5, 6, 7]
    assert tiles.broken == {}
    assert any("3" in n and "4" in n and "no report" in n for n in found.notes)


def test_broken_reports_among_good_ones_cost_their_ranks_alone(simulated, tmp_path):
    reports = tmp_path / "reports"
    shutil.copytree(simulated / "first", reports)
    for path in reports_of(reports)[1::3]:
        path.write_bytes(path.read_bytes()[: path.stat().st_size // 3])
    manifest = import_reports([str(reports)], tmp_path / "run", jobs=1)
    assert len(manifest.ranks) == 5
    alignment, tiles, found = all_stages(tmp_path / "run")
    assert len(np.unique(alignment.members.column("rank"))) == 5
    assert tiles.broken == {}
    for path in reports_of(reports)[1::3]:
        assert any(path.name in note for note in found.notes)


def test_two_runs_in_one_folder_are_refused(simulated, tmp_path):
    with pytest.raises(UsageError, match=r"2 jobs, by their folders.*info \S+/first`.*info \S+/second`"):
        import_reports([str(simulated)], tmp_path / "run", jobs=1)
    assert not (tmp_path / "run").exists()


def test_a_rank_that_is_there_twice(simulated, tmp_path):
    """A report of another job among those of one."""
    reports = [*reports_of(simulated / "first"), reports_of(simulated / "second")[0]]
    manifest = import_reports([str(p) for p in reports], tmp_path / "run", jobs=1)
    assert len(manifest.ranks) == 9
    alignment, tiles, found = all_stages(tmp_path / "run")
    assert tiles.broken == {}
    assert len(alignment.clocks) == len({r.host for r in manifest.ranks})
    assert any(
        "2 different processes are rank 0, so it was not used" in n and "two jobs in one folder" in n
        for n in found.notes
    )


@pytest.mark.parametrize(
    "place",
    [
        "alltrace.align.rank_parts.write_quickly",
        "alltrace.align.rank_parts.write_json",
        "alltrace.align.run_matching._write",
        "alltrace.align.store.write_json",
        "alltrace.tiles.build.write_rank",
        "alltrace.tiles.build.write_table",
        "alltrace.tiles.build.write_json",
        "alltrace.recipes.execution.kept_findings.write_table",
    ],
)
def test_a_full_disk_in_a_stage_is_a_sentence_and_the_next_try_goes_on(imported, tmp_path, monkeypatch, place):
    shutil.copytree(imported, tmp_path / "run")

    def full(*_, **__):
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(place, full)
        if "kept_findings" in place:  # the answer is there all the same
            all_stages(tmp_path / "run")
        else:
            with pytest.raises(AlltraceError, match=r"cannot be written \(No space left on device\).*free some space"):
                all_stages(tmp_path / "run")
    assert verify(tmp_path / "run") == []
    assert all_stages(tmp_path / "run")[2].table.num_rows

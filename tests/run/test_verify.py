"""Every file of a run is checked: one changed bit is an error that names it, and importing again repairs that alone."""

from __future__ import annotations

import shutil

import pytest
from tests.making import flip
from tests.several_devices import rows_of, together

from alltrace.api import OpenRun
from alltrace.recipes.execution.ask import ask
from alltrace.recipes.questions.sql import query
from alltrace.run.importer import import_reports
from alltrace.run.json_files import read_json, write_json
from alltrace.run.manifest import MANIFEST
from alltrace.run.verify import verify
from alltrace.tiles.build import pyramid
from alltrace.trace.errors import DamageError, InputError
from alltrace.trace.schema import FORMAT_VERSION

TODAY = f"expected version {FORMAT_VERSION}; import the reports again: `alltrace import "


@pytest.fixture
def run(tiny_run, tmp_path):
    """Two ranks, with what is made of them on first use."""
    shutil.copytree(tiny_run, tmp_path / "run")
    opened = OpenRun(tmp_path / "run")
    opened.aligned()
    pyramid(opened, jobs=1)
    ask(opened, "diagnose", jobs=1)
    return tmp_path / "run"


def files(run):
    return sorted(p for p in run.rglob("*") if p.is_file() and not p.name.startswith("."))


def test_a_changed_bit_anywhere_is_found_and_named(run):
    assert verify(run) == []
    assert len(files(run)) > 25
    for path in files(run):
        for byte in (0, path.stat().st_size // 2, path.stat().st_size - 2):
            flip(path, byte, 3)
            (found,) = verify(run)
            assert found.file == path.relative_to(run).as_posix()
            assert found.rank == (int(path.parent.name[5:]) if path.parent.name.startswith("rank=") else None)
            flip(path, byte, 3)
    assert verify(run) == []


def test_files_that_are_gone_are_found(run):
    for path in files(run):
        # what has no record of its files, or whose record comes last, is unfinished then
        if path.name in (MANIFEST, "part.json") or path.relative_to(run).parts[0] in ("tiles", "findings"):
            continue
        content = path.read_bytes()
        path.unlink()
        assert [d.file for d in verify(run)] == [path.relative_to(run).as_posix()]
        path.write_bytes(content)
    (run / MANIFEST).unlink()
    with pytest.raises(InputError, match=r"no manifest\.json"):
        verify(run)


@pytest.mark.sampled(8)
@pytest.mark.parametrize(
    "file", ["ranks/rank=1/kernels.parquet", "ranks/rank=1/rank.json", "ranks/rank=1/threads.parquet", "names.parquet",
        MANIFEST,
             "align/members.parquet", "align/alignment.json", "tiles/heat.arrow"],
)  # fmt: skip
def test_importing_again_repairs_what_is_damaged_alone(reports, run, tmp_path, file):
    intact = shutil.copytree(run, tmp_path / "intact")

    def stamps(rank):
        return {p.name: p.stat().st_mtime_ns for p in (run / "ranks" / rank).iterdir()}

    before = {rank: stamps(rank) for rank in ("rank=0", "rank=1")}
    flip(run / file, 40)
    assert [d.file for d in verify(run)] == [file]
    import_reports([str(reports)], run, jobs=1)
    assert verify(run) == []
    assert stamps("rank=0") == before["rank=0"]
    assert (stamps("rank=1") == before["rank=1"]) == ("rank=1" not in file)
    for question in ("kernels", "collectives", "info"):
        assert ask(OpenRun(run), question).table.equals(ask(OpenRun(intact), question).table)


def test_a_damaged_file_is_an_error_of_those_that_read_it_alone(run):
    flip(run / "ranks/rank=1/kernels.parquet", 300)
    for text in ("SELECT count(*) FROM kernels", 'SELECT 1 FROM ids."Kernels"',
                 "SELECT * FROM query_table('ker' || 'nels')",
                 f"SELECT count(*) FROM read_parquet('{run}/ranks/rank=1/k*')"):  # fmt: skip
        with pytest.raises(DamageError, match=r"rank=1/kernels\.parquet: it is damaged.*; import the reports again"):
            query(OpenRun(run), text)
    assert query(OpenRun(run), "SELECT count(*) AS n FROM api").table.num_rows == 1
    assert OpenRun(run).table("api").shape[0]
    assert OpenRun(run).rank(0).table("kernels").num_rows
    for read in (lambda r: r.table("kernels"), lambda r: list(r.batches("kernels")), lambda r: r.pieces("kernels"),
                 lambda r: r.piece("kernels", 0, ["start"]), lambda r: r.bounds("kernels", 0, "start")):  # fmt: skip
        with pytest.raises(DamageError):
            read(OpenRun(run).rank(1))
    with pytest.raises(DamageError):
        OpenRun(run).table("kernels")
    with pytest.raises(DamageError):
        OpenRun(run).connect()


def test_a_run_without_checksums_is_another_version(run):
    value = read_json(run / MANIFEST)
    write_json(run / MANIFEST, value | {"format_version": 99})
    with pytest.raises(InputError, match=f"format version 99; {TODAY}"):
        OpenRun(run)
    (run / MANIFEST).write_text('{"format_version": 1, "reports": []}')
    with pytest.raises(InputError, match=f"format version 1; {TODAY}"):
        verify(run)


def test_a_file_is_read_once_to_be_checked(run, monkeypatch):
    from alltrace.run import checksums

    seen = []
    real = checksums.checksum
    monkeypatch.setattr(checksums, "checksum", lambda path: seen.append(path) or real(path))
    opened = OpenRun(run)
    for _ in range(2):
        opened.rank(1).table("kernels")
        opened.table("kernels").fetchall()
        ask(opened, "kernels")
    in_ranks = [p for p in seen if p.parent.name.startswith("rank=")]
    assert len(in_ranks) == len(set(in_ranks)) == 2
    assert {p.name for p in seen if p.parent.name.startswith("rank=")} == {"kernels.parquet"}


def test_the_run_by_devices_is_checked_too(tmp_path):
    opened = together(tmp_path / "run", rows_of(2))
    opened.recipe("diagnose")
    assert verify(tmp_path / "run") == []
    flip(tmp_path / "run/devices/ranks/rank=1/kernels.parquet")
    [damage] = verify(tmp_path / "run")
    assert damage.file == "devices/ranks/rank=1/kernels.parquet"
    assert damage.repair == "remove the folder devices, which is recreated when needed"

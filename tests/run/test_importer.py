"""Imports: idempotent, resumable at any moment, strict or not, and careful with what is not theirs."""

from __future__ import annotations

import errno
import gc
import json
import os
import random
import shutil
import signal
import sqlite3
import subprocess
import sys
import time
import tracemalloc
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest

from alltrace.readers.base import Report, ReportProcess
from alltrace.readers.nsys.read import NsysReader
from alltrace.readers.registry import open_report
from alltrace.run import checksums, importer, pieces, rank_import
from alltrace.run.identity import plan_ranks
from alltrace.run.import_progress import Watcher
from alltrace.run.importer import import_reports
from alltrace.run.json_files import read_json, write_json
from alltrace.run.manifest import MANIFEST, ReportRecord, read_manifest
from alltrace.run.rank_tasks import Probe, RankTasks
from alltrace.run.same_recording import planned
from alltrace.run.store import Run
from alltrace.synth import write_run
from alltrace.trace.errors import InputError, StrictError, UsageError
from alltrace.trace.kernel_rules import built_in_rules
from alltrace.trace.schema import DICTIONARIES


def contents(run: Path):
    """Everything in a run, by file: rows of Parquet files, text of others."""
    return {
        str(p.relative_to(run)): (
            pq.read_table(p, partitioning=None).to_pylist() if p.suffix == ".parquet" else p.read_text()
        )
        for p in sorted(run.rglob("*"))
        if p.is_file()
    }


def stamps(run: Path):
    return {p: p.stat().st_mtime_ns for p in run.rglob("*.parquet") if p.parent != run}


def copy_of(folder: Path, to: Path) -> Path:
    shutil.copytree(folder, to)
    return to


def spoil(report: Path) -> None:
    """Text where a number is declared, deep in the kernels."""
    with closing(sqlite3.connect(report)) as database, database:
        database.execute("UPDATE CUPTI_ACTIVITY_KIND_KERNEL SET start = 'soon' WHERE rowid >= 40")


def test_all_rows_of_the_reports_are_there(reports, tiny_run):
    for rank in Run(tiny_run).ranks:
        with closing(sqlite3.connect(reports / f"tiny_rank{rank.rank}.sqlite")) as database:
            (kernels,) = database.execute("SELECT count(*) FROM CUPTI_ACTIVITY_KIND_KERNEL").fetchone()
            (calls,) = database.execute("SELECT count(*) FROM CUPTI_ACTIVITY_KIND_RUNTIME").fetchone()
        assert (rank.rows["kernels"], rank.rows["api"]) == (kernels, calls)
        assert pq.read_metadata(tiny_run / rank.folder / "kernels.parquet").num_rows == kernels


def test_again_changes_nothing(reports, tmp_path):
    first = import_reports([str(reports)], tmp_path / "run", jobs=1)
    before, times = contents(tmp_path / "run"), stamps(tmp_path / "run")
    assert import_reports([str(reports)], tmp_path / "run", jobs=1) == first
    assert contents(tmp_path / "run") == before
    assert stamps(tmp_path / "run") == times


@pytest.mark.slow
def test_processes_give_what_one_process_gives(reports, tiny_run, tmp_path):
    import_reports([str(reports)], tmp_path / "run", jobs=2)
    assert contents(tmp_path / "run") == contents(tiny_run)


def test_a_changed_report_is_read_again_and_the_others_are_kept(reports, tmp_path):
    copy, run = copy_of(reports, tmp_path / "in"), tmp_path / "run"
    import_reports([str(copy)], run, jobs=1)
    before = stamps(run)
    with closing(sqlite3.connect(copy / "tiny_rank1.sqlite")) as database, database:
        database.execute("DELETE FROM CUPTI_ACTIVITY_KIND_KERNEL WHERE rowid > 10")
    assert import_reports([str(copy)], run, jobs=1).ranks[1].rows["kernels"] == 10
    after = stamps(run)
    assert {p for p in before if "rank=0" in str(p)} <= {p for p in after if before.get(p) == after[p]}
    (copy / "tiny_rank1.sqlite").unlink()
    manifest = import_reports([str(copy)], run, jobs=1)
    assert [r.rank for r in manifest.ranks] == [0]
    assert not (run / "ranks" / "rank=1").exists()


def test_a_rank_with_a_lost_file_is_made_again(reports, tiny_run, tmp_path):
    run = copy_of(tiny_run, tmp_path / "run")
    (run / "ranks" / "rank=1" / "api.parquet").unlink()
    import_reports([str(reports)], run, jobs=1)
    assert contents(run) == contents(tiny_run)


def test_only_the_tables_wanted(reports, tmp_path):
    manifest = import_reports([str(reports)], tmp_path / "run", tables=["kernels"], jobs=1)
    assert manifest.tables == ("kernels",)
    assert [set(r.rows) for r in manifest.ranks] == [{"kernels"}] * 2
    everything = import_reports([str(reports)], tmp_path / "run", jobs=1)
    assert everything.tables is None
    assert set(everything.ranks[0].rows) > {"kernels", "api", "ranges"}


KILLED = """
import sys
from alltrace.run.import_progress import Watcher
from alltrace.run.importer import import_reports
from pathlib import Path
import_reports([sys.argv[1]], Path(sys.argv[2]), jobs=int(sys.argv[3]))
"""


@pytest.mark.slow
@pytest.mark.parametrize("jobs", [1, 2])
def test_killed_at_any_moment_it_goes_on_to_the_same_end(tmp_path, jobs):
    folder, run = tmp_path / "in", tmp_path / "run"
    write_run("tiny", folder, ranks=4, steps=6, ideal=True)
    command = [sys.executable, "-c", KILLED, str(folder), str(run), str(jobs)]
    started = time.monotonic()
    subprocess.run([*command[:4], str(tmp_path / "whole"), str(jobs)], check=True)
    takes = time.monotonic() - started
    moments = random.Random(jobs)
    for _ in range(3):
        child = subprocess.Popen(command)
        end = time.monotonic() + 20
        while not run.exists() and child.poll() is None and time.monotonic() < end:
            time.sleep(0.002)
        time.sleep(moments.uniform(0, 0.25) * takes)
        child.send_signal(signal.SIGKILL)
        child.wait()
        if run.exists() and (run / MANIFEST).exists() and not read_manifest(run).complete:
            with pytest.raises(InputError, match="its import did not finish; expected a whole run; run the same"):
                Run(run)
        for rank in run.glob("ranks/rank=*"):
            assert contents(rank) == contents(tmp_path / "whole" / "ranks" / rank.name)
    subprocess.run(command, check=True)
    assert contents(run) == contents(tmp_path / "whole")
    assert not list((run / "ranks").glob(".*"))


@pytest.mark.sampled(4)
@pytest.mark.parametrize("stop_at", range(8))
def test_stopped_at_each_rank_and_table_nothing_half_written_is_read(reports, tiny_run, tmp_path, monkeypatch, stop_at):
    run, count = tmp_path / "run", 0
    written = pieces.Piece.write_dictionary

    def stopping(*arguments):
        nonlocal count
        count += 1
        if count > stop_at:
            raise KeyboardInterrupt
        written(*arguments)

    monkeypatch.setattr(pieces.Piece, "write_dictionary", stopping)
    with pytest.raises(KeyboardInterrupt):
        import_reports([str(reports)], run, jobs=1)
    assert len(list((run / "ranks").iterdir())) == (1 if stop_at >= len(DICTIONARIES) else 0)
    with pytest.raises(InputError, match="did not finish"):
        Run(run)
    monkeypatch.undo()
    import_reports([str(reports)], run, jobs=1)
    assert contents(run) == contents(tiny_run)


@pytest.mark.parametrize("left", [b"", b"\0" * 300, b'{"format_version": 1, "rep'])
def test_a_manifest_that_a_power_cut_damaged_is_no_run_and_is_made_again(
    reports, tiny_run, tmp_path, monkeypatch, left
):
    """The manifest of an import that goes on is not waited for; a complete one is on the disk before it takes its
    place."""
    run, synced = tmp_path / "run", []
    fsync = os.fsync
    monkeypatch.setattr(
        os, "fsync", lambda handle: synced.append(str(Path(f"/proc/self/fd/{handle}").readlink())) or fsync(handle)
    )
    import_reports([str(reports)], run, jobs=1)
    assert sum("manifest.json" in path for path in synced) == 1
    assert contents(run) == contents(tiny_run)
    (run / "manifest.json").write_bytes(left)
    with pytest.raises(InputError):
        Run(run)
    import_reports([str(reports)], run, jobs=1)
    assert contents(run) == contents(tiny_run)


def test_a_broken_report_among_good_ones(reports, tmp_path):
    copy = copy_of(reports, tmp_path / "in")
    spoil(copy / "tiny_rank1.sqlite")
    (copy / "tiny_rank2.sqlite").write_bytes(b"")
    manifest = import_reports([str(copy)], tmp_path / "run", jobs=1)
    assert [r.rank for r in manifest.ranks] == [0]
    assert manifest.complete
    notes = "\n".join(manifest.notes)
    assert "tiny_rank2.sqlite: is empty (0 bytes)" in notes
    assert "rank 1: left out, " in notes
    assert manifest.missing_ranks == (1,)
    errors = [r.error is not None for r in manifest.reports]
    assert errors == [False, True, True]
    assert {p.name for p in (tmp_path / "run" / "ranks").iterdir()} == {"rank=0"}


def test_strict_refuses_a_broken_report(reports, tmp_path):
    copy = copy_of(reports, tmp_path / "in")
    spoil(copy / "tiny_rank1.sqlite")
    with pytest.raises(StrictError, match=r"tiny_rank1\.sqlite: "):
        import_reports([str(copy)], tmp_path / "run", jobs=1, strict=True)
    with pytest.raises(InputError, match="did not finish"):
        Run(tmp_path / "run")
    (copy / "tiny_rank1.sqlite").write_bytes(b"SQLite format 3\0")
    with pytest.raises(StrictError, match=r"tiny_rank1\.sqlite: is cut short"):
        import_reports([str(copy)], tmp_path / "other", jobs=1, strict=True)
    assert not (tmp_path / "other").exists()


@pytest.mark.parametrize("strict", [False, True])
def test_when_all_are_broken_nothing_is_made(tmp_path, strict):
    for n in range(2):
        (tmp_path / f"x_rank{n}.sqlite").write_bytes(b"no database")
    with pytest.raises(InputError, match=r"x_rank0.*2 reports, none of which can be read"):
        import_reports([str(tmp_path)], tmp_path / "run", jobs=1, strict=strict)
    assert not (tmp_path / "run").exists()


@pytest.mark.sampled(3)
@pytest.mark.parametrize(
    ("code", "found"),
    [
        (errno.ENOSPC, "the disk is full; free some space and run the same command again"),
        (errno.EDQUOT, "quota"),
        (errno.EFBIG, "exceed"),
    ],
)
@pytest.mark.parametrize(("module", "at"), [(checksums, "write_json"), (pieces, "TableWriter")])
def test_a_full_disk_is_a_sentence_and_no_rank_looks_whole(
    reports, tiny_run, tmp_path, monkeypatch, code, found, module, at
):
    run = tmp_path / "run"

    def full(*arguments, **options):
        raise OSError(code, os.strerror(code))

    monkeypatch.setattr(module, at, full)
    with pytest.raises(InputError, match=found):
        import_reports([str(reports)], run, jobs=1)
    assert list((run / "ranks").iterdir()) == []
    with pytest.raises(InputError, match="did not finish"):
        Run(run)
    monkeypatch.undo()
    import_reports([str(reports)], run, jobs=1)
    assert contents(run) == contents(tiny_run)


LIMITED = """
import resource, signal, sys
from alltrace.cli.main import main
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
resource.setrlimit(resource.RLIMIT_FSIZE, (int(sys.argv[1]), int(sys.argv[1])))
sys.exit(main(["import", sys.argv[2], "-o", sys.argv[3], "--jobs", "1"]))
"""


@pytest.mark.sampled(3)
@pytest.mark.parametrize("limit", [0, 500, 3000])
def test_a_real_write_that_fails(reports, tmp_path, limit):
    command = [sys.executable, "-c", LIMITED, str(limit), str(reports), str(tmp_path / "run")]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (3, "")
    assert done.stderr.count("\n") == 1
    assert (
        "a file in it would exceed the allowed file size; free some space and run the same command again" in done.stderr
    )
    assert not list(tmp_path.glob("run/ranks/*"))


def test_what_is_not_ours_is_left_alone(reports, tmp_path):
    (tmp_path / "file").write_text("mine")
    with pytest.raises(InputError, match="a file; expected a folder for the run; give another name with -o"):
        import_reports([str(reports)], tmp_path / "file", jobs=1)
    for name, inside in (("thesis", "chapter1.tex"), ("web", MANIFEST)):
        (tmp_path / name).mkdir()
        (tmp_path / name / inside).write_text('{"name": "mine"}')
        with pytest.raises(InputError, match="a folder with other files in it; expected an empty or new folder"):
            import_reports([str(reports)], tmp_path / name, jobs=1)
        assert [p.name for p in (tmp_path / name).iterdir()] == [inside]
        assert (tmp_path / name / inside).read_text() == '{"name": "mine"}'
    (tmp_path / "empty").mkdir()
    assert len(import_reports([str(reports)], tmp_path / "empty", jobs=1).ranks) == 2


@pytest.mark.parametrize("version", [1, 99])
def test_a_run_of_another_version_is_made_again(reports, tiny_run, tmp_path, version):
    """The first version had no checksums."""
    run = copy_of(tiny_run, tmp_path / "run")
    write_json(run / MANIFEST, read_json(run / MANIFEST) | {"format_version": version})
    for path in [p for p in run.rglob("*.json") if version == 1]:
        path.write_text(
            json.dumps({k: v for k, v in json.loads(path.read_text()).items() if k not in ("checksum", "files")})
        )
    with pytest.raises(InputError, match=f"format version {version}; expected"):
        read_manifest(run)
    import_reports([str(reports)], run, jobs=1)
    assert contents(run) == contents(tiny_run)


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everywhere")
def test_a_folder_that_may_not_be_written(reports, tmp_path):
    tmp_path.chmod(0o500)
    with pytest.raises(InputError, match=r"it cannot be written .*; give another folder with -o"):
        import_reports([str(reports)], tmp_path / "run", jobs=1)


def test_a_folder_below_a_file(reports, tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(InputError, match=r"it cannot be written \(Not a directory\); give another folder with -o"):
        import_reports([str(reports)], tmp_path / "file" / "run", jobs=1)


def test_two_imports_do_not_write_at_once(reports, tmp_path):
    (tmp_path / "run").mkdir()
    with (
        importer._alone(tmp_path / "run"),
        pytest.raises(InputError, match="another import is writing to it; wait until"),
    ):
        import_reports([str(reports)], tmp_path / "run", jobs=1)
    assert import_reports([str(reports)], tmp_path / "run", jobs=1).complete


@pytest.mark.sampled(4)
@pytest.mark.parametrize(
    "name", ["a b", "it's", 'a"b', "a\nb", "a[1]*?", "ünï", "device=3", "rank=7", "host=x,start=1", "%41", "a;b--"]
)
def test_any_folder_name_will_do(reports, tiny_run, tmp_path, name):
    copy, run = copy_of(reports, tmp_path / name / "in"), tmp_path / name / "run"
    import_reports([str(copy)], run, jobs=1)
    opened, plain = Run(run), Run(tiny_run)
    columns = "rank, host, start, device, name, short_name, stream"
    order = "rank, start, name"
    assert (
        opened.table("kernels").project(columns).order(order).fetchall()
        == plain.table("kernels").project(columns).order(order).fetchall()
    )
    assert opened.rank(1).table("api").equals(plain.rank(1).table("api"))
    assert [Path(r.path).parent for r in opened.manifest.reports] == [copy] * 2


@pytest.mark.slow
def test_reports_in_a_folder_that_is_no_utf8(reports, tiny_run, tmp_path):
    odd = Path(os.fsdecode(os.fsencode(tmp_path) + b"/caf\xe9"))
    copy = copy_of(reports, odd / "in")
    manifest = import_reports([str(copy)], tmp_path / "run", jobs=2)
    assert [r.rows for r in manifest.ranks] == [r.rows for r in Run(tiny_run).ranks]
    assert Path(read_manifest(tmp_path / "run").reports[0].path) == copy / "tiny_rank0.sqlite"
    with pytest.raises(
        InputError, match="its name has bytes that are not UTF-8; expected a name of text; give another name"
    ):
        import_reports([str(copy)], odd / "run", jobs=1)
    assert not (odd / "run").exists()


def test_a_run_among_reports_is_refused(reports, tiny_run, tmp_path):
    with pytest.raises(UsageError, match="is a run directory already; expected reports, or a single run directory"):
        import_reports([str(reports), str(tiny_run)], tmp_path / "run", jobs=1)


def two_ranges(folder: Path) -> list[Path]:
    """One process captured twice, five seconds apart; the second time it has other numbers for its strings."""
    write_run("tiny", folder / "made", ranks=1, hosts=1, ideal=True)
    (folder / "in").mkdir()
    places = [folder / "in" / f"x.{n}.sqlite" for n in (1, 2)]
    for place in places:
        shutil.copy(folder / "made" / "tiny_rank0.sqlite", place)
    with closing(sqlite3.connect(places[1])) as database, database:
        database.execute("UPDATE TARGET_INFO_SESSION_START_TIME SET utcEpochNs = utcEpochNs + 5000000000")
        database.execute("UPDATE CUPTI_ACTIVITY_KIND_KERNEL SET registersPerThread = 99")
    return places


def test_capture_ranges_become_one_rank_on_one_time(tmp_path):
    first, _ = two_ranges(tmp_path)
    import_reports([str(first)], tmp_path / "one", jobs=1)
    import_reports([str(tmp_path / "in")], tmp_path / "run", jobs=1)
    one, run = Run(tmp_path / "one"), Run(tmp_path / "run")
    assert len(run.ranks) == 1
    assert run.ranks[0].reports == (0, 1)
    assert run.ranks[0].rows == {t: 2 * n for t, n in one.ranks[0].rows.items()}
    assert run.manifest.zero_utc_ns == one.manifest.zero_utc_ns
    start, end = one.span_ns
    assert run.span_ns == (start, end + 5_000_000_000)
    for table in ("kernels", "api", "ranges", "copies"):
        key = [
            c
            for c in ("start", "end", "stream", "thread", "device", "name")
            if c in one.rank(0).table(table).column_names
        ]
        single = [tuple(r.values()) for r in one.rank(0).table(table, key).to_pylist()]
        later = [(r[0] + 5_000_000_000, r[1] + 5_000_000_000, *r[2:]) for r in single]
        assert sorted(tuple(r.values()) for r in run.rank(0).table(table, key).to_pylist()) == sorted(single + later)
    late = run.table("kernels").filter("registers = 99").aggregate("min(start)").fetchall()[0][0]
    assert late == 5_000_000_000 + one.table("kernels").aggregate("min(start)").fetchall()[0][0]
    for dictionary in ("threads", "processes", "devices", "streams"):
        assert run.table(dictionary).fetchall() == one.table(dictionary).fetchall()
    ranges = 'depth, name, "end" - start AS length'
    assert set(run.table("ranges").project(ranges).fetchall()) == set(one.table("ranges").project(ranges).fetchall())


def test_joined_numbers_are_those_of_the_joined_dictionaries(tmp_path):
    """The second range saw another thread and device first, so its rows number them otherwise."""
    _, second = two_ranges(tmp_path)
    with closing(sqlite3.connect(second)) as database, database:
        (thread,) = database.execute(
            "SELECT globalTid FROM CUPTI_ACTIVITY_KIND_RUNTIME ORDER BY rowid LIMIT 1"
        ).fetchone()
        database.execute("UPDATE CUPTI_ACTIVITY_KIND_RUNTIME SET globalTid = ? WHERE rowid = 1", [thread + 3])
    import_reports([str(tmp_path / "in")], tmp_path / "run", jobs=1)
    run = Run(tmp_path / "run")
    tids = dict(run.table("threads").project("thread, source_id").fetchall())
    calls = run.table("api").project("thread").fetchall()
    assert sum(tids[t] == thread + 3 for (t,) in calls) == 1
    assert len(set(tids.values())) == len(tids)
    assert {t for (t,) in calls} <= set(tids)


@pytest.mark.corpus
def test_one_report_of_four_ranks_is_split_by_process(corpus, tmp_path):
    path = corpus / "nsys" / "v100x4_mpi_openacc_one_report_nsys2022.3.sqlite"
    manifest = import_reports([str(path)], tmp_path / "run", jobs=1)
    assert [(r.rank, r.rank_source, len(r.pids) > 0) for r in manifest.ranks] == [
        (n, "MPI_RANKS", True) for n in range(4)
    ]
    with closing(sqlite3.connect(f"file:{path}?mode=ro&immutable=1", uri=True)) as database:
        (kernels,) = database.execute("SELECT count(*) FROM CUPTI_ACTIVITY_KIND_KERNEL").fetchone()
        pids = {p >> 24 & 0xFFFFFF for (p,) in database.execute("SELECT globalPid FROM CUPTI_ACTIVITY_KIND_KERNEL")}
    assert sum(r.rows["kernels"] for r in manifest.ranks) == kernels
    assert {r.pids[0] for r in manifest.ranks} == pids
    for rank in Run(tmp_path / "run").ranks:
        used = Run(tmp_path / "run").table("kernels", ranks=[rank.rank]).project("process").distinct().fetchall()
        assert len(used) == 1


@pytest.mark.corpus
def test_one_rank_of_a_shared_report_made_again_gets_its_own_rows_only(corpus, tmp_path):
    path, run = corpus / "nsys" / "v100x4_mpi_openacc_one_report_nsys2022.3.sqlite", tmp_path / "run"
    first = import_reports([str(path)], run, jobs=1)
    before = contents(run)
    for lost in ([2], [0, 3]):
        for rank in lost:
            shutil.rmtree(run / "ranks" / f"rank={rank}")
        assert import_reports([str(path)], run, jobs=1) == first
        assert contents(run) == before


def tasks_of(count: int):
    paths = [f"/x/rank{n}.sqlite" for n in range(count)]
    job = [Report(path, "test", "test", processes=(ReportProcess(0, n, gpu=True),)) for n, path in enumerate(paths)]
    probes = [Probe(ReportRecord(r.path, 1, "x"), r, 100) for r in job]
    plan, rules = plan_ranks(job), built_in_rules()
    return lambda: RankTasks(Path("run"), plan, plan.ranks, probes, ("kernels",), rules, {})


@pytest.mark.slow
def test_thousands_of_ranks_are_put_into_tasks_at_once():
    count = 8000
    put = tasks_of(count)
    began = time.process_time()
    tasks = put()
    assert time.process_time() - began < 4  # was 17 s
    assert [[r.rank for r in t.ranks] for t in tasks] == [[n] for n in range(count)]


def test_little_is_there_of_a_task_before_it_is_taken():
    count = 1000
    put = tasks_of(count)
    tracemalloc.start()
    try:
        tasks = put()
        size, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert (len(tasks), tasks[7].owners, tasks[7].rows) == (count, {7: ((7, (0,)),)}, {7: 100})
    assert size < 1000 * count  # was 2.4 kB


PEAK = """
import ctypes, re, sys, threading, time
ctypes.CDLL(None).prctl(41, 1, 0, 0, 0)  # without huge pages, of which the kernel gives more than is used
from pathlib import Path
from alltrace.cli.main import main
from alltrace.run.manifest import read_manifest
own_kib = [0]
def watch():
    while True:
        own_kib.append(int(re.search(r"RssAnon:\\s+(\\d+)", Path("/proc/self/status").read_text())[1]))
        time.sleep(0.002)
threading.Thread(target=watch, daemon=True).start()
assert main(["import", sys.argv[1], "-o", sys.argv[2], "--jobs", "1"]) == 0
print(sum(read_manifest(Path(sys.argv[2])).ranks[0].rows.values()), max(own_kib) // 1024, len(own_kib))
"""


@pytest.mark.slow
def test_two_million_rows_take_little_memory(tmp_path):
    """Memory of its own: how much of mapped files is there, and how much is in huge pages, is the kernel's choice."""
    write_run("bench", tmp_path / "in", steps=2, gpu_metrics_hz=4_000, ideal=True)
    own = []
    # the compiler, which only the first import ever needs, takes memory of its own; tests beside this one may be at it
    # as well
    while len(own) < 4 and (len(own) < 2 or min(own) >= 220):
        command = [sys.executable, "-c", PEAK, str(tmp_path / "in"), str(tmp_path / f"run{len(own)}")]
        output = subprocess.run(command, capture_output=True, text=True, check=True).stdout
        rows, own_mib, samples = map(int, output.split())
        assert rows > 1_900_000
        assert samples > 50
        own.append(own_mib)
    assert 50 < min(own) < 220  # 197 to 202 on a quiet machine


def test_secrets_of_a_report_stay_in_it(tmp_path):
    truth = write_run("tiny", tmp_path / "in", secrets=True, ideal=True)
    assert len(truth.secrets) == 8
    raw = b"".join(p.read_bytes() for p in (tmp_path / "in").glob("*.sqlite"))
    assert all(s.encode() in raw for s in truth.secrets)
    run = tmp_path / "run"
    manifest = import_reports([str(tmp_path / "in")], run, jobs=1)
    text = b"".join(p.read_bytes() for p in run.rglob("*") if p.is_file())
    for path in run.rglob("*.parquet"):
        text += repr(pq.read_table(path, partitioning=None).to_pylist()).encode()
    assert b"gemm" in text.lower()  # the search would find what is there
    for secret in [*truth.secrets, "synthetic-secret", "HF_TOKEN", "WANDB_API_KEY", "--api-key"]:
        assert secret.encode() not in text
    for report in manifest.reports:
        assert report.environment["RANK"] in ("0", "1")
        assert report.environment_removed >= 4
    assert any("environment variables that are not on the allow-list" in r for r in manifest.redactions)


def test_a_report_that_changed_between_the_looks_is_never_called_the_same(reports, tmp_path, monkeypatch):
    """A rank's signature has its report's content, so a swapped report is read again at the next import."""
    copy, run = copy_of(reports, tmp_path / "in"), tmp_path / "run"
    first = import_reports([str(copy)], run, jobs=1)
    shutil.copy(copy / "tiny_rank0.sqlite", tmp_path / "kept")
    shutil.copy(copy / "tiny_rank1.sqlite", copy / "tiny_rank0.sqlite")
    shutil.copy(tmp_path / "kept", copy / "tiny_rank1.sqlite")
    second = import_reports([str(copy)], run, jobs=1)
    swapped = [r._replace(reports=()) for r in second.ranks]
    assert swapped == [r._replace(reports=()) for r in first.ranks]
    assert [r.reports for r in second.ranks] == [(1,), (0,)]


@pytest.mark.parametrize("count", [1, 2])
def test_a_report_alone_is_opened_once(reports, tmp_path, monkeypatch, count):
    """Several are opened again, so that an import holds one at a time."""
    opened, closed = [], []

    def noting(path, *more):
        reader = open_report(path, *more)
        opened.append(path)
        close = reader.close
        monkeypatch.setattr(reader, "close", lambda: (closed.append(path), close()))
        return reader

    monkeypatch.setattr(importer, "open_report", lambda path, scratch=None: noting(path, (), scratch))
    monkeypatch.setattr(rank_import, "open_report", noting)
    import_reports([str(reports / f"tiny_rank{n}.sqlite") for n in range(count)], tmp_path / "run", jobs=1)
    assert len(opened) == (1 if count == 1 else 2 * count)
    assert sorted(closed) == sorted(opened)


def test_no_folder_is_removed_if_each_report_is_of_one_rank(reports, tmp_path, monkeypatch):
    """A file system such as ext4 makes files slower for minutes after something was removed."""
    removed, rmdir = [], os.rmdir
    monkeypatch.setattr(os, "rmdir", lambda path, **more: (rmdir(path, **more), removed.append(path)))
    import_reports([str(reports)], tmp_path / "run", jobs=1)
    assert removed == []
    assert {p.name for p in (tmp_path / "run" / "ranks").iterdir()} == {"rank=0", "rank=1"}


def test_a_report_that_stays_open_is_closed_if_the_import_fails(reports, tmp_path, monkeypatch):
    closed = []
    monkeypatch.setattr(NsysReader, "close", lambda reader: closed.append(reader.report.path))
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "other").touch()
    with pytest.raises(InputError, match="a folder with other files in it"):
        import_reports([str(reports / "tiny_rank0.sqlite")], tmp_path / "run", jobs=1)
    assert len(closed) == 1


def test_reports_of_a_job_share_the_words_of_their_environments(reports, tmp_path):
    one, other = (r.environment for r in import_reports([str(reports)], tmp_path / "run", jobs=1).reports)
    equal = [name for name in one if one[name] == other.get(name)]
    assert equal
    assert all(one[name] is other[name] for name in equal)
    assert {id(name) for name in one} == {id(name) for name in other}


def test_lengths_are_those_of_aligned_times(reports, tmp_path):
    import_reports([str(reports)], tmp_path / "run", jobs=1)
    run = Run(tmp_path / "run")
    moved = [r.rank for r in run.ranks if run.rank(r.rank).clock.shift_ns]
    assert moved
    for number in moved:
        whole = run.rank(number).table("api", ["start", "end"])
        for drift in (0.0, 1e-3):
            rank = run.rank(number)
            rank.clock = rank.clock._replace(drift=drift)
            (piece,) = rank.batches("api", ["start", "end"], 1 << 20)
            aligned = rank.table("api", ["start", "end"])
            lengths = [pc.subtract(t.column("end"), t.column("start")).to_pylist() for t in (piece, aligned, whole)]
            assert lengths[0] == lengths[1]
            assert (lengths[0] == lengths[2]) == (drift == 0.0)


def test_only_what_keeps_a_process_busy_gets_one(monkeypatch):
    monkeypatch.setattr(importer, "default_jobs", lambda: 8)
    assert [importer._processes_worth(n * 1_000_000) for n in (0, 2, 3, 7, 100)] == [1, 1, 2, 3, 8]


@pytest.fixture
def four(tmp_path):
    """A folder of four reports whose ranks are on two hosts."""
    write_run("healthy", tmp_path / "four", ranks=4, ideal=True)
    return tmp_path / "four"


def sqlites(folder):
    return sorted(folder.glob("*.sqlite"))


@pytest.mark.slow
def test_a_run_of_parts_is_the_run_of_an_import(four, tmp_path):
    whole = import_reports([str(four)], tmp_path / "whole", jobs=1)
    for report in reversed(sqlites(four)):  # ranks end in any order
        (rank,) = importer.import_part([str(report)], tmp_path / "run")
        assert f"rank{rank.rank}" in report.name
    before = stamps(tmp_path / "run")
    finished = import_reports([str(four)], tmp_path / "run", jobs=1)
    assert stamps(tmp_path / "run") == before  # no rank was read again
    assert finished == whole
    shutil.rmtree(tmp_path / "run" / ".parts")
    assert contents(tmp_path / "run") == contents(tmp_path / "whole")


def test_parts_are_finished_where_nobody_sees_the_reports(four, tmp_path):
    whole = import_reports([str(four)], tmp_path / "whole", jobs=1)
    for report in sqlites(four):
        importer.import_part([str(report)], tmp_path / "run")
    four.rename(tmp_path / "away")
    finished = import_reports([], tmp_path / "run", jobs=1)
    assert replace(finished, reports=()) == replace(whole, reports=())
    assert [r.content_hash for r in finished.reports] == [r.content_hash for r in whole.reports]


@pytest.mark.slow
def test_a_part_whose_report_changed_since_is_read_again(four, tmp_path):
    for report in sqlites(four):
        importer.import_part([str(report)], tmp_path / "run")
    with closing(sqlite3.connect(sqlites(four)[2])) as database, database:
        database.execute("DELETE FROM CUPTI_ACTIVITY_KIND_KERNEL WHERE rowid > 40")
    finished = import_reports([str(four)], tmp_path / "run", jobs=1)
    assert finished.ranks == import_reports([str(four)], tmp_path / "whole", jobs=1).ranks
    assert finished.ranks[2].rows["kernels"] == 40


def test_parts_that_take_themselves_for_one_rank_are_put_right(four, tmp_path):
    """Without a number in its name and in its environment, each report alone is that of rank 0."""
    for n, report in enumerate(sqlites(four)):
        with closing(sqlite3.connect(report)) as database, database:
            database.execute("DELETE FROM TARGET_INFO_SYSTEM_ENV WHERE name LIKE '%nviron%'")
        report.rename(four / f"{'abcd'[n]}.sqlite")
    for report in sqlites(four):
        importer.import_part([str(report)], tmp_path / "run")
    finished = import_reports([], tmp_path / "run", jobs=1)
    assert [r.rank for r in finished.ranks] == [0, 1, 2, 3]
    assert finished.ranks == import_reports([str(four)], tmp_path / "whole", jobs=1).ranks


def test_an_import_and_one_of_a_part_do_not_meet(four, tmp_path):
    importer.import_part([str(sqlites(four)[0])], tmp_path / "run")
    with importer._alone(tmp_path / "run"), pytest.raises(InputError, match="another import is writing to it"):
        importer.import_part([str(sqlites(four)[1])], tmp_path / "run")
    with importer._alone(tmp_path / "run", among_parts=True):
        importer.import_part([str(sqlites(four)[1])], tmp_path / "run")
        with pytest.raises(InputError, match="another import is writing to it"):
            import_reports([], tmp_path / "run")


def test_without_parts_there_is_nothing_to_finish(tmp_path):
    with pytest.raises(InputError, match="it has no part of a run"):
        import_reports([], tmp_path / "run")


@pytest.mark.slow
def test_a_report_that_comes_before_the_others_leaves_their_ranks_as_they_are(four, tmp_path):
    first = sqlites(four)[0]
    first.rename(tmp_path / first.name)
    import_reports([str(four)], tmp_path / "run", jobs=1)
    before = stamps(tmp_path / "run")
    (tmp_path / first.name).rename(first)
    finished = import_reports([str(four)], tmp_path / "run", jobs=1)
    assert stamps(tmp_path / "run").items() >= before.items()
    assert finished.ranks == import_reports([str(four)], tmp_path / "whole", jobs=1).ranks


@pytest.mark.parametrize(
    ("count", "ending", "size", "jobs", "expected"),
    [
        (16, ".json", 0, 2, 1),
        (17, ".json", 0, None, None),
        (17, ".json", 0, 3, 3),
        (17, ".sqlite", 0, 3, 3),
        (17, ".sqlite", 1 << 20, None, 1),
        (17, ".sqlite", 2 << 30, None, 4),
        (500, ".sqlite", 0, None, 2),
        (1500, ".sqlite", 0, None, 4),
    ],
)
def test_as_many_processes_take_first_looks_as_are_kept_busy(
    tmp_path, monkeypatch, count, ending, size, jobs, expected
):
    monkeypatch.setattr(importer, "default_jobs", lambda: 4)
    large = tmp_path / f"large{ending}"
    with large.open("wb") as file:
        file.truncate(size)  # takes no space
    small = tmp_path / f"small{ending}"
    small.touch()
    reports = [*[large] * min(count, 4), *[small] * (count - min(count, 4))]
    assert importer._processes_for_looks(reports, jobs) == expected


def test_what_was_made_to_open_a_report_stays_with_it_if_others_are_left_out():
    reports = [
        Report(f"/x/rank{n}.nsys-rep", "test", "test", processes=(ReportProcess(0, n, gpu=True),)) for n in range(3)
    ]
    probes = [
        Probe(ReportRecord(r.path, 1, "same" if n < 2 else "x"), r, 100, scratch=f"/s/{n}")
        for n, r in enumerate(reports)
    ]
    probes[1] = probes[1]._replace(report=reports[1]._replace(path="/x/a-longer-copy.nsys-rep"))
    taken, plan = planned([Path(p.record.path) for p in probes], probes, None)
    assert taken == [0, 2]
    ones = [probes[n] for n in taken]
    tasks = RankTasks(Path("run"), plan, plan.ranks, ones, ("kernels",), built_in_rules(), {})
    assert {task.scratch[n]: task.reports[n].path for task in tasks for n in task.reports} == {
        "/s/0": "/x/rank0.nsys-rep",
        "/s/2": "/x/rank2.nsys-rep",
    }


@pytest.mark.parametrize("odd", ["'noon'", "x'00ff'", "1.5"])
def test_a_row_whose_time_is_no_time_is_set_aside_alone(tmp_path, odd):
    write_run("tiny", tmp_path / "reports", ideal=True)
    path = sorted((tmp_path / "reports").glob("*.sqlite"))[1]
    with closing(sqlite3.connect(path)) as db, db:
        db.execute(f"UPDATE CUPTI_ACTIVITY_KIND_KERNEL SET start = {odd} WHERE rowid = 3")
        db.execute("UPDATE ANALYSIS_DETAILS SET duration = -5")
        db.execute("UPDATE TARGET_INFO_SESSION_START_TIME SET utcEpochNs = 0")
    manifest = import_reports([str(path)], tmp_path / "run", jobs=1)
    (rank,) = manifest.ranks
    text = "rows of `kernels` with a time more than 36 years away or a duration of more than a year: 1"
    assert text in [str(w) for w in rank.row_warnings["0"]]
    # nor is a session that ends before it begins, or that began in 1970, believed
    assert (manifest.reports[0].session_ns, manifest.reports[0].utc_ns) == (None, None)
    with closing(sqlite3.connect(path)) as db, db:
        db.execute(f"UPDATE CUPTI_ACTIVITY_KIND_KERNEL SET start = {odd}")
    with pytest.raises(InputError, match="column 'start' holds"):
        import_reports([str(path)], tmp_path / "again", jobs=1)


@pytest.mark.parametrize("name", ["tiny_rank0_again.sqlite", "a.sqlite"])
def test_a_double_takes_the_place_of_a_report_that_turns_out_to_be_damaged(tmp_path, name):
    folder = tmp_path / "reports"
    write_run("tiny", folder, ideal=True)
    whole = import_reports([str(folder)], tmp_path / "whole", jobs=1)
    shutil.copy(folder / "tiny_rank0.sqlite", folder / name)
    damaged = min((folder / "tiny_rank0.sqlite", folder / name), key=lambda p: len(p.name))
    with closing(sqlite3.connect(damaged)) as database, database:
        database.execute("UPDATE CUPTI_ACTIVITY_KIND_KERNEL SET start = 'soon' WHERE rowid >= 7")
    run = import_reports([str(folder)], tmp_path / "run", jobs=1)
    assert [(r.rank, r.rows) for r in run.ranks] == [(r.rank, r.rows) for r in whole.ranks]
    assert [r.path for r in run.reports if r.error] == [str(damaged)]
    assert not any("left out, it is the same" in note for note in run.notes)
    with pytest.raises(StrictError, match="holds text"):
        import_reports([str(folder)], tmp_path / "strict", jobs=1, strict=True)


def test_nothing_of_a_rank_stays_in_memory_once_it_is_imported(reports, tmp_path):
    """Otherwise memory grows by the tables of each rank until Python looks for cycles."""
    gc.collect()
    gc.disable()
    try:
        before = pa.total_allocated_bytes()
        import_reports([str(reports)], tmp_path / "run", jobs=1)
        assert pa.total_allocated_bytes() - before < 4096
    finally:
        gc.enable()


class Watching(Watcher):
    """What an import reports, in order."""

    def __init__(self, output):
        self.events = []
        self.read_ahead = 0  # rows that were reported before a table was written
        self._output = output

    def looking(self):
        self.events.append("looking")

    def listed(self, reports):
        self.events.append(("listed", reports))

    def opened(self, reports):
        self.events.append(("opened", reports))

    def planned(self, ranks, rows):
        self.events.append(("planned", ranks))

    def advance(self, rows):
        self.events.append(("rows", rows))
        if not any(self._output.rglob("*.parquet")):
            self.read_ahead += rows

    def rank_done(self, ranks):
        self.events.append(("done", ranks))

    def rows(self):
        return sum(count for kind, count in self.events if kind == "rows")


@pytest.mark.parametrize("form", ["sqlite", "kineto"])
def test_progress_is_reported_from_the_first_report_on(tmp_path, form):
    write_run("tiny", tmp_path / "reports", form, ideal=True)
    watching = Watching(tmp_path / "run")
    manifest = import_reports([str(tmp_path / "reports")], tmp_path / "run", jobs=1, watcher=watching)
    assert watching.events.pop(0) == "looking"
    assert watching.events[:4] == [("listed", 2), ("opened", 1), ("opened", 1), ("planned", 2)]
    assert watching.events.count(("done", 1)) == 2
    rows = sum(sum(rank.rows.values()) for rank in manifest.ranks)
    if form == "sqlite":
        assert watching.rows() == rows
    else:  # half of a row counts when the trace is read, half when it is written
        assert rows / 5 < watching.read_ahead < rows / 2  # of the first rank
        assert 0.9 * rows < watching.rows() <= rows

from __future__ import annotations

import gzip
import json
import random

import pytest
from tests.making import HOSTILE, collective, copy, kernel, make_run
from tests.readers.paraver.test_read import random_rank
from tests.recorded.asking import opened

import alltrace
from alltrace.export.chrome import export_chrome
from alltrace.export.selection import select
from alltrace.readers.chrome import is_report
from alltrace.readers.kineto import is_report as is_kineto
from alltrace.readers.registry import open_report
from alltrace.run.discover import NoReportError, find_reports
from alltrace.run.importer import import_reports
from alltrace.trace.errors import InputError
from alltrace.trace.schema import TABLES

SAME = {  # the questions whose answers are the same from a run and from its trace, of each recorded run
    "ddp": (
        "kernels breakdown overlap collectives steps diagnose stragglers gaps critical-path whatif launches operators"
        " idle"
    ),
    "kineto": (
        "kernels breakdown overlap collectives steps diagnose stragglers gaps critical-path whatif launches operators"
        " idle"
    ),
    "pipeline": (
        "kernels breakdown overlap collectives steps diagnose stragglers gaps critical-path whatif launches operators"
        " idle"
    ),
    "rocm": (
        "kernels breakdown overlap collectives steps diagnose stragglers gaps critical-path whatif launches operators"
        " idle"
    ),
    "experts": (
        "kernels breakdown overlap collectives steps diagnose stragglers gaps critical-path whatif launches operators"
        " idle"
    ),
    # samples of metrics are not in a trace: they say how far a GPU's clock fell, and show that the host's ranks began
    # earlier
    "ddp-slow-rank": (
        "kernels breakdown overlap collectives steps stragglers gaps critical-path whatif launches operators idle"
    ),
    "host": "kernels breakdown overlap collectives steps diagnose stragglers critical-path launches operators idle",
    # nor are samples of metrics, which are evidence of findings, and records of rank 0 are missing, so that nothing is
    # replayed
    "sharded-slow-host": "kernels breakdown overlap collectives steps gaps launches operators idle",
    # how MPI's communicators are connected with hosts is not in it, so that its confidence differs
    "mpi": "kernels breakdown overlap collectives gaps critical-path launches operators idle",
}


def read_back(path, folder):
    """The run of a trace."""
    import_reports([str(path)], folder, jobs=1)
    return alltrace.open(folder)


def traced(run, path):
    export_chrome(select(run), path, aligned=run.aligned(), jobs=1)
    return path


@pytest.mark.sampled(8)
@pytest.mark.parametrize("name", SAME)
def test_a_trace_answers_as_its_run(tmp_path, name):
    run = opened(name, tmp_path / "copy")
    again = alltrace.open(traced(run, tmp_path / "out.json.gz"), cache_dir=tmp_path / "cache")
    assert [(r.rank, r.host, r.pids, r.rank_source) for r in again.ranks] == [
        (r.rank, r.host, r.pids[:1], "alltrace") for r in run.ranks
    ]
    used = [{d.identity for d in r.devices} for r in run.ranks]  # that of allocations among them
    assert all({d.identity for d in r.devices} <= own for r, own in zip(again.ranks, used, strict=True))
    # without names of communicators clocks are fitted again, from times that are aligned already, and other operations
    # are sure
    unsure = {"confidence"} if name == "rocm" else set()
    for question in SAME[name].split():
        answers = [
            [{k: v for k, v in row.items() if k not in unsure} for row in r.recipe(question).to_pylist()]
            for r in (again, run)
        ]
        assert answers[0] == answers[1], question
    assert any("read back" in note for note in again.recipe("kernels").notes)


def test_a_trace_has_the_findings_of_its_run_but_for_what_the_profiler_said(tmp_path):
    """That events were dropped is a message of the profiler about a rank: a trace for viewers has events alone."""
    run = opened("sharded-slow-host", tmp_path / "copy")
    again = alltrace.open(traced(run, tmp_path / "out.json.gz"), cache_dir=tmp_path / "cache")
    columns = ("kind", "severity", "lost_ns", "ranks", "hosts", "where", "confidence")
    findings, those_again = (
        [[row[c] for c in columns] for row in r.recipe("diagnose").to_pylist()] for r in (run, again)
    )
    left_out = [f for f in findings if f not in those_again]
    assert left_out == [["capture-fault", "medium", 0, [0], ["node001"], "dropped events", 1.0]]
    assert [f for f in findings if f in those_again] == those_again


LOST = {
    "kernels": {
        "green_context",
        "mangled_name",
        "shared_memory",
        "local_memory_per_thread",
        "local_memory",
        "occupancy_percent",
    },
    "copies": {
        "green_context",
        "src_device",
        "dst_device",
        "value",
        "address",
        "migration_cause",
        "graph_node",
        "collective",
    },
    "graphs": {"green_context", "graph_exec"},
    "ranges": {"end_thread", "color", "source_row"},
    "marks": {"color"},
    "mpi": {"sent_bytes", "recv_bytes", "request"},
    "ucx": {"tag"},
    "osrt": {"nesting_level"},
    "openacc": {"event_kind"},
    "openmp": {"event_kind"},
}


def rows_of(run, table):
    """The rows of all ranks, in time from the first event, with the names of threads and devices."""
    columns = ["rank", *(c for c in TABLES[table].column_names if c not in {"process", "parent", *LOST.get(table, ())})]
    known = {
        of: {(rank, row): text for rank, row, text in run.table(f"{of}s").project(f"rank, {of}, {label}").fetchall()}
        for of, label in (("thread", "name"), ("device", "uuid"))
    }
    zero, rows = run.span_ns[0], []
    for values in run.table(table).project(", ".join(f'"{c}"' for c in columns)).fetchall():
        row = dict(zip(columns, values, strict=True))
        row |= {c: row[c] - zero for c in ("start", "end", "time") if row.get(c) is not None}
        row |= {c: known[c][row["rank"], row[c]] for c in ("thread", "device") if c in row}
        rows.append(tuple(row.values()))
    return sorted(rows, key=repr)


def a_rank(draw):
    tables = random_rank(draw)
    others = {
        "mpi": {"kind": "p2p", "bytes": 2**40, "communicator": -7, "peer": 3, "tag": 2**33, "root": 0},
        "ucx": {"kind": "submit", "bytes": 5, "peer": 2**50},
        "osrt": {"return_value": -1},
        "syscalls": {"return_value": 2**40},
        "openacc": {
            "kind": "data",
            "bytes": 9,
            "file": "a b.c",
            "line": 3,
            "function": 'f<"é">',
            "kernel": "k",
            "variable": "x",
        },
        "openmp": {"kind": "task"},
    }
    for table, values in others.items():
        tables[table] = [
            {"start": 100 * n, "end": 100 * n + 50, "thread": n % 2, "name": name, **values}
            for n, name in enumerate(HOSTILE)
        ]
    for number, row in enumerate(tables["kernels"]):
        shape = {f"{what}_{axis}": number + n for what in ("grid", "block", "cluster") for n, axis in enumerate("xyz")}
        row |= {
            **shape,
            "registers": 255,
            "static_shared_memory": 1,
            "dynamic_shared_memory": 2,
            "graph": number,
            "graph_node": 2**40,
        }
    for table in ("kernels", "copies", "graphs"):
        for row in tables[table]:
            row["context"] = 1 + row["device"]
    for row in tables["ranges"]:
        row |= {"payload": '{"a": "\\u00e9\\n"}', "category": draw.randrange(-3, 3)}
    return tables


@pytest.mark.sampled(3)
@pytest.mark.parametrize("seed", range(3))
def test_rows_come_back_with_what_a_slice_shows(tmp_path, monkeypatch, seed):
    monkeypatch.setattr("alltrace.run.rank_import.set_aside", lambda *_: None)  # streams of random work are not serial
    draw = random.Random(seed)
    ranks = {r: a_rank(draw) for r in draw.choice(([0], [2, 5, 11]))}
    devices = [{"device": d, "ordinal": d, "uuid": f"GPU-{d}", "name": "H100"} for d in (0, 1)]
    hosts = {r: f"node{r // 4}" for r in ranks}
    run = make_run(tmp_path / "run", {r: {**t, "devices": devices} for r, t in ranks.items()}, hosts=hosts)
    again = read_back(traced(run, tmp_path / "out.json"), tmp_path / "again")
    for table in (*LOST, "api", "syscalls"):
        assert rows_of(again, table) == rows_of(run, table), table


def test_operations_of_a_reader_come_back_with_their_kernels(tmp_path):
    operation = {
        "op": "AllReduce",
        "communicator": "0x1",
        "sequence": 7,
        "bytes": 2**33,
        "count": 9,
        "datatype": "half",
    }
    operation |= {"group_size": 2, "group_rank": 1, "root": None, "peer": None, "evidence": "trace"}
    rows = {
        "kernels": [collective(100, 300, stream=20)],
        "collectives": [{"start": 100, "end": 300, "stream": 20, **operation}],
    }
    run = make_run(tmp_path / "run", {1: rows, 0: {"kernels": [kernel(5, 9)]}})
    again = read_back(traced(run, tmp_path / "out.json"), tmp_path / "again")
    [row] = again.rank(1).table("collectives").to_pylist()
    names = {"op", "communicator", "datatype"}
    texts = again.rank(1).texts(again.rank(1).table("collectives", ["op"]).column("op")).to_pylist()
    assert texts == ["AllReduce"]
    assert {k: v for k, v in row.items() if k in operation and k not in names} == {
        k: v for k, v in operation.items() if k not in names
    }
    assert not again.rank(0).has("collectives")


def test_ranks_that_are_missing_stay_missing(tmp_path):
    run = make_run(tmp_path / "run", {r: {"kernels": [kernel(5, 9)]} for r in (0, 2)})
    again = read_back(traced(run, tmp_path / "out.json"), tmp_path / "again")
    assert again.manifest.missing_ranks == (1,)


def small(tmp_path, name="out.json"):
    return traced(
        make_run(tmp_path / "run", {r: {"kernels": [kernel(5, 9)], "copies": [copy(1, 2)]} for r in (0, 1)}),
        tmp_path / name,
    )


def test_it_is_read_if_named_and_no_report_in_a_folder(tmp_path):
    path = small(tmp_path)
    assert is_report(path)
    assert not is_kineto(path)
    assert find_reports([str(path)]) == [path]
    (tmp_path / "folder").mkdir()
    path.rename(tmp_path / "folder" / "out.json")
    with pytest.raises(NoReportError):
        find_reports([str(tmp_path / "folder")])


def test_an_older_trace_is_refused_with_advice(tmp_path):
    path = small(tmp_path)
    trace = json.loads(path.read_text())
    for about, found in (
        ({"exported_by": "alltrace"}, "does not say"),
        ({**trace["otherData"], "version": 99}, "version 99"),
    ):
        path.write_text(json.dumps({"otherData": about, "traceEvents": []}, separators=(",", ":")))
        with pytest.raises(InputError, match=f"{found}.*export the run again"):
            open_report(path)


def test_one_of_several_files_is_refused(tmp_path):
    run = make_run(tmp_path / "run", {0: {"kernels": [kernel(5, 9)]}})
    export_chrome(select(run), tmp_path / "out.json", most_bytes=10_000)
    with pytest.raises(InputError, match=r"one of several files.*without --max-mb"):
        open_report(tmp_path / "out.json")


@pytest.mark.parametrize(
    "change",
    [
        {"rank": "1"}, {"rank": None}, {"pid": [1]}, {"pid": 2**70}, {"host": 3}, {"tracks": 1},
        {"tracks": [["nothing", 1]]}, {"tracks": [["api"]]}, {"tracks": [["kernels", 0, "x"]]},
        {"tracks": [["kernels", [], 7]]}, {"devices": [{"ordinal": 1}]}, {"devices": [{"device": 0, "uuid": 3}]},
        {"threads": [7]}, {"processes": [{"process": 0, "pid": "x"}]}, {"devices": [{"device": 0, "ordinal": 2**40}]},
        {"threads": {"thread": 1}}, {"collectives": None, "tracks": None},
        {"processes": [{"process": 0, "pid": 1, "name": 3}]},
    ],
)  # fmt: skip
def test_a_damaged_head_is_refused(tmp_path, change):
    path = small(tmp_path)
    trace = json.loads(path.read_text())
    trace["otherData"]["ranks"][1].update(change)
    path.write_text(json.dumps(trace, separators=(",", ":")))
    with pytest.raises(InputError, match="what it says of its ranks is damaged"):
        open_report(path)


def test_events_that_are_on_no_track_are_left_out(tmp_path):
    path = small(tmp_path)
    trace = json.loads(path.read_text())
    slices = [e for e in trace["traceEvents"] if e["ph"] == "X"]
    bad = [
        {"pid": 1},
        {"pid": "x"},
        {"tid": 0},
        {"tid": 99},
        {"tid": -1},
        {"tid": 2**62},
        {"ts": "x"},
        {"dur": None},
        {"ph": "Q"},
    ]
    trace["traceEvents"] += [{**slices[0], **change} for change in bad]
    path.write_text(json.dumps(trace, separators=(",", ":")))
    again = read_back(path, tmp_path / "again")
    assert sum(again.rank(r).record.rows.get(t, 0) for r in (0, 1) for t in ("kernels", "copies")) == len(slices)


def test_a_trace_that_is_cut_short_says_so(tmp_path):
    path = small(tmp_path, "out.json.gz")
    text = gzip.decompress(path.read_bytes())
    path.write_bytes(gzip.compress(text[:-20]))
    again = read_back(path, tmp_path / "again")
    assert any("cut short" in note for note in again.recipe("kernels").notes)
    assert sum(again.rank(r).record.rows.get("kernels", 0) for r in (0, 1)) == 1

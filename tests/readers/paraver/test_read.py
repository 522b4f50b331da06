from __future__ import annotations

import gzip
import json
import random
import re

import pytest
from tests.making import COMMUNICATION_KERNEL, HOSTILE, collective, copy, kernel, make_run
from tests.paraver_checks import well_formed

import alltrace
from alltrace.export.paraver.writer import export_paraver
from alltrace.export.selection import select
from alltrace.readers.paraver import is_report, parsing
from alltrace.readers.paraver.labels import label_of
from alltrace.readers.paraver.read import open_report
from alltrace.readers.registry import open_report as any_report
from alltrace.run import rank_import
from alltrace.run.discover import find_reports
from alltrace.run.importer import import_reports
from alltrace.trace.errors import InputError

LENGTHS = (0, 1, 40, 400, 4000)


def random_rank(draw):
    """Rows of a rank: calls that nest on two threads, what they launched later, on streams where kernels may overlap at
    will."""
    api, kernels, copies, graphs, ranges, marks = [], [], [], [], [], []
    begun = set()
    for thread in (0, 1):
        time = 0
        for _ in range(draw.randrange(25)):
            time += draw.choice((0, 1, 50))
            end = time + draw.choice((1, 30, 200))
            call = {
                "start": time,
                "end": end,
                "thread": thread,
                "name": draw.choice(("cudaLaunchKernel_v7000", "cuMemcpyAsync")),
            }
            call |= {
                "kind": "runtime" if call["name"].startswith("cuda") else "driver",
                "correlation": 1000 * thread + len(api) + 1,
            }
            api.append(call)
            start = time + draw.choice((1, 3, 100, 1000))
            while start in begun:  # which of two that begin together a call launched is not in the trace
                start += 1
            begun.add(start)
            work = {"correlation": call["correlation"], "stream": draw.choice((7, 8)), "device": draw.choice((0, 1))}
            kind = draw.randrange(4)
            length = draw.choice(LENGTHS)
            if kind == 0:
                copies.append(
                    copy(
                        start,
                        start + length,
                        draw.choice(("HtoD", "memset", "UvmDtoH")),
                        **{**work, "bytes": 1000 + len(api)},
                    )
                )
            elif kind == 1 and length:
                graphs.append(
                    {"start": start, "end": start + length, "graph": len(api), "graph_exec": 3 * len(api), **work}
                )
            else:
                name = draw.choice((*HOSTILE, COMMUNICATION_KERNEL, "x" * 300))
                kernels.append(kernel(start, start + length, name, **work))
            time = draw.choice((time, end))
        for _ in range(draw.randrange(9)):
            start = draw.randrange(500)
            ranges.append(
                {
                    "start": start,
                    "end": start + draw.choice(LENGTHS),
                    "thread": thread,
                    "name": draw.choice(HOSTILE),
                    "kind": "startend",
                }
            )
            marks.append({"time": start, "thread": thread, "name": draw.choice(HOSTILE)})
        for domain in (None, "Lib: a\nb", "depth default", "NCCL"):
            begin, step = draw.randrange(100), draw.choice((0, 1, 250))
            nested = {"thread": thread, "domain": domain, "kind": "pushpop"}
            ranges += [
                {"start": begin + depth, "end": begin + 1000 - depth * step, "name": draw.choice(HOSTILE), **nested}
                for depth in range(draw.randrange(5))
            ]
    tables = {"api": api, "kernels": kernels, "copies": copies, "graphs": graphs, "ranges": ranges, "marks": marks}
    threads = [{"thread": t, "process": 0, "tid": t, "name": f"t{t}"} for t in (0, 1)]
    return {**tables, "threads": threads}  # fmt: skip


def rows_of(run, table, columns):
    """The rows of all ranks, in time from the first event, with labels for names, GPUs and threads for their rows, and
    for work the start and the thread of the call that launched it."""
    lookups = {}
    for dictionary, column, label in (("threads", "thread", "name"), ("devices", "device", "uuid")):
        known = run.table(dictionary).project(f"rank, {column}, {label}").fetchall()
        lookups[column] = {(rank, row): text for rank, row, text in known}
    zero = run.span_ns[0]
    calls = {}
    for rank, number, start, thread in run.table("api").project('rank, correlation, "start", thread').fetchall():
        calls[rank, number] = start - zero, lookups["thread"][rank, thread]
    found = []
    for row in run.table(table).project(", ".join(f'"{c}"' for c in columns)).fetchall():
        named = dict(zip(columns, row, strict=True))
        for column in ("start", "end", "time"):
            if column in named:
                named[column] -= zero
        for column, texts in lookups.items():
            if column in named:
                named[column] = texts[named["rank"], named[column]]
        for column in named.keys() & {"name", "short_name"}:
            named[column] = re.sub(r"_v[0-9]{4}$", "", label_of(named[column]))
        if "domain" in named and named["domain"] is not None:
            named["domain"] = label_of(named["domain"])
        if table in ("kernels", "copies", "graphs"):
            named["correlation"] = calls.get((named["rank"], named["correlation"]))
        found.append(tuple(named.values()))
    return sorted(found, key=repr)


WORK = ("rank", "host", "start", "end", "device", "stream", "correlation")
CARRIED = {
    "kernels": (*WORK, "short_name", "kind"),
    "copies": (*WORK, "kind", "bytes"),
    "graphs": (*WORK, "graph", "graph_exec"),
    "api": ("rank", "host", "start", "end", "thread", "name", "kind"),
    "ranges": ("rank", "start", "end", "thread", "name", "kind", "domain"),
    "marks": ("rank", "time", "thread", "name"),
}


def labelled(rows):
    return sorted((tuple(label_of(v) if isinstance(v, str) else v for v in row) for row in rows), key=repr)


@pytest.mark.sampled(4)
@pytest.mark.parametrize("seed", range(4))
def test_what_was_exported_is_read_back(tmp_path, monkeypatch, seed):
    draw = random.Random(seed)
    monkeypatch.setattr(parsing, "_BLOCK", draw.choice((200, 4 << 20)))
    monkeypatch.setattr("alltrace.readers.paraver.read._OPEN", draw.choice((2, 4096)))
    ranks = {r: random_rank(draw) for r in draw.choice(([0], [2, 5, 11]))}
    devices = {r: [{"device": d, "ordinal": d, "uuid": f"GPU-{r}-{d}"} for d in (0, 1)] for r in ranks}
    hosts = {r: f"node{r // 4}.cluster" for r in ranks}
    run = make_run(tmp_path / "run", {r: {**t, "devices": devices[r]} for r, t in ranks.items()}, hosts=hosts)
    ids = draw.choice(("extrae", "nsys2prv"))
    path = tmp_path / draw.choice(("out.prv", "out.prv.gz"))
    export_paraver(select(run), path, ids=ids)
    well_formed(path)
    # work overlaps at will and calls are equal: an import ends the one where its stream goes on, and drops the other
    monkeypatch.setattr(rank_import, "set_aside", lambda *_: None)
    import_reports([str(path)], tmp_path / "again", jobs=1)
    again = alltrace.open(tmp_path / "again")
    assert [(r.rank, r.host, r.pids) for r in again.ranks] == [(r.rank, r.host, r.pids) for r in run.ranks]
    for table, columns in CARRIED.items():
        assert labelled(rows_of(again, table, columns)) == labelled(rows_of(run, table, columns)), table


def test_what_has_no_name_has_none_when_it_is_read_back(tmp_path):
    rows = {
        "kernels": [kernel(5, 9, None), kernel(10, 12, ""), kernel(15, 19)],
        "api": [{"start": 0, "end": 3, "name": None, "kind": "runtime"}],
        "ranges": [{"start": 0, "end": 30, "name": None, "kind": "pushpop"}],
        "mpi": [
            {"start": 30, "end": 40, "name": None, "kind": "collective"},
            {"start": 50, "end": 60, "name": "MPI_Bcast", "kind": "collective", "bytes": 80, "sent_bytes": 80},
        ],
    }
    export_paraver(select(make_run(tmp_path / "run", {4: rows})), tmp_path / "out.prv")
    import_reports([str(tmp_path / "out.prv")], tmp_path / "again", jobs=1)
    again = alltrace.open(tmp_path / "again")
    kernels = again.table("kernels").order('"start"').project("name, short_name, kind").fetchall()
    assert kernels == [(None, None, None), (None, None, None), ("gemm_kernel", "gemm_kernel", "compute")]
    assert again.table("mpi").order('"start"').project("name, bytes").fetchall() == [(None, 0), ("MPI_Bcast", 80)]
    assert [again.table(t).project("name").fetchall() for t in ("api", "ranges")] == [[(None,)], [(None,)]]
    assert any("kernels without a name, so of unknown kind: 2" in note for note in again.recipe("breakdown").notes)


def small(tmp_path, name="out.prv"):
    rows = {
        "kernels": [kernel(5, 9), collective(6, 20)],
        "api": [{"start": 0, "end": 3, "name": "cudaFree", "kind": "runtime"}],
    }
    export_paraver(select(make_run(tmp_path / "run", {4: rows})), tmp_path / name)
    well_formed(tmp_path / name)
    return tmp_path / name


def test_the_command_line_reads_a_trace_as_it_reads_reports(tmp_path, capsys, monkeypatch):
    from alltrace.cli.main import main

    monkeypatch.setenv("ALLTRACE_CACHE", str(tmp_path / "cache"))
    path = small(tmp_path, "out.prv.gz")
    assert main(["info", str(path), "--format", "json"]) == 0
    (row,) = json.loads(capsys.readouterr().out)["rows"]
    assert (row["rank"], row["host"], row["start_ns"], row["end_ns"], row["kernels"]) == (4, "host0", 0, 20, 2)
    assert main(["breakdown", str(path), "--format", "json"]) == 0
    (row,) = json.loads(capsys.readouterr().out)["rows"]
    assert (row["compute_ns"], row["exposed_communication_ns"]) == (4, 11)
    assert main(["kernels", str(path), "--format", "json"]) == 0
    assert {r["name"]: r["total_ns"] for r in json.loads(capsys.readouterr().out)["rows"]} == {
        "gemm_kernel": 4,
        COMMUNICATION_KERNEL: 14,
    }


@pytest.mark.parametrize(
    "text",
    [
        "#Paraver (16/05/2025 at 19:33):674_ns:2(4,4):1:4(2:1,2:1,1:2,1:2),1\nc:1:1:4:1:2:3:4\n1:1:1:1:1:0:5:1\n",
        "#Paraver (21/11/2026 at 01:53):130400_ns:0:1:2:(4:1,4:1)\n2:0:1:1:1:5:63000006:1\n",
        "#Paraver (21/11/2026 at 01:53):5_ns:0:1:1(1:1)\n# written by hand\n",
        "#Paraver",
    ],
)
def test_a_trace_of_another_tool_is_refused_in_one_sentence(tmp_path, text):
    path = tmp_path / "foreign.prv"
    path.write_text(text)
    assert is_report(path)
    with pytest.raises(InputError, match="from another tool, such as Extrae or nsys2prv") as error:
        any_report(path)
    assert "give the profiler reports" in str(error.value)


@pytest.mark.parametrize(
    ("old", "new"),
    [
        (r"(?m)^([12]):0:", r"\1:1:"),  # a thread of the host has a CPU: it is no GPU for that
        (r"(?m)^([12]):1:1:1:2:9:", r"\1:2:1:1:2:9:"),  # a stream moves to another: its first record tells its GPU
    ],
)
def test_the_first_record_of_each_stream_tells_its_gpu(tmp_path, monkeypatch, old, new):
    monkeypatch.setattr(parsing, "_BLOCK", 20)
    path, labels = small(tmp_path), tmp_path / "out.row"
    text, count = re.subn(old, new, path.read_text().replace(":1(1):", ":1(2):"))
    assert count
    path.write_text(text)
    labels.write_text(
        labels.read_text().replace("CPU SIZE 1\n", "CPU SIZE 2\n").replace("GPU-4\n", "GPU-4\nhost0.GPU-5\n")
    )
    reader = open_report(path)
    rows = [(r["start"], r["end"], r["device"]) for _, b in reader.stream(["kernels"]) for r in b.to_pylist()]
    assert sorted(rows) == [(5, 9, 0), (6, 20, 0)]
    assert [d["uuid"] for d in reader.dictionaries()["devices"].to_pylist()] == ["GPU-4"]
    reader.close()


@pytest.mark.parametrize("suffix", [".row", ".pcf"])
def test_a_trace_without_the_file_beside_it_is_refused(tmp_path, suffix):
    path = small(tmp_path)
    (tmp_path / f"out{suffix}").unlink()
    with pytest.raises(InputError, match=rf"out\{suffix}"):
        list(open_report(path).stream(["kernels"]))


@pytest.mark.parametrize("name", ["out.PRV", "out.prv.GZ", "OUT.PRV.GZ"])
def test_the_case_of_a_name_does_not_matter(tmp_path, name):
    written = small(tmp_path, f"out{'.prv.gz' if name.endswith('GZ') else '.prv'}")
    path = tmp_path / "other" / name
    path.parent.mkdir()
    path.write_bytes(written.read_bytes())
    for suffix in (".pcf", ".row"):
        (path.parent / f"{name.partition('.')[0]}{suffix}").write_bytes((tmp_path / f"out{suffix}").read_bytes())
    reader = any_report(path)
    assert sum(b.num_rows for _, b in reader.stream(["kernels"])) == 2
    reader.close()


def test_in_a_folder_of_reports_a_trace_is_no_report(tmp_path):
    path = small(tmp_path)
    with pytest.raises(InputError, match="no report in it"):
        find_reports([str(tmp_path)])
    assert find_reports([str(path)]) == [path]


@pytest.mark.parametrize(
    ("old", "new", "found"),
    [
        ("# task 1: rank 4, process 4004", "# task 2: rank 4, process 4004", "do not name a rank for each task"),
        (":1:1(3:1)", ":1:1(70000:1)", "do not name a rank for each task"),
        (":1:1(3:1)", ":1:1(0:1)", "without threads or on no node"),
        (":1:1(3:1)", ":1:1(4:1)", "lacks labels of level THREAD: expected 4"),
        ("_ns:1(1):1:", "_ns:0:1:", "names no nodes"),
    ],
)
def test_a_damaged_beginning_is_named(tmp_path, old, new, found):
    path = small(tmp_path)
    text = path.read_text()
    assert old in text
    path.write_text(text.replace(old, new))
    with pytest.raises(InputError, match=found):
        open_report(path)


def test_a_cut_or_garbled_body_gives_rows_or_one_sentence(tmp_path):
    path = small(tmp_path, "out.prv.gz")
    whole = gzip.decompress(path.read_bytes())
    body = whole.index(b"\n1:") + 1
    draw = random.Random(1)
    for _ in range(150):
        data = bytearray(whole)
        for _ in range(draw.randrange(1, 6)):
            data[draw.randrange(body, len(data))] = draw.choice(b"0123456789:-\n#x")
        path.write_bytes(gzip.compress(bytes(data[: draw.randrange(body, len(data))]), 1))
        reader = open_report(path)
        assert sum(b.num_rows for _, b in reader.stream(["kernels", "api"])) < 20
        reader.dictionaries()
        reader.close()
    path.write_bytes(gzip.compress(whole)[:-20])
    with pytest.raises(InputError, match="it cannot be read"):
        list(open_report(path).stream(["kernels"]))


def test_more_open_intervals_than_there_is_room_for(tmp_path, monkeypatch):
    monkeypatch.setattr("alltrace.readers.paraver.read._OPEN", 2)
    rows = {"kernels": [kernel(i, 1000 + 7 * i % 50, stream=i % 3) for i in range(200)]}
    export_paraver(select(make_run(tmp_path / "run", {0: rows})), tmp_path / "out.prv")
    reader = open_report(tmp_path / "out.prv")
    found = [(r["start"], r["end"], r["stream"]) for _, b in reader.stream(["kernels"]) for r in b.to_pylist()]
    reader.close()
    assert sorted(found) == sorted((r["start"], r["end"], r["stream"]) for r in rows["kernels"])


def test_damage_inside_of_what_is_packed_is_told_in_one_sentence(tmp_path):
    path = small(tmp_path, "out.prv.gz")
    good = path.read_bytes()
    spoilt = good[:30] + bytes(200) + good[230:]
    for kept in (bytes(i) for i in (0, 40)):
        path.write_bytes(spoilt[:10] + kept + spoilt[10:])
        with pytest.raises(InputError):
            list(any_report(path).stream(["kernels"]))


def test_numbers_that_are_none_and_too_large_ones_are_passed_over(tmp_path):
    path = small(tmp_path)
    labels = tmp_path / "out.pcf"
    written = labels.read_text()
    numbers = ("\u00b2", "9" * 25, "9" * 5000)
    labels.write_text(written + "".join(f"\nEVENT_TYPE\n0 {n} NVTX x\n0 77 y\nPRECISION {n}\n" for n in numbers))
    text = re.sub(r"(63000006:[1-9]\d*)", rf"\1:9101:{2**40}", path.read_text())
    path.write_text(re.sub(r"(?m)^([12]):1:", rf"\1:{2**40}:", text))
    reader = open_report(path)
    rows = [r for _, b in reader.stream(["kernels"]) for r in b.to_pylist()]
    assert [(r["start"], r["end"], r["grid_x"]) for r in sorted(rows, key=lambda r: r["start"])] == [
        (5, 9, None),
        (6, 20, None),
    ]
    assert reader.dictionaries()["devices"].num_rows == 1
    reader.close()

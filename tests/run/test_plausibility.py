"""Rows that cannot be true: which are, what is believed of them, and that nothing is wrong with what only looks odd."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from alltrace.run.manifest import NAMES
from alltrace.run.pieces import Piece, Sinks
from alltrace.run.plausibility import FAR_NS, set_aside
from alltrace.trace.errors import InputError
from alltrace.trace.schema import TABLES

US, MS, S = 10**3, 10**6, 10**9


@pytest.fixture(autouse=True, params=["whole", "in parts"])
def size_of_parts(request, monkeypatch):
    """Every case has the same answer when tables are read a few rows at a time, as large ones are."""
    if request.param == "in parts":
        monkeypatch.setattr("alltrace.run.row_groups.ROW_GROUP_ROWS", 7)
        monkeypatch.setattr("alltrace.run.pieces.BLOCK_ROWS", 7)
        monkeypatch.setattr("alltrace.run.launch_order._BLOCK_IDS", 16)


def row(start, end, **more):
    return {"start": start, "end": end, "process": 0, **more}


def kernel(start, end, stream=7, **more):
    return row(start, end, device=0, context=1, stream=stream, name=1, kind="compute", **more)


def copy(start, end, size, stream=7, **more):
    return row(start, end, device=0, context=1, stream=stream, kind="HtoD", bytes=size, **more)


def kernels(count=40, first=S, stream=7, correlation=100):
    """A kernel of 50 us every 100 us."""
    starts = range(first, first + count * 100 * US, 100 * US)
    return [kernel(at, at + 50 * US, stream, correlation=correlation + n) for n, at in enumerate(starts)]


def calls(count=40, first=S, correlation=100):
    return [
        row(at, at + 5 * US, thread=0, correlation=correlation + n, name=2)
        for n, at in enumerate(range(first, first + count * 100 * US, 100 * US))
    ]


def looked_at(tmp_path, **tables):
    """A piece with these rows after it was looked through: its tables, the rows of `suspects`, and tables as they
    were."""
    piece = Piece(tmp_path / "piece")
    piece.folder.mkdir(exist_ok=True)
    for name, rows in tables.items():
        with Sinks({0: piece}, tmp_path, 1 << 20) as sinks:
            sinks.append(name, 0, pa.RecordBatch.from_pylist(rows, TABLES[name].arrow_schema()))
    set_aside(piece, tmp_path, "r.sqlite")

    def read(name):
        path = piece.folder / f"{name}.parquet"
        return pq.ParquetFile(path).read().to_pylist() if path.exists() else []

    return (
        piece,
        {name: read(name) for name in tables},
        read("suspects"),
        {name: read(f"recorded-{name}") for name in tables},
    )


def reasons(suspects):
    return sorted((s["table"], s["reason"]) for s in suspects)


def changed(rows, at, **changes):
    return [{**r, **changes} if n == at else r for n, r in enumerate(rows)]


CASES = {
    "backward": ({"end": S - 1}, "backward", None),
    "no time": ({"start": 0, "end": 0}, "no time", None),
    "no start": ({"start": 0}, "no time", None),
    "far before": ({"start": S - FAR_NS - MS, "end": S - FAR_NS}, "far", None),
    "far behind": ({"start": 3 * FAR_NS, "end": 3 * FAR_NS + MS}, "far", None),
    "16 days": ({"end": 16 * 86_400 * S}, "too long", None),
    "2 s": ({"end": 3 * S}, "overrun", 1_000_600_000),
    "just over the third": ({"end": 1_000_800_000 + US + 1}, "overrun", 1_000_600_000),
}


@pytest.mark.parametrize(("change", "reason", "believed"), CASES.values(), ids=CASES)
def test_one_impossible_kernel_of_forty(tmp_path, change, reason, believed):
    """The sixth, which begins at 1.0005 s; the recorded table has it as it was."""
    rows = changed(kernels(), 5, **change)
    piece, tables, suspects, recorded = looked_at(tmp_path, kernels=rows, api=calls())
    assert reasons(suspects) == [("kernels", reason)]
    assert (suspects[0]["start"], suspects[0]["end"]) == (rows[5]["start"], rows[5]["end"])
    assert suspects[0]["believed_end"] == believed
    others = [(r["start"], r["end"]) for n, r in enumerate(rows) if n != 5]
    wanted = sorted(others if believed is None else [*others, (rows[5]["start"], believed)])
    assert [(r["start"], r["end"]) for r in tables["kernels"]] == wanted
    assert sorted((r["start"], r["end"]) for r in recorded["kernels"]) == sorted((r["start"], r["end"]) for r in rows)
    assert (piece.start_ns, piece.end_ns) == (S, S + 39 * 100 * US + 50 * US)
    assert piece.rows["kernels"] == len(wanted)
    assert [(w.tables, w.number) for w in piece.row_warnings] == [(("kernels",), 1)]
    assert recorded["api"] == []


LEGAL = {
    "the next two begin within": changed(kernels(), 5, end=1_000_700_000 + 40 * US),
    "a clock that is off by 230 ns": changed(kernels(), 5, end=1_000_800_000 + 230),
    "work of a graph": [{**r, "end": r["end"] + MS, "graph_node": n + 1} for n, r in enumerate(kernels())],
    "one launch of all": [{**r, "end": r["end"] + MS, "correlation": 9} for r in kernels()],
    "a stream that is not serial": [{**r, "end": r["end"] + MS} for r in kernels(200)],
    "another stream": [*kernels(), kernel(S, 2 * S, stream=8, correlation=1)],
    "no stream": [{**r, "stream": None, "end": r["end"] + MS} for r in kernels()],
    "another context": [*kernels(), {**kernel(S, 2 * S, correlation=1), "context": 2}],
    "windows an hour apart": [*kernels(), *kernels(first=3600 * S, correlation=1000)],
    "a start at 0": kernels(first=0),
    "equal kernels that follow": [*kernels(), kernel(S, S + 50 * US, stream=8, correlation=100)],
    "no duration in a few": [{**r, "end": r["start"]} if n % 3 == 0 else r for n, r in enumerate(kernels(90))],
}


@pytest.mark.parametrize("rows", LEGAL.values(), ids=LEGAL)
def test_what_only_looks_odd_stays(tmp_path, rows):
    piece, tables, suspects, _ = looked_at(tmp_path, kernels=rows)
    assert suspects == []
    assert len(tables["kernels"]) == len(rows)
    assert piece.row_warnings == ()
    assert "suspects" not in piece.rows


def test_half_of_all_without_a_time(tmp_path):
    """As PyTorch 2.12 writes: from the middle on all events are at the trace's zero, which is decades before the
    others."""
    zero = -50 * 365 * 86_400 * S // 2
    rows = [{**r, "start": zero, "end": zero + (n % 2)} if n >= 30 else r for n, r in enumerate(kernels(60))]
    api = [{**r, "start": zero, "end": zero} if n >= 30 else r for n, r in enumerate(calls(60))]
    piece, tables, suspects, _ = looked_at(tmp_path, kernels=rows, api=api)
    assert reasons(suspects) == [("api", "no time")] * 30 + [("kernels", "no time")] * 30
    assert (len(tables["kernels"]), len(tables["api"])) == (30, 30)
    assert piece.start_ns == S
    assert {w.number for w in piece.row_warnings} == {30}


def test_rows_that_are_recorded_twice_count_once(tmp_path):
    rows = [r for r in kernels() for _ in range(2)]
    piece, tables, suspects, recorded = looked_at(tmp_path, kernels=rows, api=[*calls(), *calls()[::2]])
    assert tables["kernels"] == sorted(tables["kernels"], key=lambda r: r["start"])
    assert (len(tables["kernels"]), len(tables["api"])) == (40, 40)
    assert reasons(suspects) == [("api", "repeated")] * 20 + [("kernels", "repeated")] * 40
    assert (len(recorded["kernels"]), len(recorded["api"])) == (80, 60)
    other = [*kernels(), *({**r, "correlation": r["correlation"] + 1000} for r in kernels())]
    (tmp_path / "other").mkdir()
    assert len(looked_at(tmp_path / "other", kernels=other)[1]["kernels"]) == 80
    assert piece.rows["suspects"] == 60


@pytest.mark.parametrize("longer", ["copy", "kernel"])
def test_copies_and_kernels_of_a_stream_overrun_each_other(tmp_path, longer):
    copies = [copy(S - MS, S - MS // 2, 1 << 20)]
    rows = kernels(40)
    if longer == "copy":
        copies[0]["end"] = S + 40 * MS
        wanted = ("copies", "overrun"), S
    else:
        rows.append(kernel(S - 100 * MS, S - 20 * MS + MS // 2, correlation=5))
        copies = [copy(S - at * MS, S - at * MS + 10 * US, 1000, correlation=at) for at in (90, 80, 70, 60)]
        wanted = ("kernels", "overrun"), S - 90 * MS
    _, tables, suspects, _ = looked_at(tmp_path, kernels=rows, copies=copies)
    assert reasons(suspects) == [wanted[0]]
    assert suspects[0]["believed_end"] == wanted[1]
    assert min(r["end"] for r in tables[wanted[0][0]] if r["start"] == suspects[0]["start"]) == wanted[1]


def wait(start, end, kind="stream", stream=7, context=1):
    return row(start, end, kind=kind, stream=stream, context=context, device=0)


LAST = S + 39 * 100 * US
"""When the last of `kernels()` begins."""


@pytest.mark.parametrize(
    ("waits", "believed"),
    [
        ([wait(LAST + 10 * US, LAST + 70 * US)], 70 * US),
        ([wait(LAST + 10 * US, LAST + 70 * US, "context", stream=None), wait(LAST + 5 * US, LAST + 90 * US)], 70 * US),
        ([wait(LAST + 10 * US, LAST + 70 * US, "event")], None),
        ([wait(LAST + 10 * US, LAST + 70 * US, stream=8)], None),
        ([wait(LAST + 10 * US, LAST + 70 * US, "context", stream=None, context=2)], None),
        ([wait(LAST - 10 * US, LAST + 70 * US)], None),  # began before it: it need not wait for it
        ([wait(LAST + 10 * US, LAST + 2 * S - 5 * MS)], None),  # clocks of a host and its device may be off
        ([wait(LAST + 10 * US, LAST + 10 * US)], None),  # a wait that lost its end
    ],
)
def test_the_last_kernel_of_a_stream_ends_before_a_wait_for_it(tmp_path, waits, believed):
    rows = kernels()
    rows[-1]["end"] = LAST + 2 * S
    _, tables, suspects, _ = looked_at(tmp_path, kernels=rows, syncs=waits)
    assert reasons(suspects) == ([] if believed is None else [("kernels", "overrun")])
    assert tables["kernels"][-1]["end"] == LAST + (2 * S if believed is None else believed)


@pytest.mark.parametrize("devices", [1, 2])
def test_the_last_kernel_of_a_device_ends_before_a_call_that_waits_for_it(tmp_path, devices):
    rows = kernels()
    rows[-1]["end"] = LAST + 2 * S
    rows += [{**kernel(S, S + US, stream=9), "device": 1, "context": 2}] * (devices == 2)
    piece = Piece(tmp_path / "piece")
    piece.folder.mkdir()
    pq.write_table(pa.table({"id": [2], "value": ["cudaDeviceSynchronize_v3020"]}), piece.folder / NAMES)
    waits = [row(LAST + 10 * US, LAST + 70 * US, thread=0, correlation=900, name=2)]
    _, tables, suspects, _ = looked_at(tmp_path, kernels=rows, api=waits)
    assert reasons(suspects) == [("kernels", "overrun")] * (devices == 1)
    assert max(r["end"] for r in tables["kernels"]) == LAST + (70 * US if devices == 1 else 2 * S)


def test_waits_that_are_wrong_say_nothing_of_long_work(tmp_path):
    rows = [kernel(S + n * 100 * MS, S + n * 100 * MS + 90 * MS) for n in range(40)]
    waits = [wait(r["start"] + 10 * US, r["start"] + 11 * US) for r in rows]
    assert looked_at(tmp_path, kernels=rows, syncs=waits)[2] == []


def test_sizes_that_cannot_be_are_not_counted(tmp_path):
    copies = [
        copy(S, S + US, 64 << 10),
        copy(S + MS, S + MS + US, 21_000_000),
        copy(S + 2 * MS, S + 2 * MS + US, -5),
        copy(S + 3 * MS, S + 3 * MS + US, 20_000_000),
    ]
    _, tables, suspects, recorded = looked_at(tmp_path, copies=copies)
    assert reasons(suspects) == [("copies", "size")] * 2
    assert [s["bytes"] for s in suspects] == [21_000_000, -5]
    assert [r["bytes"] for r in tables["copies"]] == [64 << 10, None, None, 20_000_000]
    assert [r["bytes"] for r in recorded["copies"]] == [64 << 10, 21_000_000, -5, 20_000_000]


def test_kernels_of_which_most_have_no_duration(tmp_path):
    rows = [r if n % 10 == 0 else {**r, "end": r["start"]} for n, r in enumerate(kernels(100))]
    _, tables, suspects, _ = looked_at(tmp_path, kernels=rows)
    assert (len(tables["kernels"]), reasons(suspects)) == (10, [("kernels", "no time")] * 90)


def test_times_in_a_longer_unit_are_refused(tmp_path):
    def divided(rows, by):
        return [{**r, "start": r["start"] // by, "end": r["end"] // by} for r in rows]

    with pytest.raises(
        InputError,
        match=r"^r.sqlite: half of its CUDA calls take 5 ns or less, and half of its kernels 50 ns or less; expected",
    ):
        looked_at(tmp_path, kernels=divided(kernels(60), 1000), api=divided(calls(60), 1000))


@pytest.mark.parametrize(
    "ids", [lambda n: 0, lambda n: n % 10 + 1, lambda n: 10 - n % 10], ids=["zero", "again and again", "falling"]
)
def test_correlation_ids_of_many_calls_join_nothing(tmp_path, ids):
    rows = [{**r, "correlation": ids(n)} for n, r in enumerate(kernels(100))]
    api = [{**r, "correlation": ids(n)} for n, r in enumerate(calls(100))]
    piece, tables, suspects, recorded = looked_at(tmp_path, kernels=rows, api=api)
    assert suspects == []
    assert {r["correlation"] for name in ("kernels", "api") for r in tables[name]} == {None}
    assert {r["correlation"] for r in recorded["kernels"]} == {r["correlation"] for r in rows}
    assert [(w.tables, w.number) for w in piece.row_warnings] == [(("kernels",), 100), (("api",), 100)]
    both = [{**r, "correlation": n // 2} for n, r in enumerate(calls(100))]  # of the runtime and the driver
    (tmp_path / "both").mkdir()
    assert looked_at(tmp_path / "both", api=both)[1]["api"][3]["correlation"] == 1


def test_ranges_are_nested_anew(tmp_path):
    """Without the outermost, which never was: its children have no parent."""
    ranges = [row(S, 20 * 86_400 * S, thread=0, name=3, kind="pushpop")]
    ranges += [row(S + n * MS, S + n * MS + MS // 2, thread=0, name=4, kind="pushpop") for n in range(5)]
    ranges += [row(S + 100, S + 200, thread=0, name=5, kind="pushpop")]
    _, tables, suspects, _ = looked_at(tmp_path, ranges=ranges)
    assert reasons(suspects) == [("ranges", "too long")]
    assert [(r["depth"], r["parent"]) for r in tables["ranges"]] == [
        (0, None),
        (1, 0),
        (0, None),
        (0, None),
        (0, None),
        (0, None),
    ]


def test_a_table_without_a_row_that_is_believed_has_no_file(tmp_path):
    rows = [{**r, "end": r["start"] - 1} for r in kernels(5)]
    piece, tables, suspects, recorded = looked_at(tmp_path, kernels=rows, api=calls())
    assert (tables["kernels"], len(suspects), len(recorded["kernels"])) == ([], 5, 5)
    assert piece.rows["kernels"] == 0
    assert piece.start_ns == S


def test_many_rows_in_pieces(tmp_path):
    """Rows are found wherever they lie in a file with many row groups."""
    rows = kernels(3_000)
    wrong = np.random.default_rng(4).choice(2_900, 50, replace=False)
    for n in wrong.tolist():
        rows[n]["end"] = rows[n]["start"] + MS
    _, tables, suspects, _ = looked_at(tmp_path, kernels=rows)
    assert sorted(s["correlation"] for s in suspects) == sorted((wrong + 100).tolist())
    assert {r["end"] - r["start"] for r in tables["kernels"]} == {50 * US, 100 * US}


def test_calls_after_what_they_launched_are_left_out_if_they_are_few(tmp_path):
    launches = calls(200)
    for n in (30, 90):
        launches[n] |= {"start": launches[n]["start"] + 5 * MS, "end": launches[n]["end"] + 5 * MS}
    piece, tables, suspects, _ = looked_at(tmp_path, api=launches, kernels=kernels(200, first=S + 20 * US))
    assert reasons(suspects) == [("api", "late")] * 2
    assert len(tables["api"]) == 198
    assert len(tables["kernels"]) == 200
    assert piece.doubt is None


def test_a_rank_begins_with_the_first_row_that_is_believed(tmp_path):
    launches = calls(400)
    launches[0] |= {"start": launches[0]["start"] + 5 * MS, "end": launches[0]["end"] + 5 * MS}
    piece, tables, suspects, _ = looked_at(tmp_path, api=launches, kernels=kernels(400, first=S + 20 * US))
    assert (len(tables["api"]), reasons(suspects)) == (399, [("api", "late")])
    assert (piece.start_ns, piece.end_ns) == (S + 20 * US, S + 20 * US + 399 * 100 * US + 50 * US)


def test_a_call_after_the_one_behind_it_is_late_and_its_thread_has_no_step_of_the_clock(tmp_path):
    waits = calls(200)
    waits[77] |= {"start": waits[77]["start"] + 5 * MS, "end": waits[77]["end"] + 5 * MS}
    piece, _, suspects, _ = looked_at(tmp_path, api=waits)
    assert [(s["table"], s["reason"], s["start"]) for s in suspects] == [("api", "late", waits[77]["start"])]
    assert piece.doubt is None


@pytest.mark.parametrize("moved", [("api", "kernels"), ("kernels",), ("api",)])
def test_a_clock_that_steps_back_puts_a_rank_in_doubt(tmp_path, moved):
    tables = {"api": calls(400), "kernels": kernels(400, first=S + 20 * US)}
    for name in moved:
        for row in tables[name][200:]:
            row |= {"start": row["start"] - 8 * MS, "end": row["end"] - 8 * MS}
    piece, _, _, _ = looked_at(tmp_path, **tables)
    assert piece.doubt.startswith("its clock steps back by 7.9 ms")
    assert any(str(w).startswith("its clock steps back by 7.9 ms") for w in piece.row_warnings)


@pytest.mark.parametrize(
    "change",
    [
        lambda n, row: row | {"stream": 7 + n % 3},  # streams of their own
        lambda n, row: (
            row | {"start": row["start"] + n % 2 * 300 * US, "end": row["end"] + n % 2 * 300 * US}
        ),  # launched together
        lambda n, row: row | {"correlation": 1000 - row["correlation"]},  # ids that fall, in all
        lambda n, row: row | ({"correlation": 9000 + n} if n % 7 == 0 else {}),  # ids of other calls
    ],
    ids=["streams", "small", "falling", "others"],
)
def test_orders_that_are_no_step_of_a_clock(tmp_path, change):
    rows = [change(n, row) for n, row in enumerate(kernels(300, first=S + 20 * US))]
    piece, _, suspects, _ = looked_at(tmp_path, api=calls(300), kernels=rows)
    assert piece.doubt is None
    assert not suspects


def test_kernels_without_a_name_are_counted_and_many_put_a_rank_in_doubt(tmp_path):
    for count, doubt in ((1, None), (8, "8 of its 40 kernels have no name")):
        (tmp_path / str(count)).mkdir()
        rows = [row | ({"kind": None} if n < count else {}) for n, row in enumerate(kernels())]
        piece, _, _, _ = looked_at(tmp_path / str(count), kernels=rows)
        assert [(w.text, w.number) for w in piece.row_warnings] == [
            ("kernels without a name, so of unknown kind", count)
        ]
        assert piece.doubt == doubt


def pushed(start, end, thread=0, **more):
    return row(start, end, thread=thread, name=3, kind="pushpop", **more)


def nested(count=200):
    """Ranges of 80 us with two within each, one after the other."""
    rows = []
    for n in range(count):
        at = S + n * 100 * US
        rows += [pushed(at, at + 80 * US), pushed(at + 10 * US, at + 30 * US), pushed(at + 40 * US, at + 70 * US)]
    return rows


CROSSING = {
    "one over many": ({30: {"end": S + 1_255 * US}}, [(S + 1000 * US, S + 1200 * US)], 0),
    "an inner one without an end": ({31: {"end": None}}, [(S + 1010 * US, S + 1080 * US)], 0),
    "a step over the beginning of the next": ({30: {"end": S + 1_105 * US}}, [(S + 1000 * US, S + 1100 * US)], 0),
    "one of two": ({32: {"end": S + 1_085 * US}}, [], 1),
    "by less than a microsecond": ({32: {"end": S + 1_080 * US + 900}}, [], 0),
    "in another domain": ({30: {"end": S + 1_255 * US, "domain": 8}}, [], 0),
    "started and ended, not pushed": ({30: {"end": S + 1_255 * US, "kind": "startend"}}, [], 0),
    "all of them": ({n: {"end": S + (n // 3 * 100 + 155) * US} for n in range(0, 600, 3)}, [], 0),
}


@pytest.mark.parametrize(("changes", "believed", "unsure"), CROSSING.values(), ids=CROSSING)
def test_ranges_that_cross(tmp_path, changes, believed, unsure):
    """Where it can be known which is wrong, it ends before it crosses; pairs of which either may be are said."""
    rows = [r | changes.get(n, {}) for n, r in enumerate(nested())]
    piece, tables, suspects, recorded = looked_at(tmp_path, ranges=rows)
    assert [(s["start"], s["believed_end"]) for s in suspects] == believed
    assert reasons(suspects) == [("ranges", "crossing")] * len(believed)
    assert set(believed) <= {(r["start"], r["end"]) for r in tables["ranges"]}
    assert len(tables["ranges"]) == len(rows)
    assert len(recorded["ranges"]) == len(rows) * bool(believed)
    assert [w.number for w in piece.row_warnings if "either may be wrong" in w.text] == [unsure] * bool(unsure)


@pytest.mark.parametrize("payload", ['{"apiId": 3, "channelId": 0}', '{"apiId": 3}', None])
def test_channels_of_operations_run_at_once_on_a_thread_of_nccl_s_trace(tmp_path, payload):
    rows = [r | CROSSING["one over many"][0].get(n, {}) | {"payload": payload} for n, r in enumerate(nested())]
    _, _, suspects, _ = looked_at(tmp_path, ranges=rows)
    assert reasons(suspects) == [("ranges", "crossing")] * (payload is None or "channelId" not in payload)


def test_steps_of_the_profiler_may_end_within_a_range(tmp_path):
    """`step` of PyTorch's profiler is called in the ranges of a program, which begin in one step and end in the
    next."""
    rows = nested()
    for n in (30, 60):
        rows[n] |= {"name": 4, "end": rows[n]["end"] + 10 * US}
        rows.append(pushed(rows[n]["end"] - US - 500, rows[n]["end"] + 10 * US))
    (tmp_path / "piece").mkdir()
    pq.write_table(pa.table({"id": [3, 4], "value": ["step 3", "ProfilerStep#3"]}), tmp_path / "piece" / NAMES)
    piece, _, suspects, _ = looked_at(tmp_path, ranges=rows)
    assert suspects == []
    assert piece.row_warnings == ()


@pytest.mark.parametrize("wrong", [9, None])
def test_a_context_has_one_device(tmp_path, wrong):
    rows = kernels(60) + [{**r, "device": 1, "context": 2} for r in kernels(60, stream=8)]
    moved = [r | ({"device": wrong} if n in (5, 70) else {}) for n, r in enumerate(rows)]
    _, tables, suspects, recorded = looked_at(tmp_path, kernels=moved)
    assert [(s["reason"], s["device"]) for s in suspects] == [("device", wrong)] * 2
    assert sorted((r["context"], r["device"]) for r in tables["kernels"]) == [(1, 0)] * 60 + [(2, 1)] * 60
    assert sum(r["device"] == wrong for r in recorded["kernels"]) == 2


def test_many_devices_of_a_context_are_left_as_they_are(tmp_path):
    rows = [{**r, "device": n % 2} for n, r in enumerate(kernels(60))]
    assert looked_at(tmp_path, kernels=rows)[2] == []


def test_what_some_rows_of_a_table_lack_is_counted(tmp_path):
    rows = [r | ({"stream": None} if n < 3 else {}) for n, r in enumerate(kernels())]
    copies = [copy(2 * S + n * MS, 2 * S + n * MS + US, None if n else 64) for n in range(5)]
    piece, _, suspects, _ = looked_at(tmp_path, kernels=rows, copies=copies)
    assert [(w.text, w.number) for w in piece.row_warnings] == [
        ("kernels without a stream", 3),
        ("copies without a size", 4),
    ]
    assert suspects == []


def test_times_of_32_bits_that_begin_again_put_a_rank_in_doubt(tmp_path):
    tables = {"api": calls(400), "kernels": kernels(400, first=S + 20 * US)}
    for name in tables:
        tables[name] = [
            r | {"start": (r["start"] - 1_020_000_000) % 2**32, "end": (r["end"] - 1_020_000_000) % 2**32}
            for r in tables[name]
        ]
    assert looked_at(tmp_path, **tables)[0].doubt.startswith("its clock steps back by 4,294.9 ms")


@pytest.mark.parametrize("size_of_parts", ["whole"], indirect=True)
@pytest.mark.parametrize("enough", [True, False])
def test_small_tables_are_looked_at_in_memory(tmp_path, enough, monkeypatch):
    """What is read is the same from memory and from files, and words of tables that are held are strings, too."""
    if not enough:
        monkeypatch.setattr("alltrace.run.pieces._HELD_BYTES", 0)
    piece, tables, _, _ = looked_at(tmp_path, kernels=changed(kernels(), 5, end=3 * S), api=calls())
    assert bool(piece._held) == enough
    columns = ["kind", "start", "end"]
    read = piece.read("kernels", columns)
    assert read.to_pylist() == [{c: r[c] for c in columns} for r in tables["kernels"]]
    assert read.schema.field("kind").type == pa.string()
    assert pa.types.is_dictionary(piece.read("kernels", columns, ["kind"]).schema.field("kind").type)
    piece.release()
    assert piece.read("kernels", columns).equals(read)

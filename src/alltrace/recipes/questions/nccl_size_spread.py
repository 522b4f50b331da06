"""How collective times spread by message size: a row per operation, communicator size, type and size.

A time is that of one rank's operation on the device, including the wait for late ranks; `--measure transfer` takes one
time for each instance, from the last arrival to the end. Sizes come from the profiler or from NCCL's logs (`import
--nccl-log`). `--nccl-tests` holds the times against what nccl-tests measured on as many ranks, at the same size or
between its neighbours.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from alltrace.recipes.analysis.distribution import collect, summarize
from alltrace.recipes.analysis.expected_times import expected_ns
from alltrace.recipes.analysis.sql_engine import with_rank
from alltrace.recipes.analysis.unsized_operations import notes_on_sizes
from alltrace.recipes.base import Answer, Chart, Option, Options, Part, Question, RunFacts, alignment_of
from alltrace.run.rank import Rank
from alltrace.trace import columns as col

_COLUMNS = ("start", "end", "api_start", "op", "bytes", "datatype", "group_size", "evidence")
_KEYS = ("op", "group_size", "datatype", "bytes")
_FIVE = ("min_ns", "q1_ns", "median_ns", "q3_ns", "max_ns")
_BY = {"rank": col.whole("rank", "rank"), "step": col.whole("step", "step; null outside of steps")}


COLUMNS: col.Columns = (
    col.text("what", "operation, ranks and size in short"),
    col.text("op", "operation"),
    col.whole("group_size", "ranks of the communicator; null if unknown"),
    col.text("datatype", "element type; null if unknown"),
    col.size("bytes", "message size of a rank; null if neither the profiler nor a log has it"),
    col.size("payload_bytes", "size as nccl-tests counts it: times the ranks for AllGather and ReduceScatter"),
    col.whole("count", "operations, or instances"),
    col.ns("min_ns", "shortest"),
    col.real("q1_ns", "exact first quartile (linear interpolation)", "ns", 1),
    col.real("median_ns", "exact median", "ns", 1),
    col.real("q3_ns", "exact third quartile", "ns", 1),
    col.ns("max_ns", "longest"),
    col.ns("total_ns", "summed"),
    col.real("busbw_gb_per_s", "bus bandwidth at the median (nccl-tests, PERFORMANCE.md)", "GB/s", 3),
    col.real("tests_time_ns", "nccl-tests' median on the same number of ranks; null without nccl-tests", "ns", 1),
    col.real("tests_busbw_gb_per_s", "bus bandwidth at that time", "GB/s", 3),
    col.real("tests_ratio", "median_ns over tests_time_ns", decimals=2),
)


def _columns(options: Options) -> col.Columns:
    return COLUMNS if options["by"] == "all" else (_BY[options["by"]], *COLUMNS)


def _map(rank: Rank, options: Options) -> Any:
    table = _operations(rank)
    timed = pc.and_(pc.is_valid(table.column("start")), pc.is_valid(table.column("end")))
    if options["op"] is not None:
        timed = pc.and_(timed, pc.equal(pc.utf8_lower(table.column("op")), options["op"].lower()))
    table = table.filter(timed)
    if options["measure"] == "transfer":  # one time for each instance, which only all ranks together determine
        table = table.slice(0, 0)
    keys = {name: table.column(name) for name in _KEYS}
    if options["by"] == "step":
        keys["step"] = _step_of(rank, table)
    return collect(keys, pc.subtract(table.column("end"), table.column("start")))


def _merge(parts: Sequence[Part], run: RunFacts, options: Options) -> Answer:
    columns = _columns(options)
    if options["measure"] == "transfer":
        whole, notes = _transfers(run, [p.rank for p in parts], options)
    else:
        filled = [p for p in parts if p.table.num_rows]
        whole = pa.concat_tables([with_rank(p.table, p.rank) for p in filled]) if filled else None
        if whole is not None and options["by"] != "rank":
            whole = whole.drop_columns(["rank"])
        notes = []
    if whole is None or not whole.num_rows:
        return Answer.of((), columns, tuple(notes))
    summary = summarize(whole, "linear").to_pylist()
    tests = options["nccl_tests"]
    rows = [_row(s, tests) for s in summary]
    if options["by"] != "all":
        rows = [{options["by"]: s[options["by"]], **r} for s, r in zip(summary, rows, strict=True)]
    by = options["by"]
    rows.sort(
        key=lambda r: (
            r.get(by) is None,
            r.get(by) or 0,
            r["op"] or "",
            r["group_size"] or 0,
            r["bytes"] or -1,
            r["datatype"] or "",
        )
    )
    notes += notes_on_sizes(run, sum(r["count"] for r in rows if r["bytes"] is None))
    notes += _notes_on_tests(rows, tests)
    return Answer.of(rows, columns, tuple(notes), chart=_beside_tests(rows, options))


def _operations(rank: Rank) -> Any:
    """The rank's operations, names as text, but MPI's; without an alignment they are detected again."""
    if rank.has("collectives"):
        table = rank.table("collectives", _COLUMNS)
        for name in ("op", "datatype"):
            codes = table.column(name).combine_chunks().dictionary_encode()
            texts = rank.texts(codes.dictionary).take(codes.indices)
            table = table.set_column(table.column_names.index(name), name, texts)
    else:
        from alltrace.align.evidence import collect

        table = collect(rank).select(list(_COLUMNS))
        for name in ("op", "datatype"):
            table = table.set_column(table.column_names.index(name), name, table.column(name).cast(pa.string()))
    return table.filter(pc.not_equal(table.column("evidence").cast(pa.string()), "mpi").fill_null(True))


def _step_of(rank: Rank, table: Any) -> Any:
    """The step in which each operation was issued, null outside."""
    steps = rank.shared("steps")
    if steps is None or not steps.num_rows:
        return pa.nulls(table.num_rows, pa.int64())
    steps = steps.sort_by("start")
    begin, end, number = (steps.column(c).to_numpy() for c in ("start", "end", "step"))
    at = pc.coalesce(table.column("api_start"), table.column("start")).to_numpy()
    place = np.searchsorted(begin, at, side="right") - 1
    inside = (place >= 0) & (at < end[np.maximum(place, 0)])
    return pa.array(number[np.maximum(place, 0)], pa.int64(), mask=~inside)


def _transfers(run: RunFacts, ranks: Sequence[int], options: Mapping[str, Any]) -> tuple[Any, list[str]]:
    """The transfers of whole instances, but MPI's, distributed; `by` rank counts for the last to arrive."""
    members = alignment_of(run).members
    members = members.filter(pc.is_in(members.column("rank"), pa.array(ranks, members.column("rank").type)))
    members = members.filter(pc.not_equal(members.column("evidence").cast(pa.string()), "mpi").fill_null(True))
    instance = members.column("instance").to_numpy()
    first = np.flatnonzero(np.concatenate(([True], instance[1:] != instance[:-1]))) if len(instance) else instance
    heads = members.take(pa.array(first))
    whole = heads.filter(pc.equal(heads.column("members"), heads.column("group_size")))
    notes = []
    if heads.num_rows > whole.num_rows:
        notes.append(
            f"{heads.num_rows - whole.num_rows:,} of {heads.num_rows:,} instances lack a rank and are left out"
        )
    if options["op"] is not None:
        whole = whole.filter(pc.equal(pc.utf8_lower(whole.column("op").cast(pa.string())), options["op"].lower()))
    keys = {n: whole.column(n) for n in _KEYS}
    for name in ("op", "datatype"):
        keys[name] = keys[name].cast(pa.string())
    if options["by"] == "rank":
        keys["rank"] = whole.column("last_rank").cast(pa.int64())
    if options["by"] == "step":
        steps = alignment_of(run).steps
        own = (
            steps.filter(pc.equal(steps.column("rank"), pc.min(steps.column("rank")))).sort_by("start")
            if steps.num_rows
            else steps
        )
        begin, number = own.column("start").to_numpy(), own.column("step").to_numpy()
        arrival = whole.column("last_arrival_ns").to_numpy()
        place = np.searchsorted(begin, arrival, side="right") - 1
        outside = (place < 0) if len(begin) else np.ones(whole.num_rows, np.bool_)
        values = number[np.maximum(place, 0)] if len(number) else np.zeros(whole.num_rows, np.int64)
        # device work continues after a step's end on the host, and on some ranks longer than on others
        of, last = (
            steps.column("step").to_numpy(),
            pc.max_element_wise(steps.column("end"), steps.column("device_end")).to_numpy(),
        )
        steps_of, at = np.unique(of, return_inverse=True)
        until = np.full(len(steps_of), np.iinfo(np.int64).min)
        np.maximum.at(until, at, last)
        if len(steps_of):
            outside |= arrival >= until[np.minimum(np.searchsorted(steps_of, values), len(steps_of) - 1)]
        keys["step"] = pa.array(values, pa.int64(), mask=outside)
    return collect(keys, whole.column("transfer_ns")), notes


def _row(summary: Mapping[str, Any], tests: Any) -> dict[str, Any]:
    from alltrace.recipes.questions.collectives import bus_share, total_bytes

    op, size, ranks = summary["op"] or "", summary["bytes"], summary["group_size"]
    payload = total_bytes(op, size, ranks) if size is not None and ranks else None
    median = summary["median"]
    row = {
        **{n: summary[n] for n in _KEYS},
        "what": f"{op or '?'}{'' if ranks is None else f' x{ranks}'} {'?' if size is None else _size(size)}",
        "payload_bytes": payload,
        "count": summary["count"],
        **dict(zip(_FIVE, (summary[n] for n in ("min", "q1", "median", "q3", "max")), strict=True)),
        "total_ns": int(summary["total"]),
    }
    if payload and median > 0:
        row["busbw_gb_per_s"] = payload / median * bus_share(op, ranks)
    expected = None if tests is None or not payload else expected_ns(tests, op, ranks, payload)
    if expected is not None and payload:
        row |= {
            "tests_time_ns": expected,
            "tests_busbw_gb_per_s": payload / expected * bus_share(op, ranks),
            "tests_ratio": median / expected,
        }
    return row


def _beside_tests(rows: Sequence[Mapping[str, Any]], options: Mapping[str, Any]) -> Chart | None:
    """Lines of the spread and of nccl-tests over sizes, for the operation with most time that nccl-tests measured."""
    if options["by"] != "all":
        return None
    tested = [r for r in rows if r.get("tests_time_ns") is not None]
    if not tested:
        return None
    op = max(tested, key=lambda r: sum(h["total_ns"] for h in tested if h["op"] == r["op"]))["op"]
    if len({(r["group_size"], r["datatype"]) for r in rows if r["op"] == op}) > 1:
        return None
    title = f"Times of {op} by message size, with nccl-tests"
    return Chart(
        "lines", "payload_bytes", (*_FIVE, "tests_time_ns"), title=title, log_x=True, log_y=True, where=("op", op)
    )


def _size(size: int) -> str:
    for unit, scale in (("GiB", 1 << 30), ("MiB", 1 << 20), ("KiB", 1 << 10)):
        if size >= scale:
            return f"{size / scale:.4g} {unit}"
    return f"{size} B"


def _notes_on_tests(rows: Sequence[Mapping[str, Any]], tests: Any) -> list[str]:
    if tests is None:
        return []
    tested = sum(r.get("tests_ratio") is not None for r in rows)
    runs = len(set(tests.column("run").to_pylist()))
    return [f"{tested} of {len(rows)} rows have a size that the {runs} runs of nccl-tests cover on as many ranks"]


QUESTION = Question(
    "nccl_size_spread",
    __doc__,
    _columns,
    _map,
    _merge,
    tables={"collectives": _COLUMNS, "kernels": ("start",), "ranges": ("start",)},
    options=(
        Option("by", str, "all", "rows for all ranks and steps together, or for each", ("all", "rank", "step")),
        Option(
            "measure",
            str,
            "duration",
            "an operation's time on a rank, or its instance's transfer",
            ("duration", "transfer"),
        ),
        Option("op", str, None, "only this operation, such as AllReduce"),
        Option(
            "nccl_tests",
            str,
            None,
            "files of nccl-tests to compare the times with, separated by commas",
            reads="nccl-tests",
        ),
    ),
    chart=Chart("box", "what", _FIVE, title="Times of collectives by message size", log_y=True),
    clock="aligned",
    important=("op", "bytes", "median_ns", "what", "busbw_gb_per_s", "count"),
)

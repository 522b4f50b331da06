"""Which sequences of kernels the calls of an operator or range launch, how often: candidates for fusion or a graph.

A sequence is all kernels that one call launched, including nested calls, in the order of their launches. Calls with the
same sequence are counted together, over all ranks. An operator inside a call of the same name is not counted again.
"""

from collections.abc import Sequence
from itertools import islice
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from alltrace.recipes.analysis.launched_work import KERNEL, TABLES, gpu_work
from alltrace.recipes.analysis.nvtx_projection import SPAN_COLUMNS, Line, launch_spans
from alltrace.recipes.analysis.range_sums import Intervals, outermost, stems_of
from alltrace.recipes.base import Answer, Chart, Option, Options, Part, Question, RunFacts
from alltrace.run.rank import Rank
from alltrace.trace import columns as col
from alltrace.trace.arrays import BLOCK_ROWS, blocks, exact_sums, integers
from alltrace.trace.distinct import distinct
from alltrace.trace.grouping import group

_SHOWN = 32
_SUMS = ("count", "gpu_total_ns", "cpu_total_ns")
_KEYS = ("operator", "code", "length")
_NUMBERS = [*_KEYS, *_SUMS]

COLUMNS: col.Columns = (
    col.text("operator", "the operator or range"),
    col.text("kernels", f"its kernels, the first {_SHOWN} of a longer sequence"),
    col.whole("length", "number of kernels in the sequence"),
    col.whole("ranks", "ranks on which it was launched"),
    col.whole("count", "calls that launched it"),
    col.ns("gpu_total_ns", "summed duration of the kernels of all these calls"),
    col.real("gpu_mean_ns", "mean GPU time of one call", "ns", 1),
    col.real("cpu_mean_ns", "mean time of the call on the host", "ns", 1),
)


def _map(rank: Rank, options: Options) -> Any:
    names, name, at = _ranges(rank, options["operator"] or "")
    work = gpu_work(rank)
    mine = np.flatnonzero((work.call >= 0) & (work.kind == KERNEL))
    return _grouped(names, name, at, _sequences(at, work, mine), options["min_length"])


def _ranges(rank: Rank, text: str) -> tuple[list[str], Any, Intervals]:
    """The outermost ranges of each name with this text: names, the place of each one's name, and when it is."""
    ranges = launch_spans(rank)
    places, stems = stems_of(rank, integers(ranges.column("name")))
    names = [n or "" for n in stems]
    wanted = np.array([text in n for n in names], np.bool_)
    keep = np.flatnonzero(wanted[places]) if len(names) else np.zeros(0, np.int64)
    name = places[keep]
    start = integers(ranges.column("start"))[keep]
    at = Intervals(
        integers(ranges.column("thread"))[keep], start, np.maximum(integers(ranges.column("end"))[keep], start)
    )
    outer = outermost(name * (1 + at.thread.max(initial=0)) + at.thread, at.start, at.end)
    return names, name[outer], at.of(outer)


def _merge(parts: Sequence[Part], run: RunFacts, options: Options) -> Answer:
    if not parts:
        return Answer.of((), COLUMNS)
    whole = pa.concat_tables([part.table.select(_NUMBERS) for part in parts])
    place, first = group([whole.column(k) for k in _KEYS])
    ranks = np.bincount(place, minlength=len(first))
    count, gpu, cpu = (exact_sums(integers(whole.column(c)), place, len(first)) for c in _SUMS)
    notes = [] if len(first) else [f"no call launches {options['min_length']} kernels or more"]
    chosen = np.arange(len(first))
    if options["top"] and len(first) > options["top"]:
        notes.append(f"{options['top']} of {len(first)} sequences are shown (--top)")
        chosen = np.flatnonzero(gpu >= np.partition(gpu, len(gpu) - options["top"])[len(gpu) - options["top"]])
    at = first[chosen]
    operators = pc.take(whole.column("operator"), pa.array(at)).to_pylist()
    lengths = pc.take(whole.column("length"), pa.array(at)).to_pylist()
    rows = [
        {
            "operator": operator, "kernels": kernels, "length": length, "ranks": int(ranks[n]), "count": int(count[n]),
            "gpu_total_ns": int(gpu[n]), "gpu_mean_ns": int(gpu[n]) / int(count[n]),
            "cpu_mean_ns": int(cpu[n]) / int(count[n]),
        }
        for n, operator, kernels, length in zip(
            chosen.tolist(), operators, _as_text(parts, at, lengths, run), lengths, strict=True
        )
    ]  # fmt: skip
    rows.sort(key=lambda r: (-r["gpu_total_ns"], -r["length"], r["operator"], r["kernels"], r["count"]))
    return Answer.of(rows[: options["top"] or None], COLUMNS, tuple(notes))


def _as_text(parts: Sequence[Part], rows: Any, lengths: Sequence[int], run: RunFacts) -> list[str]:
    """Readable descriptions of sequences, by their rows in the concatenated tables of the parts."""
    begins = np.cumsum([0, *(part.table.num_rows for part in parts)])
    texts = [""] * len(rows)
    owners = np.searchsorted(begins, rows, "right") - 1
    for owner in np.unique(owners).tolist():
        mine = np.flatnonzero(owners == owner)
        table = parts[owner].table  # a part on disk is read here and released
        lists = pc.take(table.column("kernels"), pa.array(rows[mine] - begins[owner])).combine_chunks()
        words = iter(pc.fill_null(run.texts(pc.cast(lists.flatten(), "int64")), "?").to_pylist())
        for n, count in zip(mine.tolist(), lists.value_lengths().to_pylist(), strict=True):
            texts[n] = " | ".join(islice(words, count)) + (" | ..." if lengths[n] > _SHOWN else "")
    return texts


class _Found:
    """For each call the kernels it launched, as a piece of one list, and a code that equal sequences share."""

    def __init__(self, first: Any, stop: Any, code: Any, gpu_ns: Any, names: Any) -> None:
        self.first, self.stop, self.code, self.gpu_ns, self.names = first, stop, code, gpu_ns, names


def _sequences(at: Any, work: Any, rows: Any) -> _Found:
    """The sequences of the kernels `rows`, of which the calls are known, within the intervals `at`."""
    thread, start = work.calls["thread"], work.calls["start"]
    line = Line(1 + max(int(at.thread.max(initial=0)), int(thread.max(initial=0))), at.start, at.end, start)
    place = line.place(thread, start)[work.call[rows]]
    if not (place[1:] > place[:-1]).all():
        order = np.lexsort((work.stream[rows], work.start[rows], place))
        place, rows = place[order], rows[order]
    first = np.searchsorted(place, line.place(at.thread, at.start), "left")
    # what is launched at the very end belongs to what begins there
    stop = np.maximum(np.searchsorted(place, line.place(at.thread, at.end), "left"), first)
    del place
    names, length, sums = work.name[rows], np.zeros(len(rows) + 1, np.int64), np.zeros(len(rows) + 1, np.uint64)
    # a polynomial of the names, modulo 2**64: the value of a piece follows from the values of two prefixes
    base = 0x9E3779B97F4A7C15
    powers, block_power = _powers(base, BLOCK_ROWS), pow(base, BLOCK_ROWS, 1 << 64)
    for number, some in enumerate(blocks(len(rows))):
        own, after = rows[some], slice(some.start + 1, some.stop + 1)
        length[after] = length[some.start] + np.cumsum(work.end[own] - work.start[own])
        terms = _mixed(names[some].astype(np.uint64)) * powers[: len(own)]
        sums[after] = sums[some.start] + np.cumsum(terms) * np.uint64(pow(block_power, number, 1 << 64))
    below, block_below = (
        _powers(pow(factor, -1, 1 << 64), count)
        for factor, count in ((base, BLOCK_ROWS), (block_power, len(rows) // BLOCK_ROWS + 1))
    )
    code = (sums[stop] - sums[first]) * below[first % BLOCK_ROWS] * block_below[first // BLOCK_ROWS]
    return _Found(first, stop, code.view(np.int64), length[stop] - length[first], names)


def _powers(base: int, count: int) -> Any:
    """The first powers of a number, modulo 2**64."""
    return np.cumprod(np.append(np.uint64(1), np.full(count - 1, base, np.uint64)), dtype=np.uint64)


def _mixed(values: Any) -> Any:
    """Spreads numbers over 64 bits (the finalizer of SplitMix64, Steele et al. 2014)."""
    values = (values ^ (values >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    values = (values ^ (values >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return values ^ (values >> np.uint64(31))


def _shown(sequences: _Found, rows: Any) -> Any:
    """The ids of the first names of the sequences of some calls, as lists."""
    first, length = sequences.first[rows], np.minimum(sequences.stop[rows] - sequences.first[rows], _SHOWN)
    ends = np.cumsum(length)
    at = np.arange(ends[-1] if len(ends) else 0) + np.repeat(first - (ends - length), length)
    kinds, codes = distinct(sequences.names[at])
    small = np.int16 if len(kinds) < 1 << 15 else np.int32
    names = pa.DictionaryArray.from_arrays(pa.array(codes.astype(small)), pa.array(kinds, pa.int64(), mask=kinds == 0))
    return pa.ListArray.from_arrays(pa.array(np.concatenate(([0], ends)), pa.int32()), names)


def _grouped(names: Sequence[str], name: Any, at: Any, sequences: _Found, least: int) -> Any:
    long = np.flatnonzero(sequences.stop - sequences.first >= least)
    keys = [name[long], sequences.code[long], (sequences.stop - sequences.first)[long]]
    place, one = group([pa.array(k) for k in keys])
    groups = [k[one] for k in keys]
    gpu, cpu = np.zeros(len(one), np.int64), np.zeros(len(one), np.int64)
    np.add.at(gpu, place, sequences.gpu_ns[long])
    np.add.at(cpu, place, (at.end - at.start)[long])
    count = np.bincount(place, minlength=len(one))
    return pa.table(
        {
            "operator": pa.array([names[n] for n in groups[0].tolist()], pa.string()),
            "code": pa.array(groups[1], pa.int64()),
            "length": pa.array(groups[2], pa.int64()),
            "kernels": _shown(sequences, long[one]),
            "count": pa.array(count.astype(np.int64)),
            "gpu_total_ns": pa.array(gpu),
            "cpu_total_ns": pa.array(cpu),
        }
    )


QUESTION = Question(
    "kernel-sequences",
    __doc__,
    COLUMNS,
    _map,
    _merge,
    tables={"ranges": SPAN_COLUMNS, **TABLES},
    requires=("ranges", "kernels", "api"),
    options=(
        Option("operator", str, None, "only operators and ranges with this text in their name"),
        Option("min_length", int, 3, "the fewest kernels in a sequence", least=1),
        Option("top", int, 20, "maximum number of sequences, by decreasing GPU time; 0 for all", least=0),
    ),
    chart=Chart("bars", "kernels", ("gpu_total_ns",), "operator"),
    important=("kernels", "count", "gpu_total_ns", "operator"),
)

"""The filters that all nsys recipes share: by time, by NVTX range, and by what NVTX ranges ran on the GPU.

A row passes when it overlaps one of the spans that the filter names; it is never cut at their edges, and a row that
only touches a span at its edge passes, as in nsys. Dictionaries are whole. A rank's tables are filtered when they are
read, once each.
"""

import re
from collections.abc import Mapping, Sequence
from decimal import Decimal
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from alltrace.nvidia.report import Report
from alltrace.recipes.analysis.nvtx_projection import PROJECTION_READS, close_ends, projection
from alltrace.recipes.base import Answer, Clock, Column, Option, Options, OptionValue, Part, RunFacts
from alltrace.recipes.execution.shared_tables import once
from alltrace.recipes.execution.window import DEVICE_TABLES
from alltrace.run.rank import Rank
from alltrace.trace.arrays import Flags, Int64, integers
from alltrace.trace.errors import UsageError
from alltrace.trace.grouping import group
from alltrace.trace.range_selector import RangeName, parse_range
from alltrace.trace.schema import TABLES
from alltrace.trace.user_pattern import UserPattern

FARTHEST_NS = 1 << 62  # no filter names a time farther away: no event is, and lengths up to there fit into 64 bits

TIMES = (
    *(
        Option(
            name, int, None, f"Count only what {which}; ns on the run's clock.", least=-FARTHEST_NS, most=FARTHEST_NS
        )
        for name, which in (("start", "ends at this time or later"), ("end", "starts at this time or earlier"))
    ),
    Option(
        "filter_time",
        str,
        None,
        "Count only what overlaps START/END, such as 1s/2s500ms, 10ms/ or /3s; a plain number is ns.",
    ),
)
_RANGES = (
    "Count only what overlaps these NVTX ranges: RANGE[@DOMAIN][/INDEX]; without an index all of that name, the first"
    " is 0. A backslash before @, / or \\ takes it literally; the domain * is any domain, without one it is the default"
    " domain."
)
FILTERS = (*TIMES, Option("filter_nvtx", str, None, _RANGES))
_PROJECTED = (
    "Count only what ran on the GPU while the work launched inside these NVTX ranges did; spelled as for --filter-nvtx."
)
PROJECTED = Option("filter_projected_nvtx", str, None, _PROJECTED)
NVTX = Option("nvtx", str, None, "Count only what overlaps the first NVTX range of this name: RANGE[@DOMAIN].")

_RANGE_READS = {"ranges": ("start", "end", "thread", "process", "name", "domain", "kind")}
_NS = {"n": 1, "u": 10**3, "m": 10**6, "s": 10**9, "min": 60 * 10**9, "h": 3600 * 10**9}
# a number without a unit is ns
_PIECE = re.compile(
    r"([+-]?(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d{1,2})?)(?:(n|u|m)s(?:ec)?|(s)(?:ec)?|(m)(?:in)?|(h)(?:our)?|)"
)
_LONGEST_TIME = 200
_LEAST, _MOST = -(1 << 63), (1 << 63) - 1


class Filters(NamedTuple):
    """The filters in use: earliest and latest time, ranges that rows or their GPU work must overlap; and as written."""

    start: int | None = None
    end: int | None = None
    nvtx: tuple[RangeName, ...] = ()
    projected: RangeName | None = None
    words: str = ""

    def __bool__(self) -> bool:
        return bool(self.words)

    def __str__(self) -> str:
        return self.words

    def reads(self, tables: Mapping[str, tuple[str, ...]]) -> dict[str, tuple[str, ...]]:
        """`tables` with the tables and columns that the filters also read."""
        wanted = {t: tuple(dict.fromkeys((*c, *(_columns_of(t) if self else ())))) for t, c in tables.items()}
        for more in (_RANGE_READS if self.nvtx else {}, PROJECTION_READS if self.projected else {}):
            for table, columns in more.items():
                wanted[table] = tuple(dict.fromkeys((*wanted.get(table, ()), *columns)))
        return wanted


def given_filters(options: Mapping[str, Any]) -> Filters:
    """The filters among the options of a recipe."""
    names = ("start", "end", "filter_time", "filter_nvtx", "nvtx", "filter_projected_nvtx")
    values = {name: options[name] for name in names if options.get(name) is not None}
    start, end = values.get("start"), values.get("end")
    if "filter_time" in values:
        low, high = parse_times(values["filter_time"])
        start = low if start is None else start if low is None else max(start, low)
        end = high if end is None else end if high is None else min(end, high)
    if start is not None and end is not None and end < start:
        raise UsageError(f"the filter ends at {end} ns before it starts at {start} ns; expected a start, then an end")
    nvtx = []
    if "filter_nvtx" in values:
        nvtx.append(parse_range("--filter-nvtx", values["filter_nvtx"]))
    if "nvtx" in values:
        first = parse_range("--nvtx", values["nvtx"])
        nvtx.append(RangeName(first.name, first.domain, first.index or 0))
    projected = values.get("filter_projected_nvtx")
    words = " ".join(f"--{name.replace('_', '-')} {value}" for name, value in values.items())
    return Filters(
        start, end, tuple(nvtx), None if projected is None else parse_range("--filter-projected-nvtx", projected), words
    )


def pattern_of(flag: str, text: str | None) -> UserPattern | None:
    """The regular expression of an option; None for none."""
    return None if text is None else UserPattern(flag, text)


def parse_times(text: str) -> tuple[int | None, int | None]:
    """`1s/2s500ms` as two times in ns; an end that is left out is None."""
    first, slash, last = text.partition("/")
    if not slash or not (first.strip() or last.strip()):
        raise UsageError(f"--filter-time is {text!r}; expected START/END such as 1s/2s500ms, 10ms/ or /3s")
    return _time(text, first.strip()), _time(text, last.strip())


def _time(text: str, part: str) -> int | None:
    if not part:
        return None
    pieces = list(_PIECE.finditer(part))
    if not pieces or "".join(p[0] for p in pieces) != part or len(part) > _LONGEST_TIME:
        raise UsageError(f"--filter-time is {text!r}; expected times such as 2s500ms, of ns, us, ms, s, m and h")
    total = Decimal(0)
    for number, small, second, minute, hour in (p.groups() for p in pieces):
        total += Decimal(number) * _NS["min" if minute else small or second or hour or "n"]
    return max(min(int(total), FARTHEST_NS), -FARTHEST_NS)


class _Spans(NamedTuple):
    """Spans of time, merged; `threads` and `processes` hold those that count for these alone."""

    everywhere: Int64
    threads: Mapping[int, Int64]
    processes: Mapping[int, Int64]


class _FilteredRows:
    """The rows of a rank's tables that pass filters; with `host` also of the host, otherwise of devices alone."""

    def __init__(self, rank: Rank, filters: Filters, *, host: bool) -> None:
        self._inner = rank
        self._host = host
        self._filters = filters

    def reads(self, table: str) -> Sequence[str] | None:
        if table not in TABLES or not (self._host or table in DEVICE_TABLES):
            return None
        return _columns_of(table)

    def keeps(self, table: str, rows: Any) -> Flags:
        names = rows.column_names
        first = "start" if "start" in names else "time"
        start = rows.column(first).fill_null(_LEAST).to_numpy()
        # what is still open, or was not timed, reaches up to any time
        end = rows.column("end").fill_null(_MOST).to_numpy() if "end" in names else start
        mask = np.ones(len(start), bool)
        if self._filters.start is not None:
            mask &= end >= self._filters.start
        if self._filters.end is not None:
            mask &= start <= self._filters.end
        for name in self._filters.nvtx:
            # what ran on a device is judged by time alone, whichever thread called for it
            owned = () if table in DEVICE_TABLES else ("thread", "process")
            mask &= _in_spans(self._named(name), rows, start, end, owned)
        if self._filters.projected is not None and table in DEVICE_TABLES:
            mask &= _overlaps(self._projected, start, end)
        return mask

    def _named(self, name: RangeName) -> _Spans:
        spans: _Spans = once(self._inner, ("ranges named", name), lambda: _spans(_ranges_named(self._inner, name)))
        return spans

    @cached_property
    def _projected(self) -> Int64:
        assert self._filters.projected is not None  # noqa: S101  only called if there is one
        projected = projection(self._inner)
        chosen = _matching(
            self._inner, projected.ranges, self._filters.projected, integers(projected.ranges.column("start"))
        )
        return _merged(projected.first[chosen], projected.last[chosen])


def filtered(rank: Rank, options: Mapping[str, Any], *, host: bool = True) -> Rank:
    """The rank's tables under the filters among the options; the rank itself if there are none."""
    filters = given_filters(options)
    if not filters:
        return rank
    return once(rank, ("filtered", filters, host), lambda: rank.view(_FilteredRows(rank, filters, host=host)))


def _columns_of(table: str) -> tuple[str, ...]:
    return tuple(c.name for c in TABLES[table].columns if c.name in ("start", "end", "time", "thread", "process"))


def _ranges_named(rank: Rank, name: RangeName) -> Any:
    ranges = rank.table("ranges", _RANGE_READS["ranges"])
    ranges = ranges.set_column(1, "end", close_ends(ranges))
    return ranges.take(pa.array(_matching(rank, ranges, name, integers(ranges.column("start")))))


def _matching(rank: Rank, ranges: Any, wanted: RangeName, start: Int64) -> Int64:
    codes, some = group([ranges.column("domain"), ranges.column("name")])
    distinct = ranges.take(pa.array(some))
    texts = rank.texts(distinct.column("name")).to_pylist()
    domains = rank.texts(distinct.column("domain")).to_pylist()
    right = np.array([wanted.names(t, d) for t, d in zip(texts, domains, strict=True)], bool)
    rows = np.flatnonzero(right[codes]) if len(right) else np.empty(0, np.int64)
    rows = rows[np.argsort(start[rows], kind="stable")]
    return rows if wanted.index is None else rows[wanted.index : wanted.index + 1]


def _spans(ranges: Any) -> _Spans:
    """What the ranges hold: one of push and pop its thread, one of start and end its process."""
    start, end = integers(ranges.column("start")), integers(ranges.column("end"))
    of_thread = np.array([k == "pushpop" for k in ranges.column("kind").to_pylist()], bool)
    by_owner: list[dict[int, Int64]] = []
    for column, mine in (("thread", of_thread), ("process", ~of_thread)):
        owner = integers(ranges.column(column), -1)
        by_owner.append(
            {int(o): _merged(*(v[mine & (owner == o)] for v in (start, end))) for o in np.unique(owner[mine])}
        )
    return _Spans(_merged(start, end), *by_owner)


def _merged(start: Int64, end: Int64) -> Int64:
    """The union of closed spans: int64 array (n, 2), ascending, apart from each other."""
    order = np.argsort(start, kind="stable")
    start, reach = start[order], np.maximum.accumulate(np.maximum(end[order], start[order]))
    if not len(start):
        return np.empty((0, 2), np.int64)
    new = np.concatenate(([True], start[1:] > reach[:-1]))
    last = np.concatenate((np.flatnonzero(new)[1:], [len(start)])) - 1
    return np.stack((start[new], reach[last]), axis=1)


def _overlaps(spans: Int64, start: Int64, end: Int64) -> Flags:
    """Whether each row overlaps or touches one of the spans."""
    result: Flags = np.searchsorted(spans[:, 0], end, "right") > np.searchsorted(spans[:, 1], start, "left")
    return result


def _in_spans(spans: _Spans, rows: Any, start: Int64, end: Int64, owners: Sequence[str]) -> Flags:
    owned = {name: integers(rows.column(name), -1) for name in owners if name in rows.column_names}
    if "thread" not in owned:
        return _overlaps(spans.everywhere, start, end)
    mask = np.zeros(len(start), bool)
    for by, owner in ((spans.threads, owned["thread"]), (spans.processes, owned.get("process"))):
        for number, own in by.items() if owner is not None else ():
            rows_of = np.flatnonzero(owner == number)
            mask[rows_of] |= _overlaps(own, start[rows_of], end[rows_of])
    return mask


class FilteredReport(Report):
    """The rows of a report that pass `filter_time` and `nvtx` (see `given_filters`). Raises `UsageError`."""

    def __init__(self, report: Report, filters: Mapping[str, OptionValue]) -> None:
        self._report, self._filters, self._given = report, dict(filters), given_filters(filters)
        shared = ("name", "title", "cells", "requires", "options", "worth_processes", "exact_sizes")
        vars(self).update({name: getattr(report, name) for name in shared}, tables=self.reads({}))

    def reads(self, options: Options) -> dict[str, tuple[str, ...]]:
        return self._given.reads(self._report.reads(options))

    def needs(self, options: Options) -> tuple[tuple[str, ...], ...]:
        return self._report.needs(options)

    def without(self, options: Options) -> dict[str, str]:
        named = {"ranges": f"nothing passes {self._given}"} if self._given.nvtx else {}
        return {**self._report.without(options), **named}

    def clock_for(self, options: Options) -> Clock:
        clock = self._report.clock_for(options)
        return "one" if clock == "own" and (self._given.start is not None or self._given.end is not None) else clock

    def prepared(self, options: Options, run: RunFacts) -> Options:
        return self._report.prepared(options, run)

    def answer_columns(self, options: Options) -> tuple[Column, ...]:
        return self._report.answer_columns(options)

    def map(self, rank: Rank, options: Options) -> Any:
        return self._report.map(filtered(rank, self._filters), options)

    def merge(self, parts: Sequence[Part], run: RunFacts, options: Options) -> Answer:
        return self._report.merge(parts, run, options)

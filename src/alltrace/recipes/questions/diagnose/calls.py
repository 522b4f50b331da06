"""The calls of a rank, read once and piece by piece: which work they launched, and those that say what the host did."""

import re
from collections import Counter
from collections.abc import Sequence
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from alltrace.recipes.analysis.range_sums import stems_of
from alltrace.recipes.questions.diagnose.kernel_rows import read_kernels
from alltrace.run.collecting import Growing, in_pieces
from alltrace.run.host_work import MAIN_STREAM, SILENCE_NS
from alltrace.run.launch_matching import Operations
from alltrace.run.rank import Rank
from alltrace.trace import host_patterns as patterns
from alltrace.trace.arrays import Flags, Int64, integers, is_one_of
from alltrace.trace.distinct import distinct
from alltrace.trace.host_patterns import Pattern
from alltrace.trace.intervals import Merged, by_track, closed, gaps, merge, union

_LAUNCHING_SHARE = 0.1
"""A thread with at least this share of the launches is one that the device waits for; others help it, such as a
loader's."""

_STAGED_BYTES = 64 << 10
"""Pageable copies up to this size are staged at once (CUDA's API synchronization behavior): waiting for one is a wait
for the work before it, such as that of reading a loss."""

_LONG_LAUNCH = 20
"""The first launch of a kernel that takes this many times the median of all launches loads the kernel's code,"""

_LONG_LAUNCH_NS = 100_000  # if it takes at least this long
_FEW_TEXTS = 1_000  # the most names of a table to keep per rank

_NAMED = (
    *patterns.ALLOCATIONS, *patterns.COPIES, *patterns.SYNCS, *patterns.COMPILING_CALLS, *patterns.CODE_CALLS,
    *patterns.MODULE_CALLS,
)  # fmt: skip
"""Names of the calls that say what the host did."""

_LAUNCH, PAGEABLE, STAGED, _FIRST = (1 << bit for bit in range(4))
"""What a call launched: a kernel or graph, a pageable copy, one that is staged, the first kernel of its name."""

_COLUMNS = ("start", "end", "process", "thread", "correlation", "name")


def is_pageable(copies: Any) -> Flags:
    return is_one_of(copies.column("src_kind"), ("pageable",)) | is_one_of(copies.column("dst_kind"), ("pageable",))


class Calls:
    """The calls of a rank that say what its host did, m of them, its kernels, and when all of its work was launched."""

    def __init__(self, rank: Rank, graphs: Any, copies: Any) -> None:
        """`graphs`, `copies`: The rank's tables, with `start`, `process`, `correlation`; copies with kind and size."""
        self.kernels, ids = read_kernels(rank)
        tables = (graphs, copies)
        begun, process = self.kernels.start, self.kernels.of_kinds("process")[0][self.kernels.kind]
        process = np.concatenate([process, *(integers(t.column("process"), -1) for t in tables)])
        ids = np.concatenate([ids, *(integers(t.column("correlation"), -1) for t in tables)])
        nulls = int((process < 0).any())  # a call without a process launched work without one
        operations = Operations(process + nulls if nulls else process, ids)
        del process, ids
        # of kernels, graphs, then copies: when the call that launched each began and ended, else when it began, and
        # whether one did
        start = np.concatenate([begun, *(integers(t.column("start")) for t in tables)])
        self.launched: Any = (start, start.copy(), np.zeros(len(start), np.bool_))
        kinds = np.zeros(copies.num_rows, np.int8)
        kinds[is_pageable(copies)] = PAGEABLE
        kinds[(kinds > 0) & (integers(copies.column("bytes")) <= _STAGED_BYTES)] = STAGED
        first = self.kernels.first_of_names()
        self.rows, self.of_host = 0, rank.host_work is not None
        self._rank = rank
        self._took = Growing(2, len(start))
        self._named, self._flags = Growing(4, 0), Growing(1, 0, np.int8)
        self._ids: list[Int64] = [np.empty(0, np.int64)]
        self._threads: Counter[int] = Counter()
        self._busy: dict[int, list[Merged]] = {}
        for piece in in_pieces(rank, "api", _COLUMNS):
            columns = [integers(piece.column(c), -1 if c not in ("start", "end") else 0) for c in _COLUMNS]
            columns[2] = columns[2] + nulls
            self._add(columns, operations, kinds, first)
        self.start, self.end, self.thread, name = self._named.columns()
        self._flags_of_named: NDArray[np.int8] = self._flags.columns()[0]
        ids = np.unique(np.concatenate(self._ids))
        codes, self.texts = named_ids(rank, ids)
        self.codes = codes[np.searchsorted(ids, name)]
        self.launches, took = self._took.columns()
        self._usual_ns = float(np.median(took, overwrite_input=True)) if len(took) else 0.0
        self.launches.sort()
        least = _LAUNCHING_SHARE * max(sum(self._threads.values()), 1)
        self.threads = np.array(sorted(t for t, n in self._threads.items() if n >= least), np.int64)
        if self.of_host:
            self._of_host(rank)
        self.mine = self.of_launching(self.thread)
        quiet = gaps(union([m for t, some in self._busy.items() if self.of_launching(np.array([t]))[0] for m in some]))
        long = quiet.durations_ns >= SILENCE_NS
        # when launching threads called nothing for `SILENCE_NS` or more
        self.silence = Merged(quiet.starts[long], quiet.ends[long])
        del self._took, self._named, self._flags, self._ids, self._busy

    def _add(self, columns: Sequence[Int64], operations: Operations, kinds: NDArray[np.int8], first: Int64) -> None:
        """Add some calls. `kinds`: Of each copy what launched it is. `first`: See `Calls`."""
        start, end, process, thread, correlation, name = columns
        self.rows += len(start)
        rows, many, op = operations.of(process, correlation)
        at = rows if many is None else np.repeat(rows, many)
        began, ended, known = self.launched
        fresh = ~known[op][::-1]  # of several calls the first counts, which is written last
        own, call = op[::-1][fresh], at[::-1][fresh]
        began[own], ended[own], known[own] = start[call], end[call], True
        flags = np.zeros(len(start), np.int8)
        of_copies = op - (len(began) - len(kinds))
        flags[at[of_copies < 0]] = _LAUNCH
        copied = of_copies >= 0
        for flag in (PAGEABLE, STAGED):
            flags[at[copied][kinds[of_copies[copied]] == flag]] |= flag
        took = end - start
        long = took[at] >= _LONG_LAUNCH_NS
        flags[at[long][np.isin(op[long], first)]] |= _FIRST
        launches = np.flatnonzero(flags & _LAUNCH)
        self._took.add(start[launches], took[launches])
        for (number,), some in by_track(thread):
            self._threads[number] += int(np.count_nonzero(flags[some] & _LAUNCH))
            self._busy.setdefault(number, []).append(closed(merge(start[some], end[some]), SILENCE_NS))
        ids, place = distinct(name)
        self._ids.append(ids)
        kept = np.flatnonzero(having_name(*named_ids(self._rank, ids), _NAMED)[place] | (flags & _FIRST > 0))
        self._named.add(start[kept], end[kept], thread[kept], name[kept])
        self._flags.add(flags[kept])

    def _of_host(self, rank: Rank) -> None:
        work = rank.table("kernels", ("start", "end", "stream"))
        main = integers(work.column("stream"), -1) == MAIN_STREAM
        self._busy = {-1: [merge(*(integers(work.column(c))[main] for c in ("start", "end")))]}
        self.start = self.end = self.thread = self.codes = self.launches = self.threads = np.empty(0, np.int64)
        self._flags_of_named = np.empty(0, np.int8)

    def are(self, flag: int) -> Flags:
        return (self._flags_of_named & flag).astype(np.bool_)

    def of_launching(self, threads: Int64) -> Flags:
        """Which of these threads launch kernels; all of them if not known."""
        return np.isin(threads, self.threads) if len(self.threads) else np.ones(len(threads), np.bool_)

    def named(self, wanted: tuple[Pattern, ...]) -> Flags:
        """Which calls of launching threads have such a name."""
        return having_name(self.codes, self.texts, wanted) & self.mine

    def set_of(self, rows: Flags) -> tuple[Merged, str, int]:
        """The times of these calls, their most frequent name, and their number."""
        start, end = self.start[rows], self.end[rows]
        return merge(start, end), mostly(self.codes[rows], end - start, self.texts), int(rows.sum())

    def first_launches(self) -> Flags:
        """Which calls launched a kernel for the first time and took far longer than launches do."""
        long: Flags = self.end - self.start >= _LONG_LAUNCH * self._usual_ns
        return self.are(_FIRST) & long & self.mine


def named_ids(rank: Rank, ids: Int64) -> tuple[Int64, tuple[str, ...]]:
    """Names by their ids as codes and texts, without counters, and without versions such as `_v3020`."""
    codes, texts = stems_of(rank, ids)
    return codes, _known_plain(tuple(texts)) if len(texts) <= _FEW_TEXTS else _plain(texts)


def _plain(texts: Sequence[str | None]) -> tuple[str, ...]:
    return tuple(re.sub(r"_v\d+$", "", t or "") for t in texts)


# most ranks have the same names
_known_plain, _known_matching = lru_cache(256)(_plain), lru_cache(256)(patterns.matching)


def having_name(codes: Int64, texts: tuple[str, ...], wanted: tuple[Pattern, ...]) -> Flags:
    """Which rows, with names `texts` by `codes`, have a name that one of the patterns matches."""
    matching = _known_matching if len(texts) <= _FEW_TEXTS else patterns.matching
    matches = np.zeros(len(texts) + 1, np.bool_)  # the last entry means -1, no name
    matches[matching(texts, wanted)] = True
    return matches[codes]


def mostly(codes: Int64, took: Int64, texts: Sequence[str]) -> str:
    """The name that most of the time is of."""
    known = codes >= 0
    return texts[int(np.bincount(codes[known], weights=took[known]).argmax())] if known.any() else ""

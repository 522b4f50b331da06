"""Kernels that no rule names and that look like communication: all ranks of a host end them together, however far apart they begin.

Ranks that compute the same end as far apart as they began. Ranks that meet in a kernel end together, as the first waits in it
for the last. So kernels are compared by name and place in the sequence, among ranks of one host, which share a clock.
"""

from __future__ import annotations

import re
from collections import defaultdict
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import pyarrow as pa

from alltrace.trace.arrays import coded, integers, is_one_of
from alltrace.trace.kernel_rules import UNCLASSIFIED

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from alltrace.recipes.base import RankTables, RunFacts

COMPARED = 256
"""So many kernels of a name are compared, the first ones of each rank."""

_APART_NS = 20_000
"""Ranks that begin a kernel less far apart than this show nothing."""
_TOGETHER_NS = 10_000
_TOGETHER_SHARE = 0.25
"""They end together within 10 us, or within this share of how far apart they began."""
_LEAST = 5
_MOST_OF = 0.8
_LONGEST = 80
_ARGUMENTS = re.compile(r"[<(].*", re.DOTALL)

_KERNELS = pa.list_(
    pa.struct([("name", pa.string()), ("number", pa.int64()), ("starts", pa.list_(pa.int64())), ("ends", pa.list_(pa.int64()))])
)
_COLUMN = "unknown_kernels"


class Meeting(NamedTuple):
    """A kernel in which ranks meet: its name, in how many of its instances they began apart, and in how many of these they met."""

    name: str
    apart: int
    met: int

    @property
    def text(self) -> str:
        """What is to be said of it, with the rule that would name it."""
        plain = _ARGUMENTS.sub("", self.name.removeprefix("void ")).strip()[:_LONGEST]
        return (
            f"the kernel {plain!r}, which no rule names, ends on all ranks together in {self.met:,} of the {self.apart:,} compared "
            "instances that begin apart, as communication does, so kernels without a rule do not count as compute here; if it "
            f"communicates, this line in the file of --kernel-rules says so: collective {re.escape(plain)}"
        )


def with_unknown_kernels(part: pa.Table, rank: RankTables) -> pa.Table:
    """A part's table with what `meetings_of` needs, in its first row."""
    if not part.num_rows:
        return part
    column = pa.array([unknown_kernels(rank), *([None] * (part.num_rows - 1))], _KERNELS)
    return part.append_column(_COLUMN, column)


def meetings_of(rows: Iterable[Mapping[str, Any]], run: RunFacts) -> list[Meeting]:
    """The kernels in which all ranks meet; of the rows of parts from `with_unknown_kernels`, with their `rank`."""
    kernels = {row["rank"]: row[_COLUMN] for row in rows if row.get(_COLUMN) is not None}
    return meetings(kernels, {r.rank: r.host for r in run.ranks})


def unknown_kernels(rank: RankTables) -> list[dict[str, Any]]:
    """The first kernels of each name that no rule knows: `name`, the `number` of all, `starts` and `ends` by start."""
    unknown = is_one_of(rank.table("kernels", ("kind",)).column("kind"), (UNCLASSIFIED,))
    if not unknown.any():
        return []
    table = rank.table("kernels", ("start", "end", "name")).filter(pa.array(unknown))
    ids, at = coded(table.column("name"))
    start, end = (integers(table.column(c)) for c in ("start", "end"))
    found = []
    for number, text in enumerate(rank.texts(ids).to_pylist()):
        rows = np.flatnonzero(at == number)
        rows = rows[np.argsort(start[rows], kind="stable")]
        first = rows[:COMPARED]
        if text is not None:
            found.append({"name": text, "number": len(rows), "starts": start[first].tolist(), "ends": end[first].tolist()})
    return found


def meetings(kernels: Mapping[int, Iterable[Mapping[str, Any]]], hosts: Mapping[int, str]) -> list[Meeting]:
    """The kernels in which all ranks of a host meet, those of most instances first.

    Args:
        kernels: By rank its `unknown_kernels`, of all ranks of the question.
        hosts: The host of each rank.
    """
    by_name: dict[str, dict[int, Mapping[str, Any]]] = defaultdict(dict)
    for rank, its in kernels.items():
        for kernel in its:
            by_name[kernel["name"]][rank] = kernel
    on_host: dict[str, list[int]] = defaultdict(list)
    for rank in kernels:
        on_host[hosts[rank]].append(rank)
    found = []
    for name, of_rank in by_name.items():
        apart = met = 0
        for ranks in on_host.values():
            if len(ranks) < 2 or not set(ranks) <= set(of_rank) or len({of_rank[r]["number"] for r in ranks}) > 1:
                continue
            starts, ends = (np.array([of_rank[r][c] for r in ranks], np.int64) for c in ("starts", "ends"))
            late = np.ptp(starts, axis=0)
            chosen = (late >= _APART_NS) & (starts.max(axis=0) < ends.min(axis=0))
            apart += int((late >= _APART_NS).sum())
            met += int((chosen & (np.ptp(ends, axis=0) <= np.maximum(_TOGETHER_NS, _TOGETHER_SHARE * late))).sum())
        if apart >= _LEAST and met >= _MOST_OF * apart:
            found.append(Meeting(name, apart, met))
    return sorted(found, key=lambda m: (-m.met, m.name))

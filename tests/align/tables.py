"""Matches tables `collectives` that are in memory, as an alignment matches those of a run."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pyarrow as pa

from alltrace.align.clock_sharing import PlacedRank
from alltrace.align.matching import Matching, match
from alltrace.align.related_clocks import Placing
from alltrace.align.timelines import MOST_IN_MEMORY, Timelines
from alltrace.run.overlay import MEMBERS

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping


def timelines_of(tables: Mapping[int, Any], texts: Callable[[Any], Any], most: int = MOST_IN_MEMORY) -> Timelines:
    """The operations in the tables of ranks."""
    return Timelines(sorted(tables), tables.__getitem__, texts, most)


class Matched:
    """A matching, with all members in one table by instance and rank."""

    def __init__(self, matching: Matching) -> None:
        parts = [*matching.tables(), MEMBERS.arrow_schema().empty_table()]
        self.members = pa.concat_tables(parts).sort_by(
            [("instance", "ascending"), ("rank", "ascending"), ("row", "ascending")]
        )
        self.matching = matching
        self.groups, self.unmatched, self.notes = matching.groups, matching.unmatched, matching.notes
        self.score, self.reason = matching.score, matching.reason
        self.clocks = matching.clocks

    def evidence(self) -> Any:
        """What clocks are made from."""
        return self.matching.evidence()


def match_tables(
    tables: Mapping[int, Any],
    texts: Callable[[Any], Any],
    shifts_ns: Mapping[int, int] | None = None,
    hosts: Mapping[int, str] | None = None,
    *,
    most: int = MOST_IN_MEMORY,
    placing: Placing | None = None,
) -> Matched:
    """Match the operations of all ranks, whose stamps and hosts are known where they are given."""
    placing = placing or Placing(dict(shifts_ns or {}), {}, dict(hosts or {}))
    ranks = [PlacedRank(r, placing.hosts.get(r, f"host of {r}"), r, placing.shift(r)) for r in sorted(tables)]
    return Matched(match(timelines_of(tables, texts, most), placing, ranks))

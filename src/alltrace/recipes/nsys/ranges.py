"""The ranges that recipes of NVTX and NCCL are about: on the CPU, and projected on the GPU."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from alltrace.recipes.analysis.distribution import VALUE
from alltrace.recipes.execution.shared_tables import once

if TYPE_CHECKING:
    from alltrace.recipes.base import RankTables, RunFacts

NCCL_DOMAINS = ("NCCL", "RCCL")
"""The NVTX domains in which communication libraries name their calls."""

RANGES = {"ranges": ("start", "end", "name", "domain")}
PROJECTED = {
    "ranges": ("start", "end", "thread", "end_thread", "name", "domain", "kind", "source_row"),
    "kernels": ("start", "end", "process", "correlation"),
    "copies": ("start", "end", "process", "correlation"),
    "api": ("start", "end", "process", "thread", "correlation"),
}
KEYS = ("domain", "name")


def closed(rank: RankTables) -> Any:
    """The ranges that were closed: `start`, `end`, `name`, `domain` and `value`, their length in ns."""
    return once(rank, "closed ranges", lambda: with_length(rank.table("ranges", RANGES["ranges"])))


def with_length(ranges: Any) -> Any:
    """Those of the ranges that were closed, with `value`, their length in ns."""
    ranges = ranges.append_column(VALUE, pc.subtract(ranges.column("end"), ranges.column("start")))
    return pc.filter(ranges, pc.is_valid(ranges.column(VALUE))) if ranges.column(VALUE).null_count else ranges


def projected(rank: RankTables) -> Any:
    """The closed ranges that launched GPU work, in the extent of that work; the same columns as `closed`."""
    from alltrace.recipes.analysis.nvtx_projection import projection

    def make() -> Any:
        found = projection(rank)
        table = pa.table(
            {
                "start": found.first,
                "end": found.last,
                "name": found.ranges.column("name"),
                "domain": found.ranges.column("domain"),
                VALUE: found.last - found.first,
            }
        )
        return table.filter(pc.invert(found.ranges.column("open")))

    return once(rank, "projected ranges", make)


def projected_table(rank: RankTables) -> Any:
    """`projected`, with the rank in front, as a table of a statement."""
    found = projected(rank)
    return found.add_column(0, "rank", pa.array(np.full(found.num_rows, rank.rank, np.int32)))


def of_nccl(rank: RankTables, ranges: Any) -> Any:
    """Those of the ranges that are of a communication library's domain, in whichever process."""
    return _where(ranges, "domain", rank.texts, NCCL_DOMAINS)


def called(rank: RankTables, events: Any, name: str, column: str = "name") -> Any:
    """Those of the events whose text in a column of name ids is `name`."""
    return _where(events, column, rank.texts, (name,))


def _where(events: Any, column: str, texts: Any, wanted: tuple[str, ...]) -> Any:
    ids = events.column(column)
    distinct = ids.unique()
    right = distinct.filter(pc.is_in(texts(distinct), value_set=pa.array(wanted)))
    return events.filter(pc.is_in(ids, value_set=right)) if len(right) else events.slice(0, 0)


def range_names(domain: Any, name: Any, run: RunFacts) -> Any:
    """What ranges of several domains are called: their text, or `domain:text` where several domains have it.

    Args:
        domain: Name ids of the domains, an Arrow array with a row per distinct (domain, name); null for the default one.
        name: Name ids of the ranges.
        run: Knows the strings.
    """
    texts = pc.fill_null(run.texts(name), "")
    counts = pc.value_counts(texts)
    several = pc.is_in(texts, value_set=pc.filter(counts.field("values"), pc.greater(counts.field("counts"), 1)))
    full = pc.binary_join_element_wise(run.texts(domain), texts, ":", null_handling="emit_null")
    return pc.cast(pc.if_else(several, pc.coalesce(full, texts), texts), pa.string())

"""Memory in use at each device's peak, by what allocated it: operator, module, named range, Python stack or step.

The peak is the moment at which most is allocated on a device; ranks and devices are added. A block belongs to the
innermost operator (module, range) around its allocation on the thread; blocks outside of all of them have no name. What
was allocated before the capture is a separate row. `net_bytes` is what `torch.profiler` calls self memory: blocks
allocated in it, minus those freed in it.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from alltrace.recipes.analysis.allocations import ALLOCATIONS, MEMORY, Pool, owners_of, pool_notes, pools_of, steps_of
from alltrace.recipes.analysis.operator_sums import FRAMES, RANGES, Program
from alltrace.recipes.base import Answer, Chart, Option, Options, Part, Question, RunFacts
from alltrace.run.rank import Rank
from alltrace.trace import columns as col
from alltrace.trace.arrays import Int64, integers

_BY = ("operator", "module", "range", "stack", "step")
_BEFORE = "before the capture"

COLUMNS: col.Columns = (
    col.text("name", f"operator, path of modules, range, stack or step; null for none, `{_BEFORE}` for older blocks"),
    MEMORY,
    col.whole("ranks", "ranks that allocated blocks in it"),
    col.size("peak_bytes", "size of its blocks at the peak; null if the trace has no addresses"),
    col.percent("peak_percent", "peak_bytes as a share of the allocated size at the peak"),
    col.whole("peak_blocks", "number of these blocks"),
    col.size("most_bytes", "peak_bytes of the rank with the most"),
    col.whole("most_rank", "that rank; the lowest if several are equal"),
    col.whole("allocations", "blocks allocated in it over the whole capture"),
    col.size("handed_out_bytes", "total size of these blocks"),
    col.size("net_bytes", "handed_out_bytes minus the size of the blocks freed in it"),
)


def _map(rank: Rank, options: Options) -> Any:
    """The rank's sums by name and kind of memory, and for each kind what was allocated at the peak in all."""
    owners, names = _owners(rank, options["by"])
    rows: list[dict[str, Any]] = []
    for pool in pools_of(rank):
        owner = owners(pool)
        owner = np.where(owner < 0, len(names), owner)
        alive, handed_out = pool.alive(pool.peak), np.flatnonzero(pool.size >= 0)
        kinds, place = np.unique(owner, return_inverse=True)
        sums = {name: np.zeros(len(kinds), np.int64) for name in _SUMS}
        for name, own, values in (
            ("peak_bytes", alive, pool.size[alive]),
            ("peak_blocks", alive, np.ones_like(alive)),
            ("allocations", handed_out, np.ones_like(handed_out)),
            ("handed_out_bytes", handed_out, pool.size[handed_out]),
            ("net_bytes", np.arange(len(pool)), pool.size),
        ):
            np.add.at(sums[name], place[own], values)
        unknown = () if pool.addressed else ("peak_bytes", "peak_blocks")
        for n, kind in enumerate(kinds.tolist()):
            row = {name: int(values[n]) for name, values in sums.items() if name not in unknown}
            rows.append({**pool.facts(), **row, "name": [*names, None][kind], "whole_bytes": 0, "before": False})
        older = max(pool.peak_bytes - int(pool.size[alive].sum()), 0) if pool.addressed else None
        rows.append(
            {**pool.facts(), "name": _BEFORE, "peak_bytes": older, "whole_bytes": pool.peak_bytes, "before": True}
        )
    return pa.Table.from_pylist(rows, _PART)


def _merge(parts: Sequence[Part], _run: RunFacts, options: Options) -> Answer:
    by_rank = [(p.rank, row) for p in parts for row in p.table.to_pylist()]
    whole: dict[str, int] = {}
    together: dict[tuple[str | None, str, bool], dict[int, list[dict[str, Any]]]] = {}
    for rank, row in by_rank:
        whole[row["memory"]] = whole.get(row["memory"], 0) + row["whole_bytes"]
        together.setdefault((row["name"], row["memory"], row["before"]), {}).setdefault(rank, []).append(row)
    rows: list[dict[str, Any]] = []
    for (name, memory, before), ranks in together.items():
        peaks = {rank: _sum(own, "peak_bytes") for rank, own in ranks.items()}
        at_peak = {rank: peak for rank, peak in peaks.items() if peak is not None}
        if before and not sum(at_peak.values()):
            continue
        most = max(at_peak, key=lambda r: (at_peak[r], -r), default=None)
        every = [row for own in ranks.values() for row in own]
        rows.append(
            {
                "name": name,
                "memory": memory,
                "ranks": len(ranks),
                "peak_bytes": sum(at_peak.values()) if at_peak else None,
                "peak_percent": 100 * sum(at_peak.values()) / whole[memory] if at_peak and whole[memory] else None,
                "most_bytes": at_peak[most] if most is not None else None,
                "most_rank": most,
                **{c: _sum(every, c) for c in ("peak_blocks", "allocations", "handed_out_bytes", "net_bytes")},
            }
        )
    rows.sort(key=lambda r: (-(r["peak_bytes"] or 0), -(r["handed_out_bytes"] or 0), r["memory"], r["name"] or ""))
    notes = [*pool_notes(by_rank)]
    if options["top"] and len(rows) > options["top"]:
        notes.append(f"{options['top']} of {len(rows)} rows are shown (--top)")
    return Answer.of(rows[: options["top"] or None], COLUMNS, tuple(notes))


def _owners(rank: Rank, by: str) -> tuple[Callable[[Pool], Int64], list[str | None]]:
    """The owner of each event of a pool, as a row of the names or -1, and the names."""
    if by == "step":
        steps = steps_of(rank)
        return lambda pool: steps.of(pool.time), [str(n) for n in steps.number.tolist()]
    nodes = Program.of(rank).nodes(by)
    stacks = integers(rank.table("allocations", ("stack",)).column("stack")) if by == "stack" else np.empty(0, np.int64)
    ids = np.unique(stacks[stacks != 0])
    names = [*nodes.names, *rank.texts(pa.array(ids, pa.int64())).to_pylist()]

    def owners(pool: Pool) -> Int64:
        """A snapshot has the stack with each block; in a trace it is what surrounds the allocation."""
        surrounding = owners_of(nodes, pool)
        return (
            np.where(pool.stack != 0, len(nodes.names) + np.searchsorted(ids, pool.stack), surrounding)
            if len(ids)
            else surrounding
        )

    return owners, names


_SUMS = ("peak_bytes", "peak_blocks", "allocations", "handed_out_bytes", "net_bytes")
_PART = pa.schema(
    [
        ("name", pa.string()),
        ("memory", pa.string()),
        *((c, pa.int64()) for c in ("device", *_SUMS, "whole_bytes")),
        *((c, pa.bool_()) for c in ("stated", "addressed", "before")),
    ]
)


def _sum(rows: Sequence[Mapping[str, Any]], column: str) -> int | None:
    values = [row[column] for row in rows if row[column] is not None]
    return sum(values) if values else None


QUESTION = Question(
    "memory-peak",
    __doc__,
    COLUMNS,
    _map,
    _merge,
    tables={"allocations": ALLOCATIONS, "ranges": RANGES, "frames": FRAMES},
    requires=("allocations",),
    options=(
        Option("by", str, "operator", "what a row is: the origin of the blocks, or the step that allocated them", _BY),
        Option("top", int, 50, "maximum number of rows, by decreasing size at the peak; 0 for all", least=0),
    ),
    chart=Chart("bars", "name", ("peak_bytes",), title="Memory in use at the peak"),
    clock="aligned",
    important=("name", "peak_bytes", "peak_percent", "most_rank"),
)

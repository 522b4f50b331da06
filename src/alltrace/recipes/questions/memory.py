"""The recipe `memory`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar

import pyarrow as pa

from alltrace.recipes.analysis.allocations import ALLOCATIONS, MEMORY, pool_notes, pools_of, steps_of
from alltrace.recipes.analysis.device_intervals import GPU, device_rows
from alltrace.recipes.base import Answer, AnswerColumn, Chart, Part, Recipe, answer_schema

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from alltrace.recipes.base import RankTables, RunFacts


class Memory(Recipe):
    """Memory of PyTorch's allocator on each device: the peak, the memory reserved at that time, and what was never freed.

    Reserved is what the allocator has taken from the device; what of it no block uses is lost to fragmentation or kept for reuse.
    A trace has blocks when it was taken with `profile_memory=True`.
    """

    name = "memory"
    aligned = True
    tables: ClassVar[Mapping[str, tuple[str, ...]]] = {"allocations": ALLOCATIONS}
    columns: ClassVar[tuple[AnswerColumn, ...]] = (
        AnswerColumn("rank", None, "rank"),
        GPU,
        MEMORY,
        AnswerColumn("peak_bytes", "bytes", "largest allocated size at any time"),
        AnswerColumn("peak_at_ns", "ns", "time of the peak on the run's aligned clock"),
        AnswerColumn("peak_step", None, "step of the peak; null outside of steps"),
        AnswerColumn("reserved_at_peak_bytes", "bytes", "size reserved on the device at the peak; null if unknown"),
        AnswerColumn("unused_percent", "%", "share of the reserved size that no block used at the peak"),
        AnswerColumn("peak_reserved_bytes", "bytes", "largest size that the allocator reserved on the device"),
        AnswerColumn("first_bytes", "bytes", "allocated size before the first event of the capture"),
        AnswerColumn("last_bytes", "bytes", "allocated size after the last event of the capture"),
        AnswerColumn("allocations", None, "blocks allocated"),
        AnswerColumn("handed_out_bytes", "bytes", "total size of these blocks"),
        AnswerColumn("kept", None, "blocks allocated in the capture and not freed by its end; null without addresses"),
        AnswerColumn("kept_bytes", "bytes", "total size of these blocks"),
        AnswerColumn("frees", None, "blocks freed"),
        AnswerColumn("unmatched_frees", None, "freed blocks that were allocated before the capture; null without addresses"),
    )
    chart: ClassVar[Chart | None] = Chart(
        "bars", "rank", ("peak_bytes", "peak_reserved_bytes"), detail="gpu", title="Peak memory of each device"
    )

    def map(self, rank: RankTables, options: Mapping[str, Any]) -> Any:  # noqa: ARG002
        """One row per device."""
        steps = steps_of(rank)
        rows = []
        for pool in pools_of(rank):
            given, taken = pool.size >= 0, pool.size < 0
            alone = pool.partner < 0
            peak = max(pool.peak, 0)
            step = int(steps.of(pool.time[[peak]])[0])
            kept = given & alone
            rows.append(
                {
                    **pool.facts(),
                    "peak_bytes": pool.peak_bytes,
                    "peak_at_ns": int(pool.time[peak]),
                    "peak_step": int(steps.number[step]) if step >= 0 else None,
                    "reserved_at_peak_bytes": _known(int(pool.reserved[peak])),
                    "peak_reserved_bytes": _known(int(pool.reserved.max())),
                    "first_bytes": pool.before,
                    "last_bytes": int(pool.allocated[-1]),
                    "allocations": int(given.sum()),
                    "handed_out_bytes": int(pool.size[given].sum()),
                    "kept": int(kept.sum()) if pool.addressed else None,
                    "kept_bytes": int(pool.size[kept].sum()) if pool.addressed else None,
                    "frees": int(taken.sum()),
                    "unmatched_frees": int((taken & alone).sum()) if pool.addressed else None,
                }
            )
        return pa.Table.from_pylist(rows)

    def reduce(self, parts: Sequence[Part], run: RunFacts, options: Mapping[str, Any]) -> Answer:  # noqa: ARG002
        """The rows of all ranks."""
        rows = device_rows(parts, run)
        for row in rows:
            reserved = row["reserved_at_peak_bytes"]
            row["unused_percent"] = 100 * max(reserved - row["peak_bytes"], 0) / reserved if reserved else None
        table = pa.Table.from_pylist(rows, answer_schema(self.columns, ("gpu", "memory"), {"unused_percent": 1}))
        return Answer(table, self.columns, tuple(pool_notes([(r["rank"], r) for r in rows])))


def _known(value: int) -> int | None:
    """The bytes reserved, null if the trace does not say: it has 0 for memory of the host."""
    return value if value > 0 else None


RECIPE = Memory()

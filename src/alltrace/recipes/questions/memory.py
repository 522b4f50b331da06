"""Memory of PyTorch's allocator on each device: the peak, the memory reserved at that time, and what was never freed.

Reserved is what the allocator has taken from the device; what of it no block uses is lost to fragmentation or kept for
reuse. A trace has blocks when it was taken with `profile_memory=True`.
"""

from collections.abc import Sequence
from typing import Any

import pyarrow as pa

from alltrace.recipes.analysis.allocations import ALLOCATIONS, MEMORY, pool_notes, pools_of, steps_of
from alltrace.recipes.analysis.device_intervals import GPU, device_rows
from alltrace.recipes.base import Answer, Chart, Options, Part, Question, RunFacts
from alltrace.run.rank import Rank
from alltrace.trace import columns as col

COLUMNS: col.Columns = (
    col.RANK,
    GPU,
    MEMORY,
    col.size("peak_bytes", "largest allocated size at any time"),
    col.ns("peak_at_ns", "time of the peak on the run's aligned clock"),
    col.whole("peak_step", "step of the peak; null outside of steps"),
    col.size("reserved_at_peak_bytes", "size reserved on the device at the peak; null if unknown"),
    col.percent("unused_percent", "share of the reserved size that no block used at the peak"),
    col.size("peak_reserved_bytes", "largest size that the allocator reserved on the device"),
    col.size("first_bytes", "allocated size before the first event of the capture"),
    col.size("last_bytes", "allocated size after the last event of the capture"),
    col.whole("allocations", "blocks allocated"),
    col.size("handed_out_bytes", "total size of these blocks"),
    col.whole("kept", "blocks allocated in the capture and not freed by its end; null without addresses"),
    col.size("kept_bytes", "total size of these blocks"),
    col.whole("frees", "blocks freed"),
    col.whole("unmatched_frees", "freed blocks that were allocated before the capture; null without addresses"),
)


def _map(rank: Rank, _options: Options) -> Any:
    steps = steps_of(rank)
    rows = []
    for pool in pools_of(rank):
        handed_out, taken = pool.size >= 0, pool.size < 0
        alone = pool.partner < 0
        peak = max(pool.peak, 0)
        step = int(steps.of(pool.time[[peak]])[0])
        kept_alone = handed_out & alone
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
                "allocations": int(handed_out.sum()),
                "handed_out_bytes": int(pool.size[handed_out].sum()),
                "kept": int(kept_alone.sum()) if pool.addressed else None,
                "kept_bytes": int(pool.size[kept_alone].sum()) if pool.addressed else None,
                "frees": int(taken.sum()),
                "unmatched_frees": int((taken & alone).sum()) if pool.addressed else None,
            }
        )
    return pa.Table.from_pylist(rows)


def _merge(parts: Sequence[Part], run: RunFacts, _options: Options) -> Answer:
    rows = device_rows(parts, run)
    for row in rows:
        reserved = row["reserved_at_peak_bytes"]
        row["unused_percent"] = 100 * max(reserved - row["peak_bytes"], 0) / reserved if reserved else None
    return Answer.of(rows, COLUMNS, tuple(pool_notes([(r["rank"], r) for r in rows])))


def _known(value: int) -> int | None:
    """The bytes reserved, null if the trace does not say: it has 0 for memory of the host."""
    return value if value > 0 else None


QUESTION = Question(
    "memory",
    __doc__,
    COLUMNS,
    _map,
    _merge,
    tables={"allocations": ALLOCATIONS},
    chart=Chart(
        "bars", "rank", ("peak_bytes", "peak_reserved_bytes"), detail="gpu", title="Peak memory of each device"
    ),
    clock="aligned",
    important=("rank", "peak_bytes", "peak_step", "gpu", "memory", "unused_percent"),
)

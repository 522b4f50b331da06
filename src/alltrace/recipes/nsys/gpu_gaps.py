"""The recipe `gpu_gaps`: when a GPU had nothing to do."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar

from alltrace.recipes.base import Chart, Option
from alltrace.recipes.nsys.base import Cell
from alltrace.recipes.nsys.gpu_work import OVERHEADS, PLACE, READS
from alltrace.recipes.nsys.sync_rules import SqlRule

if TYPE_CHECKING:
    from collections.abc import Mapping

_NS_PER_MS = 1_000_000
_WORK = 'rank, process, device, context, start, "end"'


class GpuGaps(SqlRule):
    """Times in which a GPU had no work of a process for longer than a limit, the longest first.

    Looked at from the start of the process' first kernel, copy or fill on the GPU to the end of its last. The profiler's own
    overhead within counts as work.
    """

    name = "gpu_gaps"
    tables: ClassVar = {**READS, "processes": ("process", "pid"), "devices": ("device", "ordinal")}
    requires = (("kernels", "copies", "graphs"),)
    settings = (Option("gap", int, 500, "Gaps longer than this; ms.", least=0),)
    cells = (
        Cell("Row#", "int", "Its place among its rank's."),
        Cell("Duration", "ns", "How long it is."),
        Cell("Start", "ns", "When it begins."),
        *PLACE,
    )
    chart = Chart("scatter", "Start", ("Duration",), "File")
    advice = (
        "Before each gap, look for what the CPU did: a blocking call, input and output, or work that could overlap; "
        "`alltrace gaps` says what filled the gaps of each rank."
    )
    none = "No GPU was without work for longer than the limit between its first and its last operation."
    map_sql = f"""
WITH operations AS (
  SELECT {_WORK}, 1 AS source FROM kernels
  UNION ALL SELECT {_WORK}, 2 FROM copies
  UNION ALL SELECT {_WORK}, 3 FROM graphs
),
gpus AS (
  SELECT rank, process, device, min(start) AS first, max("end") AS last, arg_min_null(context, (start, "end", source)) AS context
  FROM operations GROUP BY rank, process, device
),
busy AS (
  SELECT rank, process, device, start, "end", 1 AS source FROM operations
  UNION ALL SELECT gpus.rank, gpus.process, device, start, "end", 2
  FROM overheads
    JOIN names ON names.id = overheads.name AND names.value IN ({", ".join(f"'{name}'" for name in OVERHEADS)})
    JOIN gpus ON gpus.rank = overheads.rank AND gpus.process IS NOT DISTINCT FROM overheads.process
      AND start >= first AND "end" <= last
),
reached AS (
  SELECT rank, process, device, start, max("end") OVER (
    PARTITION BY rank, process, device ORDER BY start, source, "end" ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING
  ) AS reach
  FROM busy
)
SELECT reached.rank, start - reach AS "Duration", reach AS "Start", pid AS "PID", ordinal AS "Device ID", context AS "Context ID"
FROM reached
  JOIN gpus ON gpus.rank = reached.rank AND gpus.process IS NOT DISTINCT FROM reached.process
    AND gpus.device IS NOT DISTINCT FROM reached.device
  LEFT JOIN processes ON processes.rank = reached.rank AND processes.process = reached.process
  LEFT JOIN devices ON devices.rank = reached.rank AND devices.device = reached.device
WHERE start - reach > $gap_ns
"""

    def parameters(self, options: Mapping[str, Any]) -> dict[str, Any]:
        """The limit."""
        return {"gap_ns": options["gap"] * _NS_PER_MS}


RECIPE = GpuGaps()

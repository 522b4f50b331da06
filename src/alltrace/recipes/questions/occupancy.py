"""How many warps of each kernel fit on a multiprocessor: its theoretical occupancy, and what limits it.

Blocks of a launch are shared out over all multiprocessors; one wave is as many as run at once. Less than one wave
leaves multiprocessors empty, and the last of few waves is partly empty. The occupancy that was reached is the metric
`warps in flight` of `gpu-rates`. Thread block clusters, which can lower it further, are not taken into account.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from alltrace.recipes.base import Answer, Chart, Option, Options, Part, Question, Reads, RunFacts
from alltrace.recipes.sql_recipe import Statements
from alltrace.trace import columns as col
from alltrace.trace.number_text import counted

_WARP = 32
_REGISTER_UNIT = 256
_WARPS_AT_ONCE = 4
_LAUNCH = tuple("block_x block_y block_z registers static_shared_memory dynamic_shared_memory shared_memory".split())
_GRID = ("grid_x", "grid_y", "grid_z")
DEVICE_LIMITS = (
    "sm_count", "compute_major", "compute_minor", "max_warps_per_sm", "max_blocks_per_sm", "max_registers_per_sm",
    "max_shared_memory_per_sm",
)  # fmt: skip
_KEYS = ("name", "threads", "registers", "shared_bytes", *DEVICE_LIMITS)
_BLOCKS = {(7, 0): 32, (7, 2): 32, (7, 5): 16, (8, 0): 32, (8, 6): 16, (8, 7): 16, (8, 9): 24}
_BLOCKS_OF_MAJOR = {3: 16, 5: 32, 6: 32, 9: 32, 10: 32, 12: 24}


@dataclass(frozen=True)
class Limits:
    warps: int  # warps at once
    blocks: int  # blocks at once
    registers: int  # registers of 32 bits
    shared_bytes: int  # shared memory
    major: int  # compute capability, major


@dataclass(frozen=True)
class Fit:
    """How a launch fits on a multiprocessor."""

    blocks: int  # blocks of it at once
    occupancy: float  # their warps over the most warps, 0 to 1
    limit: str  # what keeps more blocks out: `warps`, `blocks`, `registers` or `shared memory`; the first of several


def blocks_at_once(major: int | None, minor: int | None) -> int | None:
    """The most blocks on a multiprocessor, which PyTorch does not write, by compute capability.

    Source: CUDA C++ Programming Guide, "Technical Specifications per Compute Capability".
    """
    if major is None:
        return None
    return _BLOCKS_OF_MAJOR.get(major, _BLOCKS.get((major, -1 if minor is None else minor)))


def occupancy(threads: int, registers: int, shared_bytes: int, has: Limits) -> Fit:
    """How many blocks of a launch run on a multiprocessor at once, and the share of its warps that is."""
    warps = -(-threads // _WARP)
    reserved, unit = (1024, 128) if has.major >= 8 else (0, 256)
    shared = -(-(max(shared_bytes, 0) + reserved) // unit) * unit
    fits = {"warps": has.warps // warps, "blocks": has.blocks}
    if registers > 0:
        of_warp = -(-registers * _WARP // _REGISTER_UNIT) * _REGISTER_UNIT
        fits["registers"] = has.registers // _WARPS_AT_ONCE // of_warp * _WARPS_AT_ONCE // warps
    if shared:
        fits["shared memory"] = has.shared_bytes // shared
    limit = min(fits, key=lambda k: fits[k])
    return Fit(fits[limit], fits[limit] * warps / has.warps, limit)


# Source of the formula: NVIDIA's published method of the CUDA occupancy calculator (CUDA C++ Best Practices Guide,
# "Calculating Occupancy"), with the units in which a multiprocessor allots its means: registers in units of 256 for a
# warp, warps of a block in fours, shared memory in units of 128 bytes and 1 KiB for the system in each block from
# compute capability 8.0 on, of 256 bytes before.
COLUMNS: col.Columns = (
    col.text("name", "kernel, by its short name"),
    col.whole("threads", "threads of a block"),
    col.whole("registers", "registers of a thread"),
    col.size("shared_bytes", "static and dynamic shared memory of a block"),
    col.whole("launches", "launches of this configuration, on all ranks"),
    col.ns("duration_ns", "total duration of these launches"),
    col.whole("blocks_per_sm", "concurrent blocks per multiprocessor; null if the device is unknown"),
    col.percent("occupancy_percent", "their warps as a share of the most warps per multiprocessor"),
    col.text("limit", "the limiting resource: warps, blocks, registers or shared memory"),
    col.real("waves_mean", "a launch's blocks divided by the device's concurrent blocks; mean by time", decimals=2),
    col.percent("below_wave_percent", "share of duration_ns in launches of less than one wave"),
)

READS: Reads = {"kernels": ("start", "end", "device", "name", "short_name", "cluster_x", *_LAUNCH, *_GRID)}

MAP_SQL = f"""
WITH launched AS (
  SELECT rank, coalesce(short_name, name) AS name, block_x::BIGINT * block_y * block_z AS threads, registers,
-- the PyTorch profiler writes only the sum; nsys also writes its parts and what the driver set aside, which is more
if(static_shared_memory IS NULL AND dynamic_shared_memory IS NULL, coalesce(shared_memory, 0),
   coalesce(static_shared_memory, 0)::BIGINT + coalesce(dynamic_shared_memory, 0)) AS shared_bytes,
grid_x::BIGINT * grid_y * grid_z AS grid_blocks, {", ".join(DEVICE_LIMITS)},
coalesce(cluster_x, 0) > 1 AS clustered, greatest(coalesce("end", 0) - coalesce(start, 0), 0) AS duration_ns
  FROM kernels LEFT JOIN devices USING (rank, device)
)
SELECT rank, {", ".join(_KEYS)}, grid_blocks, count(*) AS launches, sum(duration_ns) AS duration_ns,
  count(*) FILTER (clustered) AS clustered
FROM launched GROUP BY ALL
"""


def _reads(_options: Options) -> dict[str, tuple[str, ...]]:
    return {**dict(READS), "devices": ("device", *DEVICE_LIMITS)}


def _merge(parts: Sequence[Part], run: RunFacts, options: Options) -> Answer:
    groups = SQL.over_parts(parts, run, options).to_pylist() if parts else []
    clustered = sum(row["clustered"] for row in groups)
    rows = [_row(row) for row in groups]
    rows.sort(key=lambda r: (-r["duration_ns"], r["name"], *(-1 if r[n] is None else r[n] for n in _ORDER)))
    notes = []
    unknown = sum(r["launches"] for r in rows if r["blocks_per_sm"] is None)
    if unknown:
        whole = sum(r["launches"] for r in rows)
        notes.append(f"the configuration or the device of {unknown} of {whole} launches is not known")
    if clustered:
        using = counted(clustered, "launch uses", "launches use")
        notes.append(f"{using} thread block clusters, which can lower their occupancy further")
    shown = rows[: options["top"]] if options["top"] else rows
    if len(shown) < len(rows):
        notes.append(f"the {len(shown)} rows with most time of {len(rows)}")
    return Answer.of(shown, COLUMNS, tuple(notes))


_ORDER = ("threads", "registers", "shared_bytes", "blocks_per_sm", "waves_mean")


def _row(of: Mapping[str, Any]) -> dict[str, Any]:
    name, threads, registers, shared, sms, major, minor, warps, blocks, file, memory = (of[k] for k in _KEYS)
    if blocks is None:
        blocks = blocks_at_once(major, minor)
    row = {
        "name": name, "threads": threads, "registers": registers, "shared_bytes": shared, "launches": of["launches"],
        "duration_ns": int(of["duration_ns"]), "blocks_per_sm": None, "occupancy_percent": None, "limit": None,
        "waves_mean": None, "below_wave_percent": None,
    }  # fmt: skip
    has = (major, warps, blocks, file, memory)
    if any(v is None or v <= 0 for v in (threads, *has)) or registers is None:
        return row
    fit = occupancy(threads, registers, shared, Limits(warps, blocks, file, memory, major))
    row.update(blocks_per_sm=fit.blocks, occupancy_percent=100 * fit.occupancy, limit=fit.limit)
    grids = [(g["blocks"], int(g["ns"])) for g in of["grids"] if g["blocks"] is not None]
    time = sum(t for _, t in grids)
    if sms is not None and sms > 0 and fit.blocks and time:
        at_once = sms * fit.blocks
        row["waves_mean"] = sum(g * t for g, t in grids) / (at_once * time)
        row["below_wave_percent"] = 100 * sum(t for g, t in grids if g < at_once) / time
    return row


_OVER_RANKS = f"""
WITH launched AS (SELECT * REPLACE (coalesce(text_of(name), '') AS name) FROM parts),
of_grids AS (
  SELECT {", ".join(_KEYS)}, grid_blocks, sum(launches) AS launches, sum(duration_ns) AS duration_ns,
  sum(clustered) AS clustered
  FROM launched GROUP BY ALL
)
SELECT {", ".join(_KEYS)}, sum(launches) AS launches, sum(duration_ns) AS duration_ns, sum(clustered) AS clustered,
  list({{'blocks': grid_blocks, 'ns': duration_ns}}) AS grids
FROM of_grids GROUP BY ALL ORDER BY {", ".join(_KEYS)}
"""
SQL = Statements(_reads, map=MAP_SQL, reduce=_OVER_RANKS)

QUESTION = Question(
    "occupancy",
    __doc__,
    COLUMNS,
    SQL.map_rank,
    _merge,
    tables=READS,
    reading=_reads,
    options=(Option("top", int, 50, "maximum number of rows, by decreasing time; 0 for all", least=0),),
    chart=Chart("bars", "name", ("occupancy_percent",), detail="threads"),
    sql=SQL,
    map_ranks=SQL.map_ranks,
    important=("name", "occupancy_percent", "limit", "launches", "duration_ns"),
)

"""The recipe `occupancy`.

Source of the formula: NVIDIA's published method of the CUDA occupancy calculator (CUDA C++ Best Practices Guide, "Calculating
Occupancy"), with the units in which a multiprocessor allots its means: registers in units of 256 for a warp, warps of a block in
fours, shared memory in units of 128 bytes and 1 KiB for the system in each block from compute capability 8.0 on, of 256 bytes
before.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from alltrace.recipes.base import Answer, AnswerColumn, Chart, Option, Part, Recipe
from alltrace.recipes.stats.cuda import look_up
from alltrace.trace.arrays import integers
from alltrace.trace.number_text import counted

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from alltrace.recipes.base import RankTables, RunFacts

_WARP = 32
_REGISTER_UNIT = 256
_WARPS_AT_ONCE = 4
_LAUNCH = ("block_x", "block_y", "block_z", "registers", "static_shared_memory", "dynamic_shared_memory", "shared_memory")
_GRID = ("grid_x", "grid_y", "grid_z")
_DEVICE = (
    "sm_count",
    "compute_major",
    "compute_minor",
    "max_warps_per_sm",
    "max_blocks_per_sm",
    "max_registers_per_sm",
    "max_shared_memory_per_sm",
)
_KEYS = ("name", "threads", "registers", "shared_bytes", "grid_blocks", *_DEVICE)
_BLOCKS = {(7, 0): 32, (7, 2): 32, (7, 5): 16, (8, 0): 32, (8, 6): 16, (8, 7): 16, (8, 9): 24}
_BLOCKS_OF_MAJOR = {3: 16, 5: 32, 6: 32, 9: 32, 10: 32, 12: 24}


@dataclass(frozen=True)
class Limits:
    """What a multiprocessor has.

    Attributes:
        warps: Warps at once.
        blocks: Blocks at once.
        registers: Registers of 32 bits.
        shared_bytes: Shared memory.
        major: Compute capability, major.
    """

    warps: int
    blocks: int
    registers: int
    shared_bytes: int
    major: int


@dataclass(frozen=True)
class Fit:
    """How a launch fits on a multiprocessor.

    Attributes:
        blocks: Blocks of it at once.
        occupancy: Their warps over the most warps, 0 to 1.
        limit: What keeps more blocks out: `warps`, `blocks`, `registers` or `shared memory`; the first of several.
    """

    blocks: int
    occupancy: float
    limit: str


def blocks_at_once(major: int | None, minor: int | None) -> int | None:
    """The most blocks on a multiprocessor, which the PyTorch profiler does not write, by compute capability; None if not known.

    Source: CUDA C++ Programming Guide, "Technical Specifications per Compute Capability".
    """
    if major is None:
        return None
    return _BLOCKS_OF_MAJOR.get(major, _BLOCKS.get((major, -1 if minor is None else minor)))


def occupancy(threads: int, registers: int, shared_bytes: int, has: Limits) -> Fit:
    """How many blocks of a launch run on a multiprocessor at once, and what share of its warps that is.

    Args:
        threads: Threads of a block, 1 at least.
        registers: Registers of a thread.
        shared_bytes: Static and dynamic shared memory of a block.
        has: What the multiprocessor has.
    """
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


class Occupancy(Recipe):
    """How many warps of each kernel fit on a multiprocessor: its theoretical occupancy, from its launches, and what limits it.

    Blocks of a launch are shared out over all multiprocessors; one wave is as many as run at once. Less than one wave leaves
    multiprocessors empty, and the last of few waves is partly empty. The occupancy that was reached is the metric
    `warps in flight` of `gpu-rates`. Thread block clusters, which can lower it further, are not taken into account.
    """

    name = "occupancy"
    tables: ClassVar[Mapping[str, tuple[str, ...]]] = {
        "kernels": ("start", "end", "device", "name", "short_name", "cluster_x", *_LAUNCH, *_GRID)
    }
    options = (
        Option("top", int, 50, "how many launches by kernel and configuration, those with most time first; 0 for all", least=0),
    )
    columns: ClassVar[tuple[AnswerColumn, ...]] = (
        AnswerColumn("name", None, "kernel, by its short name"),
        AnswerColumn("threads", None, "threads of a block"),
        AnswerColumn("registers", None, "registers of a thread"),
        AnswerColumn("shared_bytes", "bytes", "static and dynamic shared memory of a block"),
        AnswerColumn("launches", None, "launches of this configuration, on all ranks"),
        AnswerColumn("duration_ns", "ns", "time that they ran, added up"),
        AnswerColumn("blocks_per_sm", None, "blocks that run at once on a multiprocessor; null where the device is not known"),
        AnswerColumn("occupancy_percent", "%", "their warps, as a share of the most warps"),
        AnswerColumn("limit", None, "what keeps more out: warps, blocks, registers or shared memory"),
        AnswerColumn("waves_mean", None, "blocks of a launch over those that the device runs at once; mean by time"),
        AnswerColumn("below_wave_percent", "%", "share of the time that is in launches of less than one wave"),
    )
    chart = Chart("bars", "name", ("occupancy_percent",), detail="threads")

    def map(self, rank: RankTables, options: Mapping[str, Any]) -> Any:  # noqa: ARG002
        """Launches and their time, by kernel, configuration, grid and what the device has."""
        kernels = rank.table("kernels", self.tables["kernels"])
        device = kernels.column("device").combine_chunks()
        known = rank.table("devices", ["device", *_DEVICE])

        def product(*names: str) -> Any:
            sides = [kernels.column(n).cast(pa.int64()) for n in names]
            return pc.multiply(pc.multiply(sides[0], sides[1]), sides[2])

        shared = [kernels.column(n).cast(pa.int64()) for n in _LAUNCH[4:]]
        # the PyTorch profiler writes the sum alone; beside its parts nsys writes what the driver set aside, which is more
        parts = pc.if_else(
            pc.and_(shared[0].is_null(), shared[1].is_null()),
            pc.fill_null(shared[2], 0),
            pc.add(*(pc.fill_null(s, 0) for s in shared[:2])),
        )
        start, end = (integers(kernels.column(n)) for n in ("start", "end"))
        table = pa.table(
            {
                "name": pc.coalesce(kernels.column("short_name"), kernels.column("name")),
                "threads": product(*_LAUNCH[:3]),
                "registers": kernels.column("registers").cast(pa.int64()),
                "shared_bytes": parts,
                "grid_blocks": product(*_GRID),
                **{n: look_up(known, n, device).cast(pa.int64()) for n in _DEVICE},
                "clustered": pc.cast(pc.greater(pc.fill_null(kernels.column("cluster_x"), 0), 1), pa.int64()),
                "duration_ns": np.maximum(end - start, 0),
            }
        )
        grouped = table.group_by(list(_KEYS)).aggregate([("duration_ns", "sum"), ("duration_ns", "count"), ("clustered", "sum")])
        return grouped.rename_columns(
            [{"duration_ns_sum": "duration_ns", "duration_ns_count": "launches"}.get(n, n) for n in grouped.column_names]
        )

    def reduce(self, parts: Sequence[Part], run: RunFacts, options: Mapping[str, Any]) -> Answer:
        """The launches of all ranks by kernel and configuration."""
        found: dict[tuple[Any, ...], dict[str, Any]] = {}
        clustered = 0
        for part in parts:
            texts = run.texts(part.table.column("name").combine_chunks()).to_pylist() if part.table.num_rows else []
            for text, row in zip(texts, part.table.to_pylist(), strict=True):
                clustered += row["clustered_sum"]
                key = (text or "", row["threads"], row["registers"], row["shared_bytes"], *(row[n] for n in _DEVICE))
                into = found.setdefault(key, {"launches": 0, "duration_ns": 0, "grids": []})
                into["launches"] += row["launches"]
                into["duration_ns"] += row["duration_ns"]
                into["grids"].append((row["grid_blocks"], row["duration_ns"]))
        rows = [_row(key, into) for key, into in found.items()]
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
        return Answer(pa.Table.from_pylist(shown, _schema(self.columns)), self.columns, tuple(notes))


_ORDER = ("threads", "registers", "shared_bytes", "blocks_per_sm", "waves_mean")


def _row(key: tuple[Any, ...], into: Mapping[str, Any]) -> dict[str, Any]:
    name, threads, registers, shared, sms, major, minor, warps, blocks, file, memory = key
    if blocks is None:
        blocks = blocks_at_once(major, minor)
    row = {
        "name": name, "threads": threads, "registers": registers, "shared_bytes": shared, "launches": into["launches"],
        "duration_ns": into["duration_ns"], "blocks_per_sm": None, "occupancy_percent": None, "limit": None, "waves_mean": None,
        "below_wave_percent": None,
    }  # fmt: skip
    has = (major, warps, blocks, file, memory)
    if any(v is None or v <= 0 for v in (threads, *has)) or registers is None:
        return row
    fit = occupancy(threads, registers, shared, Limits(warps, blocks, file, memory, major))
    row.update(blocks_per_sm=fit.blocks, occupancy_percent=100 * fit.occupancy, limit=fit.limit)
    grids = sorted((g, t) for g, t in into["grids"] if g is not None)
    time = sum(t for _, t in grids)
    if sms is not None and sms > 0 and fit.blocks and time:
        at_once = sms * fit.blocks
        row["waves_mean"] = sum(g * t for g, t in grids) / (at_once * time)
        row["below_wave_percent"] = 100 * sum(t for g, t in grids if g < at_once) / time
    return row


def _schema(columns: Sequence[AnswerColumn]) -> Any:
    reals = {"occupancy_percent": "1", "waves_mean": "2", "below_wave_percent": "1"}
    texts = ("name", "limit")
    return pa.schema(
        [
            pa.field(c.name, pa.float64(), metadata={"decimals": reals[c.name]})
            if c.name in reals
            else pa.field(c.name, pa.string() if c.name in texts else pa.int64())
            for c in columns
        ]
    )


RECIPE = Occupancy()

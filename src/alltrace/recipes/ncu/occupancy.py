"""How many warps would fit with other block sizes, registers or shared memory: one row per launch and block size.

The rules of NVIDIA's occupancy calculator: blocks of a multiprocessor are limited by their number, their warps, their
registers, of which each scheduler has a share and allocates 256 per warp at a time, and their shared memory, from what
the launch configured. Nsight Compute stores these curves in reports, and the tests compare them.
"""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from alltrace.recipes.base import Answer, Chart, View
from alltrace.recipes.ncu import tables
from alltrace.recipes.ncu.tables import IDENTITY, Profiled, identity, lacking
from alltrace.trace import columns as col
from alltrace.trace.launches import Launch

COLUMNS = (
    *IDENTITY,
    col.whole("block_size", "threads per block"),
    col.flag("own", "whether it is the launch's own block size"),
    col.whole("registers", "registers per thread: the launch's own, or --registers"),
    col.size("shared_memory_bytes", "shared memory per block with the driver's part: the launch's, or --shared-memory"),
    col.whole("blocks", "blocks that fit on a multiprocessor"),
    col.whole("warps", "warps of these blocks"),
    col.percent("occupancy_percent", "warps as a share of the most warps per multiprocessor", None),
    col.text("limiter", "the resource that limits the blocks per multiprocessor; several if equal"),
)  # fmt: skip
CHART = Chart(
    "scatter",
    "block_size",
    ("occupancy_percent",),
    "name",
    detail="limiter",
    title="Theoretical occupancy by block size",
)
WARP = 32
_SCHEDULERS = 4
_UNIT = 256
_MOST = 1024
_DEVICE = "device__attribute_"
_NEEDED = {
    "warps": "max_warps_per_multiprocessor",
    "blocks": "max_blocks_per_multiprocessor",
    "registers": "max_registers_per_multiprocessor",
}


class Limits(NamedTuple):
    """What a multiprocessor has, and what the launch took of it."""

    warps: int  # warps that it holds at most
    blocks: int  # blocks
    registers: int  # registers
    shared: int | None  # shared memory as the launch had it configured, bytes; None if it is not known or not used
    schedulers: int  # schedulers, of which each has its share of the registers
    barriers: int | None  # blocks that barriers allow; None if the report does not say


def limits_of(launch: Launch) -> Limits | None:
    """The limits of a launch; None if the report does not have them."""
    attributes = {name: launch.number_of(_DEVICE + attribute) for name, attribute in _NEEDED.items()}
    warps, blocks, registers = (attributes[name] for name in _NEEDED)
    if not warps or not blocks or not registers:
        return None
    shared, barriers = (
        launch.number_of("launch__shared_mem_config_size"),
        launch.number_of("launch__occupancy_limit_barriers"),
    )
    schedulers = launch.number_of(f"{_DEVICE}num_schedulers_per_multiprocessor") or _SCHEDULERS
    return Limits(
        int(warps),
        int(blocks),
        int(registers),
        int(shared) if shared else None,
        int(schedulers),
        int(barriers) if barriers else None,
    )


def fits(limits: Limits, block_size: int, registers: int, shared: int) -> tuple[int, dict[str, int]]:
    """How many blocks fit, and how many each limit would let on."""
    warps = -(-block_size // WARP)
    allowed = {"warps": limits.warps // warps, "blocks": limits.blocks}
    if registers > 0:
        of_warp = -(-registers * WARP // _UNIT) * _UNIT
        allowed["registers"] = limits.registers // limits.schedulers // of_warp * limits.schedulers // warps
    if shared > 0 and limits.shared is not None:
        allowed["shared memory"] = limits.shared // shared
    if limits.barriers is not None:
        allowed["barriers"] = limits.barriers
    return min(allowed.values()), allowed


def answer(profiled: Sequence[Profiled], notes: Sequence[str], chosen: Mapping[str, int] | None = None) -> Answer:
    """A row per launch and block size, 1 warp to 1,024 threads; `chosen`: registers or shared memory instead."""
    chosen = chosen or {}
    rows: list[tuple[Any, ...]] = []
    computed = []
    for each in profiled:
        launch = each.launch
        limits = limits_of(launch)
        registers = chosen.get("registers", launch.number_of("launch__registers_per_thread"))
        own_shared = launch.number_of("launch__shared_mem_per_block_allocated", "launch__shared_mem_per_block")
        shared = chosen.get("shared_memory", own_shared)
        computed.append(limits is not None and registers is not None and shared is not None)
        if limits is None or registers is None or shared is None:
            continue
        size = launch.number_of("launch__block_size") or (_product(launch.block) if launch.block else None)
        sizes = {n * WARP for n in range(1, _MOST // WARP + 1)} | ({int(size)} if size and 0 < size <= _MOST else set())
        for block_size in sorted(sizes):
            blocks, allowed = fits(limits, block_size, int(registers), int(shared))
            warps = blocks * -(-block_size // WARP)
            limiter = ", ".join(what for what, n in allowed.items() if n == blocks)
            rows.append(
                (*identity(each), block_size, block_size == size, int(registers), int(shared), blocks, warps,
                 100 * warps / limits.warps, limiter)
            )  # fmt: skip
    texts = lacking(
        notes, profiled, computed, "device attributes or no registers", "a printed page has them with `--page raw`"
    )
    return Answer(tables.table(COLUMNS, rows), COLUMNS, texts, chart=CHART)


def _product(sizes: tuple[int, int, int]) -> int:
    x, y, z = sizes
    return x * y * z


VIEW = View(COLUMNS, answer, CHART)

"""Points of a roofline: work per second over work per byte, for each precision and level of memory, under the device's ceilings.

Williams, Waterman and Patterson, "Roofline", CACM 52(4), 2009; a level of memory each: Yang, Kurth and Williams, "Hierarchical
Roofline analysis for GPUs", CCPE 32(20), 2020.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from alltrace.recipes.base import Answer, Chart
from alltrace.recipes.ncu import tables
from alltrace.recipes.ncu.ceilings import (
    LEVELS,
    PRECISIONS,
    SECTOR,
    capability,
    ceilings,
    per_second,
    sm_clock,
    tensor_flop_per_cycle,
)
from alltrace.recipes.ncu.tables import IDENTITY, identity, typed

if TYPE_CHECKING:
    from collections.abc import Sequence

    from alltrace.recipes.ncu.ceilings import Ceiling
    from alltrace.recipes.ncu.tables import Profiled
    from alltrace.trace.launches import Launch

_TYPED = (
    *IDENTITY,
    typed("precision", str, None, "FP64, FP32 or FP16/BF16 tensor; null where the report counts no operations"),
    typed("level", str, None, "L1, L2 or DRAM"),
    typed("point", str, None, "precision and level"),
    typed("work_flop_per_s", float, "FLOP/s", "operations done"),
    typed("moved_bytes_per_s", float, "bytes/s", "bytes moved at this level"),
    typed("intensity_flop_per_byte", float, "FLOP/byte", "operations per byte moved"),
    typed("peak_flop_per_s", float, "FLOP/s", "the precision's ceiling at the clock of the launch"),
    typed("peak_bytes_per_s", float, "bytes/s", "the level's ceiling"),
    typed("roof_flop_per_s", float, "FLOP/s", "the lower of peak_flop_per_s and intensity times peak_bytes_per_s"),
    typed("roof_percent", float, "%", "work_flop_per_s of roof_flop_per_s"),
    typed("under", str, None, "the ceiling that the point is under: compute or memory"),
    typed("basis", str, None, "how operations were counted: instructions, operations or pipe activity"),
)
COLUMNS = tables.plain(_TYPED)
CHART = Chart("roofline", "intensity_flop_per_byte", ("work_flop_per_s",), "point", detail="name", title="Roofline")
_OPERATIONS = re.compile(r"sm__ops_path_tensor_src_(?:fp16|bf16)(_dst_fp(?:16|32))?(_sparsity_o(?:n|ff))?\.sum(?:\.per_second)?")
_VOLTA = 512  # operations of a tensor instruction of a warp: two products of 8x4 by 4x8


def answer(profiled: Sequence[Profiled], notes: Sequence[str]) -> Answer:
    """One row per launch, precision and level; beside it the list `ceilings`, of each device."""
    rows = []
    uncounted = 0
    best: dict[tuple[str, str], Ceiling] = {}
    for each in profiled:
        known = ceilings(each.launch)
        for name, ceiling in known.items():
            kept = best.get((ceiling.device, name))
            if kept is None or kept.value < ceiling.value:
                best[ceiling.device, name] = ceiling
        work = operations(each.launch)
        uncounted += not work
        traffic = {level: moved(each.launch, level) for level in LEVELS}
        counted: list[str | None] = [p for p in PRECISIONS if p in work]
        for precision in counted or [None]:
            rows += [_row(each, precision, level, work, traffic[level], known) for level in LEVELS]
    said = list(notes)
    if uncounted:
        said.append(
            f"{uncounted} of {len(profiled)} launches have no count of floating-point operations in their report; "
            "`ncu --set roofline` collects them"
        )
    return Answer(tables.table(_TYPED, rows), COLUMNS, tuple(said), {"ceilings": _shown(list(best.values()))}, CHART)


def _row(
    each: Profiled,
    precision: str | None,
    level: str,
    work: dict[str, tuple[float, str]],
    rate: float | None,
    known: dict[str, Ceiling],
) -> tuple[Any, ...]:
    done, basis = work[precision] if precision else (None, None)
    peak = known[precision].value if precision in known else None
    bandwidth = known[level].value if level in known else None
    intensity = done / rate if done is not None and rate else None
    slope = intensity * bandwidth if intensity is not None and bandwidth is not None else None
    roof = min(peak, slope) if peak is not None and slope is not None else None
    return (
        *identity(each),
        precision,
        level,
        f"{precision}, {level}" if precision else None,
        done,
        rate,
        intensity,
        peak,
        bandwidth,
        roof,
        100 * done / roof if done is not None and roof else None,
        ("memory" if roof == slope else "compute") if roof else None,
        basis,
    )


def _shown(found: list[Ceiling]) -> list[dict[str, Any]]:
    devices = {c.device for c in found}
    return [
        {
            "name": f"{c.name}, {c.device}" if len(devices) > 1 else c.name,
            "kind": c.kind,
            "value": c.value,
            "unit": "FLOP/s" if c.kind == "compute" else "bytes/s",
            "at_highest_clock": c.greatest,
            "source": c.source,
            "device": c.device,
        }
        for c in found
    ]


def operations(launch: Launch) -> dict[str, tuple[float, str]]:
    """Floating-point operations per second by precision, and how they were counted; precisions that are not counted are left out.

    FP64 and FP32: additions, multiplications and twice the fused multiply-adds of all threads (Kernel Profiling Guide, "Roofline
    Charts"). Tensor: what the report counts; of Volta, 512 per instruction; else the share of cycles in which the FP16 pipe worked
    times what it can do per cycle, which is exact as far as every instruction keeps the pipe busy for as long as it must.
    """
    found: dict[str, tuple[float, str]] = {}
    for precision, letter in (("FP64", "d"), ("FP32", "f")):
        each = [_instructions(launch, f"{letter}{op}") for op in ("add", "mul", "fma")]
        if None not in each:
            add, multiply, fused = (e or 0.0 for e in each)
            found[precision] = add + multiply + 2 * fused, "instructions"
    tensor = _tensor(launch)
    if tensor is not None:
        found["FP16/BF16 tensor"] = tensor
    return found


def _instructions(launch: Launch, op: str) -> float | None:
    """Instructions of all threads per second."""
    for unit in ("smsp", "sm"):
        name = f"{unit}__sass_thread_inst_executed_op_{op}_pred_on"
        rate = per_second(launch, name)
        cycles = launch.number_of(f"{name}.sum.per_cycle_elapsed")
        clock = launch.number_of(f"{unit}__cycles_elapsed.avg.per_second") or sm_clock(launch)
        if rate is not None:
            return rate
        if cycles is not None and clock:
            return cycles * clock
    return None


def _tensor(launch: Launch) -> tuple[float, str] | None:
    kinds: dict[tuple[bool, bool], dict[str, float]] = {}
    for metric in launch.metrics:
        if (match := _OPERATIONS.fullmatch(metric)) is None:
            continue
        name = metric.partition(".sum")[0]
        if (rate := per_second(launch, name)) is not None:
            kinds.setdefault((match[2] is None, match[1] is None), {})[name] = rate
    if kinds:  # sums of sums would count twice: sums over sparsity first, then those by what is written
        choice = next(k for k in ((True, False), (True, True), (False, False), (False, True)) if k in kinds)
        return sum(kinds[choice].values()), "operations"
    clock = sm_clock(launch)
    if capability(launch) == (7, 0):
        cycles = launch.number_of("smsp__inst_executed_pipe_tensor.sum.per_cycle_elapsed")
        if cycles is not None and clock:
            return _VOLTA * cycles * clock, "instructions"
    share, rate = _pipe_share(launch), tensor_flop_per_cycle(launch)
    return None if share is None or rate is None or clock is None else (share * rate * clock, "pipe activity")


def _pipe_share(launch: Launch) -> float | None:
    """Cycles of the launch in which the tensor pipe worked on FP16 or BF16, of all; None where that cannot be told."""
    elapsed = ".avg.pct_of_peak_sustained_elapsed"
    own = launch.number_of(f"sm__pipe_tensor_op_hmma_cycles_active{elapsed}")
    whole = launch.number_of(f"sm__pipe_tensor_cycles_active{elapsed}")
    if own is not None:
        return own / 100
    if whole is None:
        return None
    active = ".avg.pct_of_peak_sustained_active"
    others = [launch.number_of(f"sm__inst_executed_pipe_tensor_op_{op}{active}") for op in ("imma", "dmma")]
    return whole / 100 if whole == 0 or others == [0, 0] else None


def moved(launch: Launch, level: str) -> float | None:
    """Bytes per second that a level of memory moved; None where the report does not say.

    DRAM: read and written. L2: sectors that L1 asked of it. L1: sectors of global, local, texture and surface accesses; where those
    are not counted, what its write-back stage gave to registers, 128 bytes per cycle.
    """
    if level == "DRAM":
        return _first(
            per_second(launch, "dram__bytes"), _sum(per_second(launch, f"dram__bytes_{way}") for way in ("read", "write"))
        )  # fmt: skip
    if level == "L2":
        return _first(
            per_second(launch, "lts__t_bytes_srcunit_tex"),
            _times(per_second(launch, "lts__t_sectors_srcunit_tex"), SECTOR),
            _times(per_second(launch, "lts__lts2xbar_cycles_active"), SECTOR),
        )
    sectors = [f"l1tex__t_sectors_pipe_lsu_mem_{space}_op_{op}" for space in ("global", "local") for op in ("ld", "st")]
    more = ["l1tex__t_sectors_pipe_lsu_mem_global_op_atom", "l1tex__t_sectors_pipe_lsu_mem_global_op_red",
            "l1tex__t_sectors_pipe_tex_mem_texture", "l1tex__t_sectors_pipe_tex_mem_surface"]  # fmt: skip
    counted = _sum(per_second(launch, s) for s in sectors)
    if counted is not None:
        counted += sum(per_second(launch, s) or 0.0 for s in more)
    return _first(
        per_second(launch, "l1tex__t_bytes"),
        _times(per_second(launch, "l1tex__t_sectors"), SECTOR),
        _times(counted, SECTOR),
        _times(per_second(launch, "l1tex__lsu_writeback_active_mem_lg"), 128),
    )


def _first(*values: float | None) -> float | None:
    return next((v for v in values if v is not None), None)


def _times(value: float | None, factor: float) -> float | None:
    return None if value is None else value * factor


def _sum(values: Any) -> float | None:
    found = list(values)
    return None if None in found else sum(found)

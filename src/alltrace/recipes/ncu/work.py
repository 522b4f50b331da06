"""What a launch did: operations per second by precision, and bytes per second by level of memory."""

import re
from typing import Any

from alltrace.recipes.ncu.ceilings import (
    HALF,
    SECTOR,
    TENSOR_PRECISIONS,
    capability,
    per_second,
    precision_of_source,
    sm_clock,
    tensor_per_cycle,
)
from alltrace.trace.launches import Launch

_OPERATIONS = re.compile(
    r"sm__ops_path_tensor(_op_[a-z]+)?_src_((?:tf|bf|fp|int)[0-9]+(?:_(?:fp|"
    r"int)[0-9]+)*?)(_dst_[a-z]+[0-9]+)?(_sparsity_o(?:n|ff))?"
    r"\.sum(?:\.per_second|\.per_cycle_elapsed)?"
)
_VOLTA = 512  # operations of a tensor instruction of a warp: two products of 8x4 by 4x8
_ELAPSED = ".avg.pct_of_peak_sustained_elapsed"


def operations(launch: Launch) -> dict[str, tuple[float, str]]:
    """Floating-point operations per second by precision, and how they were counted; others are left out.

    FP64 and FP32: additions, multiplications and twice the fused multiply-adds of all threads (Kernel Profiling Guide,
    "Roofline Charts"). Tensor: what the report counts; of Volta, 512 per instruction; else the share of cycles in which
    the pipe worked on FP16, BF16 or FP64 times what it can do per cycle, which is exact as far as every instruction
    keeps the pipe busy for as long as it must.
    """
    by_precision: dict[str, tuple[float, str]] = {}
    for precision, letter in (("FP64", "d"), ("FP32", "f")):
        each = [_instructions(launch, f"{letter}{op}") for op in ("add", "mul", "fma")]
        if None not in each:
            add, multiply, fused = (e or 0.0 for e in each)
            by_precision[precision] = add + multiply + 2 * fused, "instructions"
    counted = _counted(launch)
    by_precision |= {precision: counted[precision] for precision in TENSOR_PRECISIONS if precision in counted}
    if HALF not in counted and (half := _half(launch)) is not None:
        by_precision[HALF] = half
    double = launch.number_of(f"sm__pipe_tensor_op_dmma_cycles_active{_ELAPSED}")
    rate, clock = tensor_per_cycle(launch, "FP64 tensor"), sm_clock(launch)
    if "FP64 tensor" not in counted and double and rate and clock:
        by_precision["FP64 tensor"] = double / 100 * rate * clock, "pipe activity"
    return by_precision


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


def _counted(launch: Launch) -> dict[str, tuple[float, str]]:
    """Operations of tensor cores that the report counts, by precision."""
    kinds: dict[str, dict[tuple[bool, bool, bool], dict[str, float]]] = {}
    for metric in launch.metrics:
        if (match := _OPERATIONS.fullmatch(metric)) is None or (precision := precision_of_source(match[2])) is None:
            continue
        name = metric.partition(".sum")[0]
        if (rate := _rate(launch, name)) is not None:
            kind = (match[4] is not None, match[3] is not None, match[1] is not None)
            kinds.setdefault(precision, {}).setdefault(kind, {})[name] = rate
    # sums of sums would count twice: those over everything first, then by what is written, by instruction, by sparsity
    return {precision: (sum(kind[min(kind)].values()), "operations") for precision, kind in kinds.items()}


def _rate(launch: Launch, name: str) -> float | None:
    rate = per_second(launch, name)
    cycles, clock = launch.number_of(f"{name}.sum.per_cycle_elapsed"), sm_clock(launch)
    return cycles * clock if rate is None and cycles is not None and clock else rate


def _half(launch: Launch) -> tuple[float, str] | None:
    """FP16 and BF16 if they are not counted."""
    clock = sm_clock(launch)
    if capability(launch) == (7, 0):
        cycles = launch.number_of("smsp__inst_executed_pipe_tensor.sum.per_cycle_elapsed")
        if cycles is not None and clock:
            return _VOLTA * cycles * clock, "instructions"
    share, rate = _pipe_share(launch), tensor_per_cycle(launch, HALF)
    return None if share is None or rate is None or clock is None else (share * rate * clock, "pipe activity")


def _pipe_share(launch: Launch) -> float | None:
    """Cycles of the launch in which the tensor pipe worked on FP16 or BF16, of all; None if unknown."""
    own = launch.number_of(f"sm__pipe_tensor_op_hmma_cycles_active{_ELAPSED}")
    whole = launch.number_of(f"sm__pipe_tensor_cycles_active{_ELAPSED}")
    if own is not None:
        return own / 100
    if whole is None:
        return None
    active = ".avg.pct_of_peak_sustained_active"
    others = [launch.number_of(f"sm__inst_executed_pipe_tensor_op_{op}{active}") for op in ("imma", "dmma")]
    return whole / 100 if whole == 0 or others == [0, 0] else None


def moved(launch: Launch, level: str) -> float | None:
    """Bytes per second that a level of memory moved; None if the report does not say.

    DRAM: read and written. L2: sectors that L1 requested from it. L1: sectors of global, local, texture and surface
        accesses; where those are not counted, what its write-back stage wrote to registers, 128 bytes per cycle.
    """
    if level == "DRAM":
        return _first(
            per_second(launch, "dram__bytes"), _sum(per_second(launch, f"dram__bytes_{way}") for way in ("read",
                "write"))
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
    terms = list(values)
    return None if None in terms else sum(terms)

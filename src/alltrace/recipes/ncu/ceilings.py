"""What the GPU of a report can do at most, from the report's own metrics and device attributes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from alltrace.trace.launches import Launch

SECTOR = 32
"""Bytes of a sector of a cache line (Kernel Profiling Guide, "Memory")."""
L1_BYTES = 128
"""Bytes that an L1 cache gives per cycle (the same)."""
PRECISIONS = ("FP64", "FP32", "FP16/BF16 tensor")
LEVELS = ("L1", "L2", "DRAM")
_DEVICE = "device__attribute_"
_LANES = {
    **dict.fromkeys(((5, 0), (5, 2), (5, 3), (6, 1), (6, 2), (8, 6), (8, 7), (8, 9), (9, 0), (10, 0), (12, 0)), 128),
    **dict.fromkeys(((6, 0), (7, 0), (7, 2), (7, 5), (8, 0)), 64),
}
"""FP32 additions a multiprocessor does per cycle, by compute capability (CUDA C++ Programming Guide, "Arithmetic Instructions")."""
_TENSOR = {(7, 0): 1024, (7, 2): 1024, (7, 5): 1024, (8, 0): 2048, (8, 6): 1024, (8, 9): 1024, (9, 0): 4096}
"""Dense FP16 operations of the tensor cores of a multiprocessor per cycle, accumulated in FP16 (NVIDIA's whitepapers)."""


@dataclass(frozen=True)
class Ceiling:
    """A ceiling of a roofline.

    Attributes:
        device: The GPU.
        name: A precision or a level of memory.
        kind: `compute` or `memory`.
        value: FLOP/s or bytes/s, at the clock of the launch.
        greatest: The same at the device's highest clock; None where that is not known.
        source: Where the rate per cycle is from: `metric` or `device attributes`.
    """

    device: str
    name: str
    kind: str
    value: float
    greatest: float | None
    source: str


def capability(launch: Launch) -> tuple[int, int] | None:
    """Compute capability, major and minor."""
    found = [launch.number_of(f"{_DEVICE}compute_capability_{part}") for part in ("major", "minor")]
    return None if found[0] is None or found[1] is None else (int(found[0]), int(found[1]))


def sm_clock(launch: Launch) -> float | None:
    """Cycles of the multiprocessors per second while the launch ran; their highest clock where it was not measured."""
    names = (f"{unit}__cycles_elapsed.{how}.per_second" for unit in ("sm", "smsp", "gpc") for how in ("avg", "max"))
    return launch.number_of(*names) or _highest(launch, "max_gpu_frequency_khz", "clock_rate")


def tensor_flop_per_cycle(launch: Launch) -> float | None:
    """Dense FP16 operations of all tensor cores per cycle."""
    lanes, count = _TENSOR.get(capability(launch) or (0, 0)), launch.number_of(f"{_DEVICE}multiprocessor_count")
    return None if lanes is None or count is None else lanes * count


def ceilings(launch: Launch) -> dict[str, Ceiling]:
    """The ceilings that are known, by name."""
    device = launch.metrics.get(f"{_DEVICE}display_name")
    found: dict[str, Ceiling] = {}

    def add(name: str, kind: str, per_cycle: tuple[float | None, str], clock: float | None, highest: float | None) -> None:
        rate, source = per_cycle
        if rate and (clock or highest):
            value = rate * (clock or highest or 0.0)
            found[name] = Ceiling(str(device or ""), name, kind, value, rate * highest if highest else None, source)

    sm, highest = sm_clock(launch), _highest(launch, "max_gpu_frequency_khz", "clock_rate")
    for precision in ("FP64", "FP32"):
        add(precision, "compute", _flop_per_cycle(launch, precision), sm, highest)
    add("FP16/BF16 tensor", "compute", (tensor_flop_per_cycle(launch), "device attributes"), sm, highest)
    count = launch.number_of(f"{_DEVICE}multiprocessor_count")
    add("L1", "memory", (count * L1_BYTES if count else None, "device attributes"), sm, highest)
    l2 = _l2(launch)
    if l2 is not None:
        found["L2"] = Ceiling(str(device or ""), "L2", "memory", l2, None, "metric")
    dram = _highest(launch, "max_mem_frequency_khz", "memory_clock_rate")
    add("DRAM", "memory", _dram_bytes_per_cycle(launch), launch.number_of("dram__cycles_elapsed.avg.per_second"), dram)
    return found


def _flop_per_cycle(launch: Launch, precision: str) -> tuple[float | None, str]:
    letter = "d" if precision == "FP64" else "f"
    peak = launch.number_of(f"sm__sass_thread_inst_executed_op_{letter}fma_pred_on.sum.peak_sustained")
    if peak is not None:
        return 2 * peak, "metric"  # a fused multiply-add is two operations
    lanes, count = _LANES.get(capability(launch) or (0, 0)), launch.number_of(f"{_DEVICE}multiprocessor_count")
    if lanes is None or count is None:
        return None, ""
    ratio = launch.number_of(f"{_DEVICE}single_to_double_precision_perf_ratio") if precision == "FP64" else 1.0
    return (2 * lanes * count / ratio if ratio else None), "device attributes"


def _dram_bytes_per_cycle(launch: Launch) -> tuple[float | None, str]:
    peak = launch.number_of("dram__bytes.sum.peak_sustained")
    if peak is not None:
        return peak, "metric"
    width = launch.number_of(f"{_DEVICE}global_memory_bus_width", f"{_DEVICE}fb_bus_width")
    return (2 * width / 8 if width else None), "device attributes"  # two transfers per cycle


def _l2(launch: Launch) -> float | None:
    """Bytes per second between L1 and L2 at most: what was moved, by the share of the peak that it was."""
    for name in ("lts__t_sectors_srcunit_tex", "lts__t_sectors"):
        rate = per_second(launch, name)
        share = launch.number_of(*(f"{name}.{how}.pct_of_peak_sustained_elapsed" for how in ("sum", "avg")))
        if rate and share:
            return SECTOR * rate / (share / 100)
    return None


def per_second(launch: Launch, name: str) -> float | None:
    """The sum of a metric per second: as the report has it, or its sum by the duration."""
    rate, whole = launch.number_of(f"{name}.sum.per_second"), launch.number_of(f"{name}.sum")
    duration = launch.number_of("gpu__time_duration.sum")
    if rate is not None:
        return rate
    return whole / duration * 1e9 if whole is not None and duration else None


def _highest(launch: Launch, *attributes: str) -> float | None:
    """A clock of the device in Hz; the attributes are in kHz."""
    khz = launch.number_of(*(_DEVICE + a for a in attributes))
    return khz * 1e3 if khz else None

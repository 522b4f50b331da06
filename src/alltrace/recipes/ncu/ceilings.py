"""What the GPU of a report can do at most, from the report's own metrics and device attributes."""

import re
from dataclasses import dataclass

from alltrace.recipes.analysis.device_peaks import peaks_of
from alltrace.trace.launches import Launch

SECTOR = 32  # bytes of a sector of a cache line (Kernel Profiling Guide, "Memory")
L1_BYTES = 128  # bytes that an L1 cache delivers per cycle (same source)
HALF = "FP16/BF16 tensor"
TENSOR_PRECISIONS = ("FP64 tensor", "TF32 tensor", HALF, "FP8 tensor", "FP4 tensor", "INT8 tensor")
PRECISIONS = ("FP64", "FP32", *TENSOR_PRECISIONS)
"""The precisions of roofs; those of tensor cores are for dense products. FP6 runs as FP8 does."""
_SOURCES = {"fp64": "FP64 tensor", "tf32": "TF32 tensor", "fp16": HALF, "bf16": HALF, "fp8": "FP8 tensor",
            "fp6": "FP8 tensor", "fp4": "FP4 tensor", "int8": "INT8 tensor"}  # fmt: skip
LEVELS = ("L1", "L2", "DRAM")
_DEVICE = "device__attribute_"
_PEAK = re.compile(
    r"sm__ops_path_tensor_src_([a-z0-9_]+?)(?:_dst_[a-z]+[0-9]+)?(_sparsity_o(?:n|ff))?\.sum\.peak_sustained"
)
_LANES = {
    **dict.fromkeys(((5, 0), (5, 2), (5, 3), (6, 1), (6, 2), (8, 6), (8, 7), (8, 9), (9, 0), (10, 0), (12, 0)), 128),
    **dict.fromkeys(((6, 0), (7, 0), (7, 2), (7, 5), (8, 0)), 64),
}
"""FP32 additions a multiprocessor and cycle, by capability (CUDA C++ Programming Guide, "Arithmetic Instructions")."""
_TENSOR: dict[tuple[int, int], dict[str, int]] = {
    (7, 0): {HALF: 1024},
    (7, 2): {HALF: 1024},
    (7, 5): {HALF: 1024, "INT8 tensor": 2048},
    (8, 0): {"FP64 tensor": 128, "TF32 tensor": 1024, HALF: 2048, "INT8 tensor": 4096},
    (8, 6): {HALF: 1024, "INT8 tensor": 2048},
    (8, 9): {HALF: 1024, "FP8 tensor": 2048, "INT8 tensor": 2048},
    (9, 0): {"FP64 tensor": 256, "TF32 tensor": 2048, HALF: 4096, "FP8 tensor": 8192, "INT8 tensor": 8192},
    (10, 0): {"TF32 tensor": 4096, HALF: 8192, "FP8 tensor": 16384, "FP4 tensor": 32768, "INT8 tensor": 16384},
    (12, 0): {HALF: 1024, "FP8 tensor": 2048, "FP4 tensor": 4096, "INT8 tensor": 2048},
}
"""Dense operations of the tensor cores of a multiprocessor per cycle, of FP16 and FP8 accumulated in FP16 (NVIDIA's
whitepapers of V100, Turing, A100, GA102, Ada, H100 and RTX Blackwell; 10.0: data sheet of HGX B200, 148 multiprocessors
at 1.85 GHz). TF32 of 8.6, 8.9 and 12.0 is left out: products differ by a factor of two."""
_SHEETS = {"FP64": "fp64", "FP32": "fp32", "FP64 tensor": "fp64_tensor", "TF32 tensor": "tf32", HALF: "half",
           "FP8 tensor": "fp8", "FP4 tensor": "fp4", "INT8 tensor": "int8"}  # fmt: skip


@dataclass(frozen=True)
class Ceiling:
    device: str  # the GPU
    name: str  # a precision or a level of memory
    kind: str  # `compute` or `memory`
    value: float  # FLOP/s or bytes/s, at the clock of the launch
    greatest: float | None  # the same at the device's highest clock; None if that is not known
    # where the rate per cycle is from: `metric`, `device attributes`, or `data sheet` of the GPU of that name
    source: str


def capability(launch: Launch) -> tuple[int, int] | None:
    parts = [launch.number_of(f"{_DEVICE}compute_capability_{part}") for part in ("major", "minor")]
    return None if parts[0] is None or parts[1] is None else (int(parts[0]), int(parts[1]))


def sm_clock(launch: Launch) -> float | None:
    """Cycles of the multiprocessors per second while the launch ran; their highest clock if it was not measured."""
    names = (f"{unit}__cycles_elapsed.{how}.per_second" for unit in ("sm", "smsp", "gpc") for how in ("avg", "max"))
    return launch.number_of(*names) or _highest(launch, "max_gpu_frequency_khz", "clock_rate")


def precision_of_source(formats: str) -> str | None:
    """The precision of operations by the formats that they read, such as `tf32` or `fp4_fp6_fp8`: the widest counts."""
    precisions = [_SOURCES.get(each) for each in formats.split("_")]
    return None if None in precisions else precisions[-1]


def tensor_per_cycle(launch: Launch, precision: str) -> float | None:
    """Dense operations of all tensor cores per cycle, from the device attributes."""
    rates, count = _TENSOR.get(capability(launch) or (0, 0), {}), launch.number_of(f"{_DEVICE}multiprocessor_count")
    return None if precision not in rates or count is None else rates[precision] * count


def _tensor_ceiling(launch: Launch, precision: str) -> tuple[float | None, str]:
    """The most operations per cycle, without sparse products if the report separates them."""
    for dense in ("_sparsity_off", ""):
        peaks = []
        for metric in launch.metrics:
            match = _PEAK.fullmatch(metric)
            if match is not None and precision_of_source(match[1]) == precision and (match[2] or "") == dense:
                peaks.append(launch.number_of(metric) or 0.0)
        if any(peaks):
            return max(peaks), "metric"
    return tensor_per_cycle(launch, precision), "device attributes"


def ceilings(launch: Launch) -> dict[str, Ceiling]:
    """The ceilings that are known, by name."""
    device = launch.metrics.get(f"{_DEVICE}display_name")
    by_name: dict[str, Ceiling] = {}

    def add(
        name: str, kind: str, per_cycle: tuple[float | None, str], clock: float | None, highest: float | None
    ) -> None:
        rate, source = per_cycle
        if rate and (clock or highest):
            value = rate * (clock or highest or 0.0)
            by_name[name] = Ceiling(str(device or ""), name, kind, value, rate * highest if highest else None, source)

    sm, highest = sm_clock(launch), _highest(launch, "max_gpu_frequency_khz", "clock_rate")
    for precision in ("FP64", "FP32"):
        add(precision, "compute", _flop_per_cycle(launch, precision), sm, highest)
    for precision in TENSOR_PRECISIONS:
        add(precision, "compute", _tensor_ceiling(launch, precision), sm, highest)
    _from_data_sheet(by_name, str(device or ""), sm / highest if sm and highest else 1.0)
    count = launch.number_of(f"{_DEVICE}multiprocessor_count")
    add("L1", "memory", (count * L1_BYTES if count else None, "device attributes"), sm, highest)
    l2 = _l2(launch)
    if l2 is not None:
        by_name["L2"] = Ceiling(str(device or ""), "L2", "memory", l2, None, "metric")
    dram = _highest(launch, "max_mem_frequency_khz", "memory_clock_rate")
    add("DRAM", "memory", _dram_bytes_per_cycle(launch), launch.number_of("dram__cycles_elapsed.avg.per_second"), dram)
    return by_name


def _from_data_sheet(by_name: dict[str, Ceiling], device: str, pace: float) -> None:
    """Add missing roofs from the data sheet of the GPU with this name, which has them at its highest clock."""
    sheet = peaks_of(device)
    for precision, field in _SHEETS.items():
        rate = getattr(sheet, field) if sheet is not None else None
        if rate and precision not in by_name:
            by_name[precision] = Ceiling(device, precision, "compute", rate * 1e12 * pace, rate * 1e12, "data sheet")


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
    """The sum of a metric per second: as in the report, or its sum divided by the duration."""
    rate, whole = launch.number_of(f"{name}.sum.per_second"), launch.number_of(f"{name}.sum")
    duration = launch.number_of("gpu__time_duration.sum")
    if rate is not None:
        return rate
    return whole / duration * 1e9 if whole is not None and duration else None


def _highest(launch: Launch, *attributes: str) -> float | None:
    """A clock of the device in Hz; the attributes are in kHz."""
    khz = launch.number_of(*(_DEVICE + a for a in attributes))
    return khz * 1e3 if khz else None

"""How fast a device multiplies matrices in each format, from its data sheet.

Rates are of dense arithmetic at the boost clock, in 10^12 operations a second. Sources: NVIDIA's data sheets of V100,
T4, A100, A30, A10, A40, L4, L40S, H100, H200, Blackwell (HGX B200 and B300, where sparse rates are halved) and the
whitepapers of the GeForce architectures (fp16 with sums in fp32); AMD's data sheets of MI210, MI250X, MI300A, MI300X,
MI325X, MI350X, MI355X. `half` is fp16 or bf16, whichever the device has; None is a format that it does not multiply.
"""

import re
from functools import cache
from typing import NamedTuple

from alltrace.recipes.analysis.kernel_families import FP32, HALF, TF32, TF32X3

# What bounds a kernel on a device: the rate of its arithmetic, that of its memory, and how many multiprocessors it has
# to fill. Rates of arithmetic are those of `device_peaks`. Rates of memory, in 10^9 bytes a second, and multiprocessors
# (of AMD's devices compute units) are those of the vendors' data sheets as of November 2026: NVIDIA's of V100, T4,
# A100, A30, A10, A40, L4, L40S, H100, H200, GH200, HGX B200 and B300 and of the GeForce cards; AMD's of MI210, MI250X,
# MI300A, MI300X, MI325X, MI350X, MI355X. A process sees one of the two dies of an MI250X as a device, which has half of
# each number.


class Roof(NamedTuple):
    """What a device can do at most."""

    peaks: "Peaks"  # of arithmetic
    memory_gb_per_s: float  # of its memory, 10^9 bytes a second
    units: int  # multiprocessors, or compute units
    dies: int = 1  # devices that share `peaks`

    def flop_per_s(self, rate: float) -> float:
        """One of the rates of `peaks` as operations a second of this device."""
        return rate * 1e12 / self.dies

    @property
    def bytes_per_s(self) -> float:
        """The rate of its memory."""
        return self.memory_gb_per_s * 1e9


_MEMORY = (
    (r"V100|Titan V\b|GV100", 900, 80), (r"\bT4\b", 320, 40), (r"(?:A100|A800).*80GB", 2039, 108),
    (r"\bA100\b|\bA800\b", 1555, 108), (r"\bA30\b", 933, 56), (r"\bA10G?\b", 600, 72), (r"\bA40\b|RTX A6000", 696, 84),
    (r"H100.*PCIe", 2039, 114), (r"GH200", 4000, 132), (r"H200", 4800, 132), (r"H100|H800", 3352, 132),
    (r"L40S", 864, 142), (r"\bL4\b", 300, 58), (r"B[23]00", 8000, 148), (r"RTX 3080", 760, 68), (r"RTX 3090", 936, 82),
    (r"RTX 4090", 1008, 128), (r"RTX 5090", 1792, 170), (r"MI210", 1638, 104), (r"MI250", 1638, 104),
    (r"MI300A", 5300, 228), (r"MI300X", 5300, 304), (r"MI325X", 6000, 304), (r"MI35[05]X", 8000, 256),
)  # fmt: skip
_NAMES = (
    "V100,T4,A100,A100 80GB,A30,A10,A40,H100,H100 PCIe,H200,L40S,L4,B200,RTX 3080,RTX 3090,RTX 4090,RTX 5090,MI210,"
    "MI250X,MI300A,MI300X,MI325X,MI350X,MI355X"
).split(",")
_DIES = {"MI250": 2}
# AMD's kernels are compiled for one instruction set; of several devices with it the one that most clusters have
_OF_CODE = ((r"ISA942|gfx942", "MI300X"), (r"ISA950|gfx950", "MI355X"), (r"ISA90a|gfx90a", "MI250X"))


def roof_of(device: str | None) -> Roof | None:
    """The roof of a device by its name, such as `NVIDIA A100-SXM4-80GB`; None if it is not in the tables."""
    peaks = peaks_of(device)
    row = next(((gb, units) for pattern, gb, units in _MEMORY if device and re.search(pattern, device)), None)
    if peaks is None or row is None:
        return None
    dies = next((count for name, count in _DIES.items() if device and name in device), 1)
    return Roof(peaks, *row, dies)


def device_of_code(kernel: str) -> str | None:
    """The device that the instruction set in a kernel's name is of; None if the name has none."""
    return next((device for pattern, device in _OF_CODE if re.search(pattern, kernel)), None)


@cache
def lowest_roof() -> Roof:
    """The least of each number of the devices of the tables: what a device that is not known does at least."""
    roofs = _all_roofs()
    peaks = Peaks(min(r.peaks.fp32 for r in roofs), None, min(r.peaks.half / r.dies for r in roofs))
    return Roof(peaks, min(r.memory_gb_per_s for r in roofs), min(r.units for r in roofs))


@cache
def lowest_ridge(half: bool) -> float:
    """The intensity, in operations a byte, below which every device of the tables waits for its memory."""
    return min(r.flop_per_s(r.peaks.half if half else r.peaks.fp32) / r.bytes_per_s for r in _all_roofs())


def _all_roofs() -> list[Roof]:
    return [roof for name in _NAMES if (roof := roof_of(name)) is not None]


class Peaks(NamedTuple):
    """Rates of matrix products, 10^12 operations a second."""

    fp32: float  # with fp32 units, or matrix units that keep fp32
    tf32: float | None  # TF32
    half: float  # fp16 or bf16 with sums in fp32
    fp64: float | None = None  # with fp64 units, as the following None if the data sheet has none
    fp64_tensor: float | None = None  # with matrix units
    fp8: float | None = None  # FP8, of GeForce cards with sums in fp16
    int8: float | None = None  # INT8
    fp4: float | None = None  # FP4

    def rate(self, precision: str | None) -> float | None:
        """The rate in one of the formats of `kernel_families`; None if it has none."""
        if precision == TF32X3:
            return None if self.tf32 is None else self.tf32 / 3
        return {FP32: self.fp32, TF32: self.tf32, HALF: self.half}.get(precision or "")


_PEAKS = (
    (r"V100|Titan V\b|GV100", Peaks(15.7, None, 125.0, fp64=7.8)), (r"\bT4\b", Peaks(8.1, None, 65.0, int8=130.0)),
    (r"\bA100\b|\bA800\b", Peaks(19.5, 156.0, 312.0, fp64=9.7, fp64_tensor=19.5, int8=624.0)),
    (r"\bA30\b", Peaks(10.3, 82.0, 165.0, fp64=5.2, fp64_tensor=10.3, int8=330.0)),
    (r"\bA10G?\b", Peaks(31.2, 62.5, 125.0, int8=250.0)), (r"\bA40\b|RTX A6000", Peaks(37.4, 74.8, 149.7, int8=299.3)),
    (r"H100.*PCIe", Peaks(51.2, 378.0, 756.0, fp64=25.6, fp64_tensor=51.2, fp8=1513.0, int8=1513.0)),
    (r"H100|H200|H800|GH200", Peaks(66.9, 494.7, 989.4, fp64=33.5, fp64_tensor=66.9, fp8=1978.9, int8=1978.9)),
    (r"L40S", Peaks(91.6, 183.0, 362.0, fp8=733.0, int8=733.0)),
    (r"\bL4\b", Peaks(30.3, 60.0, 121.0, fp8=242.0, int8=242.0)),
    (r"B200", Peaks(75.0, 1100.0, 2250.0, fp64=37.0, fp64_tensor=37.0, fp8=4500.0, int8=4500.0, fp4=9000.0)),
    (r"B300", Peaks(75.0, 1100.0, 2250.0, fp8=4500.0)), (r"RTX 30[89]0", Peaks(35.6, 35.6, 71.0)),
    (r"RTX 4090", Peaks(82.6, 82.6, 165.2, fp8=660.6, int8=660.6)),
    (r"RTX 5090", Peaks(104.8, 104.8, 209.5, fp8=838.0, int8=838.0, fp4=1676.0)), (r"MI210", Peaks(45.3, None, 181.0)),
    (r"MI250", Peaks(95.7, None, 383.0)),
    (r"MI300A", Peaks(122.6, 490.3, 980.6, fp64=61.3, fp64_tensor=122.6, fp8=1961.2, int8=1961.2)),
    (r"MI300X|MI325X", Peaks(163.4, 653.7, 1307.4)), (r"MI350X", Peaks(144.2, None, 2306.9, fp8=4613.7, int8=4613.7)),
    (r"MI355X", Peaks(157.3, None, 2516.6, fp8=5033.2, int8=5033.2)),
)  # fmt: skip


def peaks_of(device: str | None) -> Peaks | None:
    """The peaks of a device by its name, such as `NVIDIA A100-SXM4-80GB`; None if it is not in the table."""
    return next((peaks for pattern, peaks in _PEAKS if device and re.search(pattern, device)), None)

"""What bounds a kernel on a device: the rate of its arithmetic, that of its memory, and how many multiprocessors it has to fill.

Rates of arithmetic are those of `device_peaks`. Rates of memory, in 10^9 bytes a second, and multiprocessors (of AMD's
devices compute units) are those of the vendors' data sheets as of November 2026: NVIDIA's of V100, T4, A100, A30, A10,
A40, L4, L40S, H100, H200, GH200, HGX B200 and B300 and of the GeForce cards; AMD's of MI210, MI250X, MI300A, MI300X,
MI325X, MI350X, MI355X. A process sees one of the two dies of an MI250X as a device, which has half of each number.
"""

from __future__ import annotations

import re
from functools import cache
from typing import NamedTuple

from alltrace.recipes.analysis.device_peaks import Peaks, peaks_of


class Roof(NamedTuple):
    """What a device can do at most."""

    peaks: Peaks  # of arithmetic
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
    (r"V100|Titan V\b|GV100", 900, 80),
    (r"\bT4\b", 320, 40),
    (r"(?:A100|A800).*80GB", 2039, 108),
    (r"\bA100\b|\bA800\b", 1555, 108),
    (r"\bA30\b", 933, 56),
    (r"\bA10G?\b", 600, 72),
    (r"\bA40\b|RTX A6000", 696, 84),
    (r"H100.*PCIe", 2039, 114),
    (r"GH200", 4000, 132),
    (r"H200", 4800, 132),
    (r"H100|H800", 3352, 132),
    (r"L40S", 864, 142),
    (r"\bL4\b", 300, 58),
    (r"B[23]00", 8000, 148),
    (r"RTX 3080", 760, 68),
    (r"RTX 3090", 936, 82),
    (r"RTX 4090", 1008, 128),
    (r"RTX 5090", 1792, 170),
    (r"MI210", 1638, 104),
    (r"MI250", 1638, 104),
    (r"MI300A", 5300, 228),
    (r"MI300X", 5300, 304),
    (r"MI325X", 6000, 304),
    (r"MI35[05]X", 8000, 256),
)
_NAMES = (
    *("V100", "T4", "A100", "A100 80GB", "A30", "A10", "A40", "H100", "H100 PCIe", "H200", "L40S", "L4", "B200", "RTX 3080"),
    *("RTX 3090", "RTX 4090", "RTX 5090", "MI210", "MI250X", "MI300A", "MI300X", "MI325X", "MI350X", "MI355X"),
)
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

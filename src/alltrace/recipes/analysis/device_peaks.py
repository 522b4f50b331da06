"""How fast a device multiplies matrices in each format, from its data sheet.

Rates are of dense arithmetic at the boost clock, in 10^12 operations a second. Sources: NVIDIA's data sheets of V100,
T4, A100, A30, A10, A40, L4, L40S, H100, H200, Blackwell (HGX B200 and B300, where sparse rates are halved) and the
whitepapers of the GeForce architectures (fp16 with sums in fp32); AMD's data sheets of MI210, MI250X, MI300A, MI300X,
MI325X, MI350X, MI355X. `half` is fp16 or bf16, whichever the device has; None is a format that it does not multiply.
"""

from __future__ import annotations

import re
from typing import NamedTuple

from alltrace.recipes.analysis.kernel_families import FP32, HALF, TF32, TF32X3


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
    (r"V100|Titan V\b|GV100", Peaks(15.7, None, 125.0, fp64=7.8)),
    (r"\bT4\b", Peaks(8.1, None, 65.0, int8=130.0)),
    (r"\bA100\b|\bA800\b", Peaks(19.5, 156.0, 312.0, fp64=9.7, fp64_tensor=19.5, int8=624.0)),
    (r"\bA30\b", Peaks(10.3, 82.0, 165.0, fp64=5.2, fp64_tensor=10.3, int8=330.0)),
    (r"\bA10G?\b", Peaks(31.2, 62.5, 125.0, int8=250.0)),
    (r"\bA40\b|RTX A6000", Peaks(37.4, 74.8, 149.7, int8=299.3)),
    (r"H100.*PCIe", Peaks(51.2, 378.0, 756.0, fp64=25.6, fp64_tensor=51.2, fp8=1513.0, int8=1513.0)),
    (r"H100|H200|H800|GH200", Peaks(66.9, 494.7, 989.4, fp64=33.5, fp64_tensor=66.9, fp8=1978.9, int8=1978.9)),
    (r"L40S", Peaks(91.6, 183.0, 362.0, fp8=733.0, int8=733.0)),
    (r"\bL4\b", Peaks(30.3, 60.0, 121.0, fp8=242.0, int8=242.0)),
    (r"B200", Peaks(75.0, 1100.0, 2250.0, fp64=37.0, fp64_tensor=37.0, fp8=4500.0, int8=4500.0, fp4=9000.0)),
    (r"B300", Peaks(75.0, 1100.0, 2250.0, fp8=4500.0)),
    (r"RTX 30[89]0", Peaks(35.6, 35.6, 71.0)),
    (r"RTX 4090", Peaks(82.6, 82.6, 165.2, fp8=660.6, int8=660.6)),
    (r"RTX 5090", Peaks(104.8, 104.8, 209.5, fp8=838.0, int8=838.0, fp4=1676.0)),
    (r"MI210", Peaks(45.3, None, 181.0)),
    (r"MI250", Peaks(95.7, None, 383.0)),
    (r"MI300A", Peaks(122.6, 490.3, 980.6, fp64=61.3, fp64_tensor=122.6, fp8=1961.2, int8=1961.2)),
    (r"MI300X|MI325X", Peaks(163.4, 653.7, 1307.4)),
    (r"MI350X", Peaks(144.2, None, 2306.9, fp8=4613.7, int8=4613.7)),
    (r"MI355X", Peaks(157.3, None, 2516.6, fp8=5033.2, int8=5033.2)),
)


def peaks_of(device: str | None) -> Peaks | None:
    """The peaks of a device by its name, such as `NVIDIA A100-SXM4-80GB`; None if it is not in the table."""
    return next((peaks for pattern, peaks in _PEAKS if device and re.search(pattern, device)), None)

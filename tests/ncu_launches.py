"""Launches as Nsight Compute would have measured them, by hand."""

from alltrace.recipes.ncu.tables import Profiled
from alltrace.trace.launches import Launch, short_name

ELAPSED = ".avg.pct_of_peak_sustained_elapsed"
ACTIVE = ".avg.pct_of_peak_sustained_active"
A100 = {
    "device__attribute_display_name": "A100",
    "device__attribute_compute_capability_major": 8,
    "device__attribute_compute_capability_minor": 0,
    "device__attribute_multiprocessor_count": 108,
    "device__attribute_max_gpu_frequency_khz": 1_410_000,
    "device__attribute_max_mem_frequency_khz": 1_215_000,
    "device__attribute_global_memory_bus_width": 5120,
    "device__attribute_single_to_double_precision_perf_ratio": 2,
}


def measured(metrics=None, number=0, name="void gemm<float>(float*)", grid=(80, 1, 1), block=(256, 1, 1)):
    """A launch with these metrics."""
    return Launch(number, name, short_name(name), grid, block, 1, 7, 4000, dict(metrics or {}))


def of(*launches, report="a.ncu-rep"):
    """The launches as of one report."""
    return [Profiled(report, each) for each in launches]

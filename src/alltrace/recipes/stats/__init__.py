"""The reports of `nsys stats`, column for column, over all ranks."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from alltrace.recipes import load
from alltrace.trace.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from alltrace.recipes.stats.base import StatsReport

REPORTS: dict[str, str] = {
    "cuda_api_gpu_sum": "alltrace.recipes.stats.sums:CudaApiGpuSum",
    "cuda_api_sum": "alltrace.recipes.stats.sums:CudaApiSum",
    "cuda_api_trace": "alltrace.recipes.stats.cuda_api_trace",
    "cuda_gpu_kern_gb_sum": "alltrace.recipes.stats.sums:CudaGpuKernGbSum",
    "cuda_gpu_kern_sum": "alltrace.recipes.stats.sums:CudaGpuKernSum",
    "cuda_gpu_mem_size_sum": "alltrace.recipes.stats.sums:CudaGpuMemSizeSum",
    "cuda_gpu_mem_time_sum": "alltrace.recipes.stats.sums:CudaGpuMemTimeSum",
    "cuda_gpu_sum": "alltrace.recipes.stats.sums:CudaGpuSum",
    "cuda_gpu_trace": "alltrace.recipes.stats.cuda_gpu_trace",
    "cuda_kern_exec_sum": "alltrace.recipes.stats.cuda_kern_exec_sum",
    "cuda_kern_exec_trace": "alltrace.recipes.stats.cuda_kern_exec_trace",
    "mpi_event_sum": "alltrace.recipes.stats.sums:MpiEventSum",
    "mpi_event_trace": "alltrace.recipes.stats.mpi_event_trace",
    "mpi_msg_size_sum": "alltrace.recipes.stats.sums:MpiMsgSizeSum",
    "network_congestion": "alltrace.recipes.stats.network_congestion",
    "nvtx_gpu_proj_sum": "alltrace.recipes.stats.nvtx_gpu_proj_sum",
    "nvtx_gpu_proj_trace": "alltrace.recipes.stats.nvtx_gpu_proj_trace",
    "nvtx_kern_sum": "alltrace.recipes.stats.nvtx_kern_sum",
    "nvtx_pushpop_sum": "alltrace.recipes.stats.sums:NvtxPushpopSum",
    "nvtx_pushpop_trace": "alltrace.recipes.stats.nvtx_pushpop_trace",
    "nvtx_startend_sum": "alltrace.recipes.stats.sums:NvtxStartendSum",
    "nvtx_sum": "alltrace.recipes.stats.sums:NvtxSum",
    "openacc_sum": "alltrace.recipes.stats.sums:OpenaccSum",
    "openmp_sum": "alltrace.recipes.stats.sums:OpenmpSum",
    "osrt_sum": "alltrace.recipes.stats.sums:OsrtSum",
    "syscall_sum": "alltrace.recipes.stats.sums:SyscallSum",
    "um_cpu_page_faults_sum": "alltrace.recipes.stats.um:UmCpuPageFaultsSum",
    "um_sum": "alltrace.recipes.stats.um:UmSum",
    "um_total_sum": "alltrace.recipes.stats.um:UmTotalSum",
}
"""Report name to where it is (see `recipes.load`). Recipes may have the same names."""


def find_report(spec: str) -> StatsReport:
    """The report that `spec` selects, as `nsys stats -r` spells it: `NAME[:flag][:option=value]`.

    Args:
        spec: Such as `cuda_gpu_kern_sum`, `cuda_gpu_kern_sum:nvtx-name:base` or `um_sum:rows=20`.

    Returns:
        The report; the options named in `spec` are its defaults.

    Raises:
        UsageError: The report or option does not exist, or a value is not of the option's type.
    """
    name, *arguments = spec.split(":")
    if name not in REPORTS:
        raise UsageError.unknown("stats report", name, REPORTS)
    report: StatsReport = load(REPORTS[name])
    return report.with_defaults(_given(report, arguments)) if arguments else report


def _given(report: StatsReport, arguments: Sequence[str]) -> dict[str, Any]:
    """The values of the options named in `arguments`, by option."""
    known = {option.name.replace("_", "-"): option for option in report.options}
    values: dict[str, Any] = {}
    for argument in arguments:
        key, equals, text = argument.partition("=")
        option = known.get(key.replace("_", "-"))
        if option is None:
            raise UsageError.unknown(f"option of {report.name}", key, known)
        if (option.type is bool) == bool(equals):
            wanted = "no value" if option.type is bool else f"a value: {key}=VALUE"
            raise UsageError(f"option {key} of {report.name} takes {wanted}")
        try:
            values[option.name] = True if option.type is bool else option.type(text)
        except ValueError as error:
            raise UsageError(f"option {key} of {report.name} is {text!r}; expected {option.type.__name__}") from error
    return values

"""All recipes by name: a literal list, and those that other packages add by the entry-point group `alltrace.recipes`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from alltrace.recipes import load
from alltrace.trace.errors import AlltraceError, UsageError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from alltrace.recipes.base import Recipe

ENTRY_POINTS = "alltrace.recipes"

NVIDIA_RECIPES: dict[str, str] = {
    name: f"alltrace.nvidia.{place}"
    for name, place in {
        "cuda_api_sum": "nsys.stats_sum:CudaApiSum",
        "cuda_api_sync": "nsys.sync_rules:CudaApiSync",
        "cuda_gpu_kern_hist": "nsys.cuda_gpu_kern_hist",
        "cuda_gpu_kern_pace": "nsys.pace:CudaGpuKernPace",
        "cuda_gpu_kern_sum": "nsys.stats_sum:CudaGpuKernSum",
        "cuda_gpu_mem_size_sum": "nsys.stats_sum:CudaGpuMemSizeSum",
        "cuda_gpu_mem_time_sum": "nsys.stats_sum:CudaGpuMemTimeSum",
        "cuda_gpu_time_util_map": "nsys.utilization_maps:CudaGpuTimeUtilMap",
        "cuda_memcpy_async": "nsys.sync_rules:CudaMemcpyAsync",
        "cuda_memcpy_sync": "nsys.sync_rules:CudaMemcpySync",
        "cuda_memset_sync": "nsys.sync_rules:CudaMemsetSync",
        "file_access_sum": "nsys.file_access_sum",
        "gpu_gaps": "nsys.gpu_gaps",
        "gpu_metric_util_map": "nsys.utilization_maps:GpuMetricUtilMap",
        "gpu_metric_util_sum": "nsys.gpu_metric_util_sum",
        "gpu_time_util": "nsys.gpu_time_util",
        "mpi_gpu_time_util_map": "nsys.utilization_maps:MpiGpuTimeUtilMap",
        "mpi_sum": "nsys.duration_sums:MpiSum",
        "nccl_gpu_overlap_trace": "nsys.nccl_gpu_overlap_trace",
        "nccl_gpu_proj_sum": "nsys.duration_sums:NcclGpuProjSum",
        "nccl_gpu_time_util_map": "nsys.utilization_maps:NcclGpuTimeUtilMap",
        "nccl_straggler": "nsys.nccl_straggler",
        "nccl_sum": "nsys.nccl_sum",
        "network_map_aws": "nsys.utilization_maps:NetworkMapAws",
        "network_sum": "nsys.network:NetworkSum",
        "network_traffic_map": "nsys.network:NetworkTrafficMap",
        "nvlink_sum": "nsys.nvlink_sum",
        "nvtx_gpu_proj_pace": "nsys.pace:NvtxGpuProjPace",
        "nvtx_gpu_proj_sum": "nsys.duration_sums:NvtxGpuProjSum",
        "nvtx_gpu_proj_trace": "nsys.nvtx_gpu_proj_trace",
        "nvtx_pace": "nsys.pace:NvtxPace",
        "nvtx_sum": "nsys.duration_sums:NvtxSum",
        "osrt_sum": "nsys.stats_sum:OsrtSum",
        "storage_util_map": "nsys.utilization_maps:StorageUtilMap",
        "ucx_gpu_time_util_map": "nsys.utilization_maps:UcxGpuTimeUtilMap",
    }.items()
}
"""The recipes of `nsys recipe` by their own names, with their options, tables and columns, over ranks instead of files."""

_REPORT_MODULES = {
    "report_sums": """
        cuda_api_gpu_sum cuda_api_sum cuda_gpu_kern_gb_sum cuda_gpu_kern_sum cuda_gpu_mem_size_sum cuda_gpu_mem_time_sum
        cuda_gpu_sum cuda_kern_exec_sum mpi_event_sum mpi_msg_size_sum nvtx_pushpop_sum nvtx_startend_sum nvtx_sum openacc_sum
        openmp_sum osrt_sum syscall_sum um_cpu_page_faults_sum um_sum um_total_sum
    """,
    "report_traces": "cuda_api_trace cuda_gpu_trace cuda_kern_exec_trace mpi_event_trace network_congestion",
    "range_reports": "nvtx_gpu_proj_sum nvtx_gpu_proj_trace nvtx_pushpop_trace",
    "nvtx_kern_sum": "nvtx_kern_sum",
}
REPORTS: dict[str, str] = dict(
    sorted((name, f"alltrace.nvidia.{module}:{name}") for module, names in _REPORT_MODULES.items() for name in names.split())
)
"""The reports of `nsys stats`, column for column, over all ranks. Recipes may have the same names."""

RECIPES: dict[str, str] = {
    "activity": "alltrace.recipes.questions.activity",
    "breakdown": "alltrace.recipes.questions.breakdown",
    "collectives": "alltrace.recipes.questions.collectives",
    "critical-path": "alltrace.recipes.questions.critical_path",
    "diagnose": "alltrace.recipes.questions.diagnose",
    "durations": "alltrace.recipes.questions.durations",
    "efficiency": "alltrace.recipes.questions.efficiency",
    "gaps": "alltrace.recipes.questions.gaps",
    "gpu-rates": "alltrace.recipes.questions.gpu_rates",
    "idle": "alltrace.recipes.questions.idle",
    "in-flight": "alltrace.recipes.questions.in_flight",
    "info": "alltrace.recipes.questions.info",
    "kernel-counters": "alltrace.recipes.questions.kernel_counters",
    "kernel-origins": "alltrace.recipes.questions.kernel_origins",
    "kernel-sequences": "alltrace.recipes.questions.kernel_sequences",
    "xla-ops": "alltrace.recipes.questions.xla_ops",
    "kernels": "alltrace.recipes.questions.kernels",
    "launch-configurations": "alltrace.recipes.questions.launch_configurations",
    "nccl_size_spread": "alltrace.recipes.questions.nccl_size_spread",
    "launches": "alltrace.recipes.questions.launches",
    "memory": "alltrace.recipes.questions.memory",
    "memory-bandwidth": "alltrace.recipes.questions.memory_bandwidth",
    "memory-peak": "alltrace.recipes.questions.memory_peak",
    "memory-steps": "alltrace.recipes.questions.memory_steps",
    "memory-timeline": "alltrace.recipes.questions.memory_timeline",
    "metric-attribution": "alltrace.recipes.questions.metric_attribution",
    "mfu": "alltrace.recipes.questions.mfu",
    "occupancy": "alltrace.recipes.questions.occupancy",
    "operators": "alltrace.recipes.questions.operators",
    "overlap": "alltrace.recipes.questions.overlap",
    "queue-length": "alltrace.recipes.questions.queue_length",
    "stragglers": "alltrace.recipes.questions.stragglers",
    "whatif": "alltrace.recipes.questions.whatif",
    "step-time": "alltrace.recipes.questions.step_time",
    "steps": "alltrace.recipes.questions.steps",
    **NVIDIA_RECIPES,
}
"""Name to where the recipe is (see `load`)."""


def names() -> list[str]:
    """The names of all recipes, including those of other packages."""
    return sorted({*RECIPES, *_added()})


def find(name: str) -> Recipe:
    """The recipe called `name`; `stats:NAME` is the report of nsys of that name.

    Raises:
        UsageError: There is none.
        AlltraceError: Another package's recipe cannot be loaded.
    """
    if name.startswith("stats:"):
        return find_report(name.partition(":")[2])
    if name in RECIPES:
        recipe: Recipe = load(RECIPES[name])
        return recipe
    added = _added()
    if name not in added:
        raise UsageError.unknown("recipe", name, {*RECIPES, *added})
    return _load(name, added[name])


def find_report(spec: str) -> Recipe:
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
    report: Recipe = load(REPORTS[name])
    return report.with_defaults(_given(report, arguments)) if arguments else report


def _given(report: Recipe, arguments: Sequence[str]) -> dict[str, Any]:
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


def _added() -> dict[str, str]:
    from importlib.metadata import entry_points

    return {e.name: e.value for e in entry_points(group=ENTRY_POINTS)}


def _load(name: str, value: str) -> Recipe:
    from alltrace.recipes.base import Recipe

    try:
        found = load(value)
    except (ImportError, AttributeError, TypeError) as error:
        raise AlltraceError(
            f"recipe {name} of another package: {value} cannot be loaded ({error}); reinstall that package"
        ) from error
    if not isinstance(found, Recipe):
        raise AlltraceError(f"recipe {name} of another package: {value} is {found!r}; expected a Recipe")
    return found

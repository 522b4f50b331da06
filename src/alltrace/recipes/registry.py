"""All recipes by name: a literal list, and those of other packages (entry-point group `alltrace.recipes`)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from alltrace.recipes import load
from alltrace.recipes.base import Question
from alltrace.trace.errors import AlltraceError, UsageError

ENTRY_POINTS = "alltrace.recipes"


def _places(modules: Mapping[str, str]) -> dict[str, str]:
    """Where each of NVIDIA's is, by name, of the names that each module has."""
    return dict(
        sorted(
            (name, f"alltrace.nvidia.{module}:{name}") for module, named in modules.items() for name in named.split()
        )
    )


_RECIPE_MODULES = {
    "recipe_sums": """
        cuda_api_sum cuda_gpu_kern_sum cuda_gpu_mem_size_sum cuda_gpu_mem_time_sum mpi_sum nccl_gpu_proj_sum nccl_sum
        nvtx_gpu_proj_sum nvtx_sum osrt_sum
    """,
    "pace": "cuda_gpu_kern_pace nvtx_gpu_proj_pace nvtx_pace",
    "gpu_recipes": "cuda_gpu_kern_hist nccl_gpu_overlap_trace nccl_straggler nvtx_gpu_proj_trace",
    "sampled_sums": "gpu_metric_util_sum network_sum nvlink_sum",
    "maps": """
        cuda_gpu_time_util_map gpu_metric_util_map mpi_gpu_time_util_map nccl_gpu_time_util_map network_map_aws
        network_traffic_map storage_util_map ucx_gpu_time_util_map
    """,
    "rules": "cuda_api_sync cuda_memcpy_async cuda_memcpy_sync cuda_memset_sync gpu_gaps gpu_time_util",
    "file_access_sum": "file_access_sum",
}
NVIDIA_RECIPES = _places(_RECIPE_MODULES)
"""The recipes of `nsys recipe` by their own names, with their options, tables and columns, over ranks instead of
files."""

_REPORT_MODULES = {
    "report_sums": """
        cuda_api_gpu_sum cuda_api_sum cuda_gpu_kern_gb_sum cuda_gpu_kern_sum cuda_gpu_mem_size_sum cuda_gpu_mem_time_sum
        cuda_gpu_sum cuda_kern_exec_sum mpi_event_sum mpi_msg_size_sum nvtx_pushpop_sum nvtx_startend_sum nvtx_sum
        openacc_sum openmp_sum osrt_sum syscall_sum um_cpu_page_faults_sum um_sum um_total_sum
    """,
    "report_traces": "cuda_api_trace cuda_gpu_trace cuda_kern_exec_trace mpi_event_trace network_congestion",
    "range_reports": "nvtx_gpu_proj_sum nvtx_gpu_proj_trace nvtx_pushpop_trace",
    "nvtx_kern_sum": "nvtx_kern_sum",
}
REPORTS = _places(_REPORT_MODULES)
"""The reports of `nsys stats`, column for column, over all ranks. Recipes may have the same names."""

_QUESTIONS = {
    "time": """
        diagnose info breakdown step-time steps critical-path whatif efficiency gaps activity durations mfu
    """,
    "communication": "overlap collectives stragglers nccl_size_spread",
    "kernels": """
        kernels operators kernel-origins kernel-sequences launch-configurations occupancy kernel-counters
        metric-attribution gpu-rates xla-ops
    """,
    "host": "idle launches",
    "memory": "memory memory-peak memory-steps memory-timeline memory-bandwidth",
}
RECIPES: dict[str, str] = {
    **{n: f"alltrace.recipes.questions.{n.replace('-', '_')}" for shelf in _QUESTIONS.values() for n in shelf.split()},
    **NVIDIA_RECIPES,
}
"""Name to where the recipe is (see `load`)."""

FORMER: dict[str, tuple[str, dict[str, Any]]] = {
    "in-flight": ("launches", {"by": "device"}),
    "queue-length": ("launches", {"by": "stream"}),
}
"""Names of before 0.3, and the recipe and options that they are now; they answer in 0.3 and 0.4."""


def names() -> list[str]:
    """The names of all recipes, including those of other packages."""
    return sorted({*RECIPES, *_added()})


def groups() -> dict[str, list[str]]:
    """The names of all recipes by what they are about."""
    own = {group: shelf.split() for group, shelf in _QUESTIONS.items()}
    shelves = {**own, "NVIDIA's": list(NVIDIA_RECIPES), "other packages'": sorted(set(_added()) - set(RECIPES))}
    return {group: shelf for group, shelf in shelves.items() if shelf}


def find(name: str) -> Question:
    """The recipe, or nsys' report for `stats:NAME`. Raises `UsageError`: none. Raises `AlltraceError`: not loaded."""
    if name.startswith("stats:"):
        return find_report(name.partition(":")[2])
    if name in RECIPES:
        recipe: Question = load(RECIPES[name])
        return recipe
    if name in FORMER:
        now, options = FORMER[name]
        return find(now).formerly(name, options)
    added = _added()
    if name not in added:
        raise UsageError.unknown("recipe", name, {*RECIPES, *added})
    return _load(name, added[name])


def find_report(spec: str) -> Question:
    """The report that `spec` selects, as `nsys stats -r` spells it: `NAME[:flag][:option=value]`, with these defaults.

    Such as `cuda_gpu_kern_sum:nvtx-name:base` or `um_sum:rows=20`. Raises `UsageError`: no such report, option or
    value.
    """
    name, *arguments = spec.split(":")
    if name not in REPORTS:
        raise UsageError.unknown("stats report", name, REPORTS)
    report: Question = load(REPORTS[name])
    return report.with_defaults(_parsed(report, arguments)) if arguments else report


def _parsed(report: Question, arguments: Sequence[str]) -> dict[str, Any]:
    """The values of the options named in `arguments`, by option."""
    options = {option.name.replace("_", "-"): option for option in report.options}
    values: dict[str, Any] = {}
    for argument in arguments:
        key, equals, text = argument.partition("=")
        option = options.get(key.replace("_", "-"))
        if option is None:
            raise UsageError.unknown(f"option of {report.name}", key, options)
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


def _load(name: str, value: str) -> Question:
    from alltrace.recipes.base import Question

    try:
        question = load(value)
    except (ImportError, AttributeError, TypeError) as error:
        raise AlltraceError(
            f"recipe {name} of another package: {value} cannot be loaded ({error}); reinstall that package"
        ) from error
    if not isinstance(question, Question):
        raise AlltraceError(f"recipe {name} of another package: {value} is {question!r}; expected a Question")
    return question

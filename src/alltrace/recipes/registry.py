"""All recipes by name: a literal list, and those that other packages add by the entry-point group `alltrace.recipes`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from alltrace.recipes import load
from alltrace.recipes.nsys import RECIPES as NSYS_RECIPES
from alltrace.trace.errors import AlltraceError, UsageError

if TYPE_CHECKING:
    from alltrace.recipes.base import Recipe

ENTRY_POINTS = "alltrace.recipes"

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
    **NSYS_RECIPES,
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
        from alltrace.recipes.stats import find_report

        return find_report(name.partition(":")[2])
    if name in RECIPES:
        recipe: Recipe = load(RECIPES[name])
        return recipe
    added = _added()
    if name not in added:
        raise UsageError.unknown("recipe", name, {*RECIPES, *added})
    return _load(name, added[name])


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

"""Questions about logs: a literal registry of the views of `logs nccl`."""

from collections.abc import Iterable, Mapping
from typing import Any

NCCL_VIEWS: dict[str, str] = {
    "calls": "alltrace.recipes.logs.nccl_calls:VIEW",
    "ops": "alltrace.recipes.logs.nccl_sizes:OPS",
    "histogram": "alltrace.recipes.logs.nccl_sizes:HISTOGRAM",
    "sizes": "alltrace.recipes.logs.nccl_sizes:SIZES",
    "communicators": "alltrace.recipes.logs.nccl_sizes:COMMUNICATORS",
    "topology": "alltrace.recipes.logs.nccl_topology:TOPOLOGY",
    "tuning": "alltrace.recipes.logs.nccl_topology:TUNING",
    "mismatches": "alltrace.recipes.logs.nccl_mismatches:VIEW",
}
"""View name to its `View(columns, answer(logs, options))`."""

NEEDS_CALLS = frozenset({"calls", "mismatches"})  # views that need each call, not only how often each size came


def whole_characters(rows: Iterable[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Rows of a JSON file, which can hold half of a character: that is not text, and is replaced."""
    return [{k: v.encode("utf-8", "replace").decode() if isinstance(v, str) else v for k, v in r.items()} for r in rows]

"""Questions about logs: a literal registry of the views of `logs nccl`, each a module with `answer(logs, options)`."""

from __future__ import annotations

NCCL_VIEWS: dict[str, str] = {
    "calls": "alltrace.recipes.logs.nccl_calls",
    "ops": "alltrace.recipes.logs.nccl_ops",
    "histogram": "alltrace.recipes.logs.nccl_histogram",
    "sizes": "alltrace.recipes.logs.nccl_sizes",
    "communicators": "alltrace.recipes.logs.nccl_communicators",
    "topology": "alltrace.recipes.logs.nccl_topology",
    "tuning": "alltrace.recipes.logs.nccl_tuning",
    "mismatches": "alltrace.recipes.logs.nccl_mismatches",
}
"""View name to the module that answers it."""

NEEDS_CALLS = frozenset({"calls", "mismatches"})
"""Views that need each call, not only how often each size came."""

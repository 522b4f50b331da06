"""Questions about launches that Nsight Compute measured: a literal registry of the views.

Each is a module with `answer(profiled, notes)`, `COLUMNS` and `CHART`.
"""

from __future__ import annotations

VIEWS: dict[str, str] = {
    "launches": "alltrace.recipes.ncu.launches",
    "raw": "alltrace.recipes.ncu.raw",
    "stalls": "alltrace.recipes.ncu.stalls",
    "roofline": "alltrace.recipes.ncu.roofline",
    "advice": "alltrace.recipes.ncu.advice",
}
"""View name to the module that answers it."""

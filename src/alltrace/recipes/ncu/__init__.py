"""Questions about launches that Nsight Compute measured: a literal registry of the views.

Each is a module with `answer(profiled, notes)`, `COLUMNS` and `CHART`.
"""

from __future__ import annotations

VIEWS: dict[str, str] = {
    "launches": "alltrace.recipes.ncu.launches",
    "details": "alltrace.recipes.ncu.details",
    "rules": "alltrace.recipes.ncu.rules",
    "metrics": "alltrace.recipes.ncu.raw",
    "instances": "alltrace.recipes.ncu.instances",
    "source": "alltrace.recipes.ncu.source",
    "stalls": "alltrace.recipes.ncu.stalls",
    "occupancy": "alltrace.recipes.ncu.occupancy",
    "roofline": "alltrace.recipes.ncu.roofline",
    "advice": "alltrace.recipes.ncu.advice",
}
"""View name to the module that answers it."""
LINES = ("source", "ptx", "sass")
"""What a row of the view `source` can be."""
MATCHES = ("configuration", "name", "function", "order")
"""What makes two launches partners: name, grid and block; the name; the function without its arguments; or their number."""

"""Questions about launches that Nsight Compute measured: a literal registry of the views."""

from __future__ import annotations

VIEWS: dict[str, str] = {
    "launches": "alltrace.recipes.ncu.views:LAUNCHES",
    "details": "alltrace.recipes.ncu.views:DETAILS",
    "rules": "alltrace.recipes.ncu.views:RULES",
    "metrics": "alltrace.recipes.ncu.views:METRICS",
    "instances": "alltrace.recipes.ncu.views:INSTANCES",
    "source": "alltrace.recipes.ncu.source:VIEW",
    "stalls": "alltrace.recipes.ncu.views:STALLS",
    "occupancy": "alltrace.recipes.ncu.occupancy:VIEW",
    "roofline": "alltrace.recipes.ncu.roofline:VIEW",
    "advice": "alltrace.recipes.ncu.advice:VIEW",
}
"""View name to its `View(columns, answer(profiled, notes, ...), chart)`."""
LINES = ("source", "ptx", "sass")  # what a row of the view `source` can be
MATCHES = ("configuration", "name", "function", "order")
"""What makes launches partners: name, grid and block; the name; the function without arguments; or their number."""

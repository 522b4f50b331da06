"""Small programs without noise, of which arithmetic says what a cause costs."""

from __future__ import annotations

import random
from dataclasses import replace

from benchmarks.programs import names
from benchmarks.programs.draw import draw_program
from benchmarks.programs.model import Cause, Grid

STEPS, WARMUP, LAYERS, LAYER_NS = 5, 1, 2, 4_000_000
JUDGED = STEPS - WARMUP
EVERY = frozenset(range(STEPS))
GRIDS = {"ddp": Grid(1, 1, 4, 1, 1, 1), "experts": Grid(1, 1, 4, 1, 4, 1), "pipeline": Grid(1, 1, 2, 2, 1, 1)}


def even_program(family="ddp", **changes):
    """A program whose ranks do the same, with messages of next to no time and hosts that run ahead."""
    drawn = draw_program(random.Random(5), 5, [], family, GRIDS[family])
    usual = {
        "steps": STEPS, "warmup": WARMUP, "layers": LAYERS, "micro": 1, "layer_ns": LAYER_NS, "noise": 0.0,
        "scatter": 0.0, "parameter_bytes": 4_096, "activation_bytes": 4_096, "input_bytes": 4_096, "checkpoint": None,
        "style": "hopper", "loss_item_every": 0, "norm_item": False, "loader_ns": 100_000, "overlap": True,
    }  # fmt: skip
    return replace(drawn, **(usual | changes), view=replace(drawn.view, late=()))


def weight(*parts):
    """The weight of parts of a layer, forward and backward; of all of them without any."""
    return sum(w for way in names.layer_of("hopper") for part, _, w in way if part in parts or not parts)


def imbalance(variant, ranks, amount):
    """Uneven work in all steps."""
    return Cause("imbalance", variant, ranks, amount, EVERY)

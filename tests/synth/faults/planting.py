"""Runs with and without a fault, for the tests of faults."""

from functools import cache

import numpy as np

from alltrace.synth import SCENARIOS
from alltrace.synth.simulate import simulate
from alltrace.synth.timeline import covered_ns

STEPS = 4
LAYOUTS = ("healthy", "tensor-data", "pipeline", "experts", "sharded")


@cache
def run(name="healthy", *faults, **changes):
    """A simulated run of four steps with these faults."""
    return simulate(SCENARIOS[name].override(steps=STEPS, faults=faults, **changes, ideal=True))


def lost_ns(name, *faults, **changes):
    """How much later it ends than without the faults."""
    return int(run(name, *faults, **changes).steps[:, -1, 1].max() - run(name, **changes).steps[:, -1, 1].max())


def idle_share(line):
    """The share of a device's time in which it does nothing."""
    tables = (line.kernels, line.copies, line.memsets, line.graphs)
    starts, ends = (np.concatenate([rows[name] for rows in tables]) for name in ("start", "end"))
    return 1 - covered_ns(starts, ends) / (ends.max() - starts.min())


def queued_ns(line):
    """How long after its launch each compute kernel starts."""
    launches = dict(zip(line.api["correlation"].tolist(), line.api["end"].tolist(), strict=True))
    mine = line.kernels["stream"] == 7
    correlations = line.kernels["correlation"][mine].tolist()
    return line.kernels["start"][mine] - np.array([launches[c] for c in correlations])


def calls(line, name):
    """Start and length of the API calls of this name."""
    rows = line.api
    mine = rows["name"] == line.names.number(name)
    return rows["start"][mine], (rows["end"] - rows["start"])[mine]

"""How ranks share the work: the communicators of a run and the instructions of a step. One class for each family of layouts."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from alltrace.synth.layouts.data import DataParallel
from alltrace.synth.layouts.experts import ExpertParallel
from alltrace.synth.layouts.pipeline import PipelineParallel
from alltrace.synth.layouts.sharded import FullySharded

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    import numpy as np

    from alltrace.synth.program import Group, Op
    from alltrace.synth.scenario import Scenario

__all__ = ["LAYOUTS", "DataParallel", "ExpertParallel", "FullySharded", "PipelineParallel", "Program"]


class Program(Protocol):
    """The work of a whole run: who talks to whom, and what each rank does in each step."""

    groups: tuple[Group, ...]

    def step(self, rank: int, step: int, rng: np.random.Generator) -> list[Op]:
        """The instructions of `rank` in `step`, with durations drawn from `rng`, which is the rank's own."""
        ...


LAYOUTS: Mapping[str, Callable[[Scenario], Program]] = {
    "data": DataParallel,
    "pipeline": PipelineParallel,
    "expert": ExpertParallel,
    "sharded": FullySharded,
}
"""The program of each of `alltrace.synth.scenario.LAYOUT_KINDS`."""

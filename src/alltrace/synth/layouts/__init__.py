"""How ranks share the work: the communicators of a run and the instructions of a step. A class for each family."""

from __future__ import annotations

from typing import TYPE_CHECKING

from alltrace.synth.layouts.kinds import DataParallel, ExpertParallel, FullySharded, PipelineParallel

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from alltrace.synth.layouts.base import Frame
    from alltrace.synth.scenario import Scenario

__all__ = ["LAYOUTS", "DataParallel", "ExpertParallel", "FullySharded", "PipelineParallel"]

LAYOUTS: Mapping[str, Callable[[Scenario], Frame]] = {
    "data": DataParallel,
    "pipeline": PipelineParallel,
    "expert": ExpertParallel,
    "sharded": FullySharded,
}
"""The program of each of `alltrace.synth.scenario.LAYOUT_KINDS`."""

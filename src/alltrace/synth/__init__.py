"""Simulated distributed runs with known truth, written in the profilers' own formats.

The layers: `scenario` says what a run is, `layouts` and `faults` turn it into instructions for each rank, `simulate`
runs them in true time, `nsys_tables` and `write_nsys` make reports of what happened, and `truth` says what a right
analysis finds.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from alltrace.synth.run import write_run
    from alltrace.synth.scenario import Scenario
    from alltrace.synth.scenarios import SCENARIOS
    from alltrace.synth.truth import Truth

__all__ = ["SCENARIOS", "Scenario", "Truth", "write_run"]

_HOMES = {"SCENARIOS": "scenarios", "Scenario": "scenario", "Truth": "truth", "write_run": "run"}


def __getattr__(name: str) -> Any:
    # numpy is loaded only on first use
    if name in _HOMES:
        from importlib import import_module

        return getattr(import_module(f"alltrace.synth.{_HOMES[name]}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")

"""What clocks, power and temperature say of findings: a slow rank whose GPU ran at a lower clock is told so."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from alltrace.recipes.analysis.gpu_state import compared

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from alltrace.recipes.analysis.gpu_state import GpuState
    from alltrace.recipes.questions.diagnose.finding import Finding

_SLOW = ("straggler", "slow-host", "jitter")
"""Kinds that a GPU's clock can be the cause of: what it was is stated, or how to find it out."""

_TRANSFERS = ("low-bandwidth", "slow-communicator")
"""Kinds that it can have a part in: it is stated where it is lower than the peers'."""


def with_gpu_evidence(found: Sequence[Finding], states: Mapping[int, GpuState | None]) -> list[Finding]:
    """The findings, those of slow ranks with what is known of their GPUs.

    Args:
        found: The findings.
        states: By rank how its GPU ran in the judged steps.
    """
    return [_explained(f, states) for f in found]


def _explained(finding: Finding, states: Mapping[int, GpuState | None]) -> Finding:
    if finding.kind not in (*_SLOW, *_TRANSFERS) or not finding.ranks:
        return finding
    said = compared(states, finding.ranks)
    if finding.kind in _TRANSFERS and not said.slower:
        return finding
    evidence = {name: round(value, 1) for name, value in said.evidence.items()}
    return replace(finding, evidence={**finding.evidence, **evidence}, advice=f"{finding.advice} {said.sentence}")

"""Judges what is found of two causes that hide each other: both named, or what they cost together.

How `diagnose` says that causes hide each other, which is read here:

* `evidence.together_ns` of two findings, with one value, is what the job gets back without both causes, in ns of the
  judged time, as `lost_ns` is, if that is more than the sum of what is gained without each alone. `lost_ns` and
  `lost_share` stay what they are.
* The verdict has a sentence with the words `hide each other: together X %`, where X is `together_ns` of the judged
  time, and after it what each gains alone: "`straggler` of rank 3 and `sync` of rank 1 hide each other: together 11.1
  %, alone 0.0 and 5.9 %".

A pair of which the judged steps record the same without one of its causes is left out.

The joint loss is right if findings with a kind of one cause and of the other have it, and it is within 15 % of what an
execution without both gains. The judged time is `lost_ns / lost_share` of the finding with the largest loss, else the
program's.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from benchmarks.programs.draw_pairs import PAIR, hides
from benchmarks.programs.draw_uneven import LATE
from benchmarks.programs.score import (
    CAUSES_WITHIN,
    CLOSE,
    NO_LOSS,
    SAME_KIND,
    also_accepted,
    culprits_of,
    described,
    ranks_right,
)
from benchmarks.programs.score_causes import CauseJudgement, Family
from benchmarks.programs.score_uneven import accepted_kinds

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from benchmarks.programs.draw_pairs import Gains
    from benchmarks.programs.model import Program

RIGHT, NAMED, CULPRITS, JOINT, SAID = MARKS = (
    "both named, or joint loss",
    f"both named in the first {CAUSES_WITHIN}",
    "with the culprits of both",
    f"joint loss within {100 * CLOSE:g} %",
    "said in the verdict",
)
FAMILY = Family((PAIR,), "", MARKS, (RIGHT,), "a finding of a third cause first")

_SAID = re.compile(r"hide each other: together (\d+(?:\.\d+)?) %")


def judge_pair(
    seed: int, program: Program, gains: Gains, findings: Sequence[Mapping[str, Any]], verdict: str, least: float
) -> CauseJudgement:
    """What the findings of a program are worth.

    Args:
        seed: Of the program.
        program: The program.
        gains: What is gained without its causes.
        findings: Rows of `diagnose`.
        verdict: What is said of them in a sentence or two.
        least: The share below which they do not count together.
    """
    counts = hides(gains) and gains.together >= least
    words = f"{described(program)}, {program.steps} steps"
    judged = CauseJudgement(
        seed, PAIR, words, gains.together, counts and not gains.traceless, traceless=gains.traceless
    )
    alone = " and ".join(f"{100 * share:.1f}" for share in gains.alone)
    planted = "; ".join(f"{c.kind} {c.variant} ranks {[*c.ranks]}" for c in program.causes)
    judged.truth = f"{planted}: together {100 * gains.together:.1f} %, alone {alone}"
    about = [{**f, "kind": SAME_KIND.get(f["kind"], f["kind"])} for f in findings if f["kind"] != NO_LOSS]
    judged.findings = [{k: f[k] for k in ("kind", "lost_share", "ranks")} for f in about]
    kinds = [accepted_kinds(c) | also_accepted(program, c) for c in program.causes]
    judged.alarms = [f["kind"] for f in about[:1] if not any(f["kind"] in right for right in kinds)]
    within = about[:CAUSES_WITHIN]
    of_kind = [[i for i, f in enumerate(within) if f["kind"] in right] for right in kinds]
    of_rank = [
        [
            i
            for i in found
            if ranks_right(program, cause, within[i]["kind"], culprits_of(within[i], program.view.devices))
        ]
        for cause, found in zip(program.causes, of_kind, strict=True)
    ]
    # a late rank has several kinds, of which another rank's finding may be one
    of_cause = [
        ranked if c.kind == LATE else found for c, found, ranked in zip(program.causes, of_kind, of_rank, strict=True)
    ]
    named, culprits = _are_two(*of_cause), _are_two(*of_rank)
    joint = any(_is_close(share, gains) for share in _joint_shares(about, kinds, gains))
    said = any(_is_close(float(match[1]) / 100, gains) for match in _SAID.finditer(verdict))
    holds = (named or joint, named, culprits, joint, said)
    judged.right = [mark for mark, held in zip(MARKS, holds, strict=True) if held]
    return judged


def _are_two(first: Sequence[int], second: Sequence[int]) -> bool:
    """Whether each has a finding of its own."""
    return any(a != b for a in first for b in second)


def _joint_shares(about: Sequence[Mapping[str, Any]], kinds: Sequence[set[str]], gains: Gains) -> list[float]:
    """What findings of one cause say that it costs together with the other."""
    largest = max((f for f in about if f["lost_share"]), key=lambda f: f["lost_ns"], default=None)
    judged_ns = largest["lost_ns"] / largest["lost_share"] if largest else gains.judged_ns
    both = [[f["evidence"].get("together_ns") for f in about if f["kind"] in of_cause] for of_cause in kinds]
    return [together_ns / judged_ns for together_ns in both[0] if together_ns is not None and together_ns in both[1]]


def _is_close(share: float, gains: Gains) -> bool:
    return abs(share - gains.together) <= CLOSE * gains.together

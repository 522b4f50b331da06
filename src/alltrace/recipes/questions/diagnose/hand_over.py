"""Roles that take turns: in a program of several groups of ranks, one is idle while another works."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import pairwise
from typing import NamedTuple

import numpy as np

from alltrace.recipes.base import RunFacts
from alltrace.recipes.questions.diagnose.all_rank_facts import AllRankFacts
from alltrace.recipes.questions.diagnose.finding import Finding, Loss
from alltrace.recipes.questions.diagnose.gaps import HOST_CLASSES
from alltrace.recipes.questions.diagnose.rank_facts import LEAST_PAUSE_NS
from alltrace.trace.intervals import Merged, clip, difference, gaps, intersection, merge, union

_SAME_PHASE = 0.5  # roles that work together for this share of the shorter one's time have no turns between them
_LEAST_ALONE = 0.8  # roles take turns if for this share of the time in which any works only one does
_LEAST_TURNS = 3  # the least number of hand-overs for turns: each of two roles works twice

_WAITING = frozenset({*HOST_CLASSES, "kernel-gap", "idle", "unknown"})


class HandOvers(NamedTuple):
    findings: tuple[Finding, ...] = ()  # one finding, or none
    span_ns: int = 0  # from the first work of any role to the last; 0 if they take no turns
    waited_ns: Mapping[int, int] = {}  # how long each rank was idle while another role worked


def hand_overs(all_ranks: AllRankFacts, run: RunFacts) -> HandOvers:
    """`hand-over` if roles of the run with separate devices take turns.

    Were each role's work done while the others do theirs, the job would take as long as the role that works longest.
    What it takes longer is the ceiling of the loss.
    """
    ranks: dict[str, list[int]] = {}
    devices: dict[str, set[tuple[str, tuple[str, str]]]] = {}
    for record in run.ranks:
        role = run.manifest.role_of(record)
        if role is not None and record.rank in all_ranks.facts and len(all_ranks.facts[record.rank].working):
            ranks.setdefault(role, []).append(record.rank)
            devices.setdefault(role, set()).update((record.host, d.identity) for d in record.devices)
    if sum(map(len, devices.values())) > len(set().union(*devices.values())):
        return HandOvers()
    busy = {role: union([merge(*all_ranks.facts[r].working.T.copy()) for r in its]) for role, its in ranks.items()}
    groups = _phases(busy)
    together = [union([busy[role] for role in group]) for group in groups]
    whole = union(together)
    alone = [difference(own, union([t for t in together if t is not own])) for own in together]
    turns = sorted(
        (int(s), n) for n, own in enumerate(alone) for s in own.starts[own.durations_ns >= LEAST_PAUSE_NS].tolist()
    )
    changes = [b for (_, a), (_, b) in pairwise(turns) if a != b]
    if len(changes) < _LEAST_TURNS or sum(own.total_ns for own in alone) < _LEAST_ALONE * whole.total_ns:
        return HandOvers()
    longest = max(range(len(groups)), key=lambda n: together[n].total_ns)
    begin, end = int(whole.starts[0]), int(whole.ends[-1])
    lost = whole.total_ns - together[longest].total_ns
    between = gaps(whole).durations_ns
    names = [" and ".join(sorted(group)) for group in groups]
    evidence = {
        "hand_overs": len(changes),
        "longest_share": round(together[longest].total_ns / (end - begin), 3),
        "alone_share": round(sum(own.total_ns for own in alone) / whole.total_ns, 3),
        "between_ns": float(np.median(between)) if len(between) else 0.0,
    }
    advice = (
        f"The roles {', '.join(names)} work one after the other; let {names[longest]} begin on the next batch, or on a"
        " part of it, while the others still work, or place them on the same GPUs."
    )
    culprits = tuple(sorted(r for role in groups[longest] for r in ranks[role]))
    loss = Loss(lost, "ceiling", tuple(sorted(_WAITING)), lost, lost)
    finding = Finding("hand-over", loss, culprits, ", ".join(names), advice, evidence, 0.9)
    waited: dict[int, int] = {}
    for group, own in zip(groups, together, strict=True):
        still = clip(gaps(own, begin, end), begin, end)
        waits = intersection(still, whole).total_ns
        waited |= {r: waits for role in group for r in ranks[role]}
    return HandOvers((finding,), end - begin, waited)


def with_roles(findings: Sequence[Finding], turns: HandOvers) -> list[Finding]:
    """The findings as they are of a program with roles.

    Findings on hosts and idle devices leave out the time that their ranks wait for another role.
    """
    adjusted = []
    for finding in findings:
        classes = set(finding.loss.classes)
        waits = max((turns.waited_ns.get(r, 0) for r in finding.ranks), default=0)
        if waits and classes and classes <= _WAITING:
            left = {n: max(getattr(finding.loss, n) - waits, 0) for n in ("estimate_ns", "own_ns", "bound_ns")}
            finding = replace(finding, loss=replace(finding.loss, **left))
        adjusted.append(finding)
    return adjusted


def _phases(busy: Mapping[str, Merged]) -> list[list[str]]:
    groups: list[list[str]] = []
    for role, own in busy.items():
        alike = {
            other
            for other, its in busy.items()
            if intersection(own, its).total_ns >= _SAME_PHASE * min(own.total_ns, its.total_ns)
        }
        mates = [group for group in groups if alike.intersection(group)]
        groups = [*(g for g in groups if g not in mates), [role, *(o for g in mates for o in g)]]
    return sorted(groups, key=lambda group: min(int(busy[role].starts[0]) for role in group))

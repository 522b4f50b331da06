"""Devices that several ranks or processes share, and slices of devices: the cost, and what can be said of it."""

from functools import partial

import numpy as np

from alltrace.recipes.base import RunFacts
from alltrace.recipes.questions.diagnose.all_rank_facts import AllRankFacts
from alltrace.recipes.questions.diagnose.finding import LEAST_SHARE, Finding
from alltrace.recipes.questions.diagnose.recovered_time import RecoveredTime
from alltrace.trace.distinct import values_by
from alltrace.trace.number_text import number_ranges

_SURE = 0.9  # only several kernels that agree make a finding, so there is little doubt of it


def find(all_ranks: AllRankFacts, run: RunFacts) -> list[Finding]:
    """`shared-device`: ranks with kernels that another process interrupts, by the device that they share."""
    interrupted = {rank for rank, facts in all_ranks.facts.items() if facts.work.slices is not None}
    among = {rank for ranks in _users(run) if len(ranks) > 1 for rank in ranks} & interrupted
    together = (
        "Several ranks compute on one device and interrupt each other; give each rank a device of its own, or let them"
        " run at once under MPS."
    )
    beside = (
        "Another process computes on the device, in turns with the rank; `nvidia-smi` lists the processes of a GPU."
        " Give the job its devices alone, or let both run at once under MPS."
    )
    return [*_interrupted(all_ranks, among, together), *_interrupted(all_ranks, interrupted - among, beside)]


def _interrupted(all_ranks: AllRankFacts, ranks: set[int], advice: str) -> list[Finding]:
    rows = np.isin(all_ranks.ranks, sorted(ranks))
    compute = all_ranks.of("compute")
    lost = (compute - all_ranks.undisturbed.of("compute")) * rows[:, None]
    total = lost.sum(axis=1)
    if not total.any():
        return []
    change = all_ranks.less_compute(lost)
    if len(all_ranks.ranks) == 1:
        # it waits for nobody, so only the sum counts; what it launched at once may be of several steps
        share = np.array([[lost.sum() / compute.sum()]])
        change = partial(RecoveredTime.less_work, ranks=all_ranks.ranks, steps=None, share=share)
    loss = all_ranks.loss(("compute",), lost, change)
    culprits = all_ranks.ranks[total > 0].tolist()
    seen = [s for rank in culprits if (s := all_ranks.facts[rank].work.slices) is not None]
    evidence = {
        "interrupted_launches": sum(s.launches for s in seen),
        "interrupted_kernels": max(s.kernels for s in seen),
        "slice_ns": float(np.median([s.slice_ns for s in seen])),
        "excess_ns_per_step": float(np.round(total.sum() / len(culprits) / len(all_ranks.steps))),
        "steps_affected": int((lost > 0).any(axis=0).sum()),
        "steps": len(all_ranks.steps),
    }
    most = all_ranks.facts[int(all_ranks.ranks[total.argmax()])].work.slices
    where = all_ranks.name(most.name) if most is not None else ""
    # ranks that wait for others lose nothing now, but would if these were gone
    hidden = bool(total.max() >= LEAST_SHARE * all_ranks.span_ns)
    return [Finding("shared-device", loss, tuple(culprits), where, advice, evidence, _SURE, told=hidden)]


def _users(run: RunFacts) -> list[list[int]]:
    # without a UUID or a bus id two devices of a host may have the same number
    devices = ((d.identity, rank.rank) for rank in run.ranks for d in rank.devices if d.uuid or d.bus_id)
    return [sorted(set(ranks)) for ranks in values_by(devices).values()]


def notes(run: RunFacts) -> list[str]:
    """What a reader must know where a device is not one rank's alone, each one sentence."""
    several, sliced = [], []
    for rank in run.ranks:
        if len(rank.devices) == 1 and len(rank.pids) > 1:
            several.append(rank.rank)
        if any((d.uuid or "").startswith("MIG-") or " MIG " in f" {d.name} " for d in rank.devices):
            sliced.append(rank.rank)
    sentences = [
        f"ranks {number_ranges(ranks)} share a device, so one of them may wait for the other's work"
        for ranks in _users(run)
        if len(ranks) > 1
    ]
    if several:
        sentences.append(
            f"rank {number_ranges(several)}: several processes use its device; their work is judged together, "
            "and host activity is that of all"
        )
    if sliced:
        sentences.append(
            f"rank {number_ranges(sliced)}: its device is a slice (MIG), which shares the link to the host with others"
        )
    return sentences

"""Copies that hold up the device: from pageable memory, synchronous, or over a slow link."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

import numpy as np

from alltrace.recipes.questions.diagnose.finding import Finding

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from alltrace.recipes.questions.diagnose.all_rank_facts import Board
    from alltrace.recipes.questions.diagnose.recovered_time import Regain

_SLOW_COPY = 0.5
"""A rank's copies are slow when they reach at most this share of its peers' median rate."""


def find(board: Board) -> list[Finding]:
    """`pageable-copy`, `sync-copy` and, of copies, `low-bandwidth`."""
    return [*_blocking(board), *_slow(board)]


def _blocking(board: Board) -> list[Finding]:
    found = []
    for name, advice in (
        ("pageable-copy", "Copies come from pageable memory, which is slow and blocks the host; pin the host buffers."),
        ("sync-copy", "Synchronous copies drain the device; use asynchronous copies on a stream of their own, or copy less often."),
    ):
        lost = board.of(name)
        if not lost.any():
            continue
        chosen = board.culprits(lost, 0.25)
        facts = [f for f, c in zip(board.facts.values(), chosen, strict=True) if c]
        evidence = {
            "stalled_ns_per_step": float(np.round(lost[chosen].mean())),
            "calls": int(np.median([f.call_counts.get(name, 0) for f in facts])),
        }
        rates = [r for f in facts for k, r in _rates(f).items() if name != "pageable-copy" or k.endswith("pageable")]
        if rates:
            evidence["gb_per_s"] = round(float(np.median(rates)), 2)
        ranks = board.ranks[chosen].tolist()
        where = facts[0].call_names.get(name, "copies")
        gain = board.gain(lost, partial(_without, name))
        hosts = board.hosts_of(ranks)
        found.append(Finding(name, gain.lost_ns, tuple(ranks), where, advice, evidence, 0.9, hosts, basis=gain.basis))
    return found


def _slow(board: Board) -> list[Finding]:
    """Ranks whose copies of one kind are far slower than their peers'."""
    rates = {rank: _rates(facts) for rank, facts in board.facts.items()}
    kinds = sorted({k for r in rates.values() for k in r})
    worst: dict[int, tuple[float, str, float, float]] = {}
    for kind in kinds:
        known = {rank: r[kind] for rank, r in rates.items() if kind in r}
        if len(known) < 3:
            continue
        typical = float(np.median(list(known.values())))
        for rank, rate in known.items():
            if rate <= _SLOW_COPY * typical and (rank not in worst or rate / typical < worst[rank][0]):
                worst[rank] = (rate / typical, kind, rate, typical)
    if not worst:
        return []
    excess: NDArray[np.float64] = board.excess(board.of("copy") + board.of("pageable-copy") + board.of("sync-copy"))
    lost = excess * np.isin(board.ranks, list(worst))[:, None]
    chosen = board.culprits(lost)
    ranks = board.ranks[chosen].tolist()
    if not ranks:
        return []
    _, kind, rate, typical = worst[ranks[0]]
    evidence = {
        "gb_per_s": round(rate, 3),
        "peers_gb_per_s": round(typical, 3),
        "stalled_ns_per_step": float(np.round(lost[chosen].mean())),
    }
    advice = (
        "Copies of these ranks are far slower than their peers'; check the PCIe link's width and speed, and the NUMA placement."
    )
    gain = board.gain(lost * chosen[:, None], lambda run: run.less_copies({r: 1 - worst[r][0] for r in ranks}))
    hosts = board.hosts_of(ranks)
    where = f"{kind} copies"
    return [Finding("low-bandwidth", gain.lost_ns, tuple(ranks), where, advice, evidence, 0.9, hosts, basis=gain.basis)]


def _without(name: str, run: Regain) -> NDArray[np.int64] | None:
    return run.no_host(name)


def _rates(facts: object) -> dict[str, float]:
    """GB/s of the large copies of each kind."""
    kinds, size, took = (getattr(facts, n) for n in ("copy_kinds", "copy_bytes", "copy_ns"))
    return {k: b / t for k, b, t in zip(kinds, size.tolist(), took.tolist(), strict=True) if t > 0}

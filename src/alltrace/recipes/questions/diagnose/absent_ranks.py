"""Ranks without a report that the others wait for, as far as the shared operations show it."""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import combinations, islice
from typing import Any

import numpy as np
from numpy.typing import NDArray

from alltrace.align.schema import Group
from alltrace.recipes.questions.diagnose.all_rank_facts import AllRankFacts, Members
from alltrace.recipes.questions.diagnose.finding import MEDIUM_SHARE, Finding, Loss
from alltrace.recipes.questions.diagnose.links import usual_bus_gb_per_s
from alltrace.recipes.questions.diagnose.recovered_time import RecoveredTime
from alltrace.trace.arrays import Floats, Int64
from alltrace.trace.distinct import occurrences, rows_by
from alltrace.trace.number_text import number_ranges

_LONGER = 1.25  # operations wait for an absent rank if they take this many times the time that equal ones can take

_FACTORS = {"AllReduce": 2.0}
_ONES = frozenset({"Broadcast", "Reduce", "Send", "Recv", "SendRecv"})
_MESSAGES = frozenset({"Send", "Recv", "SendRecv"})
_GATHERING = frozenset({"AllGather", "ReduceScatter"})
_ALIKE = frozenset({"AllReduce", "AllGather", "ReduceScatter"})  # operations that use a communicator's links alike

_FAR_LONGER = 4.0
"""If nothing shows that a rank is absent, operations must take this many times what they need. And if each of a
communicator takes this many times the usual time of its links, none of them shows what they need."""

_UNNUMBERED = frozenset({"order", "file name"})  # sources of ranks' numbers that do not show how many ranks the job has

_STEADY = 0.5
"""This share of what operations take too long is at the same places of the steps, in half of the steps, if a rank is
late."""

_SEVERAL, _ALIKE_TIMES = 3, 2.0
"""Messages of this many communicators or more that take as long, but for this factor, do not depend on their place in
it."""

_DOUBTED = 0.6  # the confidence of a wait for an absent rank that is not compared with others of its kind
_MOST_GUESSES = 10_000  # how many sets of absent ranks are tried for a communicator


@dataclass(frozen=True)
class Awaited:
    transfer: Int64  # for each row of `Members` the part of its transfer that is such a wait, ns
    moved: Int64  # the same for the time that its rank's device waits for it
    shares: Mapping[int, float]  # for each communicator with these waits, their part of all of its transfers
    compared: frozenset[int]  # those of them with a usual time from complete communicators of the same size


def awaited(all_ranks: AllRankFacts, members: Members) -> Awaited:
    """What the transfers of communicators with absent members take beyond what they need.

    When an absent rank arrives cannot be seen, so its lateness looks like a slow transfer. What an operation needs is
    what the same one takes in complete communicators of the same size, at the median; if there is none, the least that
    it ever takes, that a larger one takes, or that a smaller one takes for each byte; if that is far longer than links
    need, what they usually do.

    Where the reports do not show how many ranks the job has, a communicator of all of them may have an absent member
    too: it has one if its operations take far longer than they need.
    """
    transfer = np.zeros(len(members.rank), np.int64)
    groups = {g.number: g for g in _groups(all_ranks)}
    short = {n: g for n, g in groups.items() if g.size > len(g.ranks)}
    present = tuple(all_ranks.ranks.tolist())
    perhaps = {n: g for n, g in groups.items() if n not in short and g.ranks == present and not _all_known(all_ranks)}
    shares: dict[int, float] = {}
    compared = set()
    for number, group in {**short, **perhaps}.items():
        chosen = members.communicator == number
        mine = np.flatnonzero(chosen if number in short else chosen & (members.size > 0))
        alike = [n for n, g in groups.items() if n not in short and n not in perhaps and g.size == group.size]
        others = np.flatnonzero(np.isin(members.communicator, alike))
        links = len({all_ranks.hosts[r] for r in group.ranks}) > 1, all_ranks.facts[group.ranks[0]].device
        needed, told = _needed(members, mine, others, group.size, links)
        over = np.maximum(members.transfer[mine] - needed, 0)
        total = int(members.transfer[mine].sum())
        longer = _LONGER if number in short else _FAR_LONGER
        if total - over.sum() > 0 and total >= longer * (total - int(over.sum())) and _comes_back(members, mine, over):
            transfer[mine] = over
            shares[number] = float(over.sum()) / total
            if told:
                compared.add(number)
    return Awaited(transfer, np.minimum(transfer, members.moved), shares, frozenset(compared))


def _comes_back(members: Members, mine: NDArray[np.intp], over: Int64) -> bool:
    """Whether excess times of operations come at the same places of steps, as a late rank's do, not at random.

    `mine`: Rows of `members`. `over`: What each of them takes too long, ns.
    """
    order = np.lexsort((members.start[mine], members.step[mine], members.rank[mine]))
    rank, step = members.rank[mine][order], members.step[mine][order]
    place = occurrences(rank, step)
    middles = (
        len(rows) * float(np.percentile(over[order][rows], 50, method="lower"))
        for rows in rows_by(rank * (int(place.max()) + 1) + place).values()
    )
    return sum(middles) >= _STEADY * float(over.sum())


def _groups(all_ranks: AllRankFacts) -> list[Group]:
    """The communicators, each with its size. One of all ranks with a report is taken to be of all of the job.

    If no report states sizes, only the members seen are counted, and the ranks without a report that make it equal to
    another one.
    """
    present, missing = tuple(all_ranks.ranks.tolist()), all_ranks.alignment.run.manifest.missing_ranks
    groups = _completed(all_ranks.alignment.groups, missing) if missing else list(all_ranks.alignment.groups)
    if not any(g.size == len(g.ranks) and g.ranks == present for g in groups):
        return groups
    count = len(present) + len(missing)
    return [replace(g, size=max(g.size, count)) if g.ranks == present else g for g in groups]


def _completed(groups: Sequence[Group], missing: Sequence[int]) -> list[Group]:
    """The communicators; the size of one like another counts ranks without a report.

    Communicators of messages stay: a slow link between two members delays all the others, as an absent member does.
    """
    shapes = {tuple(r - g.ranks[0] for r in g.ranks) for g in groups if g.ranks and g.size == len(g.ranks)}
    lengths = sorted({len(s) for s in shapes})
    completed = []
    for group in groups:
        size = group.size
        if group.ranks and size == len(group.ranks) and not group.messages:
            for length in (n for n in lengths if size < n <= size + len(missing)):
                sets = islice(combinations((r for r in missing if r not in group.ranks), length - size), _MOST_GUESSES)
                whole = (sorted({*group.ranks, *chosen}) for chosen in sets)
                if any(tuple(r - ranks[0] for r in ranks) in shapes for ranks in whole):
                    size = length
                    break
        completed.append(replace(group, size=size))
    return completed


def _all_known(all_ranks: AllRankFacts) -> bool:
    manifest = all_ranks.alignment.run.manifest
    return any(r.rank_source not in _UNNUMBERED for r in manifest.ranks)


def bus_bytes(op: str, size: int, ranks: int) -> float:
    """What an operation moves over each rank's links, by the factors of nccl-tests (PERFORMANCE.md)."""
    factor = 1.0 if op in _ONES or ranks < 2 else _FACTORS.get(op, 1.0) * (ranks - 1) / ranks
    return factor * size * (ranks if op in _GATHERING else 1)


def _usual_ns(moved: float, ranks: int, links: tuple[bool, str]) -> float:
    """What links usually make of an operation, ns: a latency, as nccl-tests show it, and a bandwidth."""
    across, device = links
    return (50_000 if across else 20_000) + 1_000 * ranks + moved / usual_bus_gb_per_s(device, across=across)


def _needed(
    members: Members,
    mine: NDArray[np.intp],
    others: NDArray[np.intp],
    ranks: int,
    links: tuple[bool, str] = (False, ""),
) -> tuple[Int64, bool]:
    """What each operation of `mine` needs, ns, and whether `others` determine it for most."""
    needed = members.transfer[mine].copy()
    told = np.zeros(len(mine), np.bool_)
    names, op = np.unique(members.op.astype(str), return_inverse=True)
    key = members.size * len(names) + op.reshape(-1)
    least: dict[int, int] = {}
    for value in np.unique(key[mine]).tolist():
        rows, alike = key[mine] == value, others[key[others] == value]
        told[rows] = bool(len(alike))
        least[value] = int(members.transfer[mine][rows].min())
        needed[rows] = np.median(members.transfer[alike]) if len(alike) else least[value]
    for value in np.unique(key[mine][~told]).tolist():
        of, size, bounds = str(names[value % len(names)]), value // len(names), [least[value]]
        moved = bus_bytes(of, size, ranks)
        # a smaller one takes no longer, and a larger one no longer for each byte
        for other, took in least.items():
            name = str(names[other % len(names)])
            if name == of or {name, of} <= _ALIKE:
                its = bus_bytes(name, other // len(names), ranks)
                bounds.append(took if its >= moved else round(took * moved / its) if its else took)
        usual = _usual_ns(moved, ranks, links)
        far = size > 0 and of not in _MESSAGES and min(bounds) >= _FAR_LONGER * usual
        needed[key[mine] == value] = round(usual) if far else min(bounds)
    return needed, bool(told.mean() > 0.5) if len(told) else False


def find(all_ranks: AllRankFacts) -> list[Finding]:
    """`missing-rank`: the ranks without a report that communicators wait for, together."""
    members = all_ranks.members
    if members is None or not len(members.rank):
        return _of_unknown_loss(all_ranks, None)
    missing = all_ranks.alignment.run.manifest.missing_ranks
    waits = awaited(all_ranks, members)
    lost = all_ranks.spread(waits.moved)
    alone = np.zeros_like(lost) if _all_known(all_ranks) and not missing else _alone(all_ranks, members)
    lost = lost + alone
    if not lost.any():
        return _of_unknown_loss(all_ranks, members)
    groups = [g for g in _groups(all_ranks) if g.number in waits.shares]
    count = max((g.size - len(g.ranks) for g in groups), default=1)
    absent = _absent(groups, missing) if groups else tuple(missing) if len(missing) == 1 else ()
    several = (len(absent) or count) > 1
    named = f"rank{'s' * several} {number_ranges(absent)}" if absent else f"{count} ranks" if several else "a rank"
    waiting = lost.any(axis=1)
    evidence = {
        "missing": len(absent) or count,
        "waited_ns_per_step": float(np.round(lost[waiting].mean())),
        "communicators": len(groups),
        "steps_affected": int(lost.any(axis=0).sum()),
        "steps": len(all_ranks.steps),
    }
    waited = f"{lost.max(axis=0).sum() / 1e6:.1f} ms"
    advice = (
        f"Waiting for {named}, without a report: {waited}; profile {'them' if several else 'it'} too, or check the"
        " link."
    )
    # a replay cannot take the wait out of what is matched with nothing
    unmatched = any(all_ranks.alignment.unmatched.values())
    change = None if unmatched else partial(RecoveredTime.less_transfer, shares=waits.shares)
    loss = all_ranks.loss(("communication",), lost, change, ceiling_ns=all_ranks.waiting_ns(lost))
    where = ", ".join(g.name for g in groups[:3]) or "unmatched operations"
    confidence = 0.85 if waits.compared or alone.any() else _DOUBTED
    return [Finding("missing-rank", loss, absent, where, advice, evidence, confidence)]


def _of_unknown_loss(all_ranks: AllRankFacts, members: Members | None) -> list[Finding]:
    """`missing-rank` where devices wait in operations that are matched with nothing and say neither size nor ranks."""
    missing = () if all_ranks.alignment is None else tuple(all_ranks.alignment.run.manifest.missing_ranks)
    waited = all_ranks.of("communication")
    if members is not None:
        waited = waited - all_ranks.spread(members.waited)
    waiting = waited.sum(axis=1) >= MEDIUM_SHARE * all_ranks.span_ns
    sized = any(lone is not None and len(lone.op) for lone in all_ranks.lone)
    if not missing or sized or not waiting.any():
        return []
    evidence = {"missing": len(missing), "waited_ns_per_step": float(np.round(waited[waiting].mean()))}
    advice = "Devices wait in operations that no report of another rank has; profile the ranks without a report too."
    why = "it is unknown how long these operations take with a rank that is on time"
    loss = Loss(0, "ceiling", ("communication",), 0, 0, why)
    return [Finding("missing-rank", loss, missing, "unmatched operations", advice, evidence, _DOUBTED, told=True)]


def _alone(all_ranks: AllRankFacts, members: Members) -> Floats:
    """(ranks, steps): waits in operations with absent ranks alone, beyond those of complete communicators.

    When an absent rank arrives is not known, so what they take is from arrival to end, their usual waits included, at
    the median. How long a stage of a pipeline waits for the next depends on the stage, so messages between two ranks
    are left out unless they take as long in all complete communicators, as exchanges around a ring do. Operations of
    communicators of which all members have reports, or several ranks have operations that are matched with nothing, are
    left out too.
    """
    groups = {g.number: g for g in _groups(all_ranks)}
    complete = {n: g.size for n, g in groups.items() if g.size == len(g.ranks)}
    named = Counter(
        c for lone in all_ranks.lone if lone is not None for c in np.unique(lone.communicator).tolist() if c
    )
    names = {groups[n].name for n in complete}
    present = [c for c, ranks in named.items() if ranks > 1 or all_ranks.name(c) in names]
    whole = np.array([complete.get(n, 0) for n in members.communicator.tolist()])
    took = members.end - members.start
    usual: dict[tuple[str, int, int], float] = {}
    beyond_ns = np.zeros((len(all_ranks.ranks), len(all_ranks.steps)))
    for row, lone in enumerate(all_ranks.lone):
        if lone is None or not len(lone.op):
            continue
        absent = ~np.isin(lone.communicator, present)
        if not absent.any():
            continue
        needed = np.empty(len(lone.op))
        for n, ident in enumerate(lone.op.tolist()):
            key = all_ranks.name(ident), int(lone.size[n]), int(lone.group_size[n])
            if key not in usual:
                alike = (
                    (members.op == key[0]) & (members.size == key[1]) & (whole == key[2] if key[2] > 0 else whole > 0)
                )
                even = key[0] not in _MESSAGES or _alike_everywhere(members.communicator[alike], took[alike])
                usual[key] = float(np.median(took[alike])) if alike.any() and even else np.inf
            needed[n] = usual[key] * lone.count[n] if absent[n] else np.inf
        # one occurrence is chance, such as a first step
        if np.median((lone.took_ns / needed)[absent]) >= _LONGER:
            known = np.isin(lone.step, all_ranks.steps)
            over = np.clip(lone.took_ns - needed, 0, lone.waited_ns)
            np.add.at(beyond_ns[row], np.searchsorted(all_ranks.steps, lone.step[known]), over[known])
    return beyond_ns


def _alike_everywhere(communicator: Int64, took: Int64) -> bool:
    middles = [float(np.median(took[rows])) for rows in rows_by(communicator).values()]
    return len(middles) >= _SEVERAL and max(middles) <= _ALIKE_TIMES * min(middles)


def _absent(groups: Iterable[Any], missing: Iterable[int]) -> tuple[int, ...]:
    """The ranks without a report that are members of all these communicators; empty if they cannot be known."""
    absent: set[int] = set()
    for group in groups:
        candidates = [r for r in missing if r not in group.ranks]
        count = group.size - len(group.ranks)
        sets = [set(candidates)] if len(candidates) == count else _evenly(group.ranks, candidates, count)
        if len(sets) != 1:
            return ()
        absent |= sets[0]
    return tuple(sorted(absent))


def _evenly(ranks: Iterable[int], candidates: Iterable[int], count: int) -> list[set[int]]:
    """The sets of `count` candidates that make the distances of the ranks equal, as in a communicator."""
    sets = [set(chosen) for chosen in islice(combinations(candidates, count), _MOST_GUESSES)]
    return [s for s in sets if len(set(np.diff(sorted({*ranks, *s})).tolist())) == 1]

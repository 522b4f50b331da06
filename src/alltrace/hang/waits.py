"""Who waits for whom: from each rank's first operation that did not complete to the ranks that wait for nobody."""

from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Literal, TypeAlias

from alltrace.hang.order import expected, left_order, place_is_new, short, shown
from alltrace.hang.progress import GroupKey, Progress, RankState, done
from alltrace.readers.flight_recorder.read import Entry
from alltrace.recipes.logs.flight_recorder import difference

Reason = Literal["missing-call", "mismatch", "missing-peer", "stopped", "network", "no-dump"]
_ONE_SIDED = ("broadcast", "reduce", "scatter", "gather", "send", "recv", "coalesced")
"""What may complete on one rank while others have not begun; `reduce_scatter` and `all_gather` are none of these."""
_Odd: TypeAlias = "tuple[list[int], dict[int, tuple[Reason, Entry, str]]]"


@dataclass
class Wait:
    entry: Entry
    on: set[int] = field(default_factory=set)  # ranks that it waits for
    unsure: set[int] = field(default_factory=set)  # ranks without a dump that it may wait for
    message: bool = False  # whether the others lack a send or a receive
    # of a batch of messages, the one that each of the others owes an end of
    owed: dict[int, Entry] = field(default_factory=dict)


@dataclass(frozen=True)
class Root:
    rank: int
    reason: Reason
    entry: Entry | None = None  # what the others wait in, or its own operation
    detail: str = ""  # what speaks for it


@dataclass
class Waits:
    waits: dict[int, Wait]  # of each rank that waits
    roots: dict[int, Root]
    unsure: dict[int, Root]  # ranks without a dump, which may be roots
    together: list[int]  # ranks that wait in a collective that all of them entered


@dataclass(frozen=True)
class _Call:
    odd: list[int]  # ranks whose part of it is not that of most
    reasons: dict[int, tuple[Reason, Entry, str]]  # why they are odd
    absent: set[int]  # ranks that did not enter it
    completed: set[int]
    unsure: set[int]  # ranks of which it is not known
    elsewhere: set[int]  # ranks that entered it, and wait in something before it


def follow(progress: Progress) -> Waits:
    waits: dict[int, Wait] = {}
    roots: dict[int, Root] = {}
    together: list[int] = []
    calls: dict[tuple[GroupKey, int], _Call] = {}
    for state in progress.ranks.values():
        if state.front is not None:
            _look(progress, state, state.front, waits, roots, together, calls)
    waits = {rank: wait for rank, wait in waits.items() if rank not in roots}
    for ends in _ends({r: w.on for r, w in waits.items()}):
        _root_of(progress, ends, waits, roots)
    unsure: dict[int, Root] = {}
    for rank, wait in waits.items():
        for missing in wait.unsure:
            unsure.setdefault(missing, Root(missing, "no-dump", wait.entry, f"rank {rank} waits"))
    return Waits(waits, roots, unsure, together)


def _look(
    progress: Progress,
    state: RankState,
    front: Entry,
    waits: dict[int, Wait],
    roots: dict[int, Root],
    together: list[int],
    calls: dict[tuple[GroupKey, int], _Call],
) -> None:
    wait = waits[state.rank] = Wait(front)
    if front.p2p:
        ended = _look_at_messages(progress, state, front, wait)
        if ended is not None:
            roots[state.rank] = Root(state.rank, "stopped", ended, "its peer completed it")
        elif not (wait.on or wait.unsure):
            together.append(state.rank)
        return
    key = progress.key_of(front)
    number = key, front.sequence  # all ranks in it see the same
    if number not in calls:
        calls[number] = _call_of(progress, state.rank, key, front)
    call, own = calls[number], {state.rank}
    if call.odd:
        for rank in call.odd:
            roots.setdefault(rank, Root(rank, *call.reasons[rank]))
        wait.on = set(call.odd) - own
        return
    completed = len(call.completed - own)
    absent = call.absent - own
    if completed and not front.op.lower().startswith(_ONE_SIDED):
        others = f"{completed} of its peers completed it" if completed > 1 else "its peer completed it"
        roots[state.rank] = Root(state.rank, "stopped", front, others)
    elif absent:
        wait.on = absent
    else:
        wait.unsure = call.unsure - own
        wait.on = call.elsewhere - own
        if not (wait.on or wait.unsure):
            together.append(state.rank)


def _call_of(progress: Progress, rank: int, key: GroupKey, front: Entry) -> _Call:
    """What all ranks see in a collective that a rank waits in."""
    states = progress.states(key, front.sequence)
    entered = {
        m: progress.ranks[m].collectives[key].get(front.sequence)
        for m, its in states.items()
        if its in ("pending", "done")
    }
    entries = {m: e for m, e in entered.items() if e is not None and e.op != "collective"} | {rank: front}
    odd, reasons = _odd_ones(progress, dict(sorted(entries.items())), key, front)
    away = {m for m, its in states.items() if its == "absent"}
    absent = {m for m in away if not progress.may_wait_unseen(m)}
    unsure = {m for m, its in states.items() if its == "unknown"} | away
    if not key.members:
        unsure |= progress.lost - set(states)
    return _Call(
        odd,
        reasons,
        absent,
        {m for m, its in states.items() if its == "done"},
        unsure,
        {m for m, its in states.items() if its == "pending" and not _same(progress, m, key, front.sequence)},
    )


def _same(progress: Progress, rank: int, key: GroupKey, sequence: int) -> bool:
    """Whether a rank waits in this collective and in nothing before it."""
    front = progress.ranks[rank].front
    return front is None or (not front.p2p and progress.key_of(front) == key and front.sequence == sequence)


def _odd_ones(progress: Progress, entries: Mapping[int, Entry], key: GroupKey, front: Entry) -> _Odd:
    """The ranks whose part of a collective is not that of most, with what they did: skipped a call, or another."""
    members = len(key.members)  # 0 if no dump states them: those that are seen may not be all
    usual = _usual(entries, progress, key)
    if usual is None:  # as many issued one thing as another
        issued = " and ".join(dict.fromkeys(short(e) for e in entries.values()))
        words = f"{issued}, of which one is wrong"
        return list(entries), dict.fromkeys(entries, ("mismatch", front, words))
    odd = [r for r, e in entries.items() if difference(e, usual, members)]
    reasons: dict[int, tuple[Reason, Entry, str]] = {}
    for rank in odd:
        mine, its = entries[rank], progress.ranks[rank].collectives[key]
        calls = {**_calls_of_most(progress, key, odd), front.sequence: usual}
        following = calls.get(front.sequence + 1) or expected(calls, front.sequence + 1)
        after = its.get(front.sequence + 1)
        swapped = after is not None and not difference(after, usual, members) and place_is_new(progress, rank, after)
        if (
            following is not None
            and not difference(mine, following, members)
            and not swapped
            and not place_is_new(progress, rank, mine)
        ):
            reasons[rank] = ("missing-call", usual, f"it went on with {shown(mine)}, which the others issue next")
            continue
        what = difference(mine, usual, members) or "mismatch"
        details = {
            "mismatch": f"{short(mine)} instead of {short(usual)}",
            "size mismatch": f"{short(mine)} of {_sizes(mine)} instead of {_sizes(usual)}",
            "type mismatch": f"{short(mine)} of {mine.datatypes} instead of {usual.datatypes}",
        }
        reasons[rank] = ("mismatch", usual, details[what])
    return odd, reasons


def _sizes(entry: Entry) -> str:
    same = entry.sizes == entry.output_sizes or not entry.output_sizes
    return entry.sizes if same else f"{entry.sizes} to {entry.output_sizes}"


def _calls_of_most(progress: Progress, key: GroupKey, odd: Iterable[int]) -> dict[int, Entry]:
    """The collectives of a group by number, as the ranks that are not odd issued them."""
    calls: dict[int, Entry] = {}
    for rank in progress.groups[key].members:
        if rank not in odd:
            calls.update(progress.ranks[rank].collectives.get(key, {}))
    return calls


def _usual(entries: Mapping[int, Entry], progress: Progress, key: GroupKey) -> Entry | None:
    """What most ranks issued; of two that are as many, what the group's past expects; None if unknown."""
    members = len(key.members)
    classes: list[list[int]] = []
    for rank, entry in entries.items():
        for ranks in classes:
            if not difference(entry, entries[ranks[0]], members):
                ranks.append(rank)
                break
        else:
            classes.append([rank])
    most = max(len(ranks) for ranks in classes)
    best = [ranks for ranks in classes if len(ranks) == most]
    if len(best) > 1:
        sequence = entries[best[0][0]].sequence
        before = {n: e for r in entries for n, e in progress.ranks[r].collectives[key].items() if n < sequence}
        usual = expected(before, sequence)
        known = [r for r in best if usual is not None and not difference(entries[r[0]], usual, members)]
        best = [ranks for ranks in known if not place_is_new(progress, ranks[0], entries[ranks[0]])] or known or best
    return entries[best[0][0]] if len(best) == 1 else None


def _look_at_messages(progress: Progress, state: RankState, front: Entry, wait: Wait) -> Entry | None:
    """For whom a rank waits in a send, a receive, or a batch; a message that the other end completed, if any."""
    key = progress.key_of(front)
    members = key.members or (progress.groups[key].members if not progress.lost else ())
    parts = [front]
    if front.op == "coalesced":
        parts = [e for e in state.by_group[key] if e.p2p and e.sequence == front.sequence and e.op != "coalesced"]
    behind: set[int] = set()
    ended: Entry | None = None
    for part in parts:
        peer = _peer(part, members)
        if peer is None:
            wait.unsure |= progress.lost
            continue
        its = progress.ranks.get(peer)
        if its is None or its.recording is None:
            wait.unsure.add(peer)
        elif (other := _other_end(progress, state, its, key, part)) is None:
            if its.cut:
                wait.unsure.add(peer)
            else:
                wait.on.add(peer)
                wait.message = True
                wait.owed[peer] = part
        elif done(other) and other.sequence not in _open(progress, its, key):
            ended = part
        elif its.front is not None and its.front is not other and its.front.sequence != other.sequence:
            behind.add(peer)
            wait.owed[peer] = part
    if not wait.on:
        wait.on = behind
    return ended if not (wait.on or wait.unsure) else None


def _peer(entry: Entry, members: tuple[int, ...]) -> int | None:
    if entry.ends is None:
        return None
    own_end, other = entry.ends if entry.op.lower().startswith("send") else entry.ends[::-1]
    if own_end < len(members) and members[own_end] == entry.rank and other < len(members):
        return members[other]
    return None


def _other_end(progress: Progress, state: RankState, its: RankState, key: GroupKey, part: Entry) -> Entry | None:
    """The other end of a message on the peer, or None if the peer did not issue it."""
    # The k-th message from one rank to another is its k-th receive. Where records do not reach back to the first
    # operation, those that did not complete are matched.
    sends = part.op.lower().startswith("send")

    def messages(of: RankState, sending: bool) -> list[Entry]:
        its = [
            e for e in of.by_group[key] if e.p2p and e.ends == part.ends and e.op.lower().startswith("send") == sending
        ]
        return sorted(its, key=lambda e: (e.number or 0, e.sequence))

    mine, theirs = messages(state, sends), messages(its, not sends)
    if not (_from_start(state) and _from_start(its)):
        open_here = _open(progress, state, key)
        mine = [e for e in mine if e.sequence in open_here]
        theirs = [e for e in theirs if e.sequence in _open(progress, its, key)]
    place = next((n for n, e in enumerate(mine) if e is part), len(mine))
    return theirs[place] if place < len(theirs) else None


def _open(progress: Progress, state: RankState, key: GroupKey) -> set[int]:
    """The numbers of the messages in a group that a rank did not complete."""
    return {e.sequence for e in state.pending if e.p2p and progress.key_of(e) == key}


def _from_start(state: RankState) -> bool:
    """Whether a record reaches back to the first operation of its rank."""
    entries = [e for its in state.by_group.values() for e in its]
    return min((e.number for e in entries if e.number is not None), default=2) <= 1 and any(map(done, entries))


def _ends(edges: Mapping[int, set[int]]) -> list[list[int]]:
    """The sets of ranks that waits lead to and that wait for none outside: a rank that waits for none, or a circle."""
    order: list[int] = []
    seen: set[int] = set()
    for start in edges:
        stack = [(start, iter(edges.get(start, ())))]
        if start in seen:
            continue
        seen.add(start)
        while stack:
            rank, others = stack[-1]
            following = next((o for o in others if o not in seen), None)
            if following is None:
                order.append(rank)
                stack.pop()
            else:
                seen.add(following)
                stack.append((following, iter(edges.get(following, ()))))
    reverse: dict[int, list[int]] = defaultdict(list)
    for rank, its in edges.items():
        for other in its:
            reverse[other].append(rank)
    component: dict[int, int] = {}
    for start in reversed(order):
        todo = [start] if start not in component else []
        while todo:
            rank = todo.pop()
            if rank not in component:
                component[rank] = start
                todo += [r for r in reverse[rank] if r not in component]
    circles: dict[int, list[int]] = defaultdict(list)
    for rank, first in component.items():
        circles[first].append(rank)
    return [
        sorted(ranks)
        for ranks in circles.values()
        if all(component[o] == component[r] for r in ranks for o in edges.get(r, ()))
    ]


def _root_of(progress: Progress, ends: list[int], waits: Mapping[int, Wait], roots: dict[int, Root]) -> None:
    """Who is to blame among ranks that wait for nobody else."""
    if any(rank in roots for rank in ends):
        return
    if len(ends) == 1:
        rank = ends[0]
        entries = [w for w in waits.values() if rank in w.on]
        if entries and rank not in waits:
            reason: Reason = "missing-peer" if all(w.message for w in entries) else "missing-call"
            # a collective says more than a message of the pipeline, and one that more ranks wait in than another
            roots[rank] = Root(rank, reason, _most_telling(progress, rank, entries))
        return
    within = {r: waits[r] for r in ends}
    for rank in ends:
        owed = [w.owed.get(rank, w.entry) for w in within.values() if rank in w.on]
        left = left_order(progress, rank, owed)
        if left is not None:
            roots[rank] = Root(rank, *left)
    if any(rank in roots for rank in ends):
        return
    lacking = [r for r in ends if any(w.message and r in w.on for w in within.values())]
    if 0 < len(lacking) < len(ends):
        for rank in lacking:
            entry = next(w.owed.get(rank, w.entry) for w in within.values() if w.message and rank in w.on)
            roots[rank] = Root(rank, "missing-peer", entry, f"it is in {shown(waits[rank].entry)}")
        return

    if progress.lost or any(state.cut for state in progress.ranks.values()):
        return  # a rank whose dump is lost may be where the circle begins

    def share(rank: int) -> float:
        entry = within[rank].entry
        members = progress.group_of(entry).members
        return _entered(progress, entry) / max(len(members), 1)

    least = min(map(share, ends))
    for rank in (r for r in ends if share(r) == least):
        entry = next((w.entry for w in within.values() if rank in w.on), within[rank].entry)
        roots[rank] = Root(rank, "mismatch", entry, f"it is in {shown(within[rank].entry)} instead")


def _most_telling(progress: Progress, rank: int, waits: list[Wait]) -> Entry:
    wait = max(waits, key=lambda w: (not w.entry.p2p, _entered(progress, w.entry)))
    return wait.owed.get(rank, wait.entry)


def _entered(progress: Progress, entry: Entry) -> int:
    """How many ranks wait in a collective; 0 for a message."""
    key = progress.key_of(entry)
    return 0 if entry.p2p else list(progress.states(key, entry.sequence).values()).count("pending")

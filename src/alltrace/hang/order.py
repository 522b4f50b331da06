"""The order in which a rank usually issues its operations, and where it left that order."""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from typing import Literal, TypeVar

from alltrace.hang.progress import Progress
from alltrace.readers.flight_recorder.read import Entry

_LONGEST_CONTEXT, _CERTAIN_CONTEXT, _SHORTEST_CONTEXT = 24, 6, 2
_OFTEN = 2
_LOOKED_AT = 400
"""Operations from the end of a record among which a rank is looked for that left its order."""
_Token = TypeVar("_Token", bound="Hashable")


def shown(entry: Entry) -> str:
    """An operation in sentences, without its group."""
    return f"{short(entry)} #{entry.sequence}"


def short(entry: Entry) -> str:
    return entry.op.strip("_").removesuffix("_base").replace("_", "-")


def expected(calls: Mapping[int, Entry], sequence: int) -> Entry | None:
    """What a group's collective of that number should be, by what followed the same calls before; None if unknown."""
    numbers = sorted(n for n in calls if n < sequence)[-_LOOKED_AT:]
    if not numbers or numbers[-1] != sequence - 1:
        return None
    place = _following([(calls[n].op, calls[n].frame) for n in numbers])
    return None if place is None else calls[numbers[place]]


def place_is_new(progress: Progress, rank: int, entry: Entry) -> bool:
    """Whether a rank issued an operation from a line from which no rank issued it before."""
    if not entry.frame:
        return False
    places = {
        e.frame
        for e in progress.ranks[rank].by_group[progress.key_of(entry)]
        if e is not entry and e.op == entry.op and e.p2p == entry.p2p and _before(e, entry)
    }
    return bool(places) and entry.frame not in places


def left_order(
    progress: Progress, rank: int, owed: Sequence[Entry]
) -> tuple[Literal["missing-call", "mismatch", "missing-peer"], Entry, str] | None:
    """Where a rank left its usual order although others wait for what should have come: reason, debt, words."""
    state = progress.ranks[rank]
    entries = sorted(
        (e for its in state.by_group.values() for e in its if e.op != "coalesced"), key=lambda e: e.number or 0
    )
    entries = entries[-2 * _LOOKED_AT :]
    tokens = [_token(progress, e) for e in entries]
    wanted = {_owed_token(progress, e): e for e in owed}
    first = entries.index(state.front) if state.front in entries else max(0, len(entries) - _LOOKED_AT)
    for at in range(max(first - _LOOKED_AT, _SHORTEST_CONTEXT), len(entries)):
        place = _certain(tokens[:at])
        if place is None or tokens[place] == tokens[at] or tokens[place] not in wanted:
            continue
        owes = wanted[tokens[place]]
        if owes.p2p:
            return "missing-peer", owes, f"it went on with {shown(entries[at])}"
        if place_is_new(progress, rank, entries[at]):
            return "mismatch", owes, f"it is in {shown(entries[at])} instead"
        return "missing-call", owes, f"it went on with {shown(entries[at])}"
    return None


def _token(progress: Progress, entry: Entry) -> tuple[object, ...]:
    """What distinguishes an operation among those of its rank."""
    return progress.key_of(entry), entry.op, entry.ends, entry.frame if not entry.p2p else ""


def _owed_token(progress: Progress, entry: Entry) -> tuple[object, ...]:
    """The operation that a rank should have issued for another's; for a message its other end."""
    if not entry.p2p:
        return progress.key_of(entry), entry.op, entry.ends, entry.frame
    return progress.key_of(entry), "recv" if entry.op.lower().startswith("send") else "send", entry.ends, ""


def _certain(tokens: Sequence[_Token]) -> int | None:
    """The place of what must follow: after a long context, or a short one that always led to the same."""
    place = _following(tokens, _CERTAIN_CONTEXT)
    if place is None and len(tokens) >= _SHORTEST_CONTEXT:
        end = tokens[-_SHORTEST_CONTEXT:]
        places = [at for at in range(_SHORTEST_CONTEXT, len(tokens)) if tokens[at - _SHORTEST_CONTEXT : at] == end]
        if len(places) >= _OFTEN and len({tokens[at] for at in places}) == 1:
            place = places[-1]
    return place


def _following(tokens: Sequence[_Token], shortest: int = _SHORTEST_CONTEXT) -> int | None:
    """The place of what followed the longest part of the end that occurred before; None if there is none that long."""
    best, place = shortest - 1, None
    for at in range(len(tokens) - 1, 0, -1):
        length = 0
        while length < min(at, _LONGEST_CONTEXT) and tokens[at - 1 - length] == tokens[len(tokens) - 1 - length]:
            length += 1
        if length > best:
            best, place = length, at
            if length == _LONGEST_CONTEXT:
                break
    return place


def _before(one: Entry, other: Entry) -> bool:
    return one.number is None or other.number is None or one.number < other.number

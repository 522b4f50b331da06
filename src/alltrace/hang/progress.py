"""How far each rank is in each process group: what it issued, what completed, what it waits in."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Literal

from alltrace.hang.evidence import Evidence
from alltrace.readers.flight_recorder.read import Entry, Recording

State = Literal["absent", "pending", "done", "unknown"]
_WORLD = ("default_pg", "0", "")


@dataclass(frozen=True, eq=False, slots=True)
class GroupKey:
    """What distinguishes a group: several may have one name, with other members. Each group has one of these."""

    name: str
    members: tuple[int, ...]  # empty if no dump states them


@dataclass
class Group:
    key: GroupKey
    description: str
    members: tuple[int, ...]  # as stated, else the ranks that have operations in it
    messages: bool = (
        False  # whether ranks send and receive in it, so that their numbers cannot be compared by the group's state
    )

    @property
    def title(self) -> str:
        text = self.description
        if text in ("", "undefined"):
            return f"group {self.key.name}" if self.key.name else "the only group"
        return "the default group" if text == "default_pg" else f"{text} ({self.key.name})"


@dataclass
class RankState:
    rank: int
    recording: Recording | None = None  # None without a dump that can be read
    by_group: dict[GroupKey, list[Entry]] = field(default_factory=lambda: defaultdict(list))
    collectives: dict[GroupKey, dict[int, Entry]] = field(default_factory=lambda: defaultdict(dict))
    pending: list[Entry] = field(default_factory=list)  # in the order in which they were issued

    @property
    def front(self) -> Entry | None:
        return self.pending[0] if self.pending else None

    @property
    def cut(self) -> bool:
        """Whether the end of its dump is lost."""
        return self.recording is None or bool(self.recording.damage)


def done(entry: Entry) -> bool:
    return entry.state == "completed" or entry.retired


class Progress:
    def __init__(self, evidence: Evidence) -> None:
        self.groups: dict[GroupKey, Group] = {}
        self.ranks: dict[int, RankState] = {}
        self._keys: dict[int, dict[str, GroupKey]] = defaultdict(dict)
        self._key_of: dict[tuple[str, tuple[int, ...]], GroupKey] = {}
        self._states: dict[tuple[GroupKey, int], dict[int, State]] = {}
        self._last_issued: dict[tuple[int, GroupKey], int] = {}
        self._ends: dict[tuple[int, GroupKey], tuple[int, int]] = {}
        for rank, recording in sorted(evidence.recordings.items()):
            self._add(rank, recording)
        self._with_members(evidence)
        for state in self.ranks.values():
            state.pending = self._pending(state)
        for state in self.ranks.values():
            if state.recording is not None and state.cut and not state.pending:
                state.pending = self._pending_by_status(state)

    def key_of(self, entry: Entry) -> GroupKey:
        return self._keys[entry.rank][entry.group]

    def group_of(self, entry: Entry) -> Group:
        return self.groups[self.key_of(entry)]

    def states(self, key: GroupKey, sequence: int) -> dict[int, State]:
        """Where each rank of a group is with a collective of it."""
        states = self._states.get((key, sequence))
        if states is None:
            members = self.groups[key].members
            states = self._states[key, sequence] = {rank: self._state_of(rank, key, sequence) for rank in members}
        return states

    def _state_of(self, rank: int, key: GroupKey, sequence: int) -> State:
        state = self.ranks.get(rank)
        if state is None or state.recording is None:
            return "unknown"
        its = state.collectives.get(key, {})
        entry = its.get(sequence)
        issued, completed = self._ends_of(state, key)
        if sequence <= completed:
            return "done"
        if entry is not None:
            return "done" if done(entry) else "pending"
        if sequence <= issued:  # it is not among the entries, because it left the ring or only active ones were written
            return "unknown" if state.cut else "done"
        return "unknown" if state.cut and not self._status(state, key) else "absent"

    def _status(self, state: RankState, key: GroupKey) -> tuple[int, int] | None:
        group = self.groups[key]
        return None if group.messages or state.recording is None else state.recording.progress.get(key.name)

    def _ends_of(self, state: RankState, key: GroupKey) -> tuple[int, int]:
        """The numbers of the last collectives that a rank issued and completed in a group, -1 for none."""
        ends = self._ends.get((state.rank, key))
        if ends is None:
            its = state.collectives.get(key, {})
            issued, completed = self._status(state, key) or (-1, -1)
            issued = max(max(its, default=-1), issued, self._last_issued.get((state.rank, key), -1))
            completed = max(max((n for n, e in its.items() if done(e)), default=-1), completed)
            ends = self._ends[state.rank, key] = issued, completed
        return ends

    def _add(self, rank: int, recording: Recording) -> None:
        state = self.ranks[rank] = RankState(rank, recording)
        for name, members in recording.groups.items():
            self._group(rank, name, tuple(sorted(members)), recording.descriptions.get(name, ""))
        for entry in _in_order(recording.entries):
            key = self._keys[rank].get(entry.group) or self._group(rank, entry.group, (), entry.description)
            state.by_group[key].append(entry)
            if entry.p2p:
                self.groups[key].messages = True
                self._last_issued[rank, key] = max(self._last_issued.get((rank, key), -1), entry.collectives_before)
            else:
                first = state.collectives[key].setdefault(entry.sequence, entry)
                first.retired = first.retired or done(entry)  # the parts of a batch of collectives have one number

    def _group(self, rank: int, name: str, members: tuple[int, ...], description: str) -> GroupKey:
        key = self._keys[rank][name] = self._key_of.setdefault((name, members), GroupKey(name, members))
        group = self.groups.setdefault(key, Group(key, description, members))
        if not group.description:
            group.description = description
        return key

    def _with_members(self, evidence: Evidence) -> None:
        """The members of groups that no dump states; a group that sends on a rank sends on all alike."""
        known = {
            *self.ranks,
            *evidence.empty,
            *evidence.deaths,
            *evidence.hosts,
            *evidence.stacks,
            *range(evidence.world),
        }
        known.update(rank for group in self.groups.values() for rank in group.key.members)
        for rank in known:
            self.ranks.setdefault(rank, RankState(rank))
        sending = {g.description for g in self.groups.values() if g.messages and g.description not in ("", "undefined")}
        for key, group in self.groups.items():
            group.messages = group.messages or group.description in sending
            if not group.members:
                whole = group.description in _WORLD[:1] or (key.name == "0" and not group.description)
                its = [r for r, state in self.ranks.items() if state.by_group.get(key)]
                group.members = tuple(sorted(known if whole else its))

    def _pending(self, state: RankState) -> list[Entry]:
        """What a rank has issued that did not complete."""
        # The parts of a batch of messages stay `scheduled` for ever; the batch itself completes. What was issued before
        # a completed operation of the same group has completed too.
        pending: list[Entry] = []
        for key, its in state.by_group.items():
            last = max((n for n, e in enumerate(its) if done(e)), default=-1)
            completed = self._ends_of(state, key)[1]
            batches = {e.sequence for e in its if e.p2p and e.op == "coalesced"}
            for entry in its[last + 1 :]:
                part = entry.op != "coalesced" and entry.sequence in batches
                if (
                    part
                    if entry.p2p
                    else (entry.sequence <= completed or entry is not state.collectives[key][entry.sequence])
                ):
                    continue
                pending.append(entry)
        return _in_order(pending)

    def _pending_by_status(self, state: RankState) -> list[Entry]:
        """What a rank whose entries are lost waits in, by its groups: the collectives after those completed."""
        pending: list[Entry] = []
        for key in self._keys[state.rank].values():
            status = self._status(state, key)
            if status is not None and status[0] > status[1]:
                peers = [self.ranks[m].collectives.get(key, {}).get(status[1] + 1) for m in self.groups[key].members]
                like = next((e for e in peers if e is not None), None)
                if like is not None:
                    pending.append(replace(like, rank=state.rank, state="scheduled", retired=False, number=None))
        return sorted(pending, key=lambda e: e.created_ns or 0)

    @property
    def lost(self) -> set[int]:
        return {r for r, state in self.ranks.items() if state.recording is None}

    def may_wait_unseen(self, rank: int) -> bool:
        """Whether a rank may wait in something that its dump lost: it is cut, and sends or receives."""
        state = self.ranks[rank]
        return state.cut and not state.pending and any(self.groups[key].messages for key in self._keys[rank].values())

    def neighbours(self, rank: int) -> set[int]:
        """The ranks that share a group with a rank, except that of all; of groups that no dump states."""
        its = [g for g in self.groups.values() if rank in g.members and len(g.members) < len(self.ranks)]
        return {m for g in its for m in g.members} - {rank}


def _in_order(entries: Sequence[Entry]) -> list[Entry]:
    numbered = all(e.number is not None for e in entries)
    return sorted(entries, key=lambda e: (e.number or 0,)) if numbered else list(entries)

"""The operations of all ranks as times and kinds: what clocks, communicators and instances are found from.

A member of a communicator is a device of a rank; most ranks have one. Operations of a member that are alike in all but
their time are of one kind. A run has few kinds, which fit into memory where its operations do not: of these, so many
are held as are allowed, and the others are in a temporary file.
"""

from __future__ import annotations

import weakref
from collections import OrderedDict
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, fields, replace
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from alltrace.align.members import DIRECTED, EXCHANGE, direction_of
from alltrace.align.nccl_names import ALL_TO_ALL, SYNCHRONISING
from alltrace.trace.arrays import Flags, Int64, integers, is_one_of
from alltrace.trace.distinct import distinct, distinct_rows, folded, rows_by
from alltrace.trace.scratch import scratch_folder, writing_scratch

MATCHED_COLUMNS = (
    "start", "end", "api_start", "api_end", "wait_start", "device", "stream", "communicator", "op", "datatype", "bytes",
    "peer", "tag", "tested", "group_rank", "group_size", "sequence", "evidence",
)  # fmt: skip
"""The columns of `collectives` by which operations are matched."""

_WITH_SEQUENCE = ("trace", "log")
PART = 1 << 32
"""More than the number of a communicator."""
MOST_IN_MEMORY = 1 << 20
"""Operations whose times are in memory at once; each takes 40 bytes."""

_ALIKE = ("communicator", "op", "datatype", "stream", "peer", "group_rank", "group_size")
"""The columns that are equal for operations of one kind, in addition to device and size."""
_SIZES, _OTHER_SIZES = 128, 17
"""How many sizes or tags are kept as they are, and a prime number: all others count as their remainders by it."""
ANY_TAG = -(1 << 31)
_TABLES_AT_ONCE = 256


class MemberTimes(NamedTuple):
    """The operations of a member, by their end: int64 arrays of n."""

    start: Int64  # in the time of the rank's files, ns; likewise `end`
    end: Int64
    sequence: Int64  # the profiler's number, -1 without one
    kind: Int64  # row in the kinds
    row: Int64  # of the rank's table


@dataclass
class Kinds:
    """Kinds of operations, by member; arrays of equal length; -1 is an unknown number."""

    member: Int64
    communicator: Int64  # in `names`
    op: Int64  # in `ops`
    size: Int64  # bytes
    stream: Int64
    peer: Int64
    group_rank: Int64
    group_size: Int64
    synchronising: Flags  # no member can leave before the last has arrived
    paired: Int64  # 1 for a send, -1 for a receive, 0 else
    exchanging: Flags  # a kernel that sends or receives or both; one of a known communicator has one peer
    all_to_all: Flags  # every member sends something to every other
    directed: Flags  # not all members wait for all others
    tag: Int64  # of a message of MPI, or a number that some tags share; `ANY_TAG` for one that takes any; -1 for others
    early: Flags  # its call of MPI only begins it, so that its end tells nothing of others
    count: Int64  # of operations
    part: Int64  # operations of a communicator are in order within a part
    names: list[str]
    ops: list[str]

    def __len__(self) -> int:
        return len(self.member)

    @property
    def messages(self) -> Flags:
        return np.asarray(self.exchanging | (self.paired != 0))

    @property
    def nameless(self) -> Flags:
        """Those whose members meet in a communicator that is not known."""
        return np.asarray((self.synchronising | self.messages) & (self.communicator < 0))

    def take(self, rows: Int64) -> Kinds:
        columns = {f.name: getattr(self, f.name) for f in fields(self) if f.name not in ("names", "ops")}
        return replace(self, **{name: column[rows] for name, column in columns.items()})


class Timelines:
    """The operations of all ranks, which are ascending; of at most `most` the times are in memory at once.

    `table_of` reads a rank's table with `MATCHED_COLUMNS`, `texts` the strings of an Arrow array of name ids. `extents`
    has of each member with operations the first and the last end, ns in the time of its files. The number of a member
    is that of its rank times `devices`, the most devices of a rank, plus its device's. `calls_only` operations are
    known by their call alone, and cannot be members; `tested` ones were completed by a call that tests.
    """

    def __init__(
        self,
        ranks: Iterable[int],
        table_of: Callable[[int], pa.Table],
        texts: Callable[[Any], Any],
        most: int = MOST_IN_MEMORY,
    ) -> None:
        self._most, self._operations = most, 0
        sizes, tags = dict[int, int](), {-1: -1, ANY_TAG: ANY_TAG}
        self._in_memory: OrderedDict[tuple[int, int], MemberTimes] = OrderedDict()  # by rank and device
        self._in_file: dict[tuple[int, int], tuple[int, int]] = {}
        self.rows: dict[int, int] = {}
        self.calls_only = self.tested = 0
        own: dict[int, dict[int, tuple[int, int]]] = {}
        tables: list[pa.Table] = []
        following = 0
        for rank in ranks:
            table = table_of(rank)
            self.rows[rank] = table.num_rows
            own_rows = decoded(table, lambda n: _coarse(n, sizes), lambda n: _coarse(n, tags))
            self.calls_only += own_rows.calls_only
            self.tested += pc.sum(table.column("tested")).as_py() or 0 if "tested" in table.column_names else 0
            if not len(own_rows.row):
                continue
            kinds, code = distinct_rows(*own_rows.alike)
            first = np.zeros(kinds.shape[1], np.int64)
            first[code[::-1]] = np.arange(len(code))[::-1]
            chosen = table.select(_ALIKE).take(pa.array(own_rows.row[first]))
            others = dict(zip(("place", "bytes", "tag", "early"), kinds, strict=False))
            for name, values in {**others, "rank": np.full(len(first), rank), "count": np.bincount(code)}.items():
                chosen = chosen.append_column(name, pa.array(values))
            tables.append(chosen)
            if len(tables) == _TABLES_AT_ONCE:
                tables = [_in_one(tables)]
            of_device = _by_device(own_rows, code + following)
            following += len(first)
            own[rank] = {device: (int(its.end[0]), int(its.end[-1])) for device, its in of_device.items()}
            for device, its in of_device.items():
                self._hold((rank, device), its)
        self.devices = max((max(its) + 1 for its in own.values()), default=1)
        self.extents: Mapping[int, tuple[int, int]] = {
            rank * self.devices + device: extent for rank, its in own.items() for device, extent in its.items()
        }
        self.kinds = _kinds(tables, self.devices, texts)
        self.first_inferred = len(self.kinds.names)

    def rank_of(self, member: int) -> int:
        return member // self.devices

    def of(self, member: int) -> MemberTimes:
        place = divmod(member, self.devices)
        if place not in self._in_memory:
            offset, count = self._in_file[place]
            many = len(MemberTimes._fields)
            columns = np.fromfile(self._file, np.int64, many * count, offset=offset).reshape(many, count)
            self._hold(place, MemberTimes(*columns))
        self._in_memory.move_to_end(place)
        return self._in_memory[place]

    def _hold(self, place: tuple[int, int], times: MemberTimes) -> None:
        """Hold operations in memory, and write those that were not used for longest to the file."""
        self._in_memory[place] = times
        self._operations += len(times.row)
        while self._operations > self._most and len(self._in_memory) > 1:
            old, old_times = self._in_memory.popitem(last=False)
            self._operations -= len(old_times.row)
            if old not in self._in_file:
                with writing_scratch(self._file.parent, "the times of operations"), self._file.open("ab") as file:
                    self._in_file[old] = file.tell(), len(old_times.row)
                    file.write(np.stack(old_times).data)  # `tofile` does not raise if the last block does not fit

    @cached_property
    def _file(self) -> Path:
        folder = scratch_folder("alltrace-operations-")
        weakref.finalize(self, folder.cleanup)
        return Path(folder.name, "times")


class NamedTimelines:
    """Operations of which some have a communicator that was inferred; see `Timelines`.

    `label_of` has of each operation of a member its communicator, -1 for the one that it has, plus `PART` times its
    part: of `count` new ones, or if there are none of those that are known.
    """

    def __init__(self, base: AnyTimelines, label_of: Callable[[int], Int64], count: int = 0) -> None:
        self._base, self._label_of = base, label_of
        self.extents: Mapping[int, tuple[int, int]] = base.extents
        self.rows: dict[int, int] = base.rows
        self.rank_of: Callable[[int], int] = base.rank_of
        self.devices: int = base.devices
        self.calls_only: int = base.calls_only
        self.tested: int = base.tested
        self.first_inferred: int = base.first_inferred
        self._first_kind: dict[int, int] = {}
        pairs: list[Int64] = []
        counts: list[Int64] = []
        following = 0
        for member in base.extents:
            rows, code = distinct_rows(base.of(member).kind, label_of(member))
            pairs.append(rows)
            counts.append(np.bincount(code))
            self._first_kind[member] = following
            following += rows.shape[1]
        kind, label = np.concatenate(pairs, axis=1)
        part, label = np.where(label >= 0, label // PART, 0), np.where(label >= 0, label % PART, -1)
        kinds = base.kinds.take(kind)
        names = [*kinds.names, *(f"inferred {i}" for i in range(count))]
        known = len(kinds.names) if count else 0
        communicator = np.where(label >= 0, known + label, kinds.communicator)
        self.kinds: Kinds = replace(
            kinds, communicator=communicator, part=part, count=np.concatenate(counts), names=names
        )

    def of(self, member: int) -> MemberTimes:
        its = self._base.of(member)
        return its._replace(kind=distinct_rows(its.kind, self._label_of(member))[1] + self._first_kind[member])


AnyTimelines = Timelines | NamedTimelines


def _coarse(values: Int64, known: dict[int, int]) -> Int64:
    """Sizes or tags; where a run has many, those that come late are put together."""
    own, place = distinct(values)
    for value in own.tolist():
        if len(known) < _SIZES:
            known.setdefault(value, value)
    return np.array([known.get(v, -2 - v % _OTHER_SIZES) for v in own.tolist()], np.int64)[place]


class Decoded(NamedTuple):
    """The operations of a rank's table that can be members of an instance, by their end."""

    start: Int64
    end: Int64
    sequence: Int64
    row: Int64
    alike: list[Int64]  # device, size, tag, whether the call only begins it, and the columns of `_ALIKE`
    calls_only: int  # operations that cannot be members: their kernel, end or communicator is not known


def decoded(table: pa.Table, size_of: Callable[[Int64], Int64], tag_of: Callable[[Int64], Int64]) -> Decoded:
    """The operations of a table with `MATCHED_COLUMNS`, which ran on the device or, of MPI, as calls."""
    on_host = is_one_of(table.column("evidence"), ("mpi",))
    names = [name for name in MATCHED_COLUMNS if name in table.column_names and name not in ("tested", "evidence")]
    numbers = {name: integers(table.column(name), -1) for name in names}
    valid = {name: pc.is_valid(table.column(name)).to_numpy() for name in numbers}
    start, end = (np.where(on_host, numbers[f"api_{edge}"], numbers[edge]) for edge in ("start", "end"))
    timed = np.where(on_host, valid["api_start"] & valid["api_end"], valid["start"] & valid["end"])
    # a message is no operation of another communicator than its own
    timed &= ~valid["tag"] | valid["communicator"]
    several = numbers["group_size"] != 1
    row = np.flatnonzero(timed & several & valid["op"])
    row = row[np.argsort(end[row], kind="stable")]
    sequence = np.where(is_one_of(table.column("evidence"), _WITH_SEQUENCE), numbers["sequence"], -1)
    device = numbers["device"][row] if "device" in numbers else np.zeros(len(row), np.int64)
    # calls of the host are the first device's
    place = np.maximum(np.searchsorted(np.unique(device[device >= 0]), device), 0)
    tag = np.where(valid["tag"], np.where(numbers["tag"] < 0, ANY_TAG, numbers["tag"]), -1)[row]
    early = valid["wait_start"][row].astype(np.int64)
    alike = [place, size_of(numbers["bytes"][row]), tag_of(tag), early, *(numbers[name][row] for name in _ALIKE)]
    return Decoded(start[row], end[row], sequence[row], row, alike, int((~timed & several).sum()))


def _by_device(rows: Decoded, kind: Int64) -> dict[int, MemberTimes]:
    whole = MemberTimes(rows.start, rows.end, rows.sequence, kind, rows.row)
    devices = rows_by(rows.alike[0])
    return {n: whole if len(devices) == 1 else MemberTimes(*(c[its] for c in whole)) for n, its in devices.items()}


def _in_one(tables: list[pa.Table]) -> pa.Table:
    return pa.concat_tables(tables).unify_dictionaries().combine_chunks()


def _kinds(tables: list[pa.Table], most_devices: int, texts: Callable[[Any], Any]) -> Kinds:
    """The kinds of all members; `tables` has one operation of each."""
    if not tables:
        none: dict[str, Any] = {f.name: np.zeros(0, np.bool_ if f.type == "Flags" else np.int64) for f in fields(Kinds)}
        return Kinds(**{**none, "names": [], "ops": []})
    whole = _in_one(tables)

    def numbers(name: str) -> Int64:
        return integers(whole.column(name), -1)

    def numbered(name: str) -> tuple[list[str | None], Int64]:
        ids, code = distinct(numbers(name))
        known = ids != -1
        values = pa.array(ids, pa.int64(), mask=~known).cast(whole.column(name).type)
        return texts(values).to_pylist(), np.where(known[code], code, -1)

    names, communicator = numbered("communicator")
    ops, op = numbered("op")
    member = numbers("rank") * most_devices + numbers("place")
    size, peer = numbers("group_size"), numbers("peer").copy()
    shown = (communicator < 0) | (peer >= 0)
    direction = np.array([*map(direction_of, ops), 0], np.int64)[op]
    kinds = Kinds(
        member=member,
        communicator=communicator,
        op=op,
        size=numbers("bytes"),
        stream=numbers("stream"),
        peer=peer,
        group_rank=_group_ranks(member, communicator, numbers("group_rank"), size),
        group_size=size,
        synchronising=np.array([*(o in SYNCHRONISING for o in ops), False])[op],
        paired=np.where(direction == EXCHANGE, 0, direction),
        exchanging=(direction == EXCHANGE) & shown,
        all_to_all=np.array([*(o == ALL_TO_ALL for o in ops), False])[op],
        directed=np.array([*(o in DIRECTED for o in ops), False])[op],
        tag=numbers("tag").copy(),
        early=numbers("early").astype(np.bool_),
        count=numbers("count"),
        part=np.zeros(len(member), np.int64),
        names=[n or "" for n in names],
        ops=[n or "" for n in ops],
    )
    _name_senders(kinds)
    return kinds


def _name_senders(kinds: Kinds) -> None:
    """Fill sender and tag of receives that take any, where just those messages are left."""
    messages = kinds.tag != -1
    for any_peer, any_tag in ((True, True), (True, False), (False, True)):
        receives = messages & (kinds.paired < 0)
        taken = receives & (kinds.peer >= 0) & (kinds.tag != ANY_TAG)
        rows = np.flatnonzero(receives & ((kinds.peer < 0) == any_peer) & ((kinds.tag == ANY_TAG) == any_tag))
        if not len(rows):
            continue
        known = np.flatnonzero((messages & (kinds.paired > 0)) | taken)
        sent, own, peer = kinds.paired[known] > 0, kinds.group_rank[known], kinds.peer[known]
        ends = np.where(sent, peer, own), np.where(sent, own, peer)
        keys, at = distinct_rows(kinds.communicator[known], *ends, kinds.tag[known])
        left = np.bincount(at, kinds.count[known] * kinds.paired[known], keys.shape[1])
        open_keys = np.flatnonzero((left != 0) & (np.bincount(at, sent, keys.shape[1]) > 0))
        mine = (kinds.communicator, kinds.group_rank, kinds.peer, kinds.tag)
        asked = [column for column, free in enumerate((False, False, any_peer, any_tag)) if not free]
        code = distinct_rows(*(np.concatenate((keys[column, open_keys], mine[column][rows])) for column in asked))[1]
        theirs, of_row = code[: len(open_keys)], code[len(open_keys) :]
        groups = int(code.max()) + 1
        wanted = np.bincount(of_row, kinds.count[rows], groups)
        single = (np.bincount(theirs, minlength=groups) == 1) & (np.bincount(theirs, left[open_keys], groups) == wanted)
        only = np.zeros(groups, np.int64)
        only[theirs] = open_keys
        named = single[of_row]
        kinds.peer[rows[named]], kinds.tag[rows[named]] = keys[2:, only[of_row[named]]]


def _group_ranks(member: Int64, communicator: Int64, recorded: Int64, size: Int64) -> Int64:
    """Each member's number in its communicator; if no row has it but all are there, they are numbered in order."""
    lacking = np.flatnonzero((recorded < 0) & (communicator >= 0))
    result: Int64 = recorded.copy()
    pairs, inverse = distinct_rows(communicator, member)
    best, sizes = (folded(np.maximum, inverse, values, pairs.shape[1], -1) for values in (recorded, size))
    for group in np.unique(communicator[lacking]).tolist():
        mine = np.flatnonzero(pairs[0] == group)
        if (best[mine] < 0).all() and (sizes[mine] < 0).all() | (sizes[mine].max() == len(mine)):
            best[mine] = np.arange(len(mine))
    result[lacking] = best[inverse[lacking]]
    return result


def message_keys(kinds: Kinds) -> Int64:
    """For each send and receive with a known peer a number of communicator, sender, receiver and message; else -1.

    Of an exchange in both directions the lower member counts as sender, and each may send as much as it likes.
    """
    known = (kinds.communicator >= 0) & (kinds.peer >= 0) & (kinds.group_rank >= 0)
    known &= (kinds.paired != 0) | kinds.exchanging
    result = np.full(len(kinds), -1, np.int64)
    rows = np.flatnonzero(known)
    if len(rows):
        own, peer = kinds.group_rank[rows], kinds.peer[rows]
        both = kinds.exchanging[rows]
        sends = np.where(both, own < peer, kinds.paired[rows] > 0)
        # a receive of MPI takes what is smaller, too
        size = np.where(both | (kinds.tag[rows] != -1), -1, kinds.size[rows])
        ends = np.where(sends, own, peer), np.where(sends, peer, own)
        result[rows] = distinct_rows(kinds.communicator[rows], *ends, size, kinds.tag[rows], both.astype(np.int64))[1]
    return result

"""Communication calls (`record_param_comms`) joined with the kernels that they launched: the rows of `collectives`."""

import json
import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from math import prod
from typing import Any

import numpy as np
import pyarrow as pa

from alltrace.core.kineto import NOTHING
from alltrace.readers.kineto import names
from alltrace.readers.kineto.entities import Entities
from alltrace.readers.kineto.events import Block
from alltrace.readers.kineto.names import Names
from alltrace.readers.kineto.tables import whole
from alltrace.readers.spool import chosen_rows, record_batch
from alltrace.trace.nccl_words import DATATYPES, standard_datatype

# Collectives of process groups that work on the host (Gloo, MPI, UCC), from the ranges that their threads write.
# `gloo:all_reduce` is the work itself, on a thread of the backend: it starts when the rank has arrived, and ends with
# the result.

FIELDS = ("ts", "dur", "pid", "tid", "name", "dims", "types")
_CALL = re.compile(r"(gloo|mpi|ucc):(\w+)", re.IGNORECASE)
_MESSAGES = ("Send", "Recv")
_SHARED_OUT = "ReduceScatter"  # its input is the whole vector, of which a rank keeps a share


class HostCommunication:
    """Collects these ranges for `collectives`; not sends and receives, whose ranges do not say with whom."""

    def __init__(self, known: Names, operation: Callable[[str], str | None]) -> None:
        self._names = known
        self._operation = operation
        self._calls: list[Any] = []

    def add(self, block: Any, annotations: Any) -> None:
        """Take the ranges out of a block, of which `annotations` are the places of the program's own."""
        chosen = annotations[self._names.classes("host call", self._is_call, block["name"][annotations]) == 1]
        if len(chosen):
            self._calls.append(np.stack([block[f][chosen] for f in FIELDS]))

    def _is_call(self, name: str) -> int:
        match = _CALL.fullmatch(name)
        operation = self._operation(match[2]) if match else None
        return int(operation is not None and operation not in _MESSAGES)

    def batch(
        self,
        entities: Entities,
        zero_ns: int,
        group_of: Callable[[str], Any],
        type_of: Callable[[str], tuple[str, int] | None],
    ) -> Any:
        """The rows, or None; `group_of`: the only group of a backend, `type_of`: a type's standard name and bytes."""
        if not self._calls:
            return None
        calls = dict(zip(FIELDS, np.concatenate(self._calls, axis=1), strict=True))
        codes = zip(*(calls[f].tolist() for f in FIELDS[4:]), strict=True)
        rows = [self._about(name, dims, types, group_of, type_of) for name, dims, types in codes]
        start = calls["ts"] - zero_ns
        columns = {
            "start": start,
            "end": start + calls["dur"],
            "api_start": start,
            "api_end": start + calls["dur"],
            "process": np.zeros(len(rows), np.int32),
            "thread": entities.threads(calls["pid"], calls["tid"]),
            **{name: [row[name] for row in rows] for name in rows[0]},
            "evidence": pa.array(["trace"] * len(rows)).dictionary_encode(),
        }
        for name in ("communicator", "op", "datatype"):
            columns[name] = pa.array([self._names.add(t) if t is not None else None for t in columns[name]], pa.int64())
        return record_batch("collectives", columns)

    def _about(self, name: int, dims: int, types: int, group_of: Any, type_of: Any) -> dict[str, Any]:
        match = _CALL.fullmatch(self._names.text(name))
        operation = self._operation(match[2]) if match else None
        group = group_of(match[1].lower()) if match else None
        shapes, kinds = (_list(self._names.text(code) if code != NOTHING else "") for code in (dims, types))
        known = type_of(kinds[0]) if kinds and isinstance(kinds[0], str) else None
        shape = shapes[0] if shapes and isinstance(shapes[0], list) else None
        count = prod(shape) if shape is not None and all(isinstance(n, int) and 0 <= n < 2**31 for n in shape) else None
        if operation == _SHARED_OUT or count is None or count >= 2**59:
            count = None
        return {
            "communicator": group.identity if group else None,
            "op": operation,
            "bytes": count * known[1] if known and count is not None else None,
            "count": count,
            "datatype": known[0] if known else None,
            "group_size": group.size if group else None,
        }


def _list(text: str) -> list[Any]:
    try:
        members = json.loads(text) if text else []
    except (ValueError, RecursionError):
        return []
    return members if isinstance(members, list) else []


CALL = "record_param_comms"
_OPS = {
    "allreduce": "AllReduce", "allreducecoalesced": "AllReduce", "allreducesparse": "AllReduce",
    "allgather": "AllGather", "allgatherv": "AllGather", "allgatherbase": "AllGather", "allgatherinto": "AllGather",
    "allgatherintotensor": "AllGather", "allgatherintotensorcoalesced": "AllGather", "allgathercoalesced": "AllGather",
    "reducescatter": "ReduceScatter", "reducescatterv": "ReduceScatter", "reducescatterbase": "ReduceScatter",
    "reducescattertensor": "ReduceScatter", "reducescattertensorcoalesced": "ReduceScatter", "alltoall": "AllToAll",
    "alltoallv": "AllToAll", "alltoallbase": "AllToAll", "broadcast": "Broadcast", "broadcastoop": "Broadcast",
    "reduce": "Reduce", "reduceoop": "Reduce", "gather": "Gather", "scatter": "Scatter", "barrier": "Barrier",
    "send": "Send", "recv": "Recv", "recvanysource": "Recv",
}  # fmt: skip
"""`Collective name`, in lower case, to the operation; `wait`, `init` and similar names are none."""

_SIZES = {**dict(DATATYPES), "int16": 2, "complex64": 8, "complex128": 16}
_OTHER_TYPES = {"short": "int16", "complexfloat": "complex64", "complexdouble": "complex128"}
_NOT_LETTERS = re.compile(r"[^a-z0-9]")
_KERNEL_OP = re.compile(r"(AllReduce|AllGather|ReduceScatter|AllToAll|Broadcast|Reduce|SendRecv)")
_OUTPUT_COUNTS = ("ReduceScatter", "Recv")  # what counts is what arrives: a rank's share, a message
_KERNEL_FIELDS = ("ts", "dur", "device", "stream", "correlation", "external", "name")
_CALL_FIELDS = ("ts", "dur", "pid", "tid", "external")
_ARGUMENTS = (
    "collective", "dtype", "in_count", "out_count", "group_size", "group", "members", "sequence", "source", "target",
    "root", "rank",
)  # fmt: skip
_MOST_MEMBERS_NAMED = 1024


@dataclass(frozen=True)
class _Group:
    """A process group: its identity over all ranks, its size, and its members if they are all listed."""

    identity: str
    size: int | None
    members: tuple[int, ...]


class Communication:
    """Gathers the calls and kernels of a trace as its blocks go by; `batch` joins them."""

    def __init__(self, known: names.Names, entities: Entities, zero_ns: int, metadata: dict[str, Any]) -> None:
        self._names = known
        self._entities = entities
        self._zero_ns = zero_ns
        self._metadata = metadata
        self._kernels: list[Any] = []
        self._calls: list[Any] = []
        self._on_host = HostCommunication(known, _operation)
        self._on_device = False

    def add(self, block: Block, role: dict[str, Any]) -> None:
        """Take the communication out of a block; `role`: the places of its kernels, operators and annotations."""
        kernels = role["kernels"]
        if len(kernels):
            self._on_device = True
            chosen = self._names.classes("communicates", names.communicates, block["name"][kernels]) == 1
            self._take(self._kernels, block, kernels[chosen], (*_KERNEL_FIELDS, *_ARGUMENTS))
        operators = role["operators"]
        if len(operators):
            chosen = self._names.classes("call", lambda t: int(t == CALL), block["name"][operators]) == 1
            self._take(self._calls, block, operators[chosen], (*_CALL_FIELDS, *_ARGUMENTS))
        self._on_host.add(block, role["annotations"])

    @staticmethod
    def _take(into: list[Any], block: Block, rows: Any, fields: tuple[str, ...]) -> None:
        if len(rows):
            into.append(np.stack([block[f][rows] for f in fields]))

    def batch(self, launches_of_trace: Iterable[dict[str, Any]]) -> Any:
        """The rows of `collectives`, or None if no call states its operation; of hosts' groups only without kernels.

        `launches_of_trace`: the calls that may have launched something, some at a time.
        """
        kernels = _joined(self._kernels, (*_KERNEL_FIELDS, *_ARGUMENTS))
        if kernels is None:
            if self._on_device:
                return None
            return self._on_host.batch(self._entities, self._zero_ns, self._only_group, _type_of)
        calls = _joined(self._calls, (*_CALL_FIELDS, *_ARGUMENTS))
        self._kernels.clear()
        self._calls.clear()
        ids = np.unique(kernels["correlation"][kernels["correlation"] > 0])
        launches = chosen_rows(launches_of_trace, lambda some: np.isin(some["correlation"], ids))
        order = np.argsort(kernels["ts"], kind="stable")
        kernels = {k: v[order] for k, v in kernels.items()}
        launch = _lookup(kernels["correlation"], launches["correlation"]) if launches is not None else None
        call = self._calls_of(kernels, calls, launches, launch)
        if calls is not None and launches is not None:
            rows, call = self._with_messages(kernels, calls, call, launches, launch)
            kernels = {k: v[rows] for k, v in kernels.items()}
            launch = launch[rows] if launch is not None else None
        for field in _ARGUMENTS:
            if calls is not None:
                own = calls[field][np.maximum(call, 0)]
                use = (kernels[field] == NOTHING) & (call >= 0)
                kernels[field] = np.where(use, own, kernels[field])
        if (kernels["collective"] == NOTHING).all():
            return None
        return self._rows(kernels, calls, call, launches, launch)

    def _calls_of(self, kernels: Any, calls: Any, launches: Any, launch: Any) -> Any:
        """The row of the call that launched each kernel; -1 if none is known."""
        none = np.full(len(kernels["ts"]), -1, np.int64)
        if calls is None:
            return none
        rows = _lookup(kernels["external"], calls["external"])
        if launches is None:
            return rows
        through = np.where(launch >= 0, launches["external"][np.maximum(launch, 0)], NOTHING)
        rows = np.where(rows >= 0, rows, _lookup(through, calls["external"]))
        inside = _enclosing(launches, launch, calls)
        return np.where(rows >= 0, rows, inside)

    def _with_messages(self, kernels: Any, calls: Any, call: Any, launches: Any, launch: Any) -> tuple[Any, Any]:
        """The kernels, one that does several sends and receives once for each of them, and the call of each.

        Sends and receives that a program groups launch nothing themselves: what they ask for goes with the next kernel
        of the kind that their thread launches, one for each process group in the order in which the calls name them.
        """
        alone = np.flatnonzero(
            (call < 0) & (launch >= 0) & (self._names.classes("paired", _pairs, kernels["name"]) == 1)
        )
        message = np.isin(np.arange(len(calls["ts"])), call, invert=True)
        message &= (
            self._names.classes("message", lambda t: int(_operation(t) in ("Send", "Recv")), calls["collective"]) == 1
        )
        found: dict[int, list[int]] = {}
        for thread in np.unique(launches["tid"][launch[alone]]).tolist():
            mine = alone[launches["tid"][launch[alone]] == thread]
            mine = mine[np.argsort(launches["ts"][launch[mine]], kind="stable")]
            asked = np.flatnonzero(message & (calls["tid"] == thread))
            asked = asked[np.argsort(calls["ts"][asked], kind="stable")]
            behind = np.searchsorted(launches["ts"][launch[mine]], calls["ts"][asked], side="right")
            for first in np.unique(behind[behind < len(mine)]).tolist():
                together = asked[behind == first].tolist()
                groups = list(dict.fromkeys(calls["group"][together].tolist()))
                after = [
                    k
                    for k in range(first, min(first + len(groups), len(mine)))
                    if k == first or not (behind == k).any()
                ]
                if len(after) == len(groups):
                    for kernel, group in zip(mine[after].tolist(), groups, strict=True):
                        found[kernel] = [c for c in together if calls["group"][c] == group]
        counts = np.array([len(found.get(k, ())) or 1 for k in range(len(call))], np.int64)
        rows = np.repeat(np.arange(len(call)), counts)
        each = [c for k, one in enumerate(call.tolist()) for c in found.get(k, (one,))]
        return rows, np.array(each, np.int64)

    def _rows(self, kernels: Any, calls: Any, call: Any, launches: Any, launch: Any) -> Any:
        count = len(kernels["ts"])
        groups = {
            pair: self._group(*pair)
            for pair in {*zip(*(kernels[f].tolist() for f in ("group", "members", "group_size")), strict=True)}
        }
        # one object for each group: to compare thousands of members takes long
        same: dict[_Group | None, _Group | None] = {}
        groups = {pair: same.setdefault(group, group) for pair, group in groups.items()}
        of_kernel = [
            groups[p] for p in zip(*(kernels[f].tolist() for f in ("group", "members", "group_size")), strict=True)
        ]
        of_library = self._names.classes("library", _of_library, kernels["name"]) == 1
        of_kernel = _by_stream(of_kernel, kernels["stream"].tolist(), of_library.tolist())
        op = [self._op(c, n) for c, n in zip(kernels["collective"].tolist(), kernels["name"].tolist(), strict=True)]
        types = [self._type(c) for c in kernels["dtype"].tolist()]
        place = _Places()
        counts = np.where(
            np.isin(np.array([o or "" for o in op]), _OUTPUT_COUNTS) & (kernels["out_count"] >= 0),
            kernels["out_count"],
            kernels["in_count"],
        )
        width = np.array([t[1] if t else 0 for t in types], np.int64)
        sized = (counts >= 0) & (width > 0) & (counts < 2**59)
        paired = np.isin(np.array([o or "" for o in op]), ("Send", "Recv"))
        peer = np.where(np.array([o == "Recv" for o in op], np.bool_), kernels["source"], kernels["target"])
        start = kernels["ts"] - self._zero_ns
        columns = {
            "start": start,
            "end": start + kernels["dur"],
            **self._call_times(calls, call, launches, launch, count),
            "process": np.zeros(count, np.int32),
            "device": self._entities.devices(kernels["device"]),
            "stream": whole(kernels["stream"]),
            "communicator": self._added([g.identity if g else None for g in of_kernel]),
            "op": self._added(op),
            # sends and receives are numbered by peer
            "sequence": whole(np.where(paired | (kernels["sequence"] < 0), NOTHING, kernels["sequence"])),
            "bytes": whole(np.where(sized, counts * width, NOTHING)),
            "count": whole(np.where(counts >= 0, counts, NOTHING)),
            "datatype": self._added([t[0] if t else None for t in types]),
            "peer": [
                place(g, p) if two else None
                for g, p, two in zip(of_kernel, peer.tolist(), paired.tolist(), strict=True)
            ],
            "root": [place(g, r) for g, r in zip(of_kernel, kernels["root"].tolist(), strict=True)],
            "group_rank": [place(g, self._own_rank()) for g in of_kernel],
            "group_size": [g.size if g else None for g in of_kernel],
            "evidence": ["trace"] * count,
        }
        columns["evidence"] = pa.array(columns["evidence"]).dictionary_encode()
        return record_batch("collectives", columns)

    def _call_times(self, calls: Any, call: Any, launches: Any, launch: Any, count: int) -> dict[str, Any]:
        """Start, end and thread of the call: the operation's call, else the one that launched the kernel."""
        start, length, pid, tid = (np.full(count, NOTHING) for _ in range(4))
        for source, rows in ((calls, call), (launches, launch)):
            if source is None:
                continue
            use = (start == NOTHING) & (rows >= 0)
            at = np.maximum(rows, 0)
            length = np.where(use, source["dur"][at], length)
            pid, tid = np.where(use, source["pid"][at], pid), np.where(use, source["tid"][at], tid)
            start = np.where(use, source["ts"][at] - self._zero_ns, start)
        end = np.where(start == NOTHING, NOTHING, start + np.where(length < 0, 0, length))
        return {"api_start": whole(start), "api_end": whole(end), "thread": self._entities.threads(pid, tid)}

    def _added(self, texts: list[str | None]) -> Any:
        ids = {t: self._names.add(t) for t in set(texts) if t is not None}
        return pa.array([ids.get(t) if t is not None else None for t in texts], pa.int64())

    def _op(self, collective: int, kernel: int) -> str | None:
        called = _operation(self._names.text(collective)) if collective != NOTHING else None
        if called is not None:
            return called
        match = _KERNEL_OP.search(self._names.text(kernel)) if kernel != NOTHING else None
        return match[1] if match else None

    def _type(self, code: int) -> tuple[str, int] | None:
        """The name of a type as everywhere, and its bytes; None if it is not known."""
        if code == NOTHING:
            return None
        return _type_of(self._names.text(code))

    def _own_rank(self) -> int | None:
        about = self._metadata.get("distributedInfo")
        rank = about.get("rank") if isinstance(about, dict) else None
        return rank if isinstance(rank, int) else None

    def _group(self, name: int, members: int, size: int) -> _Group | None:
        called = self._names.text(name) if name != NOTHING else ""
        listed = self._names.text(members) if members != NOTHING else ""
        ranks = _ranks(listed) or _ranks(self._configured(called).get("ranks"))
        return self._identified(called, listed, ranks, size)

    def _only_group(self, backend: str) -> _Group | None:
        """The group of a backend, if the program has only one."""
        groups = [g for g in self._groups() if backend in str(g.get("backend_config"))]
        size = groups[0].get("pg_size") if len(groups) == 1 else None
        if not isinstance(size, int):
            return None
        return self._identified(str(groups[0].get("pg_name")), "", _ranks(groups[0].get("ranks")), size)

    @staticmethod
    def _identified(called: str, listed: str, ranks: tuple[int, ...], size: int) -> _Group | None:
        count = size if 0 < size < 2**31 else len(ranks) or None
        if not called and not ranks:
            return None
        shown = ", ".join(map(str, ranks[:_MOST_MEMBERS_NAMED])) if ranks else listed.strip("[] ")
        # one name may mean a different group on every node, and one set of ranks may form several groups
        identity = f"pg {called or '?'} [{shown}]" if shown else f"pg {called} of {count or '?'}"
        return _Group(identity, count, ranks if len(ranks) == count else ())

    def _groups(self) -> list[dict[str, Any]]:
        """The process groups that the trace's head lists."""
        about = self._metadata.get("distributedInfo")
        groups = about.get("pg_config") if isinstance(about, dict) else None
        return [g for g in groups if isinstance(g, dict)] if isinstance(groups, list) else []

    def _configured(self, name: str) -> dict[str, Any]:
        return next((g for g in self._groups() if str(g.get("pg_name")) == name), {})


def _type_of(text: str) -> tuple[str, int] | None:
    """The name of a type as everywhere, and its bytes; None if it is not known."""
    name = standard_datatype(text) or _OTHER_TYPES.get(_NOT_LETTERS.sub("", text.lower()))
    return None if name is None else (name, _SIZES[name])


def _operation(collective: str) -> str | None:
    """The operation of a `Collective name`."""
    return _OPS.get(_NOT_LETTERS.sub("", collective.lower()))


def _pairs(kernel: str) -> int:
    """1 for a kernel that does sends and receives, whichever the program called."""
    return int("SendRecv" in kernel[:80] or "ncclDevKernel_Generic" in kernel[:80])


def _joined(parts: list[Any], fields: tuple[str, ...]) -> dict[str, Any] | None:
    return dict(zip(fields, np.concatenate(parts, axis=1), strict=True)) if parts else None


def _lookup(wanted: Any, keys: Any) -> Any:
    """The first row of `keys` that holds each of the wanted numbers; -1 if none does, or it is `NOTHING`."""
    order = np.argsort(keys, kind="stable")
    at = np.minimum(np.searchsorted(keys[order], wanted), len(keys) - 1)
    rows = order[at]
    return np.where((keys[rows] == wanted) & (wanted != NOTHING), rows, -1)


def _enclosing(launches: Any, launch: Any, calls: Any) -> Any:
    """The call on the launching thread that the launch lies inside; -1 if there is none."""
    rows = np.full(len(launch), -1, np.int64)
    at = np.maximum(launch, 0)
    for thread in np.unique(calls["tid"]).tolist():
        mine = np.flatnonzero(calls["tid"] == thread)
        mine = mine[np.argsort(calls["ts"][mine], kind="stable")]
        moments = launches["ts"][at]
        last = np.searchsorted(calls["ts"][mine], moments, side="right") - 1
        row = mine[np.maximum(last, 0)]
        inside = (
            (last >= 0)
            & (moments < calls["ts"][row] + calls["dur"][row])
            & (launches["tid"][at] == thread)
            & (launch >= 0)
        )
        rows = np.where(inside, row, rows)
    return rows


def _of_library(kernel: str) -> int:
    """1 for a kernel of NCCL or RCCL, which are the ones that calls of process groups launch."""
    return int("nccl" in kernel[:80].lower())


def _by_stream(groups: list[_Group | None], streams: list[int], of_library: list[bool]) -> list[_Group | None]:
    """Groups, filled in where kernels do not say theirs but all others of their stream are of one object."""
    of_stream: dict[int, dict[int, _Group]] = {}
    for group, stream in zip(groups, streams, strict=True):
        if group is not None:
            of_stream.setdefault(stream, {})[id(group)] = group
    only = {stream: next(iter(own.values())) for stream, own in of_stream.items() if len(own) == 1}
    return [
        group or (only.get(stream) if own else None)
        for group, stream, own in zip(groups, streams, of_library, strict=True)
    ]


def _ranks(listed: Any) -> tuple[int, ...]:
    """The ranks of a list, or of the text of one; none if it is shortened by dots."""
    if isinstance(listed, str):
        try:
            listed = json.loads(listed)
        except (ValueError, RecursionError):
            return ()
    if not isinstance(listed, list) or not all(isinstance(r, int) for r in listed):
        return ()
    return tuple(listed)


class _Places:
    """Numbers of ranks in their groups, each searched once."""

    def __init__(self) -> None:
        self._known: dict[tuple[int, int | None], int | None] = {}

    def __call__(self, group: _Group | None, rank: int | None) -> int | None:
        if group is None:
            return None
        key = id(group), rank
        if key not in self._known:
            self._known[key] = group.members.index(rank) if rank is not None and rank in group.members else None
        return self._known[key]

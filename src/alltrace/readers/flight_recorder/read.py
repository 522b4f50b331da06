"""Reads dumps of PyTorch's flight recorder: a pickle of plain data, or JSON."""

import json
import re
from collections.abc import Callable
from dataclasses import dataclass, field
from math import prod
from pathlib import Path
from typing import Any, TypeGuard

from alltrace.readers.nccl_inspector.records import looks_like
from alltrace.readers.plain_pickle import FILLING, PickleDamagedError, PickleRefusedError, decode_first
from alltrace.readers.text import TextLog
from alltrace.trace.errors import InputError

_MOST_BYTES = 4 << 30
_HEAD_BYTES = 1 << 16
_SHOWN = 250  # items of a list that are used for display
_RANK = re.compile(r"(\d+)\D*$")
_SENT = re.compile(r"(?P<me>\d+)\s*(?P<arrow>->|<-)\s*(?P<peer>\d+)")
_MEMBER = re.compile(r'\s*,?\s*"(?P<name>[^"\\]*)"\s*:\s*')
_ITEM = re.compile(r"\s*,?\s*(?=\{)")
_CLOSE = re.compile(r"\s*\]")
_DIGITS = re.compile(r"\d{1,9}")
_NUMBERS = re.compile(r"[\[\], 0-9]{0,500}")
_FEW = 8
_GOES_ON = "the file goes on after the end of its first dump; what follows is not read"
_EXPECTED = "a PyTorch flight recorder dump (pickle or JSON)"
TYPE_BYTES = {
    "Float": 4, "Double": 8, "Half": 2, "BFloat16": 2, "Int": 4, "Long": 8, "Short": 2, "Char": 1, "Byte": 1, "Bool": 1,
    "Float8_e4m3fn": 1, "Float8_e5m2": 1,
}  # fmt: skip
"""Bytes of PyTorch's types, as the recorder names them."""


@dataclass(slots=True)
class Entry:
    """One operation on one rank."""

    rank: int  # the rank in the job
    group: str  # the process group's name
    sequence: int  # its number among the group's collectives, or among its point-to-point operations
    op: str  # `all_reduce`, `send`, ...
    state: str  # `scheduled`, `started` or `completed`
    bytes: int | None = None  # the input's bytes; None if the type is not known
    sizes: str = ""  # sizes, datatypes: of its inputs, as recorded
    datatypes: str = ""
    output_sizes: str = ""  # output_sizes, output_datatypes: of its outputs
    output_datatypes: str = ""
    elements: tuple[int, int] | None = None  # elements of its first input and output, if known
    ends: tuple[int, int] | None = None  # the sender and the receiver in the group, then
    number: int | None = None  # its number among all that its rank recorded, from 0
    p2p: bool = False  # whether it is point to point
    peer: int | None = None  # its peer, then
    created_ns: int | None = None  # when it was issued, since 1970
    duration_us: float | None = None  # how long it took, if that was measured
    frame: str = ""  # the program's line that issued it
    retired: bool = False  # whether the recorder's watchdog is done with it
    description: str = ""  # the program's description of its group
    collectives_before: int = -1  # for a message: the number of the group's last collective before it; -1 if not known


@dataclass
class Recording:
    """One file: the ranks it is of, its groups, its entries."""

    path: str  # the file
    version: str = ""  # the format's version
    ranks: tuple[int, ...] = ()  # the ranks with entries
    # members of each group, as far as the file states them; otherwise an empty tuple
    groups: dict[str, tuple[int, ...]] = field(default_factory=dict)
    descriptions: dict[str, str] = field(default_factory=dict)  # the program's description of each group
    # for each group the numbers of the last operation that was issued and of the last that completed, or -1
    progress: dict[str, tuple[int, int]] = field(default_factory=dict)
    entries: list[Entry] = field(default_factory=list)  # the operations
    unread: int = 0  # entries that are not understood
    goes_on: str | None = None  # what is said of a file in which more follows the first dump, or None
    damage: str | None = None  # what is wrong with the rest of a file that is damaged or ends early, or None


def read_recording(path: str, advance: Callable[[int], None] = lambda _n: None, last: int | None = None) -> Recording:
    """Read a dump; of one that is damaged or ends early, what comes before that.

    `last`: how many operations are read, and those since the first collective that did not complete. Raises
    `InputError`: it is not such a file, nothing of it can be read, or it holds anything but plain data.
    """
    pieces, size = [], 0
    with TextLog(Path(path)) as log:
        for block, _whole in log.blocks():
            pieces.append(block)
            size += len(block)
            if size > _MOST_BYTES:
                raise InputError(path, found="it is larger than 4 GiB", expected=_EXPECTED)
            advance(len(block))
        damage = log.damage
    data = b"".join(pieces)
    if not data.strip(FILLING):
        raise InputError(path, found="it is empty" if not data else "it holds only zeros", expected=_EXPECTED)
    if data[:1] == b"\x80" or (data[:1] in (b"(", b"}") and data[-1:] == b"."):
        root, end, its_damage = _pickled(path, data)
    elif data.lstrip()[:1] == b"{":
        if looks_like(data[:_HEAD_BYTES]):
            advice = "run `alltrace logs inspector` on it"
            raise InputError(path, found="it is an NCCL Inspector file", expected=_EXPECTED, advice=advice)
        root, end, its_damage = _json(data)
    else:
        raise InputError(path, found="it is neither a pickle nor JSON", expected=_EXPECTED)
    damage = damage or its_damage
    if not isinstance(root, dict) or not isinstance(root.get("entries"), list):
        problem = f"{damage}, before its first operation" if damage else "it has no list of entries"
        raise InputError(path, found=problem, expected=_EXPECTED)
    return _recorder(path, root, damage, last, _GOES_ON if data[end:].strip(FILLING) else None)


def _pickled(path: str, data: bytes) -> tuple[Any, int, str | None]:
    """What the pickle holds, where it ends, and what is wrong with its rest."""
    try:
        return *decode_first(data), None
    except PickleDamagedError as error:
        return error.before, len(data), str(error)
    except PickleRefusedError as error:
        raise InputError(
            path,
            found=f"{error}; nothing in it was executed",
            expected="a pickle of plain data",
            advice="write the dump again, as JSON if in doubt",
        ) from error


def _json(data: bytes) -> tuple[Any, int, str | None]:
    """What the JSON holds, where it ends, and what is wrong with its rest; of cut text, what comes before that."""
    text = data.decode("utf-8", "replace")
    decode_at = json.JSONDecoder().raw_decode
    try:
        value, end = decode_at(text, text.index("{"))
        return value, len(data) - len(text[end:].encode()), None
    except (ValueError, RecursionError):
        pass
    root: dict[str, Any] = {}
    at = text.index("{") + 1
    try:
        while (member := _MEMBER.match(text, at)) is not None:
            name, at = member["name"], member.end()
            if name != "entries" or text[at : at + 1] != "[":
                root[name], at = decode_at(text, at)
                continue
            entries = root[name] = []
            at += 1
            while (item := _ITEM.match(text, at)) is not None:
                entry, at = decode_at(text, item.end())
                entries.append(entry)
            closing = _CLOSE.match(text, at)
            if closing is None:
                break
            at = closing.end()
    except (ValueError, RecursionError):
        pass
    return root, len(data), f"its JSON is damaged or ends early after character {at}"


def _recorder(path: str, root: dict[str, Any], damage: str | None, last: int | None, goes_on: str | None) -> Recording:
    rank = root.get("rank")
    if not _is_rank(rank):
        rank = rank_in_name(path) or 0
    recording = Recording(path, _text(root.get("version", "")), (rank,), goes_on=goes_on, damage=damage)
    groups = root.get("pg_config")
    for name, config in groups.items() if isinstance(groups, dict) else ():
        if isinstance(config, dict):
            recording.groups[str(name)] = _members(config.get("ranks"))
            recording.descriptions[str(name)] = _text(config.get("desc", ""))
    for raw in _needed(root["entries"], last):
        try:
            recording.entries.append(_entry(raw, rank))
        except (KeyError, TypeError, ValueError, AttributeError, IndexError, OverflowError):
            recording.unread += 1
    recording.progress = _progress(root)
    return recording


def _needed(entries: list[Any], last: int | None) -> list[Any]:
    """The last operations, and those since the first collective that did not complete."""
    if last is None or len(entries) <= last:
        return entries
    is_open = (
        isinstance(raw, dict) and not raw.get("is_p2p") and not raw.get("retired") and raw.get("state") != "completed"
        for raw in entries
    )  # fmt: skip
    first = next((number for number, one in enumerate(is_open) if one), len(entries))
    return entries[min(first, len(entries) - last) :]


def _progress(root: dict[str, Any]) -> dict[str, tuple[int, int]]:
    """How far each group is. `pg_status` has a process's own numbers of groups, which grow as the groups' names do."""
    status = root.get("pg_status")
    if not isinstance(status, dict):
        return {}
    pairs = [(e.get("pg_id"), e.get("process_group")) for e in root["entries"] if isinstance(e, dict)]
    names = {str(own): _text(group[0]) for own, group in pairs if isinstance(group, (list, tuple)) and group}
    config = root.get("pg_config")
    configured = [str(name) for name in config] if isinstance(config, dict) else []
    own_numbers = [str(own) for own in status]
    if len(configured) == len(own_numbers) and all(_DIGITS.fullmatch(name) for name in (*configured, *own_numbers)):
        in_order = dict(zip(sorted(own_numbers, key=int), sorted(configured, key=int), strict=True))
        if all(in_order.get(own, name) == name for own, name in names.items()):
            names = in_order
    progress = {}
    for own, state in status.items():
        if isinstance(state, dict) and str(own) in names:
            issued, completed = (state.get(f"last_{what}_collective") for what in ("enqueued", "completed"))
            if type(issued) is int and type(completed) is int:
                progress[names[str(own)]] = (issued, completed)
    return progress


def rank_in_name(path: str) -> int | None:
    """The rank that the name of a dump ends with, or None."""
    name = Path(path).name.removesuffix(".gz").removesuffix(".json").removesuffix(".pkl").removesuffix(".pickle")
    number = _RANK.search(name)
    return int(number[1][-9:]) if number else None


def _is_rank(value: Any) -> TypeGuard[int]:
    return type(value) is int and 0 <= value < 1 << 31  # a truth value is an int as well


def _members(ranks: Any) -> tuple[int, ...]:
    if isinstance(ranks, str):
        return tuple(int(r) for r in re.findall(r"\d{1,9}", ranks))
    if isinstance(ranks, (list, tuple)):
        return tuple(r for r in ranks if _is_rank(r))
    return ()


def _entry(raw: dict[str, Any], rank: int) -> Entry:
    name = _text(raw.get("profiling_name", ""))
    op = name.partition(":")[2] or name
    group = raw.get("process_group")
    p2p = bool(raw.get("is_p2p"))
    sent = _SENT.search(op)
    frames = raw.get("frames") or []
    top = next((f for f in frames if isinstance(f, dict) and "/torch/" not in _text(f.get("filename", ""))), None)
    milliseconds = raw.get("duration_ms")
    sizes, types = raw.get("input_sizes") or [], raw.get("input_dtypes") or []
    outputs, output_types = raw.get("output_sizes") or [], raw.get("output_dtypes") or []
    number = raw.get("record_id")
    return Entry(
        rank=rank,
        group=_text(group[0] if isinstance(group, (list, tuple)) and group else raw.get("pg_id", "")),
        sequence=_whole(raw["p2p_seq_id"] if p2p else raw["collective_seq_id"]),
        op=op.split(" ")[0],
        state=_text(raw.get("state", "")),
        bytes=_bytes(sizes, types),
        sizes=_shape_text(sizes),
        datatypes=_types(types),
        output_sizes=_shape_text(outputs),
        output_datatypes=_types(output_types),
        elements=_elements(sizes, outputs),
        ends=None if sent is None else _ends(int(sent["me"]), int(sent["peer"]), sends=sent["arrow"] == "->"),
        number=number if _is_rank(number) else None,
        p2p=p2p,
        peer=_whole(sent["peer"]) if sent else None,
        created_ns=_time(raw.get("time_created_ns")),
        duration_us=1000.0 * float(milliseconds) if isinstance(milliseconds, (int, float)) else None,
        frame=""
        if top is None
        else f"{_text(top.get('filename'))}:{_text(top.get('line'))} {_text(top.get('name'))}"[:300],
        retired=bool(raw.get("retired")),
        description=_text(group[1]) if isinstance(group, (list, tuple)) and len(group) > 1 else "",
        collectives_before=_whole(raw.get("collective_seq_id", -1)) if p2p else -1,
    )


def _time(value: Any) -> int | None:
    """JSON writes 0 if the pickle has None."""
    return value if type(value) is int and 0 < value < 1 << 63 else None


def _text(value: Any) -> str:
    """A text, or a number as one; lists may contain themselves many times, and are not converted."""
    return str(value) if isinstance(value, (str, int, float, type(None))) else ""


def _whole(value: Any) -> int:
    number = int(value)
    if not -(1 << 63) <= number < 1 << 63:
        raise ValueError("a number that no operation has")
    return number


def _shape_text(sizes: Any) -> str:
    """The shapes as JSON, as much of them as is shown."""
    if (
        type(sizes) is list
        and len(sizes) <= _FEW
        and all(type(shape) is list and len(shape) <= _FEW for shape in sizes)
    ):
        text = str(sizes)
        if _NUMBERS.fullmatch(text):
            return text
    return json.dumps(_shapes(sizes))[:500]


def _shapes(sizes: Any) -> Any:
    """As much of the shapes as is shown."""
    if not isinstance(sizes, (list, tuple)):
        return _text(sizes)
    return [
        [n for n in shape[:_SHOWN] if isinstance(n, int)] if isinstance(shape, (list, tuple)) else _text(shape)
        for shape in sizes[:_SHOWN]
    ]


def _types(types: Any) -> str:
    return ", ".join(map(_text, types[:_SHOWN]))[:200] if isinstance(types, (list, tuple)) else _text(types)[:200]


def _ends(own: int, peer: int, *, sends: bool) -> tuple[int, int]:
    return (own, peer) if sends else (peer, own)


def _elements(inputs: Any, outputs: Any) -> tuple[int, int] | None:
    """The elements of the first input and of the first output."""
    counts = []
    for shapes in (inputs, outputs):
        shape = shapes[0] if isinstance(shapes, (list, tuple)) and shapes else None
        if not isinstance(shape, (list, tuple)) or not all(_is_rank(n) for n in shape):
            return None
        counts.append(prod(shape))
    return counts[0], counts[1]


def _bytes(sizes: Any, types: Any) -> int | None:
    total = 0
    if not isinstance(sizes, (list, tuple)) or not isinstance(types, (list, tuple)) or len(types) < len(sizes):
        return None
    for shape, kind in zip(sizes, types, strict=False):
        width = TYPE_BYTES.get(_text(kind).removeprefix("c10::"))
        if width is None:
            return None
        for length in shape:
            width *= int(length)
        total += width
    return total if 0 <= total < 1 << 63 else None

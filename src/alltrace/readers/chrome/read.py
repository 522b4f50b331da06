"""Opens a trace for viewers that alltrace exported as canonical tables: slices and marks, each of its track's table."""

from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from alltrace.core.kineto import NOTHING, NUMBER, TEXT, TRIPLE
from alltrace.readers.base import Report, ReportProcess, ReportWarning
from alltrace.readers.kineto.events import Block, Scanner
from alltrace.readers.kineto.fields import EVENT, Fields
from alltrace.readers.kineto.names import Names
from alltrace.readers.kineto.tables import Picked, masked, narrow, whole
from alltrace.readers.kineto.text import Text
from alltrace.readers.spool import Pass, SpooledReader, strict
from alltrace.trace.arrays import Int64
from alltrace.trace.errors import InputError
from alltrace.trace.names import name_id
from alltrace.trace.schema import DICTIONARIES, TABLES
from alltrace.trace.slice_arguments import FEW, MANY, OPERATION, OPERATION_MANY, VIEWER_VERSION

# Who a trace that alltrace exported is about: its ranks with their dictionaries, and what each of their tracks is of.

EXPECTED = "a trace that this version of alltrace exported"
FILLED = (*FEW, "collectives")  # the canonical tables that a trace can fill

STARTEND = len(FILLED)
_LACKS = (
    "it is a trace for viewers, read back: waits, metrics, samples, memory and functions of Python are not in it, nor "
    "are operations of the host, and of several operations in one kernel it has one"
)
_NONE = -1


class Facts(NamedTuple):
    """What a trace says of its ranks."""

    pids: Int64  # n processes' ids in the trace, of each rank, ascending
    order: Int64  # n places of these among the ranks
    first: Int64  # for each rank its first track; one more at the end
    tables: Int64  # for each track the place of its table in `FILLED`; `STARTEND` for start/end ranges
    rows: Int64  # for each track its row of `threads` or of `devices`, -1 for none
    streams: Int64  # for each track its stream, -1 for none
    joined: Int64  # for each rank whether its operations are those of its kernels
    dictionaries: dict[str, pa.Table]
    names: dict[int, str]  # what the dictionaries refer to
    report: Report


def look_at(path: Path) -> Facts:
    """The facts at the beginning of a trace. Raises `InputError`: another version wrote it, or it is damaged."""
    with closing(Text(path)) as text:
        scanner = Scanner(text)
        next(scanner.blocks(), None)
    about = scanner.scan.metadata.get("otherData")
    version = about.get("version") if isinstance(about, dict) else None
    if not isinstance(about, dict) or version != VIEWER_VERSION:
        raise InputError(
            path,
            found="it does not say what its tracks are" if version is None else f"it is of version {version!r}"[:80],
            expected=EXPECTED,
            advice="export the run again, or give the run or its reports",
        )
    if about.get("in_parts"):
        raise InputError(
            path, found="it is one of several files", expected=EXPECTED, advice="export the run again without --max-mb"
        )
    try:
        return _facts(path, about)
    except (KeyError, TypeError, ValueError, AttributeError, OverflowError, IndexError) as error:
        raise InputError(path, found="what it says of its ranks is damaged", expected=EXPECTED) from error


def _facts(path: Path, about: dict[str, Any]) -> Facts:
    names: dict[int, str] = {}
    dictionaries: dict[str, list[dict[str, Any]]] = {name: [] for name in DICTIONARIES}
    places = {table: n for n, table in enumerate((*FILLED, "startend"))}
    tracks: list[tuple[int, int, int]] = []
    first = [0]
    processes = []
    ranks = about["ranks"]
    for number, rank in enumerate(ranks):
        own: dict[str, dict[int, int]] = {}
        for name, key in (("threads", "thread"), ("devices", "device")):
            first_key = len(dictionaries[name])
            own[key] = {row[key]: first_key + n for n, row in enumerate(rank.get(name, ()))}
        for name in (n for n in DICTIONARIES if n != "names"):
            for row in rank.get(name, ())[: 1 if name == "processes" else None]:
                keys = {c: name_id(row[c]) for c in TABLES[name].name_columns() if c in row}
                names |= {key: row[c] for c, key in keys.items()}
                moved = {c: own[c][row[c]] for c in own if c in row}
                process = {"process": number} if "process" in TABLES[name].column_names else {}
                dictionaries[name].append({**row, **keys, **moved, **process})
        for table, base, *stream in rank["tracks"]:
            row = own["device" if stream else "thread"].get(base, _NONE)
            tracks.append((places[table], row, stream[0] if stream else _NONE))
        first.append(len(tracks))
        processes.append(_process(number, rank))
    own_tables = {
        n: pa.Table.from_pylist(rows, schema=TABLES[n].arrow_schema())
        for n, rows in dictionaries.items()
        if n != "names"
    }
    pids = np.array([rank["pid"] for rank in ranks], np.int64)
    order = np.argsort(pids)
    utc_ns, size = (v if type(v := about.get(name)) is int else None for name in ("utc_ns", "world_size"))
    hosts = {p.host for p in processes}
    report = Report(
        str(path), "chrome", "alltrace", str(VIEWER_VERSION), hosts.pop() if len(hosts) == 1 else None, utc_ns,
        processes=tuple(processes), world_size=size, tables=FILLED, warnings=(ReportWarning(_LACKS, FILLED),),
    )  # fmt: skip
    tables, rows, streams = np.array(tracks, np.int64).reshape(-1, 3).T
    joined = np.array([bool(rank["collectives"]) for rank in ranks])
    return Facts(
        pids[order], order, np.array(first, np.int64), tables, rows, streams, joined, own_tables, names, report
    )


def _process(number: int, rank: dict[str, Any]) -> ReportProcess:
    own: dict[str, Any] = next(iter(rank.get("processes", ())), {})
    ordinals = [o for d in rank.get("devices", ()) if type(o := d.get("ordinal")) is int]
    numbers = (own.get("pid", rank["pid"]), rank["rank"])
    if any(type(n) is not int for n in numbers) or not isinstance(rank["host"], str):
        raise TypeError(number)
    return ReportProcess(
        number,
        numbers[0],
        gpu=bool(rank.get("devices")),
        device_ordinal=min(ordinals, default=None),
        rank_hint=numbers[1],
        rank_hint_source="alltrace",
        host=rank["host"],
    )


_GPU = ("kernels", "copies", "graphs")
_KERNELS = FILLED.index("kernels")
_DIGITS = 19
_ARGUMENTS: dict[str, dict[str, tuple[str, ...]]] = {
    **{table: {**few, **{a: (c,) for a, c in MANY.get(table, {}).items()}} for table, few in FEW.items()},
    "collectives": {argument: (column,) for argument, column in (OPERATION | OPERATION_MANY).items()},
}
"""For each table the arguments of its slices, with their columns."""


def _kinds() -> dict[str, int]:
    """How the value of each argument is written."""
    kinds: dict[str, int] = {}
    for table, arguments in _ARGUMENTS.items():
        for argument, columns in arguments.items():
            number = TABLES[table].column(columns[0]).type.startswith("int")
            kind = TRIPLE if len(columns) > 1 else NUMBER if number else TEXT
            kinds[argument] = kind if kinds.get(argument, kind) == kind else TEXT
    return kinds


_KINDS = _kinds()
_FIELDS = Fields(EVENT, [(f"args {name}", kind, (name,)) for name, kind in _KINDS.items()])


class _Slices(NamedTuple):
    """Events of known tracks."""

    events: Picked
    ranks: Any  # the place of each one's rank
    tracks: Any  # the place of each one's track


class _Parsed(Pass):
    """A trace with its rows read, table by table."""

    def __init__(self, path: Path, facts: Facts) -> None:
        super().__init__()
        self._facts = facts
        with self._filled(), closing(Text(path)) as text:
            scanner = Scanner(text, fields=_FIELDS)
            self._names = Names(scanner.scan.texts)
            for block in scanner.blocks():
                self._read(block)
        self._cut = not scanner.scan.whole
        self._broken = max(0, scanner.scan.broken - self._cut)

    def _read(self, block: Block) -> None:
        facts = self._facts
        phase = self._names.classes("ph", lambda text: "?Xi".find(text), block["ph"])
        timed = (phase > 0) & (block["ts"] != NOTHING) & ((phase == 2) | (block["dur"] != NOTHING))
        rows = np.flatnonzero(timed & np.isin(block["pid"], facts.pids) & (block["tid"] > 0))
        rank = facts.order[np.searchsorted(facts.pids, block["pid"][rows])]
        rows, rank = (
            values[block["tid"][rows] <= facts.first[rank + 1] - facts.first[rank]] for values in (rows, rank)
        )
        events = _Slices(Picked(block, rows), rank, facts.first[rank] + block["tid"][rows] - 1)
        tables = facts.tables[events.tracks]
        whole_ = phase[rows] == 1
        for table in np.unique(tables[whole_]).tolist():
            self._keep("ranges" if table == STARTEND else FILLED[table], events, whole_ & (tables == table))
        self._keep("marks", events, ~whole_)
        operations = whole_ & (tables == _KERNELS) & facts.joined[rank]
        self._keep("collectives", events, operations & (block["args collective"][rows] != NOTHING))

    def _keep(self, table: str, slices: _Slices, chosen: Any) -> None:
        if not chosen.any():
            return
        events, place = slices.events.only(chosen), slices.tracks[chosen]
        of_track = masked(self._facts.rows[place], self._facts.rows[place] < 0)
        columns: dict[str, Any] = {
            column: self._values(events.at(f"args {argument}", part), TABLES[table].column(column).type, argument)
            for argument, names in _ARGUMENTS[table].items()
            for part, column in enumerate(names)
        }
        columns |= {"start": events["ts"], "time": events["ts"], "end": events["ts"] + events["dur"]}
        columns |= {"process": slices.ranks[chosen], "thread": of_track, "source_row": events.numbers}
        if table in (*_GPU, "collectives"):
            streams = self._facts.streams[place]
            columns |= {"thread": None, "device": of_track, "stream": masked(streams, streams < 0)}
        names = self._names.ids(events["name"])
        if table == "kernels":
            columns |= {"short_name": names, "name": pc.coalesce(columns["name"], names)}
        elif table == "copies":
            columns["kind"] = self._words(
                events["name"], lambda text: None if text == "copy" else text.removeprefix("memcpy ")
            )
        elif table not in ("graphs", "collectives"):
            columns["name"] = names
        if table == "api":
            columns["kind"] = self._words(events["cat"], lambda text: text.removeprefix("cuda_"))
        elif table == "ranges":
            columns["kind"] = pa.array(np.where(self._facts.tables[place] == STARTEND, "startend", "pushpop"))
        self._spool.append(table, strict(table, columns))

    def _values(self, codes: Any, kind: str, argument: str) -> Any:
        """A column of the given type, of the values of an argument; null if a slice lacks it."""
        if kind == "name":
            return self._names.ids(codes)
        if kind.startswith("int"):
            values = self._numbers(codes) if _KINDS[argument] == TEXT else codes
            return narrow(values) if kind == "int32" else whole(values)
        return self._words(codes, str)

    def _numbers(self, codes: Any) -> Any:
        """The numbers that texts are."""
        texts = self._words(codes, lambda text: text if text.lstrip("-").isdecimal() and len(text) < _DIGITS else None)
        return texts.cast(pa.int64()).fill_null(NOTHING).to_numpy()

    def _words(self, codes: Any, word: Callable[[str], str | None]) -> Any:
        """Words for the texts with these codes; null for none."""
        kinds, places = np.unique(codes, return_inverse=True)
        words = [None if code == NOTHING else word(self._names.text(code)) for code in kinds.tolist()]
        return pa.array(words, pa.string()).take(pa.array(places.ravel()))

    def warnings(self) -> tuple[ReportWarning, ...]:
        cut = [ReportWarning("the trace is cut short: the complete part was read, the rest is missing", FILLED)]
        broken = [ReportWarning("events left out because they are not valid JSON", FILLED, self._broken)]
        return (*cut[: self._cut], *broken[: self._broken])

    def dictionaries(self) -> dict[str, Any]:
        names = self._names.table()
        own = pa.table(
            {"id": pa.array(self._facts.names, pa.int64()), "value": pa.array(self._facts.names.values(), pa.string())}
        )
        fresh = own.filter(pc.invert(pc.is_in(own.column("id"), names.column("id"))))
        return {**self._facts.dictionaries, "names": pa.concat_tables([names, fresh])}


class ChromeReader(SpooledReader):
    """A trace that alltrace exported, opened; see `alltrace.readers.base.ReportReader`."""

    def __init__(self, path: Path) -> None:
        super().__init__(path, FILLED)
        self._facts = look_at(path)
        self.report: Report = self._facts.report

    def _read(self) -> _Parsed:
        return _Parsed(self._path, self._facts)


def open_report(path: Path) -> ChromeReader:
    """Open a trace that alltrace exported. Raises `InputError`: it is damaged, or another version wrote it."""
    return ChromeReader(path)

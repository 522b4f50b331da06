"""Who a trace that alltrace exported is about: its ranks with their dictionaries, and what each of their tracks is of."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from alltrace.readers.base import Report, ReportProcess, ReportWarning
from alltrace.readers.kineto.events import Scanner
from alltrace.readers.kineto.text import Text
from alltrace.trace.arrays import Int64
from alltrace.trace.errors import InputError
from alltrace.trace.names import name_id
from alltrace.trace.schema import DICTIONARIES, TABLES
from alltrace.trace.slice_arguments import FEW, VIEWER_VERSION

EXPECTED = "a trace that this version of alltrace exported"
FILLED = (*FEW, "collectives")
"""The canonical tables that a trace can fill."""

STARTEND = len(FILLED)
_LACKS = (
    "it is a trace for viewers, read back: waits, metrics, samples, memory and functions of Python are not in it, nor are "
    "operations of the host, and of several operations in one kernel it has one"
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
            taken = len(dictionaries[name])
            own[key] = {row[key]: taken + n for n, row in enumerate(rank.get(name, ()))}
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
    made = {n: pa.Table.from_pylist(rows, schema=TABLES[n].arrow_schema()) for n, rows in dictionaries.items() if n != "names"}
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
    return Facts(pids[order], order, np.array(first, np.int64), tables, rows, streams, joined, made, names, report)


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

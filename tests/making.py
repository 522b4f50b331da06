"""Makes run directories by hand, from Python rows, through the writer and the manifest that an import uses."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa

from alltrace.api import OpenRun
from alltrace.readers.base import ReportWarning
from alltrace.run.checksums import checksum, write_rank_record
from alltrace.run.manifest import (
    NAMES,
    Clock,
    Device,
    Manifest,
    MissingRecords,
    RankRecord,
    ReportRecord,
    write_manifest,
)
from alltrace.run.meeting_kernels import find_meeting_kernels, keep_unknown_kernels
from alltrace.run.pieces import Piece
from alltrace.run.writer import TableWriter
from alltrace.trace.kernel_rules import built_in_rules
from alltrace.trace.names import name_id
from alltrace.trace.schema import EVENT_TABLES, TABLES, Table
from alltrace.trace.side_file_words import ROLE

Rows = list[dict[str, Any]]

_DEFAULTS = {"process": 0, "thread": 0, "device": 0, "context": 1, "stream": 7}
_DICTIONARIES: dict[str, Rows] = {
    "processes": [{"process": 0, "pid": 4000, "name": "train"}],
    "threads": [{"thread": 0, "process": 0, "tid": 4001, "name": "main"}],
    "devices": [{"device": 0, "ordinal": 0, "uuid": "GPU-0", "name": "H200"}],
    "streams": [{"process": 0, "context": 1, "stream": 7}],
}
COMPUTE_KERNEL = "void gemm_kernel(int)"
COMMUNICATION_KERNEL = "ncclDevKernel_AllReduce_Sum_f32_RING_LL"


def make_run(
    folder: Path,
    ranks: Mapping[int, Mapping[str, Rows]],
    *,
    hosts: Mapping[int, str] | None = None,
    clocks: Sequence[Clock] = (),
    missing: Sequence[int] = (),
    notes: Sequence[str] = (),
    warnings: Sequence[str | ReportWarning] = (),
    redactions: Sequence[str] = (),
    unrecorded: Mapping[int, Sequence[tuple[int, int]]] | None = None,
    roles: Mapping[int, str] | None = None,
    session_ns: int | Mapping[int, int] | None = None,
) -> OpenRun:
    """A run with these rows.

    Args:
        folder: Where to make it.
        ranks: For each rank its rows by table; a row is its values by column. A name is its text. Columns of
            `_DEFAULTS` that are not given have their default, a kernel's `kind` is what the built-in rules say, other
            columns are null. The rank has one process, thread, stream and device `GPU-RANK`, unless it brings rows of
            these tables.
        hosts: The ranks' hosts; `host0` where not given.
        clocks: The hosts' clocks; exact ones where not given.
        missing: Ranks without a report.
        notes: The run's notes.
        warnings: Warnings of the first rank's report; a text touches all tables.
        redactions: What was left out.
        roles: What ranks do in a program of several groups of ranks.
        session_ns: How long the session of each report took, or of each rank's.
        unrecorded: When work may have run whose records are lost, by rank; said to be that of one of ten launches.
    """
    texts: set[str] = set()
    records = []
    for number in sorted(ranks):
        given = ranks[number]
        host = (hosts or {}).get(number, "host0")
        place = folder / "ranks" / f"rank={number}"
        place.mkdir(parents=True)
        own = {"devices": [{**_DICTIONARIES["devices"][0], "uuid": f"GPU-{number}"}]}
        tables = {**_DICTIONARIES, **own, **given}
        spans, counts = [], {}
        for name, rows in tables.items():
            if name not in EVENT_TABLES:
                _write_dictionary(TABLES[name], rows, place, texts)
            elif rows:
                stats = _write(TABLES[name], rows, place, texts)
                counts[name] = stats.rows
                if stats.first_start_ns is not None:
                    spans.append((stats.first_start_ns, stats.last_end_ns))
        devices = tuple(
            Device(d["device"], d.get("ordinal"), d.get("uuid"), d.get("bus_id"), d.get("name"), host)
            for d in tables["devices"]
        )
        record = RankRecord(
            rank=number,
            local_rank=number,
            host=host,
            pids=(4000 + number,),
            devices=devices,
            rank_source="RANK",
            reports=(len(records),),
            start_ns=min((s for s, _ in spans), default=None),
            end_ns=max((e for _, e in spans), default=None),
            rows=counts,
            unrecorded=tuple(lost := (unrecorded or {}).get(number, ())),
            missing_records=(MissingRecords("kernels", 1, 10, lost[0][0], lost[-1][0], "places"),) if lost else (),
        )
        keep_unknown_kernels(Piece(place, counts))
        write_rank_record(place, record, {})
        records.append(record)
    _write(TABLES["names"], [{"id": name_id(t), "value": t} for t in sorted(texts)], folder, set())
    known = tuple(dict.fromkeys(r.host for r in records))
    given_warnings = tuple(ReportWarning(w, EVENT_TABLES) if isinstance(w, str) else w for w in warnings)
    manifest = Manifest(
        reports=tuple(
            ReportRecord(
                f"rank{r.rank}.sqlite",
                1,
                f"{r.rank}",
                host=r.host,
                warnings=given_warnings if i == 0 else (),
                environment={ROLE: roles[r.rank]} if r.rank in (roles or {}) else {},
                session_ns=session_ns.get(r.rank) if isinstance(session_ns, Mapping) else session_ns,
            )
            for i, r in enumerate(records)
        ),
        ranks=tuple(records),
        clocks=tuple(clocks) or tuple(Clock(h) for h in known),
        zero_utc_ns=0,
        missing_ranks=tuple(missing),
        notes=tuple(notes),
        redactions=tuple(redactions),
        complete=True,
        files={NAMES: checksum(folder / NAMES)},
        kernel_rules=built_in_rules().fingerprint,
    )
    folder.mkdir(parents=True, exist_ok=True)
    write_manifest(folder, replace(manifest, meeting=find_meeting_kernels(folder, manifest)))
    return OpenRun(folder)


def kernel(start: int, end: int, name: str | None = COMPUTE_KERNEL, **others: Any) -> dict[str, Any]:
    """A row of `kernels`; its `kind` is what the built-in rules say."""
    short = None if name is None else name.removeprefix("void ").partition("(")[0]
    return {
        "start": start,
        "end": end,
        "name": name,
        "short_name": short,
        "kind": built_in_rules().kind(name),
        **others,
    }


def collective(start: int, end: int, **others: Any) -> dict[str, Any]:
    """A row of `kernels` for a communication kernel, on a stream of its own."""
    return kernel(start, end, COMMUNICATION_KERNEL, **{"stream": 20, **others})


def copy(start: int, end: int, kind: str = "HtoD", **others: Any) -> dict[str, Any]:
    """A row of `copies`."""
    return {"start": start, "end": end, "kind": kind, "bytes": 1 << 20, "stream": 30, **others}


def _write(table: Table, rows: Rows, folder: Path, texts: set[str]) -> Any:
    folder.mkdir(parents=True, exist_ok=True)
    with TableWriter(table, folder / f"{table.name}.parquet", folder / "spill") as writer:
        arrays = [_array(table, c.name, c.type, rows, texts) for c in table.columns]
        writer.append(pa.RecordBatch.from_arrays(arrays, schema=table.arrow_schema()))
        return writer.finish()


_DICTIONARY_FILES: dict[str, tuple[bytes, set[str]]] = {}


def _write_dictionary(table: Table, rows: Rows, folder: Path, texts: set[str]) -> None:
    """Writes a small table that has nearly always the same rows: their file is made once in a process."""
    key = f"{table.name}: {rows}"
    if key not in _DICTIONARY_FILES:
        own: set[str] = set()
        _write(table, rows, folder, own)
        _DICTIONARY_FILES[key] = (folder / f"{table.name}.parquet").read_bytes(), own
    content, own = _DICTIONARY_FILES[key]
    (folder / f"{table.name}.parquet").write_bytes(content)
    texts |= own


def _array(table: Table, column: str, kind: str, rows: Iterable[Mapping[str, Any]], texts: set[str]) -> Any:
    default = _DEFAULTS.get(column) if table.name in EVENT_TABLES else None
    values = [row.get(column, default) for row in rows]
    if kind == "name":
        texts.update(v for v in values if v is not None)
        values = [None if v is None else name_id(v) for v in values]
    return pa.array(values, table.arrow_schema([column]).field(0).type)


def flip(path: Path, byte: int = 20, bit: int = 0) -> None:
    """Change one bit of a file."""
    content = bytearray(path.read_bytes())
    content[byte] ^= 1 << bit
    path.write_bytes(content)


HOSTILE = (
    "<img src=x onerror=alert(1)>",
    'a "quoted", name',
    "two\nlines\r\nand\ttab",
    "\x1b[31mred\x1b[0m\x00\x07",
    "a|b `c` *d* _e_ [f](javascript:g)",
    "=cmd()",
    "naïve 核 🚀 \u202eesrever",
    "",
    " padded ",
)
_WORDS = {
    ("kernels", "kind"): ("compute", "collective", "p2p", "unclassified"),
    ("copies", "kind"): ("HtoD", "DtoH", "DtoD", "PtoP", "memset", "unknown"),
    ("api", "kind"): ("runtime", "driver"),
    ("ranges", "kind"): ("pushpop", "startend"),
    ("memory", "kind"): ("allocate", "free"),
    ("page_faults", "kind"): ("cpu", "gpu"),
    ("allocations", "kind"): ("allocate", "free"),
    ("allocations", "memory"): ("cpu", "cuda"),
    ("openacc", "kind"): ("data", "launch", "other"),
    ("mpi", "kind"): ("p2p", "collective", "start-wait", "other"),
}
_MEMORIES = ("pageable", "pinned", "device", "managed")


def random_rows(table: str, count: int, draw: Any, *, length: int = 1_000_000) -> Rows:
    """Rows of any event table: no two start together, a fifth has no length, names are hostile, and what may be null
    sometimes is.

    Args:
        table: The table.
        count: How many rows.
        draw: A `random.Random`.
        length: Times are below it, ns.
    """
    declared = TABLES[table]
    starts = draw.sample(range(length), count)
    rows = []
    for number, start in enumerate(starts):
        row: dict[str, Any] = {c.name: _value(table, c.name, c.type, draw) for c in declared.columns}
        end = start + draw.choice([0, 1, 17, 900, length // 20])
        times = {
            "start": start,
            "end": end,
            "time": start,
            "api_start": start,
            "api_end": end,
            "correlation": number + 1,
        }
        row.update({name: value for name, value in times.items() if name in row})
        row.update({name: value for name, value in _DEFAULTS.items() if name in row})
        rows.append(row)
    return rows


def _value(table: str, column: str, kind: str, draw: Any) -> Any:
    if draw.random() < 0.1 and column != "kind":
        return None
    if kind == "enum":
        return draw.choice(_WORDS.get((table, column), _MEMORIES))
    if kind in ("name", "text"):
        return draw.choice(HOSTILE)
    if kind == "bool":
        return draw.random() < 0.5
    if kind == "float64":
        return draw.uniform(-5, 5)
    return b"\xff\x00" if kind == "binary" else draw.randint(0, 6)

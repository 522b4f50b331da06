"""What cannot be true in one report of four: whether the findings of the other ranks stay as they are without it.

    python -m benchmarks.impossible [--format sqlite|kineto] [KIND ...]

A simulated run of four ranks has a planted fault on rank 2. Each kind of impossible content is written into the report
of rank 1: an export of Nsight Systems, or a trace of PyTorch, whose events are tables with the same columns while they
are changed. A kind is right if the first finding is as before (kind, ranks but rank 1, severity; loss within 10 %, or
withheld), nothing is found of other ranks that was not, and something is said of rank 1 or its file: a capture fault,
or a note. Nothing need be said of what changes no answer.
"""

from __future__ import annotations

import argparse
import json
import random
import re
import sqlite3
import sys
import tempfile
from collections.abc import Callable, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

from alltrace.recipes.execution.ask import ask
from alltrace.run.cache import imported_once
from alltrace.run.store import Run
from alltrace.synth import write_run
from alltrace.trace.errors import AlltraceError

CATEGORIES = {
    "kernel": "CUPTI_ACTIVITY_KIND_KERNEL",
    "gpu_memcpy": "CUPTI_ACTIVITY_KIND_MEMCPY",
    "gpu_memset": "CUPTI_ACTIVITY_KIND_MEMSET",
    "cuda_sync": "CUPTI_ACTIVITY_KIND_SYNCHRONIZATION",
    "cuda_runtime": "CUPTI_ACTIVITY_KIND_RUNTIME",
    "cpu_op": "NVTX_EVENTS",
    "user_annotation": "NVTX_EVENTS",
}
"""The tables that events of PyTorch's traces are while they are changed."""
ARGUMENTS = {
    "deviceId": "device",
    "streamId": "stream",
    "correlationId": "correlation",
    "bytes": "bytes",
    "groupSize": "Group size",
    "sequence": "Seq",
}
TIMES = ("start", "end")
HOUR_NS = 3600 * 10**9
KERNELS, CALLS, COPIES = (f"CUPTI_ACTIVITY_KIND_{name}" for name in ("KERNEL", "RUNTIME", "MEMCPY"))
RANGES = "NVTX_EVENTS"
EVENTS = (
    KERNELS,
    CALLS,
    COPIES,
    "CUPTI_ACTIVITY_KIND_MEMSET",
    "CUPTI_ACTIVITY_KIND_SYNCHRONIZATION",
    RANGES,
    "OSRT_API",
)
DAMAGED, RANKS = 1, 4
ON_RANK = re.compile(r"\branks? (?:0-)?1\b")
CHANGES_NOTHING = {
    "correlation falling": "each id still joins one call with what it launched",
    "ranges 10,000 deep": "deep nesting is legal",
    "names of 1 MB": "a long name is a name",
    "stream null": "in a trace of PyTorch the thread of work is its stream, too",
}
"""The kinds after which a report says the same in another way, and why."""

Database = sqlite3.Connection
Change = Callable[[Database], Any]


def some(table: str, count: int, change: str, where: str = "1") -> Change:
    """Changes some rows, drawn by a fixed seed."""

    def apply(db: Database) -> None:
        rows = [row for (row,) in db.execute(f"SELECT rowid FROM {table} WHERE {where}")]
        for row in random.Random(3).sample(rows, min(count, len(rows))):
            db.execute(f"UPDATE {table} SET {change} WHERE rowid = {row}")

    return apply


def each(change: str, *tables: str, where: str = "1") -> Change:
    """Changes all rows of tables, of all tables of events if none is named."""
    return lambda db: [db.execute(f"UPDATE {table} SET {change} WHERE {where}") for table in tables or EVENTS]


def repeated(every: int) -> Change:
    """Writes every n-th kernel twice."""

    def apply(db: Database) -> None:
        columns = ", ".join(f'"{row[1]}"' for row in db.execute(f"PRAGMA table_info({KERNELS})"))
        db.execute(f"INSERT INTO {KERNELS} ({columns}) SELECT {columns} FROM {KERNELS} WHERE rowid % {every} = 0")

    return apply


def steps_of_clock(*steps: tuple[float, int]) -> Change:
    """Moves all that begins after a share of the time by some ns, step after step."""

    def apply(db: Database) -> None:
        for share, by_ns in steps:
            low, high = db.execute(f"SELECT min(start), max(end) FROM {KERNELS}").fetchone()
            at = int(low + (high - low) * share)
            each(f"start = start + ({by_ns}), end = end + ({by_ns})", where=f"start >= {at}")(db)

    return apply


def drift(ppm: int) -> Change:
    """A clock that runs faster."""

    def apply(db: Database) -> None:
        (low,) = db.execute(f"SELECT min(start) FROM {KERNELS}").fetchone()
        start, end = (f"cast({c} + ({c} - {low}) * {ppm}e-6 AS INTEGER)" for c in ("start", "end"))
        each(f"start = {start}, end = {end}")(db)

    return apply


def deep(levels: int) -> Change:
    """Ranges within ranges."""

    def apply(db: Database) -> None:
        columns = [row[1] for row in db.execute(f"PRAGMA table_info({RANGES})")]
        row = dict(
            zip(columns, db.execute(f"SELECT * FROM {RANGES} WHERE end IS NOT NULL LIMIT 1").fetchone(), strict=True)
        )
        names, places = ", ".join(f'"{c}"' for c in columns), ", ".join("?" * len(columns))
        for n in range(levels):
            inner = row | {"start": row["start"] + n // 4, "end": row["end"] - n // 4}
            db.execute(f"INSERT INTO {RANGES} ({names}) VALUES ({places})", list(inner.values()))

    return apply


def scaled(expression: str) -> Change:
    """All times as an expression of what they were, `{}`."""
    return each(f"start = {expression.format('start')}, end = {expression.format('end')}")


def wrapped(db: Database) -> None:
    """Times of 32 bits, which start again at 0 in the middle."""
    low, high = db.execute(f"SELECT min(start), max(end) FROM {KERNELS}").fetchone()
    scaled(f"(({{}} - {(low + high) // 2}) & 4294967295)")(db)


def ended_twice(count: int) -> Change:
    """Writes some ranges twice, with another end."""

    def apply(db: Database) -> None:
        columns = ", ".join(f'"{row[1]}"' for row in db.execute(f"PRAGMA table_info({RANGES})"))
        longer = columns.replace('"end"', '"end" + 1000000')
        db.execute(
            f"INSERT INTO {RANGES} ({columns}) SELECT {longer} FROM {RANGES} WHERE end IS NOT NULL LIMIT {count}"
        )

    return apply


def launcher(rank: str, size: str) -> Change:
    """Another rank, or size of the world, as the launcher wrote it."""

    def apply(db: Database) -> None:
        for name, value in (("RANK", rank), ("WORLD_SIZE", size)):
            line = f'{name}="{value}"'
            db.execute("UPDATE META_DATA_CAPTURE SET value = ? WHERE value LIKE ?", (line, f'{name}="%'))

    return apply


KINDS: dict[str, Change] = {
    "end before begin": some(KERNELS, 3, "end = start - 1000000"),
    "zero start": some(KERNELS, 3, "start = 0"),
    "zero end": some(KERNELS, 3, "end = 0"),
    "both zero": some(KERNELS, 3, "start = 0, end = 0"),
    "half of all zero": each("start = 0, end = 0", KERNELS, where="rowid % 2 = 0"),
    "start before the file by 1 h": some(KERNELS, 1, f"start = start - {HOUR_NS}"),
    "row before the file by 1 h": some(KERNELS, 1, f"start = start - {HOUR_NS}, end = end - {HOUR_NS}"),
    "end beyond the file by 1 h": some(KERNELS, 1, f"end = end + {HOUR_NS}"),
    "row beyond the file by 1 h": some(KERNELS, 1, f"start = start + {HOUR_NS}, end = end + {HOUR_NS}"),
    "2 s over later kernels": some(KERNELS, 1, "end = start + 2000000000"),
    "16 days": some(KERNELS, 1, f"end = start + {16 * 24 * HOUR_NS}"),
    "236 years": some(KERNELS, 1, f"end = start + {236 * 365 * 24 * HOUR_NS}"),
    "call of 16 days": some(CALLS, 1, f"end = start + {16 * 24 * HOUR_NS}"),
    "range of 16 days": some(RANGES, 1, f"end = start + {16 * 24 * HOUR_NS}", "end IS NOT NULL"),
    "negative durations": some(KERNELS, 40, "end = start - (end - start)"),
    "no duration in all": each("end = start", KERNELS),
    "file in us": scaled("{} / 1000"),
    "file in ms": scaled("{} / 1000000"),
    "file in ticks": scaled("cast({} * 1.98 AS INTEGER)"),
    "file in s": scaled("{} / 1e9"),
    "epoch mixed with relative": some(
        KERNELS, 40, "start = start + 1767272300000000000, end = end + 1767272300000000000"
    ),
    "clock steps back": steps_of_clock((0.5, -20_000_000)),
    "clock steps forward": steps_of_clock((0.5, 500_000_000)),
    "clock steps twice": steps_of_clock((0.3, 5_000_000), (0.7, -10_000_000)),
    "drift of 1,000 ppm": drift(1000),
    "wrapped 32 bits": wrapped,
    "all kernels twice": repeated(1),
    "every second kernel twice": repeated(2),
    "copies faster than 20 TB/s": each("bytes = bytes * 100000", COPIES),
    "copies of negative bytes": some(COPIES, 3, "bytes = -5"),
    "copies of 2^63 bytes": some(COPIES, 3, "bytes = 9223372036854775807"),
    "correlation 0 in all": each("correlationId = 0", KERNELS, CALLS, COPIES),
    "correlation repeated": each("correlationId = correlationId % 50 + 1", KERNELS, CALLS, COPIES),
    "correlation falling": each("correlationId = 100000 - correlationId", KERNELS, CALLS, COPIES),
    "device -1": some(KERNELS, 20, "deviceId = -1"),
    "device 999": some(KERNELS, 20, "deviceId = 999"),
    "stream of another process": some(KERNELS, 20, "globalPid = globalPid + 16777216"),
    "stream null": some(KERNELS, 20, "streamId = NULL"),
    "kernels without launch": some(CALLS, 20, "correlationId = 9000000 + rowid"),
    "launches after their kernel": some(CALLS, 5, "start = start + 5000000, end = end + 5000000"),
    "ranges that cross": some(RANGES, 6, "end = end + 3000000", "end IS NOT NULL"),
    "ranges that end twice": ended_twice(6),
    "ranges that never end": some(RANGES, 5, "end = NULL"),
    "ranges 10,000 deep": deep(10_000),
    "name id missing": some(KERNELS, 20, "demangledName = 99999, shortName = 99999"),
    "names empty": each("value = ''", "StringIds", where="rowid % 7 = 0"),
    "names of 1 MB": each(
        "value = value || printf('%.*c', 1000000, 'x')",
        "StringIds",
        where=f"id = (SELECT demangledName FROM {KERNELS} LIMIT 1)",
    ),
    "graph node without graph": some(KERNELS, 20, "graphNodeId = 4242"),
    "communicator of size 0": each("groupSize = 0", RANGES, where="groupSize IS NOT NULL"),
    "sequence that falls": each("sequence = 100000 - sequence", RANGES, where="sequence IS NOT NULL"),
    "rank -1": launcher("-1", "4"),
    "rank above the world size": launcher("9", "4"),
    "another world size": launcher("1", "8"),
}


def in_export(path: Path, change: Change) -> None:
    """Change an export of Nsight Systems."""
    with closing(sqlite3.connect(path)) as db, db:
        change(db)


def in_trace(path: Path, change: Change) -> None:
    """Change a trace of PyTorch: its events are rows with the names of Nsight Systems' tables and columns for that."""
    trace = json.loads(path.read_text())
    events, places = trace["traceEvents"], {}
    with closing(sqlite3.connect(":memory:")) as db:
        columns = ("event", "demangledName", *TIMES, *ARGUMENTS)
        db.execute("CREATE TABLE StringIds (id INTEGER PRIMARY KEY, value)")
        numbers = {name: n for n, name in enumerate(dict.fromkeys(str(event["name"]) for event in events))}
        db.executemany("INSERT INTO StringIds VALUES (?, ?)", [(number, name) for name, number in numbers.items()])
        for table in EVENTS:
            db.execute(f"CREATE TABLE {table} ({', '.join(columns)}, shortName)")
        info = trace["distributedInfo"]
        db.execute("CREATE TABLE META_DATA_CAPTURE (value)")
        said = ((f'RANK="{info["rank"]}"',), (f'WORLD_SIZE="{info["world_size"]}"',))
        db.executemany("INSERT INTO META_DATA_CAPTURE VALUES (?)", said)
        for place, event in enumerate(events):
            kind = event.get("cat", "")
            if kind not in CATEGORIES or event["ph"] != "X":
                continue
            places[place] = event
            start = round(event["ts"] * 1000)
            args = [event["args"].get(name) for name in ARGUMENTS.values()]
            row = (place, numbers[event["name"]], start, start + round(event["dur"] * 1000), *args)
            db.execute(f"INSERT INTO {CATEGORIES[kind]} VALUES ({', '.join('?' * len(columns))}, NULL)", row)
        change(db)
        for (line,) in db.execute("SELECT value FROM META_DATA_CAPTURE"):
            name, _, value = line.partition("=")
            info[name.lower()] = int(value.strip('"'))
        written = [event for place, event in enumerate(events) if place not in places]
        names = dict(db.execute("SELECT id, value FROM StringIds"))
        for table in EVENTS:
            for place, name, start, end, *args in db.execute(f"SELECT {', '.join(columns)} FROM {table}"):
                known = {key: value for key, value in zip(ARGUMENTS.values(), args, strict=True) if value is not None}
                others = {key: value for key, value in places[place]["args"].items() if key not in ARGUMENTS.values()}
                event = places[place] | {"name": names.get(name), "ts": start / 1000, "args": others | known}
                written.append(
                    event | {"dur": (end - start) / 1000} if end is not None else event | {"ph": "B", "dur": 0}
                )
    path.write_text(json.dumps(trace | {"traceEvents": written}))


def findings_of(reports: Path, cache: Path) -> tuple[list[dict[str, Any]], tuple[str, ...]]:
    """The findings of `diagnose`, and its notes."""
    answer = ask(Run(imported_once([str(reports)], cache_dir=cache, jobs=1)), "diagnose")
    return answer.table.to_pylist(), answer.notes


def _key(finding: dict[str, Any]) -> tuple[Any, ...]:
    return finding["kind"], tuple(r for r in finding["ranks"] or () if r != DAMAGED and r < RANKS), finding["severity"]


def judged(before: Sequence[dict[str, Any]], after: Sequence[dict[str, Any]], notes: Sequence[str], file: str) -> str:
    """What is wrong with the findings after a change of a file; empty for nothing."""
    others = [f for f in after if f["kind"] != "capture-fault"]
    first = before[0]
    if not others or _key(others[0]) != _key(first):
        return f"the first finding is {_key(others[0]) if others else None}"
    loss = others[0]["lost_share"]
    if loss is not None and abs(loss - first["lost_share"]) > 0.1 * first["lost_share"]:
        return f"the loss is {loss:.3f}, not {first['lost_share']:.3f}"
    more = {_key(f) for f in others} - {_key(f) for f in before}
    if more:
        return f"new: {sorted(more)}"
    faults = any(DAMAGED in (f["ranks"] or ()) for f in after if f["kind"] == "capture-fault")
    return "" if faults or any(ON_RANK.search(note) or file in note for note in notes) else "nothing is said"


def run(kinds: Sequence[str], form: str) -> int:
    """Judge the kinds in reports of a form; returns how many are wrong."""
    wrong = written = 0
    change = in_trace if form == "kineto" else in_export
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        write_run(
            "sharded",
            folder / "base",
            form,
            ranks=RANKS,
            hosts=2,
            steps=6,
            ideal=True,
            faults=("slow-rank:ranks=2:factor=1.4",),
        )
        (folder / "base" / "truth.json").unlink()
        names = sorted(p.name for p in (folder / "base").iterdir())
        before, _ = findings_of(folder / "base", folder / "cache")
        damaged = names[DAMAGED]
        if form == "kineto":
            damaged = next(n for n in names if '"rank": 1,' in (folder / "base" / n).read_text()[:20_000])
        for kind in kinds:
            reports = folder / kind.replace(" ", "-").replace("/", "-")
            reports.mkdir()
            for name in names:
                (reports / name).write_bytes((folder / "base" / name).read_bytes())
            try:
                change(reports / damaged, KINDS[kind])
                said = judged(before, *findings_of(reports, folder / "cache"), damaged)
                if kind in CHANGES_NOTHING and said == "nothing is said":
                    said = ""
            except sqlite3.Error:
                print(f"{kind:32} cannot be written", flush=True)
                continue
            except AlltraceError as error:
                said = str(error)
            written += 1
            wrong += bool(said)
            print(f"{kind:32} {said or 'right'}", flush=True)
    print(f"{written - wrong} of {written} right")
    return wrong


def main() -> int:
    """Run the kinds that the arguments name, or all."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("kinds", nargs="*", help=f"of: {', '.join(KINDS)}")
    parser.add_argument("--format", choices=("sqlite", "kineto"), default="sqlite", help="the form of the reports")
    arguments = parser.parse_args()
    kinds = arguments.kinds or list(KINDS)
    unknown = [k for k in kinds if k not in KINDS]
    if unknown:
        parser.error(f"unknown kind {unknown[0]!r}")
    run(kinds, arguments.format)
    return 0


if __name__ == "__main__":
    sys.exit(main())

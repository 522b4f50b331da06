"""What cannot be true in one report of four: whether the findings of the other ranks stay as they are without it.

    python -m benchmarks.impossible [KIND ...]

A simulated run of four ranks has a planted fault on rank 2. Each kind of impossible content is written into the report of rank 1. A
kind is right if the first finding is as before (kind, ranks but rank 1, severity; loss within 10 %, or withheld), nothing is found
of other ranks that was not, and something is said: a capture fault of rank 1, or a note.
"""

from __future__ import annotations

import argparse
import random
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

HOUR_NS = 3600 * 10**9
KERNELS, CALLS, COPIES = (f"CUPTI_ACTIVITY_KIND_{name}" for name in ("KERNEL", "RUNTIME", "MEMCPY"))
RANGES = "NVTX_EVENTS"
EVENTS = (KERNELS, CALLS, COPIES, "CUPTI_ACTIVITY_KIND_MEMSET", "CUPTI_ACTIVITY_KIND_SYNCHRONIZATION", RANGES, "OSRT_API")
DAMAGED = 1

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
        row = dict(zip(columns, db.execute(f"SELECT * FROM {RANGES} WHERE end IS NOT NULL LIMIT 1").fetchone(), strict=True))
        names, places = ", ".join(f'"{c}"' for c in columns), ", ".join("?" * len(columns))
        for n in range(levels):
            inner = row | {"start": row["start"] + n // 4, "end": row["end"] - n // 4}
            db.execute(f"INSERT INTO {RANGES} ({names}) VALUES ({places})", list(inner.values()))

    return apply


def scaled(expression: str) -> Change:
    """All times as an expression of what they were, `{}`."""
    return each(f"start = {expression.format('start')}, end = {expression.format('end')}")


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
    "epoch mixed with relative": some(KERNELS, 40, "start = start + 1767272300000000000, end = end + 1767272300000000000"),
    "clock steps back": steps_of_clock((0.5, -20_000_000)),
    "clock steps forward": steps_of_clock((0.5, 500_000_000)),
    "clock steps twice": steps_of_clock((0.3, 5_000_000), (0.7, -10_000_000)),
    "drift of 1,000 ppm": drift(1000),
    "wrapped 32 bits": scaled("({} & 4294967295)"),
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
    "kernels without launch": some(CALLS, 20, "correlationId = 9000000 + rowid"),
    "launches after their kernel": some(CALLS, 5, "start = start + 5000000, end = end + 5000000"),
    "ranges that cross": some(RANGES, 6, "end = end + 3000000", "end IS NOT NULL"),
    "ranges that never end": some(RANGES, 5, "end = NULL"),
    "ranges 10,000 deep": deep(10_000),
    "name id missing": some(KERNELS, 20, "demangledName = 99999, shortName = 99999"),
    "names empty": each("value = ''", "StringIds", where="rowid % 7 = 0"),
    "names of 1 MB": each(
        "value = value || printf('%.*c', 1000000, 'x')", "StringIds", where=f"id = (SELECT demangledName FROM {KERNELS} LIMIT 1)"
    ),
    "graph node without graph": some(KERNELS, 20, "graphNodeId = 4242"),
}


def findings_of(reports: Path, cache: Path) -> tuple[list[dict[str, Any]], tuple[str, ...]]:
    """The findings of `diagnose`, and its notes."""
    answer = ask(Run(imported_once([str(reports)], cache_dir=cache, jobs=1)), "diagnose")
    return answer.table.to_pylist(), answer.notes


def _key(finding: dict[str, Any]) -> tuple[Any, ...]:
    return finding["kind"], tuple(r for r in finding["ranks"] or () if r != DAMAGED), finding["severity"]


def judged(before: Sequence[dict[str, Any]], after: Sequence[dict[str, Any]], notes: Sequence[str]) -> str:
    """What is wrong with the findings; empty for nothing."""
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
    said = any(DAMAGED in (f["ranks"] or ()) for f in after if f["kind"] == "capture-fault") or any("rank 1" in n for n in notes)
    same = [_key(f) for f in others] == [_key(f) for f in before]
    return "" if said or same else "nothing is said"


def run(kinds: Sequence[str]) -> int:
    """Judge the kinds; returns how many are wrong."""
    wrong = 0
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        write_run("sharded", folder / "base", ranks=4, hosts=2, steps=6, ideal=True, faults=("slow-rank:ranks=2:factor=1.4",))
        before, _ = findings_of(folder / "base", folder / "cache")
        for kind in kinds:
            reports = folder / kind.replace(" ", "-").replace("/", "-")
            reports.mkdir()
            for path in (folder / "base").glob("*.sqlite"):
                (reports / path.name).write_bytes(path.read_bytes())
            with closing(sqlite3.connect(sorted(reports.glob("*.sqlite"))[DAMAGED])) as db, db:
                KINDS[kind](db)
            try:
                said = judged(before, *findings_of(reports, folder / "cache"))
            except AlltraceError as error:
                said = str(error)
            wrong += bool(said)
            print(f"{kind:32} {said or 'right'}", flush=True)
    print(f"{len(kinds) - wrong} of {len(kinds)} right")
    return wrong


def main() -> int:
    """Run the kinds that the arguments name, or all."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("kinds", nargs="*", help=f"of: {', '.join(KINDS)}")
    kinds = parser.parse_args().kinds or list(KINDS)
    unknown = [k for k in kinds if k not in KINDS]
    if unknown:
        parser.error(f"unknown kind {unknown[0]!r}")
    run(kinds)
    return 0


if __name__ == "__main__":
    sys.exit(main())

"""Removes kernels from reports and checks how answers report it: `python -m tests.fuzz.lost_kernels [DATA] --seed S`.

From each report, simulated or in the folder DATA, a part of the kernels is removed, in five ways: at random, at the
start, those of a stream, those of one rank, from some moment on. Which kernels had a launch, and how many of them are
gone, is counted in the report itself, by SQL or by JSON. Then each answer must report the right number, and none may
count time as idle in which a kernel that is gone had run.
"""

from __future__ import annotations

import argparse
import gzip
import json
import os
import random
import re
import shutil
import sqlite3
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

import alltrace
from alltrace.recipes.analysis.unrecorded import unrecorded_of
from alltrace.recipes.execution.ask import ask
from alltrace.synth import write_run
from alltrace.trace.errors import AlltraceError
from alltrace.trace.intervals import difference, intersection, merge, union

WAYS = ("random", "start", "stream", "rank", "end")
SIMULATED = (("tiny", 2), ("healthy", 2), ("pipeline", 4), ("sharded", 2), ("experts", 8))
"""Scenarios and their ranks."""
_LAUNCH = re.compile(r"^(cuda|cu|hip)\w*Launch\w*Kernel")


class Kernel(NamedTuple):
    """A kernel of a report: where it is, its launch's id, its stream, and when it and its launch were."""

    key: Any
    launch: Any
    stream: Any
    start: int
    end: int
    launched: int | None


class Report:
    """A report whose kernels can be taken out."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.kernels = sorted(self._kernels(), key=lambda k: (k.start, str(k.key)))

    def _kernels(self) -> Iterator[Kernel]:
        raise NotImplementedError

    def take_out(self, gone: set[Any], path: Path) -> None:
        """Write the report without some kernels."""
        raise NotImplementedError


class Sqlite(Report):
    """An export of Nsight Systems."""

    def _kernels(self) -> Iterator[Kernel]:
        with closing(sqlite3.connect(self.path)) as base:
            tables = {r[0] for r in base.execute("SELECT name FROM sqlite_master")}
            if not {"CUPTI_ACTIVITY_KIND_KERNEL", "CUPTI_ACTIVITY_KIND_RUNTIME"} <= tables:
                return
            launches = {
                (row[0] >> 24, row[1]): row[2]
                for row in base.execute(
                    "SELECT globalTid, correlationId, start, value FROM CUPTI_ACTIVITY_KIND_RUNTIME "
                    "JOIN StringIds ON nameId = id ORDER BY start DESC"
                )
                if _LAUNCH.match(row[3])
            }
            for row in base.execute(
                "SELECT rowid, globalPid, correlationId, deviceId, streamId, start, end FROM CUPTI_ACTIVITY_KIND_KERNEL"
            ):
                launch = (row[1] >> 24, row[2])
                yield Kernel(row[0], launch, (row[1], *row[3:5]), row[5], row[6], launches.get(launch))

    def take_out(self, gone: set[Any], path: Path) -> None:
        shutil.copyfile(self.path, path)
        with closing(sqlite3.connect(path)) as base:
            base.executemany("DELETE FROM CUPTI_ACTIVITY_KIND_KERNEL WHERE rowid = ?", [(key,) for key in gone])
            base.commit()


class Kineto(Report):
    """A trace of PyTorch's profiler."""

    def _kernels(self) -> Iterator[Kernel]:
        self._root = json.loads(
            gzip.decompress(self.path.read_bytes()) if self.path.suffix == ".gz" else self.path.read_bytes()
        )
        events = self._root["traceEvents"]
        launches = {
            e["args"]["correlation"]: round(1000 * float(e["ts"]))
            for e in events
            if e.get("cat", "").lower() in ("cuda_runtime", "cuda_driver", "runtime")
            and _LAUNCH.match(e.get("name", ""))
        }
        for place, e in enumerate(events):
            if e.get("cat", "").lower() == "kernel":
                begin = round(1000 * float(e["ts"]))
                args = e["args"]
                launch, stream = args.get("correlation"), (args.get("device"), args.get("stream"))
                yield Kernel(place, launch, stream, begin, begin + round(1000 * float(e["dur"])), launches.get(launch))

    def take_out(self, gone: set[Any], path: Path) -> None:
        kept = [e for n, e in enumerate(self._root["traceEvents"]) if n not in gone]
        path.write_bytes(gzip.compress(json.dumps({**self._root, "traceEvents": kept}).encode(), 1))


def opened(path: Path) -> Report:
    """The report at a path."""
    return Sqlite(path) if path.suffix == ".sqlite" else Kineto(path)


def chosen(way: str, kernels: list[Kernel], draw: random.Random) -> list[Kernel]:
    """The kernels that are taken out: 5 % of those with a launch at the least."""
    mine = [k for k in kernels if k.launched is not None]
    least = max(len(mine) // 20, 1)
    count = draw.randint(least, max(len(mine) // 3, least))
    if way == "start":
        return sorted(mine, key=lambda k: k.launched or 0)[:count]
    if way == "end":
        return mine[-count:]
    if way == "stream":
        streams: dict[Any, list[Kernel]] = {}
        for kernel in mine:
            streams.setdefault(kernel.stream, []).append(kernel)
        # who has nothing left cannot tell what was lost from what was queued as the capture ended
        several = {s for s in streams if any(other[0] == s[0] for other in streams if other != s)}
        enough = [its for s, its in streams.items() if s in several and len(its) >= least]
        if enough:
            return draw.choice(enough)
    return draw.sample(mine, count)


def wrong(folder: Path, gone: dict[Path, list[Kernel]], reports: list[Report]) -> list[str]:
    """What is not right about the answers of the reports in a folder, a sentence each.

    Args:
        folder: The reports without the kernels.
        gone: By report in the folder, what was taken out.
        reports: The whole reports, in the same order.
    """
    run = alltrace.open(str(folder))
    told = {Path(record.path).name: n for n, record in enumerate(run.manifest.reports)}
    found: list[str] = []
    hidden = unrecorded_of(run)
    info = ask(run, "info", jobs=1)
    for report in reports:
        lost = gone.get(folder / report.path.name, [])
        ranks = [r for r in run.ranks if told[report.path.name] in r.reports]
        records = [m for r in ranks for m in r.missing_records]
        if not lost:
            found += [f"{report.path.name}: {m.number} records are said to be missing, and none is" for m in records]
            continue
        left = {k.key for k in report.kernels} - {k.key for k in lost}
        last: dict[Any, int] = {}
        for kernel in report.kernels:
            if kernel.key in left and kernel.launched is not None:
                last[_process(kernel)] = max(kernel.launched, last.get(_process(kernel), kernel.launched))
        still = {k.launch for k in report.kernels if k.key in left}
        expected = {k.launch for k in lost if k.launch not in still}
        # what was launched last can have been queued as the capture ended
        behind = {k.launch for k in lost if (k.launched or 0) > last.get(_process(k), k.launched or 0)}
        number = sum(m.number for m in records if m.what == "kernels")
        if not len(expected - behind) <= number <= len(expected):
            found.append(f"{report.path.name}: {number} of {len(expected)} lost kernels are counted")
        for rank in ranks if number else ():
            if not any(row["rank"] == rank.rank for row in info.extra.get("missing_records", ())) and len(ranks) == 1:
                found.append(f"{report.path.name}: info lists no missing record of rank {rank.rank}")
    for name in ("breakdown", "idle", "kernels", "gaps", "activity", "steps"):
        notes = ask(run, name, jobs=1).notes
        missing = {r.rank for r in run.ranks if any(m.what == "kernels" for m in r.missing_records)}
        if missing and not any(
            "has no record" in n or "have no record" in n or "without a record of their kernel" in n for n in notes
        ):
            found.append(f"{name} has no note on missing kernels")
    found += _idle_holes(run, gone, reports, told)
    found += _diagnosed(run, hidden)
    return found


def _process(kernel: Kernel) -> Any:
    """The process of a kernel, of a report of several."""
    return kernel.launch[0] if isinstance(kernel.launch, tuple) else None


def _idle_holes(run: Any, gone: dict[Path, list[Kernel]], reports: list[Report], told: dict[str, int]) -> Iterator[str]:
    """Time that is judged although a kernel had run that is gone; all in the time of the rank's files."""
    rows: dict[int, list[Any]] = {}
    for row in ask(run, "breakdown", jobs=1).table.to_pylist():
        rows.setdefault(row["rank"], []).append(row)
    lost_of = {path.name: kernels for path, kernels in gone.items()}
    for report in reports:
        ranks = [r for r in run.ranks if told[report.path.name] in r.reports]
        lost = lost_of.get(report.path.name, [])
        if len(ranks) != 1 or not lost:
            continue  # of several ranks it is not known here whose kernel it was
        (rank,), tables = ranks, run.rank(ranks[0].rank)
        spans = {
            t: [tables.file_table(t, [c]).column(c).to_numpy() for c in ("start", "end")]
            for t in ("kernels", "copies", "graphs")
        }
        taken = {k.key for k in lost}
        shift = int(spans["kernels"][0].min()) - min(k.start for k in report.kernels if k.key not in taken)
        had = np.array([(k.start + shift, k.end + shift) for k in lost], np.int64)
        gone_work = merge(had[:, 0].copy(), had[:, 1].copy())
        busy = union([merge(*(c.astype(np.int64) for c in its)) for its in spans.values()])
        hidden = np.array(rank.unrecorded, np.int64).reshape(-1, 2)
        unrecorded = merge(hidden[:, 0].copy(), hidden[:, 1].copy())
        judged = difference(merge(busy.starts[:1].copy(), busy.ends[-1:].copy()), unrecorded)
        holes = difference(gone_work, busy)
        counted = intersection(holes, judged).total_ns
        if counted:
            yield f"{report.path.name}: {counted} of {holes.total_ns} ns in which lost kernels ran are judged"
        idle, true = (
            sum(row["idle_ns"] for row in rows.get(rank.rank, ())),
            difference(judged, union([busy, gone_work])).total_ns,
        )
        if len(rows.get(rank.rank, ())) == 1 and not counted and abs(idle - true) > 1e-4 * true + 10:  # clocks drift
            yield f"{report.path.name}: breakdown has {idle} ns idle for {true}"


def _diagnosed(run: Any, hidden: Any) -> Iterator[str]:
    rows = ask(run, "diagnose", jobs=1).table.to_pylist()
    missing = {r.rank for r in run.ranks if any(m.what == "kernels" for m in r.missing_records)}
    told = {
        rank for row in rows if row["kind"] == "capture-fault" and "kernel" in row["where"] for rank in row["ranks"]
    }
    if missing - told:
        yield f"diagnose has no capture-fault of rank {min(missing - told)}"
    for name in ("whatif", "critical-path"):
        try:
            ask(run, name, jobs=1)
        except AlltraceError:
            continue
        if any(s.total_ns > 0.01 * (run.span_ns[1] - run.span_ns[0]) for s in hidden.values()):
            yield f"{name} is answered although much of the run has no record"


def cases(data: Path | None, scratch: Path, seed: int) -> Iterator[tuple[str, list[Path]]]:
    """The reports of each case: simulated runs, and those of a folder."""
    for number, (name, ranks) in enumerate(SIMULATED):
        folder = scratch / f"{name}-whole"
        form = "kineto" if number % 2 == 0 else "sqlite"
        write_run(name, folder, format=form, seed=seed + number, steps=4, ranks=ranks, ideal=True)
        paths = sorted(
            p
            for p in folder.iterdir()
            if p.suffix in (".sqlite", ".gz") or (p.name.endswith(".json") and "trace" in p.name)
        )
        yield name, paths
    for path in sorted([*data.glob("nsys/*.sqlite"), *data.glob("kineto/*/*.gz")]) if data else ():
        yield path.name, [path]


def run_cases(data: Path | None, scratch: Path, seed: int, ways: tuple[str, ...], say: Callable[[str], None]) -> int:
    """Try each case in each way; how many were wrong."""
    bad = tried = 0
    for name, paths in cases(data, scratch, seed):
        reports = [opened(p) for p in paths]
        if not any(k.launched is not None for r in reports for k in r.kernels):
            continue
        for way in ways:
            draw = random.Random(f"{seed} {name} {way}")
            folder = scratch / f"{name}-{way}"
            folder.mkdir()
            mine = [draw.choice(reports)] if way == "rank" else reports
            gone = {}
            for report in reports:
                taken = chosen(way, report.kernels, draw) if report in mine else []
                gone[folder / report.path.name] = taken
                report.take_out({k.key for k in taken}, folder / report.path.name)
            found = wrong(folder, gone, reports)
            tried += 1
            bad += bool(found)
            say(f"{name} {way}: {sum(map(len, gone.values()))} kernels out: {'; '.join(found) or 'right'}")
            shutil.rmtree(folder)
    say(f"{bad} of {tried} are wrong")
    return bad


def main() -> int:
    """The command."""
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz.lost_kernels", description=__doc__.split("\n")[0])
    parser.add_argument("data", nargs="?", type=Path, help="a folder of real reports; without it simulated runs alone")
    parser.add_argument("--seed", type=int, default=1, help="decides which kernels are taken out")
    parser.add_argument("--way", choices=WAYS, action="append", help="only this way; may be given more than once")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="lost-kernels-") as scratch:
        os.environ["ALLTRACE_CACHE_DIR"] = str(Path(scratch) / "cache")
        return min(run_cases(args.data, Path(scratch), args.seed, tuple(args.way or WAYS), print), 1)


if __name__ == "__main__":
    sys.exit(main())

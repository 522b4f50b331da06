"""The recipes of nsys, against the real `nsys recipe` on the same four reports: from runs (warm) and exports (cold).

And all recipes on 16 ranks with 1 M events each, and one of them on two workers of a Dask cluster against two
processes.

`nsys recipe` needs its own Python with pandas: ALLTRACE_NSIGHT_PYTHON. It gets exports as Parquet, so its own export of
the reports is in none of its figures; for `cold` ours reads the SQLite exports.
"""

from __future__ import annotations

import os
import shutil
import sqlite3
import subprocess
import tempfile
import time
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from benchmarks.data import FOLDER, made_run
from benchmarks.measure import ALLTRACE, median, run_once
from benchmarks.questions import nsys

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

_RANKS = 4
_PROCESS = (1 << 48) | (4000 << 24)
_UNSIGNED = frozenset({"globalTid", "endGlobalTid", "globalPid"})
_TEXT = frozenset({"text", "utcTime", "localTime", "jsonText"})
_ROW_GROUP = 2048  # as nsys writes them
_PACE_OF_NSYS = 20_000
_MANY: dict[str, Any] = {
    "ranks": 16, "hosts": 2, "steps": 85, "layers": 40, "kernels_per_layer": 40, "kernels_per_range": 3,
    "kernel_names": 220, "gpu_metrics_hz": 100,
}  # fmt: skip
_ON_WORKERS = ("nvtx_gpu_proj_sum", "cuda_gpu_kern_sum")
_IDLE_S = 5.0


def run(runs: int) -> list[str]:
    """Rows of the table: what, against, ratio, figures."""
    ranges, short, projections = _made("ranges", 150_000), _made("short", _PACE_OF_NSYS), _made("projections", 2_000)
    rows = []
    with tempfile.TemporaryDirectory() as name:
        work = Path(name)
        for source in (ranges, short, projections):
            _ours("import", *_exports(source), "-o", str(work / source.name))
        rows += _compare("nvtx_sum", (), ranges, work, runs, cold=True)
        rows += _compare("nvtx_pace", ("--name", "step"), short, work, runs)
        rows += _compare("nvtx_pace", ("--name", "step"), ranges, work, runs, theirs=1)
        rows += _compare("nvtx_gpu_proj_trace", (), projections, work, runs)
        rows += _compare("nvtx_gpu_proj_sum", (), projections, work, runs)
        many = made_run("recipes16", "tensor-data", **_MANY)
        rows += _all_at_once(many, work)
        rows += _on_workers(many, work, runs)
    return rows


def warm_sum(runs: int) -> list[str]:
    """`nvtx_sum` from runs alone, for as many turns as it takes to see through what else the machine does."""
    source = _made("ranges", 150_000)
    with tempfile.TemporaryDirectory() as name:
        work = Path(name)
        _ours("import", *_exports(source), "-o", str(work / source.name))
        return _compare("nvtx_sum", (), source, work, runs)


def _all_at_once(run_folder: Path, work: Path) -> list[str]:
    """All recipes that the run allows, in this process and in two; its alignment is made before."""
    _ours("info", str(run_folder), "--format", "json", "-o", str(work / "info.json"))
    rows = []
    for jobs in ("1", "2"):
        out = work / f"all{jobs}"
        taken = run_once(
            [*ALLTRACE, "recipe", "all", str(run_folder), "-o", str(out), "--name", "step 3", "--jobs", jobs]
        )
        count = sum(place.is_dir() for place in out.iterdir())
        shutil.rmtree(out)
        what = f"`recipe all` --jobs {jobs}, {count} recipes, 16 ranks x 1 M events, warm"
        rows.append(f"| {what} | - | - | CPU {taken.cpu_s:.0f} s; {taken.peak_mb:.0f} MB in the largest process |")
    return rows


def _on_workers(run_folder: Path, work: Path, runs: int) -> list[str]:
    """Recipes on two workers that wait, and on two processes that are started for it, measured alternately."""
    from distributed import LocalCluster as Cluster

    rows = []
    options: dict[str, Any] = {"n_workers": 2, "threads_per_worker": 1, "processes": True, "dashboard_address": None}
    start: Any = Cluster
    with start(host="127.0.0.1", **options) as cluster:
        for recipe in _ON_WORKERS:
            command = [*ALLTRACE, "recipe", recipe, str(run_folder), "-o", f"{work / 'out'}/"]
            run_once([*command, "--dask", cluster.scheduler_address])  # the workers load what they need once
            idle = helpers_cpu()
            time.sleep(_IDLE_S)
            idle = (helpers_cpu() - idle) / _IDLE_S
            local, dask, walls = [], [], []
            for _ in range(runs):
                one = run_once([*command, "--jobs", "2"])
                before = helpers_cpu()
                other = run_once([*command, "--dask", cluster.scheduler_address])
                local.append(one.cpu_s)
                dask.append(other.cpu_s + max(helpers_cpu() - before - idle * other.wall_s, 0.0))
                walls.append((one.wall_s, other.wall_s))
            one_s, other_s = (median([w[i] for w in walls]) for i in (0, 1))
            figures = (
                f"CPU {median(dask):.1f} s against {median(local):.1f} s; wall {other_s:.1f} s against {one_s:.1f} s"
            )
            ratio = median(local) / median(dask)
            rows.append(f"| {recipe} on 2 Dask workers, 16 ranks x 1 M events | --jobs 2 | {ratio:.2f} | {figures} |")
    return rows


def helpers_cpu() -> float:
    """CPU seconds of this process and its children so far: of scheduler and workers, not of ended commands."""
    own = os.getpid()
    parents, ticks = {}, {}
    for place in Path("/proc").iterdir():
        if place.name.isdigit():
            try:
                fields = (place / "stat").read_text().rsplit(")", 1)[1].split()
            except OSError:  # it ended meanwhile
                continue
            parents[int(place.name)], ticks[int(place.name)] = int(fields[1]), int(fields[11]) + int(fields[12])
    found = {own}
    while more := {p for p, parent in parents.items() if parent in found} - found:
        found |= more
    return sum(ticks[p] for p in found) / os.sysconf("SC_CLK_TCK")


def _compare(
    recipe: str,
    options: Sequence[str],
    source: Path,
    work: Path,
    runs: int,
    *,
    cold: bool = False,
    theirs: int | None = None,
) -> list[str]:
    """Rows of a recipe warm, and cold if requested; `theirs` is the number of runs of nsys if it differs from ours."""
    python, tool = os.environ.get("ALLTRACE_NSIGHT_PYTHON"), nsys()
    ours = [*ALLTRACE, "recipe", recipe]
    out = work / "out"
    commands: dict[str, list[str]] = {"warm": [*ours, str(work / source.name), *options, "-o", f"{out}/"]}
    if cold:
        commands["cold"] = [*ours, *_exports(source), *options, "-o", f"{out}/", "--cache-dir", str(work / "cache")]
    environment: dict[str, str] = {}
    if python and tool:
        packages = Path(tool).parent / "python" / "packages"
        environment = {"PYTHONPATH": str(packages), "PATH": f"{Path(tool).parent}:{os.environ['PATH']}"}
        arguments = ["--input", str(source), "--output", str(work / "theirs"), "--force-overwrite", "--mode", "none"]
        commands["nsys"] = [python, "-m", "nsys_recipe", recipe, *arguments, *options]
    taken: dict[str, list[Any]] = {name: [] for name in commands}
    for turn in range(runs):
        for name, command in commands.items():
            if name == "nsys" and theirs is not None and turn >= theirs:
                continue
            for former in (out, work / "cache"):
                shutil.rmtree(former, ignore_errors=True)
            taken[name].append(run_once(command, environment if name == "nsys" else None))
    cpu = {name: median([t.cpu_s for t in ts]) for name, ts in taken.items()}
    peak = {name: median([t.peak_mb for t in ts]) for name, ts in taken.items()}
    rows = []
    for name in commands:
        if name == "nsys":
            continue
        against = f"CPU {cpu[name]:.2f} s against {cpu['nsys']:.2f} s" if "nsys" in cpu else f"CPU {cpu[name]:.2f} s"
        ratio = f"{cpu['nsys'] / cpu[name]:.1f}" if "nsys" in cpu else "-"
        rows.append(
            f"| {recipe} on 4 x {source.name}, {name} | nsys recipe | {ratio} | {against}; {peak[name]:.0f} MB |"
        )
    return rows


def _ours(*arguments: str) -> None:
    subprocess.run([*ALLTRACE, *arguments], check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)


def _exports(source: Path) -> list[str]:
    return [str(f) for f in sorted(source.glob("*.sqlite"))]


def _made(name: str, iterations: int) -> Path:
    """A folder with the exports of four ranks, in both forms, and empty reports next to them; made once."""
    folder = FOLDER / "recipes" / name
    done = folder / ".done"
    if not done.is_file():
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
        for rank in range(_RANKS):
            stem = folder / f"rank{rank}"
            stem.with_suffix(".nsys-rep").write_bytes(b"")
            _write(stem, _tables(rank, iterations, work=name == "projections"))
        done.touch()
    return folder


def _tables(rank: int, iterations: int, *, work: bool) -> dict[str, dict[str, Any]]:
    """Steps of nine ranges each; with `work`, each of ten ranges launches ten kernels."""
    draw = np.random.default_rng(rank)
    inner = 19 if work else 9
    count = iterations * (1 + inner)
    took = draw.integers(2_000, 9_000, count)
    starts = np.cumsum(took) + 1_000_000
    start = starts.copy()
    end = start + np.append(took[1:], took[0]) // 2  # before the next starts
    step = np.arange(count) % (1 + inner) == 0
    end[step] = end[np.flatnonzero(step) + inner] + 100
    names = np.arange(count) % (1 + inner)
    thread = _PROCESS | (4000 + rank)
    nvtx: dict[str, Any] = {
        "start": start, "end": end, "eventType": np.full(count, 59), "rangeId": None, "category": None, "color": None,
        "text": None, "globalTid": np.full(count, thread), "endGlobalTid": None, "textId": 10 + names,
        "domainId": np.zeros(count, np.int64), "uint64Value": None, "int64Value": None, "doubleValue": None,
        "uint32Value": None, "int32Value": None, "floatValue": None, "jsonTextId": None, "jsonText": None,
    }  # fmt: skip
    strings = {
        "id": np.arange(10, 60),
        "value": ["step", *(f"layer {i}" for i in range(1, 40)), *(f"kernel_{i}" for i in range(10))],
    }
    tables = {
        "NVTX_EVENTS": nvtx,
        "StringIds": strings,
        "TARGET_INFO_SESSION_START_TIME": {
            "utcEpochNs": np.array([1_767_272_385_000_000_000 + rank * 1000]),
            "utcTime": ["2026-01-01"], "localTime": ["2026-01-01"],
        },
        "ANALYSIS_DETAILS": {
            "globalVid": np.array([1 << 48]), "duration": end[-1:], "startTime": np.array([0]), "stopTime": end[-1:],
        },
    }  # fmt: skip
    if work:
        tables.update(_gpu(start, end, step, thread))
    return tables


def _gpu(start: Any, end: Any, step: Any, thread: int) -> dict[str, dict[str, Any]]:
    """Five launches of kernels in every range but the steps, each kernel a little later."""
    each = 5
    inside = np.flatnonzero(~step)
    apart = np.repeat((end - start)[inside] // (each + 1), each)
    call = np.repeat(start[inside], each) + np.tile(np.arange(each), len(inside)) * apart
    count = len(call)
    ids = np.arange(1, count + 1)
    ran = np.maximum.accumulate(call + 3_000)
    api = {
        "start": call, "end": call + 100, "eventClass": np.zeros(count, np.int64), "globalTid": np.full(count, thread),
        "correlationId": ids, "nameId": np.full(count, 11), "returnValue": np.zeros(count, np.int64),
        "callchainId": None,
    }  # fmt: skip
    kernel = {
        "start": ran, "end": ran + 200, "deviceId": np.zeros(count, np.int64), "contextId": np.ones(count, np.int64),
        "greenContextId": None, "streamId": np.full(count, 7), "correlationId": ids,
        "globalPid": np.full(count, _PROCESS), "demangledName": 50 + ids % 10, "shortName": 50 + ids % 10,
        "mangledName": 50 + ids % 10, "launchType": None, "cacheConfig": None,
        "registersPerThread": np.full(count, 32), "gridX": np.full(count, 4), "gridY": np.full(count, 1),
        "gridZ": np.full(count, 1),
        "blockX": np.full(count, 128), "blockY": np.full(count, 1), "blockZ": np.full(count, 1),
        "staticSharedMemory": np.zeros(count, np.int64), "dynamicSharedMemory": np.zeros(count, np.int64),
        "localMemoryPerThread": None, "localMemoryTotal": None, "gridId": ids, "sharedMemoryExecuted": None,
        "graphNodeId": None, "sharedMemoryLimitConfig": None,
    }  # fmt: skip
    place = {
        **{c: np.array([v]) for c, v in (("start", 10), ("end", 20), ("deviceId", 0), ("contextId", 1))},
        "greenContextId": None,
        **{
            c: np.array([v])
            for c, v in (("streamId", 7), ("correlationId", count + 7), ("globalPid", _PROCESS), ("bytes", 64))
        },
        "graphNodeId": None,
    }
    more = {c: np.array([1]) for c in ("copyKind", "srcKind", "dstKind")}
    return {
        "CUPTI_ACTIVITY_KIND_RUNTIME": api,
        "CUPTI_ACTIVITY_KIND_KERNEL": kernel,
        "CUPTI_ACTIVITY_KIND_MEMCPY": {**place, **more},
        "CUPTI_ACTIVITY_KIND_MEMSET": {**place, "value": np.array([0]), "memKind": np.array([2])},
    }


def _write(stem: Path, tables: Mapping[str, Mapping[str, Any]]) -> None:
    """The tables as `STEM.sqlite` and `STEM_pqtdir`."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    place = stem.with_name(f"{stem.name}_pqtdir")
    place.mkdir()
    with closing(sqlite3.connect(stem.with_suffix(".sqlite"))) as database, database:
        for name, columns in tables.items():
            rows = next(len(v) for v in columns.values() if v is not None)
            texts = {c for c, v in columns.items() if c in _TEXT or isinstance(v, list)}
            declared = ", ".join(f"{c} {'TEXT' if c in texts else 'INTEGER'}" for c in columns)
            database.execute(f"CREATE TABLE {name} ({declared})")
            values = [
                [None] * rows if v is None else list(v) if c in texts else np.asarray(v).tolist()
                for c, v in columns.items()
            ]
            marks = ", ".join("?" * len(columns))
            database.executemany(f"INSERT INTO {name} VALUES ({marks})", zip(*values, strict=True))
            kinds = {c: pa.string() if c in texts else pa.uint64() if c in _UNSIGNED else pa.int64() for c in columns}
            arrays = {c: pa.nulls(rows, kinds[c]) if v is None else pa.array(v, kinds[c]) for c, v in columns.items()}
            pq.write_table(pa.table(arrays), place / f"{name}.parquet", row_group_size=_ROW_GROUP, compression="none")

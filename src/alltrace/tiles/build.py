"""Builds the pyramid of a run, and keeps it: in `RUN/tiles`, or in the cache folder where the run cannot be written.

Each rank's file is complete or missing, so an interrupted build continues; the facts are written last and complete the
pyramid. If ranks, rows or clocks change, only the files of ranks that are drawn differently are made again.
"""

from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from alltrace.engine.tasks import default_jobs, remote, run_tasks
from alltrace.run.checked_arrow import has_signature, write_table
from alltrace.run.clock import clock_map
from alltrace.run.derived import derived, digest, place_of, remove
from alltrace.run.json_files import read_json, write_json
from alltrace.run.manifest import plain
from alltrace.run.overlay import collectives_file, rank_signature
from alltrace.run.overlay import signature as run_signature
from alltrace.run.rank import Rank
from alltrace.run.store import Run, SentRun
from alltrace.run.verify import TILES
from alltrace.tiles.files import FACTS, HEAT, NO_DATA, as_shares, heat_table, rank_file, read_rank, write_rank
from alltrace.tiles.grid import Grid, grid_of
from alltrace.tiles.rank_tiles import SUMMARY_PARTS, TrackTiles, binned, shared_tables, summary_of, tracks_of
from alltrace.tiles.tracks import SUMMARY, integers
from alltrace.tiles.waits import waits_of
from alltrace.trace.errors import AlltraceError
from alltrace.trace.intervals import bin_coverage_ns, by_track

Shares = dict[str, NDArray[np.uint16]]

_VERSION = 6
_ROWS_WORTH_A_PROCESS = 1_000_000
_MOST_METRICS = 24
SHARES = ("busy", "compute", "communication", "exposed", "copy", "waiting")
"""What the heat map shows of every run; `waiting` only of one that is aligned."""

_HEAT_PREFIX = "heat/"


@dataclass(frozen=True)
class Pyramid:
    folder: Path  # where it is kept
    grid: Grid
    broken: Mapping[int, str]  # for each rank that could not be read, why


def pyramid(
    run: Run, *, folder: Path | None = None, jobs: int | None = None, progress: Callable[[int], None] | None = None
) -> Pyramid:
    """The pyramid of `run`, which should be aligned before: the one that is kept, or a new one."""
    # `folder`: where to keep it; None for `RUN/tiles`, or the cache where that cannot be written.

    def make(place: Path, made_from: str) -> Pyramid:
        (place / "ranks").mkdir(parents=True, exist_ok=True)
        return _make(run, place, made_from, jobs, progress)

    return derived(run, TILES, inputs_of(run), _find, make, what="the levels of detail", folder=folder)


def kept_pyramid(run: Run, folder: Path | None = None) -> Pyramid | None:
    """The stored pyramid of `run`, in `folder` if given; None if it must be built."""
    return place_of(run, TILES, inputs_of(run), folder=folder).find(_find)


def inputs_of(run: Run) -> list[Any]:
    """What a pyramid is made from: the run's ranks and rows, its clocks, the version that makes it."""
    manifest = run.manifest
    clocks = [plain(c) for c in manifest.clocks]
    stamps = [(r.rank, r.stamp_error_ns) for r in manifest.ranks]
    matched = run.overlay.facts.get("signature") if run.overlay is not None else None
    return [_VERSION, run_signature(manifest), clocks, stamps, matched]


def _find(place: Path, made_from: str) -> Pyramid | None:
    facts = read_json(place / FACTS)
    if facts["signature"] != made_from or facts["broken"] or not (place / HEAT).is_file():
        return None  # of a rank that could not be read the file may be whole by now
    return Pyramid(place, Grid(**facts["grid"]), {})


def _make(run: Run, place: Path, made_from: str, jobs: int | None, progress: Callable[[int], None] | None) -> Pyramid:
    (place / FACTS).unlink(missing_ok=True)
    rows = sum(sum(r.rows.values()) for r in run.ranks)
    grid = grid_of(run.span_ns, len(run.ranks), rows)
    sources = _rank_signatures(run, grid)
    there = {r.rank for r in run.ranks if has_signature(place / rank_file(r.rank), sources[r.rank])}
    whole = {Path(rank_file(r)).name for r in there}
    for left in (place / "ranks").iterdir():
        if left.name not in whole:
            remove(left)
    todo = [r for r in run.ranks if r.rank not in there]
    if progress and there:
        progress(len(there))
    if jobs is None:
        jobs = default_jobs() if sum(sum(r.rows.values()) for r in todo) >= _ROWS_WORTH_A_PROCESS or remote() else 1
    broken: dict[int, str] = {}
    sent = SentRun(run)
    work = partial(_build_rank, sent, place.absolute(), grid)
    for outcome in run_tasks(
        work, [(r.rank, sources[r.rank]) for r in todo], jobs=jobs, progress=progress, needs=sent.needs
    ):
        if outcome.error is not None:
            broken[todo[outcome.index].rank] = str(outcome.error)
    if broken and len(broken) == len(run.ranks):
        raise AlltraceError(next(iter(broken.values())))
    shares, scales = _heat(run, place, grid, set(broken))
    write_table(place / HEAT, heat_table([r.rank for r in run.ranks], shares, scales))
    write_json(place / FACTS, {"signature": made_from, "grid": asdict(grid), "broken": broken})
    return Pyramid(place, grid, broken)


def _rank_signatures(run: Run, grid: Grid) -> dict[int, str]:
    """What the file of each rank is made from: the rank, its clock, the grid, and its host's GPUs and samples."""
    manifest = run.manifest
    of_host = {
        host: [[r.rank, [plain(d) for d in r.devices], r.rows.get("gpu_metrics")] for r in ranks]
        for host, ranks in manifest.ranks_of_host.items()
    }
    matched = {} if run.overlay is None else run.overlay.files.expected
    signatures = {}
    for r in run.ranks:
        clock, matches = plain(clock_map(manifest, r)), matched.get(collectives_file(r.rank))
        signatures[r.rank] = digest(
            [_VERSION, rank_signature(manifest, r), clock, asdict(grid), of_host[r.host], matches]
        )
    return signatures


def _build_rank(sent: SentRun, place: Path, grid: Grid, item: tuple[int, str], advance: Callable[[int], None]) -> None:
    run = sent.run
    number, made_from = item
    rank = run.rank(number)
    write_rank(place / rank_file(number), [*_metric_rows(run, rank, grid), *rank_tracks(rank, grid)], made_from)
    advance(1)


def rank_tracks(rank: Rank, grid: Grid) -> list[TrackTiles]:
    """The tracks of a rank on a grid, the parts of its summary first."""
    tables = shared_tables(rank)
    parts = summary_of(tables, grid).items()
    summary = [TrackTiles(f"{SUMMARY}/{name}", 0, 0, grid.span_ns, grid.level, 0, (values,)) for name, values in parts]
    return [*summary, *tracks_of(rank, tables, grid, grid.start_ns + grid.span_ns)]


def _metric_rows(run: Run, rank: Rank, grid: Grid) -> list[Any]:
    """The mean of each metric of the rank's devices, on the grid of the heat map."""
    if not run.is_sampled(rank.record):
        return []
    columns = ["time", "device", "metric", "value"]
    table = rank.gpu_samples(columns)
    devices = integers(table, "device")
    own = np.isin(devices, [d.device for d in rank.record.devices])
    if not own.any():  # a report of GPUs that no rank uses is still shown
        own = np.isin(devices, _of_others(run, rank), invert=True)
    times, metrics = integers(table, "time")[own], integers(table, "metric")[own]
    values = table.column("value").to_numpy().astype(np.float64, copy=False)[own]
    edges = grid.edges(0, grid.bins(grid.level), grid.level)
    return [
        TrackTiles(
            f"{_HEAT_PREFIX}{metric}", len(times[rows]), 0, 0, grid.level, 0, binned(times[rows], values[rows], edges)
        )
        for (metric,), rows in by_track(metrics)
    ]


def _of_others(run: Run, rank: Rank) -> list[int]:
    """The devices in a rank's report that other ranks of its host work on, as a report may sample all GPUs."""
    taken = {d.identity for r in run.manifest.ranks_of_host[rank.host] for d in r.devices}
    devices = rank.table("devices", ["device", "uuid", "bus_id"]).to_pylist()
    return [d["device"] for d in devices if (rank.host, d["uuid"] or d["bus_id"]) in taken]


def _heat(run: Run, place: Path, grid: Grid, broken: set[int]) -> tuple[Shares, dict[str, list[float]]]:
    """The heat map: for each metric (ranks, bins), shares of bins in 65,534ths; and the scales of metrics."""
    records = [r.rank for r in run.ranks]
    edges = grid.edges(0, grid.bins(grid.level), grid.level)
    # the last bin counts as far as the run goes
    width = np.maximum(np.diff(np.minimum(edges, grid.start_ns + grid.span_ns)), 1).astype(np.float64)
    empty = np.full((len(records), len(width)), NO_DATA, np.uint16)
    shares = {n: empty.copy() for n in SHARES}
    metrics: dict[int, NDArray[np.float32]] = {}
    for row, rank in enumerate(records):
        if rank in broken:
            continue
        tracks = read_rank(place / rank_file(rank))
        parts = {n: tracks[f"{SUMMARY}/{n}"].values[0] for n in SUMMARY_PARTS}
        devices = int(parts["devices"][0])
        if devices:
            whole = width * devices
            busy = parts["compute"] + parts["exposed_communication"] + parts["exposed_copy"]
            named = (busy, parts["compute"], parts["communication"], parts["exposed_communication"], parts["copy"])
            for name, values in zip(shares, named, strict=False):
                shares[name][row] = as_shares(values / whole)
        for key, track in tracks.items():
            if key.startswith(_HEAT_PREFIX):
                metric = int(key[len(_HEAT_PREFIX) :])
                if metric in metrics or len(metrics) < _MOST_METRICS:
                    metrics.setdefault(metric, np.full(empty.shape, np.nan, np.float32))[row] = track.values[0]
    waits = waits_of(run)
    for row, rank in enumerate(records):
        if rank in waits:
            shares["waiting"][row] = as_shares(bin_coverage_ns(waits[rank], edges) / width)
    if not waits:
        del shares["waiting"]
    scaled, scales = _scaled(run, metrics)
    return shares | scaled, scales


def _scaled(run: Run, metrics: Mapping[int, NDArray[np.float32]]) -> tuple[Shares, dict[str, list[float]]]:
    """The shares of metrics by name, and the values that mean none and all."""
    texts = run.texts(pa.array(list(metrics), pa.int64())).to_pylist() if metrics else []
    shares, scales = {}, {}
    for (metric, values), text in zip(metrics.items(), texts, strict=True):
        finite = np.isfinite(values)
        low, high = (min(float(values[finite].min()), 0.0), float(values[finite].max())) if finite.any() else (0.0, 1.0)
        share = np.where(finite, (values - low) / max(high - low, 1e-30), 0)
        name = f"metric: {text or metric}"
        shares[name] = np.where(finite, as_shares(share), NO_DATA).astype(np.uint16)
        scales[name] = [low, high]
    return shares, scales

"""The reports that the benchmarks run on: simulated, made once, kept out of the repository."""

from __future__ import annotations

import random
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

FOLDER = Path(__file__).parent / "data"


def large_report() -> Path:
    """One rank: 1 M kernels, 3 M API calls, 0.3 M ranges, 2 M GPU metric samples; a 300 MB SQLite export."""
    return _made("bench", "large")


def projection_report() -> Path:
    """One rank with 1 M kernels under 0.3 M nested ranges; the same report as `large_report`."""
    return large_report()


def ranges_report() -> Path:
    """One rank with 1.5 M push/pop ranges and few kernels."""
    return _made(
        "bench",
        "ranges",
        layers=266,
        kernels_per_layer=250,
        kernels_per_range=1,
        extra_calls=0,
        gpu_metrics_hz=0,
        steps=7,
    )


def calls_report() -> Path:
    """One rank with 1 M kernels and 3 M API calls under 0.3 M ranges, without samples."""
    return _made("bench", "calls", gpu_metrics_hz=0)


def middle_report() -> Path:
    """The same kind with 0.23 M kernels and 0.7 M API calls: 1.0 M rows."""
    return _made("bench", "middle", gpu_metrics_hz=0, layers=36, steps=8)


def kineto_trace() -> Path:
    """One rank as the PyTorch profiler writes it: 1 M events, among them operators with shapes; 300 MB of JSON."""
    return _made(
        "bench", "kineto", ".json", "kineto", layers=92, kernels_per_layer=160, kernel_names=0, extra_calls=1,
        gpu_metrics_hz=0, operators=True,
    )  # fmt: skip


def sixteen_ranks() -> Path:
    """16 ranks on 2 hosts, 1 M events each, imported: a run directory."""
    return made_run("sixteen", "bench", ranks=16, hosts=2, gpu_metrics_hz=0, layers=36, steps=8)


def made_run(name: str, scenario: str, faults: tuple[str, ...] = (), **values: Any) -> Path:
    """The run directory of a simulated run."""
    run = FOLDER / name / "run"
    if not (run / "manifest.json").is_file():
        from alltrace.run.importer import import_reports
        from alltrace.synth import write_run

        write_run(scenario, FOLDER / name / "reports", faults=faults, **values, ideal=True)
        import_reports([str(FOLDER / name / "reports")], run, jobs=1)
    return run


def many_ranks(name: str, like: Path, ranks: int) -> Path:
    """A run of as many ranks as wanted, made from one of few, equal ranks, to avoid the time of a simulation.

    Each rank is a copy of one of the run's, with its own files. Hosts have other names, and clocks and stamps that are
    off by other times.
    """
    run = FOLDER / name / "run"
    if (run / "manifest.json").is_file():
        return run
    from alltrace.run.checksums import FILES, write_rank_record
    from alltrace.run.json_files import read_json
    from alltrace.run.manifest import RANK_RECORD, Clock, read_manifest, write_manifest

    shutil.rmtree(run, ignore_errors=True)
    run.mkdir(parents=True)
    manifest, chance = read_manifest(like), random.Random(ranks)
    shutil.copy(like / "names.parquet", run)
    off: dict[str, int] = {}
    records, reports = [], []
    for number in range(ranks):
        turn, place = divmod(number, len(manifest.ranks))
        old = manifest.ranks[place]
        host = f"{old.host}-{turn:03d}"
        by = off.setdefault(host, chance.randrange(50_000_000))
        stamp = (old.time_base_utc_ns or 0) + by + chance.randrange(1_000_000)
        report = manifest.reports[old.reports[0]]
        system = None if report.system_clock_ns is None else report.system_clock_ns + by
        digest = f"{chance.getrandbits(128):032x}"
        path = f"{host}/rank{number}.sqlite"
        reports.append(report._replace(path=path, host=host, utc_ns=stamp, content_hash=digest, system_clock_ns=system))
        devices = tuple(d._replace(host=host, uuid=f"{number}-{d.uuid}") for d in old.devices)
        record = old._replace(rank=number, host=host, devices=devices, reports=(number,), time_base_utc_ns=stamp)
        (run / record.folder).mkdir(parents=True)
        written = read_json(like / old.folder / RANK_RECORD)
        for file in written[FILES]:
            shutil.copy(like / old.folder / file, run / record.folder)
        write_rank_record(run / record.folder, record, written["signature"], written[FILES])
        records.append(record)
    clocks = tuple(Clock(host, component=n) for n, host in enumerate(off))
    zero = min(r.time_base_utc_ns or 0 for r in records)
    write_manifest(run, replace(manifest.with_ranks(records), reports=tuple(reports), clocks=clocks, zero_utc_ns=zero))
    return run


def _made(scenario: str, name: str, ending: str = ".sqlite", form: str = "sqlite", **changes: Any) -> Path:
    folder = FOLDER / name
    found = sorted(folder.glob(f"*_*{ending}"))
    if not found:
        from alltrace.synth import write_run

        write_run(scenario, folder, form, **changes, ideal=True)
        found = sorted(folder.glob(f"*_*{ending}"))
    return found[0]

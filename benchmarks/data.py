"""The reports that the benchmarks run on: simulated, made once, kept out of the repository."""

from __future__ import annotations

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
        "bench", "ranges", layers=266, kernels_per_layer=250, kernels_per_range=1, extra_calls=0, gpu_metrics_hz=0, steps=7
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
        "bench", "kineto", ".json", "kineto", layers=92, kernels_per_layer=160, kernel_names=0, extra_calls=1, gpu_metrics_hz=0,
        operators=True,
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

        write_run(scenario, FOLDER / name / "reports", faults=faults, **values)
        import_reports([str(FOLDER / name / "reports")], run, jobs=1)
    return run


def _made(scenario: str, name: str, ending: str = ".sqlite", form: str = "sqlite", **changes: Any) -> Path:
    folder = FOLDER / name
    found = sorted(folder.glob(f"*_*{ending}"))
    if not found:
        from alltrace.synth import write_run

        write_run(scenario, folder, form, **changes)
        found = sorted(folder.glob(f"*_*{ending}"))
    return found[0]

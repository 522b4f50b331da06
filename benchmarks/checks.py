"""The cost of checksums: the share of CPU time for hashes in an import, and in questions to a newly opened run."""

from __future__ import annotations

import shutil
import tempfile
import time
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from alltrace.recipes.execution.ask import ask
from alltrace.run import checksums, json_files
from alltrace.run.importer import import_reports
from alltrace.run.store import Run
from alltrace.synth import write_run
from benchmarks.measure import median

if TYPE_CHECKING:
    from collections.abc import Callable

_RANKS, _STEPS = 8, 340
_QUESTIONS = ("kernels", "cuda_gpu_kern_sum", "overlap", "breakdown", "gaps")
_HASHING = ((checksums, "content_hash"), (json_files, "_checksum"))


def run(runs: int) -> list[str]:
    """Rows of the table: what, against, ratio, figures."""
    clock = _Clock()
    with tempfile.TemporaryDirectory() as folder, clock:
        reports, output = Path(folder) / "reports", Path(folder) / "run"
        write_run("straggler", reports, ranks=_RANKS, hosts=1, steps=_STEPS, ideal=True)

        def importing() -> None:
            shutil.rmtree(output, ignore_errors=True)
            import_reports([str(reports)], output, jobs=1)

        def asking(name: str) -> None:
            ask(Run(output), name, {}, jobs=1)

        kernels = 0
        rows = []
        for name in ("import", *_QUESTIONS):
            found = [clock.share(importing if name == "import" else partial(asking, name)) for _ in range(runs)]
            kernels = kernels or sum(r.rows["kernels"] for r in Run(output).ranks)
            share, total = (median([f[n] for f in found]) for n in (0, 1))
            rows.append(f"| checksums of `{name}`, {kernels:,} kernels | all of it | {share:.4f} | {total:.2f} s CPU |")
    return rows


class _Clock:
    """Counts the time of the functions that hash while it is entered."""

    def __init__(self) -> None:
        self._spent = 0.0
        self._inner = [getattr(module, name) for module, name in _HASHING]

    def __enter__(self) -> None:
        for (module, name), inner in zip(_HASHING, self._inner, strict=True):
            setattr(module, name, self._counted(inner))

    def __exit__(self, *_: object) -> None:
        for (module, name), inner in zip(_HASHING, self._inner, strict=True):
            setattr(module, name, inner)

    def share(self, work: Callable[[], object]) -> tuple[float, float]:
        """The share of CPU time of `work` that hashing takes, and that time in s."""
        self._spent, began = 0.0, time.process_time()
        work()
        total = time.process_time() - began
        return self._spent / total, total

    def _counted(self, inner: Callable[..., Any]) -> Callable[..., Any]:
        def outer(*arguments: Any) -> Any:
            began = time.thread_time()
            try:
                return inner(*arguments)
            finally:
                self._spent += time.thread_time() - began

        return outer

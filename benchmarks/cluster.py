"""What a cluster costs: `python -m benchmarks.cluster [--ranks 64 256] [--steps 25]`.

Four workers of a Dask cluster on two emulated nodes, each with its own name and disk, against `--jobs 4` of one
machine, stage by stage: the CPU time of the command, its processes, the scheduler and the workers. Their CPU time while
they wait is measured before and subtracted. Each stage is repeated from scratch; a first import has the workers load
what they need.
"""

from __future__ import annotations

import argparse
import os
import shutil
import sys
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from benchmarks.data import made_run
from benchmarks.measure import ALLTRACE, median, run_once
from benchmarks.recipes import helpers_cpu

if TYPE_CHECKING:
    from collections.abc import Sequence

_RANKS_OF_A_HOST = 8
_IDLE_S = 3.0
_LEVELS = """
import sys
from pathlib import Path
from contextlib import ExitStack
from alltrace.align.store import aligned
from alltrace.run.store import Run
from alltrace.tiles.build import pyramid
with ExitStack() as stack:
    if sys.argv[2] != "here":
        from alltrace.engine.cluster_start import dask_engine
        from alltrace.engine.tasks import using
        stack.enter_context(using(stack.enter_context(dask_engine(sys.argv[2]))))
    run = Run(Path(sys.argv[1]))
    aligned(run)
    pyramid(run, jobs=4 if sys.argv[2] == "here" else None)
"""


class Stage(NamedTuple):
    """A stage of the work.

    Attributes:
        name: Its name.
        command: The words after `alltrace`; none for levels of detail.
        remade: What of the run is removed before.
        output: What the command writes next to the run; removed before.
    """

    name: str
    command: tuple[str, ...]
    remade: tuple[str, ...] = ()
    output: str = ""


STAGES = (
    Stage("import", ("import", "REPORTS", "-o", "RUN"), ("",)),
    Stage("alignment", ("info", "RUN", "--format", "json"), ("align", "operations")),
    Stage("diagnose", ("diagnose", "RUN", "--format", "json"), ("findings",)),
    Stage("levels of detail", (), ("tiles",)),
    Stage("export perfetto", ("export", "perfetto", "RUN", "-o", "OUT"), (), "out.pftrace"),
    Stage("export parquet", ("export", "parquet", "RUN", "-o", "OUT"), (), "tables"),
    Stage("export paraver", ("export", "paraver", "RUN", "-o", "OUT"), (), "out.prv"),
)


def measured(stage: Stage, reports: Path, run: Path, address: str | None, idle_share: float) -> tuple[float, float]:
    """CPU and wall seconds of a stage, here with four processes or on the cluster at an address."""
    for part in stage.remade:
        shutil.rmtree(run / part, ignore_errors=True)
    output = run.parent / stage.output
    if stage.output:
        shutil.rmtree(output, ignore_errors=True)
        output.unlink(missing_ok=True)
    places = {"REPORTS": str(reports), "RUN": str(run), "OUT": str(output)}
    where = ["--jobs", "4"] if address is None else ["--dask", address]
    words = [*ALLTRACE, *(places.get(word, word) for word in stage.command), *where]
    if not stage.command:
        words = [sys.executable, "-c", _LEVELS, str(run), address or "here"]
    before = helpers_cpu()
    taken = run_once(words)
    workers_s = helpers_cpu() - before - idle_share * taken.wall_s if address is not None else 0.0
    return taken.cpu_s + max(workers_s, 0.0), taken.wall_s


def main(arguments: Sequence[str] | None = None) -> None:
    """Measure and print a Markdown table."""
    from tests.dask_nodes import dask_nodes

    parser = argparse.ArgumentParser(prog="python -m benchmarks.cluster", description=__doc__)
    parser.add_argument("--ranks", type=int, nargs="+", default=[64, 256], help="numbers of ranks")
    parser.add_argument("--steps", type=int, default=25, help="steps of each; 800 events of a rank in each step")
    parser.add_argument("--runs", type=int, default=3, help="runs of each stage")
    parser.add_argument("--stages", nargs="+", default=[s.name for s in STAGES], help="stages; default: all")
    args = parser.parse_args(arguments)
    with tempfile.TemporaryDirectory() as name, dask_nodes(Path(name) / "nodes", workers=2) as nodes:
        print("| ranks | stage | --jobs 4 | 4 workers | CPU time |\n|---|---|---|---|---|")
        for ranks in args.ranks:
            made = made_run(
                f"cluster{ranks}-{args.steps}",
                "healthy",
                ranks=ranks,
                hosts=ranks // _RANKS_OF_A_HOST,
                steps=args.steps,
            )
            reports, runs = (
                made.parent / "reports",
                {kind: Path(name) / f"{kind}{ranks}" / "run" for kind in ("here", "there")},
            )
            for run in runs.values():
                run.parent.mkdir()
            for kind, address in (("here", None), ("there", nodes.address)):
                measured(STAGES[0], reports, runs[kind], address, 0.0)
            start = helpers_cpu()
            time.sleep(_IDLE_S)
            idle = (helpers_cpu() - start) / _IDLE_S
            for stage in STAGES:
                if stage.name not in args.stages:
                    continue
                took: dict[str, list[tuple[float, float]]] = {kind: [] for kind in runs}
                for _ in range(args.runs):
                    for kind, address in (("here", None), ("there", nodes.address)):
                        took[kind].append(measured(stage, reports, runs[kind], address, idle))
                here, here_s = (median(list(column)) for column in zip(*took["here"], strict=True))
                there, there_s = (median(list(column)) for column in zip(*took["there"], strict=True))
                cells = f"{here:.1f} CPU s, {here_s:.1f} s | {there:.1f} CPU s, {there_s:.1f} s | {there / here:.2f}"
                print(f"| {ranks} | {stage.name} | {cells} |", flush=True)


if __name__ == "__main__":
    os.environ.setdefault("PYTHONPATH", str(Path(__file__).parent.parent))
    main()

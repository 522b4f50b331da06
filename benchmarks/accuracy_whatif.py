"""How exact replays are: `python -m benchmarks.accuracy_whatif FOLDER` prints tables, against ByteDance's results.

FOLDER holds `trace-X.parquet`, `result-X.json`, `mw-X.json`, `ms-X.json` and `meta-X.yaml` of
github.com/ByteDance-Seed/StragglerAnalysis; default: `what-if` in `ALLTRACE_DATA`.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from alltrace.replay.slowdown import share_recovered, slowdown, slowdown_by, worst
from benchmarks.what_if_traces import Trace, load

if TYPE_CHECKING:
    from numpy.typing import NDArray

_TRANSFERS = re.compile(r"^(forward|backward)-(send|recv)$")


@dataclass(frozen=True)
class Figure:
    """One measure: ours, and what was published."""

    name: str
    ours: float
    published: float

    @property
    def error(self) -> float:
        """The relative difference; of a share of the slowdown (M), the difference."""
        difference = abs(self.ours - self.published)
        return difference if self.name.startswith("M") else difference / abs(self.published)


def compare(folder: Path, name: str) -> tuple[list[Figure], float]:
    """Every measure of one trace, and the CPU seconds it took to read and replay it."""
    began = time.process_time()
    trace = load(folder / f"trace-{name}.parquet", parts=_parts(folder / f"meta-{name}.yaml"))
    published = json.loads((folder / f"result-{name}.json").read_text(encoding="utf-8"))
    steps = list(trace.recorded_s)

    def evaluate(work: NDArray[Any]) -> float:
        found = trace.step_times_s(work)
        return float(np.mean([found[s] for s in steps]))

    actual, ideal = trace.work_ns, trace.ideal_ns()
    by_rank = slowdown_by(evaluate, actual, ideal, trace.dp_rank)
    by_stage = slowdown_by(evaluate, actual, ideal, trace.stage)
    by_type = slowdown_by(evaluate, actual, ideal, np.array([_TRANSFERS.sub(r"\1-pp-comm", t) for t in trace.optype]))
    figures = [
        Figure("S", slowdown(evaluate, actual, ideal), published["blocking_slowdown"]),
        Figure(
            "replay error",
            float(np.mean(list(trace.recorded_s.values()))) / evaluate(actual),
            published["launch_slowdown"],
        ),
    ]
    for label, ours, theirs in (
        ("data-parallel rank", by_rank, "dp_rank"),
        ("stage", by_stage, "stage"),
        ("type", by_type, "optype"),
    ):
        table = published[f"blocking_decompose_by_{theirs}"]
        figures += [Figure(f"S of {label} {k}", v, table[str(k)]) for k, v in ours.items()]
    per_step, ideal_steps = trace.step_times_s(actual), trace.step_times_s(ideal)
    figures += [
        Figure(f"S of step {s}", per_step[s] / ideal_steps[s], published["blocking_step_slowdown"][str(s)])
        for s in steps
    ]
    figures += _shares(trace, evaluate, ideal, (by_rank, by_stage), folder, name)
    return figures, time.process_time() - began


def _shares(
    trace: Trace,
    evaluate: Any,
    ideal: NDArray[Any],
    scores: tuple[dict[int, float], dict[int, float]],
    folder: Path,
    name: str,
) -> list[Figure]:
    """M of the worst workers and of the last stage."""
    stages = int(trace.stage.max()) + 1
    worker = trace.dp_rank * stages + trace.stage
    by_worker = {int(w): min(scores[0][w // stages], scores[1][w % stages]) for w in np.unique(worker).tolist()}
    found = []
    for label, file, fixed in (
        ("M of the worst 3 % workers", "mw", np.isin(worker, worst(by_worker))),
        ("M of the last stage", "ms", trace.stage == stages - 1),
    ):
        published = json.loads((folder / f"{file}-{name}.json").read_text(encoding="utf-8"))["rem"]
        found.append(Figure(label, share_recovered(evaluate, trace.work_ns, ideal, fixed), published))
    return found


def _parts(meta: Path) -> int:
    found = re.search(r"^dsp_size:\s*(\d+)", meta.read_text(encoding="utf-8"), re.MULTILINE)
    return int(found[1]) if found else 1


def main() -> None:
    """Print the tables."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    default = Path(os.environ["ALLTRACE_DATA"]) / "what-if" if "ALLTRACE_DATA" in os.environ else None
    parser.add_argument("folder", type=Path, nargs="?", default=default)
    folder = parser.parse_args().folder
    if folder is None or not folder.is_dir():
        sys.exit("give the folder of the published traces, or set ALLTRACE_DATA")
    print("| trace | measure | ours | published | error |\n|---|---|---|---|---|")
    for file in sorted(folder.glob("trace-*.parquet")):
        name = file.stem.partition("-")[2]
        figures, spent = compare(folder, name)
        for prefix in ("S of data-parallel rank", "S of stage", "S of type", "S of step"):
            some = [f for f in figures if f.name.startswith(prefix)]
            worst_one = max(some, key=lambda f: f.error)
            text = f"{prefix}, worst of {len(some)}"
            print(f"| {name} | {text} | {worst_one.ours:.6f} | {worst_one.published:.6f} | {worst_one.error:.1e} |")
        for f in figures:
            if not f.name.startswith("S of"):
                print(f"| {name} | {f.name} | {f.ours:.6f} | {f.published:.6f} | {f.error:.1e} |")
        print(f"| {name} | CPU seconds for all of it | {spent:.1f} | | |")


if __name__ == "__main__":
    main()

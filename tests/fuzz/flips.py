"""Changes single bits of a run directory and runs questions: `python -m tests.fuzz.flips --flips N --seed S`.

After each change every question runs again. Its answer is the same as before, or an error of alltrace; another answer
in silence, another error, or a damaged file that `verify` does not name is a failure. The run is a simulated one of two
ranks with the logs of its job, its alignment and the page's levels of detail. Which bits are changed is decided by the
seed: a file, each as likely as any other, and a bit in it.
"""

from __future__ import annotations

import argparse
import random
import shutil
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

from alltrace.align.store import aligned
from alltrace.api import OpenRun
from alltrace.recipes.execution.ask import ask
from alltrace.recipes.questions.sql import query
from alltrace.run.checked_arrow import read_table
from alltrace.run.importer import import_reports
from alltrace.run.verify import verify
from alltrace.synth import write_run
from alltrace.tiles.build import pyramid
from alltrace.tiles.files import HEAT, rank_file, read_rank
from alltrace.trace.errors import AlltraceError
from tests.making import flip

_RECIPES = (
    "info", "kernels", "breakdown", "overlap", "gaps", "collectives", "stragglers", "critical-path", "steps",
    "diagnose", "stats:cuda_api_sum", "stats:nvtx_sum",
)  # fmt: skip
_MADE_AGAIN = ("manifest.json", "align", "operations", "tiles")
"""What a question may write again."""

_QUERIES = (
    'SELECT rank, name, count(*) AS n, sum("end" - start) AS ns FROM kernels GROUP BY ALL ORDER BY ALL',
    "SELECT rank, t.name, count(*) AS n FROM api a JOIN threads t USING (rank, thread) GROUP BY ALL ORDER BY ALL",
    "SELECT rank, kind, sum(bytes) AS bytes FROM ids.copies GROUP BY ALL ORDER BY ALL",
    "SELECT * FROM members ORDER BY ALL",
)


class Outcome(NamedTuple):
    """What became of the changes.

    Attributes:
        same: Questions with the answer of the run as it was.
        refused: Those that ended with an error of ours.
        failures: What must not be, each with the file, the byte and the bit.
    """

    same: int
    refused: int
    failures: list[str]


def make(folder: Path) -> Path:
    """A run with all that a run directory can hold, in `folder`."""
    write_run("tiny", folder / "reports", logs=True, ideal=True)
    logs = folder / "reports" / "logs"
    run = folder / "run"
    nccl = [str(p) for p in sorted(logs.glob("nccl.*"))]
    import_reports([str(folder / "reports")], run, jobs=1, nccl_logs=nccl, training_logs=[str(logs / "train.log")])
    opened = OpenRun(run)
    aligned(opened, jobs=1)
    pyramid(opened, jobs=1)
    return run


def questions() -> dict[str, Callable[[Path], Any]]:
    """Questions by name: each opens the run and gives what can be compared."""

    def recipe(name: str) -> Callable[[Path], Any]:
        def asked(run: Path) -> Any:
            answer = ask(OpenRun(run), name, jobs=1)
            return answer.table.to_pylist(), {k: v.to_pylist() for k, v in answer.further.items()}, answer.notes

        return asked

    def sql(text: str) -> Callable[[Path], Any]:
        return lambda run: query(OpenRun(run), text).table.to_pylist()

    def levels(run: Path) -> Any:
        opened = OpenRun(run)
        aligned(opened, jobs=1)
        made = pyramid(opened, jobs=1)
        ranks = [read_rank(made.folder / rank_file(r.rank)).keys() for r in opened.ranks]
        return read_table(made.folder / HEAT).to_pylist(), ranks, made.broken

    return {
        **{name: recipe(name) for name in _RECIPES},
        **{text: sql(text) for text in _QUERIES},
        "table": lambda run: OpenRun(run).table("ranges").order("ALL").fetchall(),
        "levels": levels,
    }


def run_flips(flips: int, seed: int, progress: Callable[[int, int], None] = lambda *_: None) -> Outcome:
    """Change `flips` bits, one after the other, and ask after each; `progress` is told how many were changed, and the
    failures."""
    draw = random.Random(seed)
    same = refused = 0
    failures = []
    with tempfile.TemporaryDirectory() as folder:
        whole, run = make(Path(folder)), Path(folder) / "changed"
        asks = questions()
        expected = {name: asked(whole) for name, asked in asks.items()}
        shutil.rmtree(whole / "findings")  # so that they are looked for in what was changed
        files = sorted(p.relative_to(whole) for p in whole.rglob("*") if p.is_file() and not p.name.startswith("."))
        for number in range(flips):
            file = draw.choice(files)
            byte, bit = draw.randrange((whole / file).stat().st_size), draw.randrange(8)
            where = f"{file}, byte {byte}, bit {bit}"
            for name, asked in {"verify": lambda run: [d.file for d in verify(run)], **asks}.items():
                if name == "verify" or file.parts[0] in _MADE_AGAIN:
                    shutil.rmtree(run, ignore_errors=True)
                    shutil.copytree(whole, run)
                    flip(run / file, byte, bit)
                try:
                    found = asked(run)
                except AlltraceError:
                    refused += 1
                    continue
                except Exception as error:  # noqa: BLE001  whatever it is, it is not an error of ours
                    failures.append(f"{where}: {name}: {type(error).__name__}: {error}")
                    continue
                if found == (expected[name] if name in expected else [str(file)]):
                    same += 1
                elif name != "verify" or file.suffix != ".json":  # a bit of white space changes nothing
                    failures.append(f"{where}: {name}: another answer")
            progress(number + 1, len(failures))
    return Outcome(same, refused, failures)


def main() -> int:
    """Run what the command line says; 1 where something failed."""
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz.flips", description=__doc__)
    parser.add_argument("--flips", type=int, default=2000, help="bits to change, one at a time (default: 2000)")
    parser.add_argument("--seed", type=int, default=1, help="which bits (default: 1)")
    given = parser.parse_args()

    def progress(done: int, failures: int) -> None:
        if done % 10 == 0:
            print(f"{done} of {given.flips}, {failures} failures", flush=True)

    found = run_flips(given.flips, given.seed, progress)
    for failure in found.failures:
        print(failure)
    told = f"{found.same} answers the same, {found.refused} refused, {len(found.failures)} failures"
    print(f"{given.flips} flips, seed {given.seed}: {told}")
    return 1 if found.failures else 0


if __name__ == "__main__":
    raise SystemExit(main())

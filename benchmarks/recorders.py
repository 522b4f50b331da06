"""Whether a verdict depends on what recorded the job: `python -m benchmarks.recorders --programs 20 --seed 7`.

One simulated run, whose ends scatter as measured, is written as each recorder would have recorded it and diagnosed. For
every pair of recorders that both give a loss in the first finding, kind, culprits and loss are compared. A loss that a
recorder cannot give must be withheld, never different.
"""

from __future__ import annotations

import argparse
import random
import time
from collections import Counter, defaultdict
from dataclasses import asdict, dataclass
from itertools import combinations
from typing import TYPE_CHECKING, Any

import alltrace
from alltrace.run.importer import import_reports
from alltrace.synth import SCENARIOS
from benchmarks.accuracy import planted
from benchmarks.drawn_programs import add_options, drawing_seed, folder_for, parsed, seed_of, show_progress, write_json
from benchmarks.recorder_files import RECORDERS, write_recorded

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from alltrace.synth.scenario import Scenario

LAYOUTS = ("tensor-data", "pipeline", "experts", "sharded", "healthy")
KINDS = (
    "slow-rank",
    "slow-host",
    "imbalance",
    "slow-communicator",
    "launch-bound",
    "sync",
    "host-pause",
    "data-stall",
    "none",
)
NEAR_POINTS, NEAR_SHARE = 0.01, 0.1
"""Losses are equal if they differ by a point of the job's time, or by a tenth of the larger."""


@dataclass(frozen=True)
class Verdict:
    """The first finding about the program through one recorder.

    Attributes:
        recorder: Its name.
        kind: Of the finding; None if there is none.
        ranks: Its culprits.
        loss: The share of the job's time that is lost; None if it is withheld.
        error: What went wrong instead.
    """

    recorder: str
    kind: str | None = None
    ranks: tuple[int, ...] = ()
    loss: float | None = None
    error: str | None = None


@dataclass(frozen=True)
class Compared:
    """One program through all recorders.

    Attributes:
        seed: Of the program.
        layout: Its scenario.
        fault: What was planted, as text; empty for nothing.
        finding: The kind that a diagnosis calls it; None if nothing is planted.
        verdicts: One for each recorder.
    """

    seed: int
    layout: str
    fault: str
    finding: str | None
    verdicts: tuple[Verdict, ...]


def same(first: Verdict, second: Verdict) -> tuple[bool, bool]:
    """Whether two verdicts with losses have one kind and culprits; and whether their losses are equal."""
    one, other = first.loss or 0.0, second.loss or 0.0
    near = abs(one - other) <= max(NEAR_POINTS, NEAR_SHARE * max(one, other))
    return (first.kind, first.ranks) == (second.kind, second.ranks), near


def draw(seed: int, scatter: float) -> tuple[Scenario, str]:
    """The scenario of a seed, and what is planted in it."""
    chance = random.Random(seed)
    layout, kind = chance.choice(LAYOUTS), chance.choice(KINDS)
    values = {"ranks": 8, "hosts": 2, "steps": 8, "seed": chance.randrange(1 << 30), "ideal": False, "scatter": scatter}
    if layout == "experts":
        values["expert_parallel"] = 4
    fault = (
        ""
        if kind == "none" or (kind == "slow-communicator" and layout == "healthy")
        else planted(kind, layout, 8, chance)
    )
    return SCENARIOS[layout].override(**values, faults=(fault,) if fault else ()), fault


def verdict_of(scenario: Scenario, number: int, folder: Path) -> Verdict:
    """What is found first through one of the recorders."""
    recorder = RECORDERS[number]
    try:
        reports, logs = write_recorded(scenario, recorder, folder)
        import_reports([str(reports)], folder / "run", jobs=1, **logs)
        rows: list[dict[str, Any]] = alltrace.open(folder / "run").recipe("diagnose").to_pylist()
    except Exception as error:
        return Verdict(recorder.name, error=f"{type(error).__name__}: {error}")
    about = [r for r in rows if r["kind"] != "capture-fault"]
    if not about:
        return Verdict(recorder.name)
    return Verdict(recorder.name, about[0]["kind"], tuple(sorted(about[0]["ranks"] or ())), about[0]["lost_share"])


def compare(seed: int, split: str, scatter: float, folder: Path) -> Compared:
    """One program through all recorders."""
    scenario, fault = draw(drawing_seed(split, seed), scatter)
    verdicts = tuple(verdict_of(scenario, number, folder / str(number)) for number in range(len(RECORDERS)))
    finding = scenario.faults[0].finding if scenario.faults else None
    return Compared(seed, scenario.name, fault, finding, verdicts)


def summary(compared: Sequence[Compared]) -> str:
    """The tables, Markdown."""
    lines = [
        "| recorder | programs | a loss is given | withheld | nothing found | failed | fault planted: its kind first |",
        "|---|---|---|---|---|---|---|",
    ]
    for number, recorder in enumerate(RECORDERS):
        own = [c.verdicts[number] for c in compared]
        faulty = [c for c in compared if c.finding]
        right = sum(c.verdicts[number].kind == c.finding for c in faulty)
        given = sum(v.loss is not None for v in own)
        withheld = sum(v.kind is not None and v.loss is None for v in own)
        nothing = sum(v.kind is None and v.error is None for v in own)
        failed = sum(v.error is not None for v in own)
        lines.append(
            f"| {recorder.name} | {len(own)} | {given} | {withheld} | {nothing} | {failed} | {right} of {len(faulty)} |"
        )
    pairs: dict[tuple[str, str], Counter[str]] = defaultdict(Counter)
    for c in compared:
        for one, other in combinations([v for v in c.verdicts if v.loss is not None], 2):
            finding, loss = same(one, other)
            pairs[one.recorder, other.recorder].update(pairs=1, finding=int(finding), loss=int(finding and loss))
    total = sum(pairs.values(), Counter())
    lines += [
        "",
        "| pairs that both give a loss | pairs | same kind and culprits | and the same loss |",
        "|---|---|---|---|",
    ]
    lines.append(f"| all | {total['pairs']} | {total['finding']} | {total['loss']} |")
    for names, counts in pairs.items():
        if counts["loss"] < counts["pairs"]:
            lines.append(f"| {'; '.join(names)} | {counts['pairs']} | {counts['finding']} | {counts['loss']} |")
    lines.append("")
    for c in compared:
        if len({(v.kind, v.ranks) for v in c.verdicts if v.loss is not None}) > 1 or any(v.error for v in c.verdicts):
            verdicts = "; ".join(f"{v.recorder}: {v.error or v.kind} {list(v.ranks)} {v.loss}" for v in c.verdicts)
            lines.append(f"* seed {c.seed}, {c.layout}, {c.fault or 'nothing planted'}: {verdicts}")
    return "\n".join(lines)


def arguments() -> argparse.Namespace:
    """The command's options."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.recorders", description=__doc__.partition("\n\n")[0])
    add_options(parser, 10, "verdicts")
    parser.add_argument(
        "--scatter", type=float, default=1.0, help="how much ends scatter, in what was measured (default: 1)"
    )
    return parsed(parser)


def main() -> None:
    """Compare the verdicts and print the tables."""
    args = arguments()
    compared: list[Compared] = []
    begun = time.process_time()
    for index in range(args.programs):
        seed = seed_of(args.seed, index)
        with folder_for(args, f"{args.split}-{seed}") as folder:
            compared.append(compare(seed, args.split, args.scatter, folder))
        show_progress(index + 1, args.programs)
    write_json(args, [asdict(c) for c in compared])
    took = time.process_time() - begun
    print(
        f"{len(compared)} programs, --split {args.split} --seed {args.seed}, scatter x {args.scatter:g}, {took:.0f} s"
        " of CPU time\n"
    )
    print(summary(compared))


if __name__ == "__main__":
    main()

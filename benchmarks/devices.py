"""Whether devices of one process are judged as ranks are: `python -m benchmarks.devices --programs 12 --seed 7`.

One execution of a program is written twice: with a process for each device, and with processes of several devices. What
alltrace matches is compared with what met, and what it finds with what it finds in separate processes: kind, culprits
and loss of every finding.
"""

from __future__ import annotations

import argparse
import random
import sys
import time
from dataclasses import asdict, dataclass, field, replace
from typing import TYPE_CHECKING, Any

import alltrace
from alltrace.align.devices import by_devices
from alltrace.align.store import aligned
from alltrace.run.importer import import_reports
from alltrace.run.store import Run
from benchmarks.drawn_programs import add_options, drawing_seed, folder_for, parsed, seed_of, show_progress, write_json
from benchmarks.programs.draw import draw
from benchmarks.programs.matched import MatchingScore, score_matches
from benchmarks.programs.nsys_file import write_all
from benchmarks.programs.planted import planted
from benchmarks.programs.score import culprits_of, described
from benchmarks.programs.training import Lowered

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from pathlib import Path

    from benchmarks.programs.machine import Timeline
    from benchmarks.programs.model import Program

NEAR = 0.01
"""Losses are equal if they differ by at most this share of the job's time."""


@dataclass(frozen=True)
class Found:
    """A finding.

    Attributes:
        kind: Its kind.
        ranks: Its culprits, as devices of the job.
        severity: Its severity.
        loss: The share of the job's time that is lost; None if it is withheld or an opportunity.
    """

    kind: str
    ranks: tuple[int, ...]
    severity: str
    loss: float | None

    def equals(self, other: Found) -> bool:
        """Whether another finding is the same: of one kind and culprits, with the same loss."""
        losses = [loss for loss in (self.loss, other.loss) if loss is not None]
        near = len(losses) != 1 and (not losses or abs(losses[0] - losses[1]) <= NEAR)
        return (self.kind, self.ranks) == (other.kind, other.ranks) and near


@dataclass
class Written:
    """What came of one way to write a program.

    Attributes:
        matching: How its operations were matched.
        findings: What was found.
        cpu_s: CPU time of import, alignment and diagnosis.
    """

    matching: MatchingScore = field(default_factory=MatchingScore)
    findings: list[Found] = field(default_factory=list)
    cpu_s: float = 0.0


@dataclass
class Compared:
    """One program in both ways.

    Attributes:
        seed: Of the program.
        program: What it is, in words.
        devices: The devices of each process.
        ranks: All devices.
        apart: With a process for each device.
        together: With processes of several devices.
        error: What went wrong instead.
    """

    seed: int
    program: str
    devices: int
    ranks: int
    apart: Written = field(default_factory=Written)
    together: Written = field(default_factory=Written)
    error: str | None = None

    @property
    def first_equal(self) -> bool:
        """Whether the first findings are the same, or there is none in both."""
        one, other = self.apart.findings[:1], self.together.findings[:1]
        return len(one) == len(other) and all(a.equals(b) for a, b in zip(one, other, strict=True))

    @property
    def different(self) -> tuple[list[Found], list[Found]]:
        """The findings of each way without an equal one in the other."""
        one, other = self.apart.findings, self.together.findings
        return (
            [a for a in one if not any(a.equals(b) for b in other)],
            [b for b in other if not any(a.equals(b) for a in one)],
        )


def write_and_judge(program: Program, lowered: Lowered, timeline: Timeline, folder: Path) -> Written:
    """Write an execution as a profiler would, import it, match and diagnose it."""
    (folder / "reports").mkdir(parents=True)
    reports = write_all(program, lowered, timeline, folder / "reports")
    begun = time.process_time()
    import_reports([str(folder / "reports")], folder / "run", jobs=1)
    run = Run(folder / "run")
    split = by_devices(run)
    truth = planted(seen for report in reports for seen in report.seen)
    if split is not None and split.members is not None:
        number = {(split.members[n].rank, split.members[n].device): n for n in range(len(split.ranks))}
        places = {(number[r, d], d, start, stream): member for (r, d, start, stream), member in truth.numbers.items()}
        truth = replace(truth, numbers=places)
    rows = alltrace.open(folder / "run").recipe("diagnose").to_pylist()
    findings = [_found(row, program.view.devices) for row in rows]
    took = time.process_time() - begun
    return Written(score_matches(aligned(split or run, jobs=1), truth), findings, took)


def _found(row: Mapping[str, Any], devices: int) -> Found:
    return Found(row["kind"], tuple(sorted(culprits_of(row, devices))), row["severity"], row["lost_share"])


def programs(split: str, seed: int, most_ranks: int) -> Iterator[tuple[int, Program]]:
    """Programs that can have several devices in a process, with their seeds."""
    for index in range(sys.maxsize):
        own = seed_of(seed, index)
        program = draw(drawing_seed(split, own))
        local = program.grid.ranks // program.grid.hosts
        several = [count for count in (2, 4, 8) if local % count == 0]
        view = program.view
        if several and not program.mpi and not view.missing and not view.late and program.grid.ranks <= most_ranks:
            devices = view.devices if view.devices > 1 else random.Random(f"{own} devices").choice(several)
            yield own, replace(program, view=replace(view, devices=devices))


def compare(seed: int, program: Program, folder: Path) -> Compared:
    """One program in both ways."""
    compared = Compared(seed, described(program), program.view.devices, program.grid.ranks)
    alone = replace(program, view=replace(program.view, devices=1))
    lowered = Lowered(program)
    timeline = lowered.execute(record=True)
    try:
        compared.apart = write_and_judge(alone, lowered, timeline, folder / "apart")
        compared.together = write_and_judge(program, lowered, timeline, folder / "together")
    except Exception as error:
        compared.error = f"{type(error).__name__}: {error}"
    return compared


def summary(compared: Sequence[Compared]) -> str:
    """What is equal, and each difference."""
    lines = ["| processes | operations | matched right | wrong | findings | CPU s |", "|---|---|---|---|---|---|"]
    for name in ("apart", "together"):
        ways: list[Written] = [getattr(c, name) for c in compared]
        planted_, right, wrong = (sum(getattr(w.matching, m) for w in ways) for m in ("planted", "right", "wrong"))
        findings = sum(len(w.findings) for w in ways)
        lines.append(f"| {name} | {planted_} | {right} | {wrong} | {findings} | {sum(w.cpu_s for w in ways):.0f} |")
    done = [c for c in compared if c.error is None]
    different = [c for c in done if any(c.different)]
    near = f"{100 * NEAR:.0f} point"
    lines += [
        "",
        (
            f"first finding equal (kind, culprits, loss within {near}): {sum(c.first_equal for c in done)} of"
            f" {len(compared)}"
        ),
        f"all findings equal: {len(done) - len(different)} of {len(compared)}",
        "",
    ]
    for c in different:
        one, other = (
            ", ".join(f"{f.kind} {list(f.ranks)} {f.severity} {f.loss}" for f in side) for side in c.different
        )
        about = f"{c.ranks} ranks, {c.devices} a process"
        lines.append(f"* seed {c.seed} ({about}): apart {one or 'nothing'}; together {other or 'nothing'}")
    lines += [f"* seed {c.seed}: {c.error}" for c in compared if c.error]
    return "\n".join(lines)


def arguments() -> argparse.Namespace:
    """The command's options."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.devices", description=__doc__.partition("\n\n")[0])
    add_options(parser, 12, "findings")
    parser.add_argument(
        "--most-ranks", type=int, default=32, metavar="N", help="the most devices of a program (default: 32)"
    )
    return parsed(parser)


def main() -> None:
    """Compare the two ways of each program and print the summary."""
    args = arguments()
    compared: list[Compared] = []
    begun = time.process_time()
    for seed, program in programs(args.split, args.seed, args.most_ranks):
        with folder_for(args, f"{args.split}-{seed}") as folder:
            compared.append(compare(seed, program, folder))
        show_progress(len(compared), args.programs)
        if len(compared) == args.programs:
            break
    write_json(args, [asdict(c) for c in compared])
    print(
        f"{len(compared)} programs, --split {args.split} --seed {args.seed}, {time.process_time() - begun:.0f} s of CPU"
        " time\n"
    )
    print(summary(compared))


if __name__ == "__main__":
    main()

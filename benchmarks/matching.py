"""How surely operations are matched: `python -m benchmarks.matching --programs 108 --seed 7 --split unseen`.

Programs of every layout are executed with ends that scatter as measured on real machines, and written as profilers
write them: with identifiers, with the names of NCCL's ranges alone, or with nothing but kernels. alltrace aligns and
diagnoses them, and what it matched is compared with what met: an operation is right if exactly its members, as (rank,
device, n-th operation), are one matched instance. The first finding is compared with that about the same program with
ends that do not scatter, written ideally. Scatter costs time, and takes some from other causes: where the first
findings differ, the one with scatter is judged by what each cause costs in that execution.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import time
from collections import defaultdict
from dataclasses import asdict, dataclass, replace
from itertools import product
from typing import TYPE_CHECKING, Any

import alltrace
from alltrace.align.store import aligned
from alltrace.run.importer import import_reports
from alltrace.run.store import Run
from alltrace.trace.number_text import number_ranges
from benchmarks.drawn_programs import add_options, drawing_seed, folder_for, parsed, seed_of, show_progress, write_json
from benchmarks.programs.layouts import (
    IDS,
    LAYOUTS,
    PROCESSES,
    SCATTERS,
    Setting,
    draw_for_matching,
    setting_of,
    special_of,
)
from benchmarks.programs.losses import truth_of
from benchmarks.programs.matched import ClockScore, MatchingScore, score_clocks, score_matches
from benchmarks.programs.model import SPECIALS
from benchmarks.programs.nsys_file import write_all
from benchmarks.programs.planted import planted
from benchmarks.programs.score import NO_LOSS, culprits_of, judge
from benchmarks.programs.training import Lowered
from benchmarks.programs.worlds import as_ideal

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from benchmarks.programs.model import Program

LEAST = 0.01
"""The share of the time below which a cause does not count."""
SAMPLE = 9
"""Programs of the fixed sample: every combination of ids and scatter once, of at most 8 ranks."""


@dataclass
class Scored:
    """What came of one program.

    Attributes:
        seed: Of the program.
        setting: What it is.
        ranks: Its devices.
        hosts: Its hosts.
        matching: How its operations were matched.
        clocks: How the clocks of its hosts were found.
        invented_fault: Whether a fault of the recording is reported that is not there.
        diagnosed: Whether it was diagnosed, and the same program written ideally.
        first: Kind and culprits of the first finding; None if there is none.
        ideal: The same of the program written ideally.
        right: Whether the first finding is the costliest of this execution; None if it is as ideal.
        cpu_s: CPU time of import, alignment and diagnosis.
        error: What went wrong instead.
    """

    seed: int
    setting: Setting
    ranks: int
    hosts: int
    matching: MatchingScore
    clocks: list[ClockScore]
    invented_fault: bool = False
    diagnosed: bool = False
    first: tuple[str, tuple[int, ...]] | None = None
    ideal: tuple[str, tuple[int, ...]] | None = None
    right: bool | None = None
    cpu_s: float = 0.0
    error: str | None = None


def write_program(program: Program, folder: Path) -> tuple[Any, Any, list[int]]:
    """Execute a program and write its reports; returns the true matches, the reports, and true times."""
    lowered = Lowered(program)
    timeline = lowered.execute(record=True)
    folder.mkdir(parents=True)
    reports = write_all(program, lowered, timeline, folder)
    recorded = timeline.recorded or []
    starts, ends = zip(*((k[0], k[1]) for own in recorded for k in own.kernels), strict=True)
    first, last = min(starts), max(ends)
    times = [first + (last - first) * n // 8 for n in range(9)]
    return planted(seen for report in reports for seen in report.seen), reports, times


def findings_in(run: Path) -> list[dict[str, Any]]:
    """The findings about the reports and the program."""
    rows: list[dict[str, Any]] = alltrace.open(run).recipe("diagnose").to_pylist()
    return rows


def first_finding(rows: Sequence[dict[str, Any]], devices: int) -> tuple[str, tuple[int, ...]] | None:
    """Kind and culprits of the first finding about the program.

    Culprits are ranks of the program, of which each process has so many as `devices`.
    """
    about = next((r for r in rows if r["kind"] != NO_LOSS), None)
    return None if about is None else (about["kind"], tuple(sorted(culprits_of(about, devices))))


def is_right(program: Program, rows: Sequence[dict[str, Any]]) -> bool:
    """Whether the first finding is what costs most in the program as it was executed, and names the culprits."""
    judgement = judge(program.seed, program, truth_of(program), rows, LEAST)
    return judgement.right and judgement.ranks_right is not False


def score_program(seed: int, program: Program, setting: Setting, folder: Path, *, diagnose: bool) -> Scored:
    """Execute, write, import, align and diagnose one program."""
    truth, reports, times = write_program(program, folder / "reports")
    begun = time.process_time()
    rows: list[dict[str, Any]] = []
    scored = Scored(
        seed, setting, program.grid.ranks, program.grid.hosts, MatchingScore(planted=len(truth.instances)), []
    )
    try:
        import_reports([str(folder / "reports")], folder / "run", jobs=1)
        alignment = aligned(Run(folder / "run"), jobs=1)
        if diagnose:
            rows = findings_in(folder / "run")
            scored.first = first_finding(rows, program.view.devices)
            scored.invented_fault = any(r["kind"] == NO_LOSS for r in rows) and not program.view.dropped
        scored.cpu_s = time.process_time() - begun
        scored.matching = score_matches(alignment, truth)
        scored.clocks = score_clocks(alignment, reports, times)
        if diagnose:
            write_program(as_ideal(program), folder / "ideal")
            import_reports([str(folder / "ideal")], folder / "ideal-run", jobs=1)
            scored.ideal = first_finding(findings_in(folder / "ideal-run"), 1)
            scored.right = None if scored.first == scored.ideal else is_right(program, rows)
            scored.diagnosed = True
    except Exception as error:
        scored.error = f"{type(error).__name__}: {error}"
    (folder / "score.json").write_text(json.dumps(asdict(scored), indent=1))
    return scored


def share(part: float, whole: float) -> str:
    """Such as `98.2 %`; empty without a whole."""
    return f"{100 * part / whole:.2f} %" if whole else ""


def median_and_largest(times_ns: Sequence[float]) -> str:
    """Two cells of a table; empty without times."""
    if not times_ns:
        return " | "
    in_order = sorted(times_ns)
    return f"{in_order[len(in_order) // 2] / 1e3:.1f} us | {in_order[-1] / 1e3:.1f} us"


def table(scored: Sequence[Scored], what: str, key: Any) -> list[str]:
    """A table of the scores by a key, Markdown."""
    groups: dict[Any, list[Scored]] = defaultdict(list)
    for s in scored:
        groups[key(s)].append(s)
    lines = [
        (
            f"| {what} | programs | operations | right | wrong | sure and wrong | withheld | wrong communicators |"
            " clocks held | interval, median | largest | worst clock, median | largest | faults invented | first"
            " finding as ideal | or right | CPU s |"
        ),
        "|" + "---|" * 17,
    ]
    for name, own in groups.items():
        answered = [s for s in own if s.error is None]
        m = [s.matching for s in own]
        total = sum(x.planted for x in m)
        clocks = [c for s in answered for c in s.clocks]
        with_interval = [c for c in clocks if c.covered is not None]
        held = share(sum(bool(c.covered) for c in with_interval), len(with_interval)) or "no interval"
        compared = [s for s in answered if s.diagnosed]
        same = share(sum(s.right is None for s in compared), len(compared))
        right = share(sum(s.right is not False for s in compared), len(compared))
        lines.append(
            f"| {name} | {len(own)} | {total} | {share(sum(x.right for x in m), total)} |"
            f" {share(sum(x.wrong for x in m), total)} | {share(sum(x.sure_wrong for x in m), total)} |"
            f" {share(sum(x.withheld for x in m), total)} | {sum(x.wrong_communicators for x in m)} |"
            f" {held if clocks else ''} |"
            f" {median_and_largest([float(c.interval_ns) for c in with_interval if c.interval_ns is not None])} |"
            f" {median_and_largest([c.worst_ns for c in clocks])} | {sum(s.invented_fault for s in own)} | {same} |"
            f" {right} | {sum(s.cpu_s for s in own):.0f} |"
        )
    return lines


def _text(first: tuple[str, tuple[int, ...]] | None) -> str:
    return "nothing" if first is None else f"{first[0]} {number_ranges(first[1])}"


def summary(scored: Sequence[Scored]) -> str:
    """All tables."""
    lines = table(scored, "ids and scatter", lambda s: f"{s.setting.ids}, x {s.setting.scatter:g}")
    lines += ["", *table(scored, "layout", lambda s: s.setting.layout)]
    lines += ["", *table(scored, "processes", lambda s: s.setting.processes)]
    lines += ["", *table(scored, "ranks", lambda s: s.ranks)]
    if any(s.setting.special for s in scored):
        lines += ["", *table(scored, "special", lambda s: s.setting.special)]
    lines += ["", *(f"* seed {s.seed} ({s.setting}): {s.error}" for s in scored if s.error)]
    wrong = [s for s in scored if s.right is False]
    lines += [f"* seed {s.seed} ({s.setting}): {_text(s.first)} first; ideally {_text(s.ideal)}" for s in wrong]
    return "\n".join(lines)


def arguments() -> argparse.Namespace:
    """The command's options."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.matching", description=__doc__.partition("\n\n")[0])
    add_options(parser, 54, "score")
    parser.add_argument("--sample", action="store_true", help=f"the fixed sample of {SAMPLE} small programs")
    parser.add_argument("--layout", choices=LAYOUTS, nargs="+", help="these layouts alone")
    parser.add_argument("--ids", choices=IDS, nargs="+", help="tell these of communicators, each of the same programs")
    parser.add_argument(
        "--scatter", type=float, nargs="+", metavar="TIMES", help="these scatters, each of the same programs"
    )
    parser.add_argument("--processes", choices=PROCESSES, nargs="+", help="these processes alone")
    parser.add_argument(
        "--special", action="store_true", help=f"programs of which each has one of {', '.join(SPECIALS)}"
    )
    parser.add_argument(
        "--most-ranks", type=int, default=64, metavar="N", help="the most ranks that are drawn (default: 64)"
    )
    parser.add_argument("--no-diagnosis", action="store_true", help="align without diagnosing")
    return parsed(parser)


def settings(args: argparse.Namespace) -> list[tuple[int, Setting]]:
    """The settings of all programs, each with the program's number: the same for each of the ids and scatters."""
    if args.sample:
        every = [setting_of(n) for n in range(SAMPLE)]
        return [(n, Setting(LAYOUTS[n % len(LAYOUTS)], s.ids, s.scatter)) for n, s in enumerate(every)]
    turns = len(IDS) * len(SCATTERS) if args.ids or args.scatter else 1
    wanted = []
    for ids, scatter in product(args.ids or [None], args.scatter or [None]):
        for n in range(args.programs):
            base = special_of(n) if args.special else setting_of(n * turns)
            layout = args.layout[n % len(args.layout)] if args.layout else base.layout
            processes = args.processes[n % len(args.processes)] if args.processes else base.processes
            wanted.append(
                (
                    n,
                    replace(
                        base, layout=layout, processes=processes, ids=ids or base.ids, scatter=scatter or base.scatter
                    ),
                )
            )
    return wanted


def main() -> None:
    """Score the programs and print the tables."""
    args = arguments()
    scored: list[Scored] = []
    begun = time.process_time()
    wanted = settings(args)
    for number, (index, setting) in enumerate(wanted, 1):
        seed = seed_of(args.seed, index)
        name = f"{args.split}-{seed}-{setting.ids}-{setting.scatter:g}"
        program = draw_for_matching(drawing_seed(args.split, seed), setting, 8 if args.sample else args.most_ranks)
        with folder_for(args, name) as folder:
            scored.append(score_program(seed, program, setting, folder, diagnose=not args.no_diagnosis))
        show_progress(number, len(wanted))
    write_json(args, [{**asdict(s), "setting": str(s.setting)} for s in scored])
    with contextlib.suppress(BrokenPipeError):
        print(
            f"{len(scored)} programs, --split {args.split} --seed {args.seed}, {time.process_time() - begun:.0f} s of"
            " CPU time\n"
        )
        print(summary(scored))


if __name__ == "__main__":
    main()

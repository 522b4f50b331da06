"""How often a diagnosis is right on programs with known truth: `python -m benchmarks.truth --programs 1000 --seed 7`.

Random training programs are executed on a model of hosts, devices and links that shares no code with alltrace, with
causes of lost time and again without each of them; alltrace diagnoses what a profiler would have exported. `--split
dev` and `--split unseen` draw from different programs: detectors are made with the first and scored on the second.
Reports are as profilers record them by default, of devices whose ends scatter as measured; `--ideal` writes the same
programs with all names, and all ends at once.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import time
from datetime import date
from pathlib import Path
from typing import TYPE_CHECKING, Any

import alltrace
from alltrace.recipes.questions.diagnose.cards import told
from alltrace.run.importer import import_reports
from benchmarks.accuracy_page import around_table, write_table
from benchmarks.drawn_programs import add_options, drawing_seed, folder_for, parsed, seed_of, show_progress, write_json
from benchmarks.programs import score_changes, score_pairs, score_uneven
from benchmarks.programs.draw import KINDS, draw
from benchmarks.programs.draw_changes import CHANGES, HEALTHY, draw_change
from benchmarks.programs.draw_pairs import PAIR, draw_pair
from benchmarks.programs.draw_uneven import LATE, TWIN, UNEVEN, draw_uneven
from benchmarks.programs.losses import judged_ns, measure, truth_of
from benchmarks.programs.model import Without
from benchmarks.programs.nsys_file import write_reports
from benchmarks.programs.score import Judgement, described, judge, summary
from benchmarks.programs.score_causes import CauseJudgement, summary_of_causes
from benchmarks.programs.score_changes import judge_change
from benchmarks.programs.score_pairs import judge_pair
from benchmarks.programs.score_uneven import judge_uneven, truth_of_uneven
from benchmarks.programs.training import Lowered

if TYPE_CHECKING:
    from benchmarks.programs.machine import Timeline
    from benchmarks.programs.model import Program

FAMILIES = (score_changes.FAMILY, score_uneven.FAMILY, score_pairs.FAMILY)

TABLES = {
    frozenset[str](): "random programs",
    frozenset(CHANGES): "changes in time",
    frozenset(UNEVEN): "uneven work",
    frozenset([LATE]): "late ranks",
    frozenset([PAIR]): "pairs that hide each other",
}
"""The tables of docs/accuracy.md, by what `--kinds` draws."""


def diagnosed(program: Program, lowered: Lowered, timeline: Timeline, folder: Path) -> tuple[list[dict[str, Any]], str]:
    """Write what a profiler would export of an execution, import it, and diagnose it; returns rows and the verdict."""
    (folder / "reports").mkdir(parents=True, exist_ok=True)
    write_reports(program, lowered, timeline, folder / "reports")
    import_reports([str(folder / "reports")], folder / "run", jobs=1)
    run = alltrace.open(folder / "run")
    result = run.recipe("diagnose")
    findings: list[dict[str, Any]] = result.to_pylist()
    return findings, told(result.answer, {r.rank: r.host for r in run.ranks}).verdict


def findings_of(program: Program, lowered: Lowered, timeline: Timeline, folder: Path) -> list[dict[str, Any]]:
    """The rows alone."""
    return diagnosed(program, lowered, timeline, folder)[0]


def run_program(
    split: str, seed: int, kind: str | None, least: float, folder: Path, *, ideal: bool = False
) -> Judgement:
    """Draw, execute, write, import and diagnose one program.

    Args:
        split: `dev` or `unseen`.
        seed: Of the program.
        kind: What is planted; None to draw that too.
        least: The share below which a cause does not count.
        folder: Where reports and the run are written.
        ideal: Whether in the ideal world.
    """
    program = draw(drawing_seed(split, seed), kind, ideal=ideal)
    lowered = Lowered(program)
    timeline = lowered.execute(record=True)
    truth = truth_of(program, judged_ns(program, timeline))
    try:
        findings = findings_of(program, lowered, timeline, folder)
    except Exception as error:
        failed = judge(seed, program, truth, [], least)
        failed.error = f"{type(error).__name__}: {error}"
        return failed
    made = judge(seed, program, truth, findings, least)
    (folder / "truth.json").write_text(
        json.dumps({"program": described(program), "truth": vars(truth), **made.as_dict()}, indent=1)
    )
    return made


def run_change(split: str, seed: int, kind: str, least: float, folder: Path, *, ideal: bool = False) -> CauseJudgement:
    """The same with a cause that changes in time, or a healthy program; arguments as of `run_program`."""
    program = draw_change(drawing_seed(split, seed), kind, ideal=ideal)
    lowered = Lowered(program)
    timeline = lowered.execute(record=True)
    base_ns = judged_ns(program, timeline)
    share = 1 - measure(program, Without(frozenset([0]))) / base_ns if program.causes else 0.0
    judgement = judge_change(seed, kind, program, share, [], least)
    try:
        if judgement.counts:
            findings = findings_of(program, lowered, timeline, folder)
            judgement = judge_change(seed, kind, program, share, findings, least)
            (folder / "truth.json").write_text(json.dumps(vars(judgement), indent=1))
    except Exception as error:
        judgement.error = f"{type(error).__name__}: {error}"
    return judgement


def run_uneven(split: str, seed: int, kind: str, least: float, folder: Path, *, ideal: bool = False) -> CauseJudgement:
    """The same with uneven work or a late rank, or a healthy program of these kinds; arguments as of `run_program`."""
    program = draw_uneven(drawing_seed(split, seed), kind, ideal=ideal)
    lowered = Lowered(program)
    timeline = lowered.execute(record=True)
    truth = truth_of_uneven(program, judged_ns(program, timeline))
    judgement = judge_uneven(seed, kind, program, truth, [], least)
    try:
        if judgement.counts:
            findings = findings_of(program, lowered, timeline, folder)
            judgement = judge_uneven(seed, kind, program, truth, findings, least)
            (folder / "truth.json").write_text(json.dumps({**vars(judgement), "kinds": truth.kinds}, indent=1))
    except Exception as error:
        judgement.error = f"{type(error).__name__}: {error}"
    return judgement


def run_pair(split: str, seed: int, least: float, folder: Path, *, ideal: bool = False) -> CauseJudgement:
    """The same with two causes that hide each other; arguments as of `run_program`."""
    program, gains = draw_pair(drawing_seed(split, seed), ideal=ideal)
    judgement = judge_pair(seed, program, gains, [], "", least)
    try:
        if judgement.counts:
            lowered = Lowered(program)
            findings, verdict = diagnosed(program, lowered, lowered.execute(record=True), folder)
            judgement = judge_pair(seed, program, gains, findings, verdict, least)
            (folder / "truth.json").write_text(json.dumps({**vars(judgement), "verdict": verdict}, indent=1))
    except Exception as error:
        judgement.error = f"{type(error).__name__}: {error}"
    return judgement


def run_kind(split: str, seed: int, kind: str, least: float, folder: Path, *, ideal: bool = False) -> CauseJudgement:
    """A program of one of the kinds of `--kinds`; arguments as of `run_program`."""
    if kind == PAIR:
        return run_pair(split, seed, least, folder, ideal=ideal)
    run = run_change if kind in (*CHANGES, HEALTHY) else run_uneven
    return run(split, seed, kind, least, folder, ideal=ideal)


def in_turn(kinds: list[str], programs: int) -> list[str]:
    """The kinds of programs in their order: those that are wanted, then a healthy one of each family that has one."""
    if programs == 1:
        return kinds
    healthy = [f.healthy for f in FAMILIES if f.healthy not in (*kinds, "") and set(f.kinds) & set(kinds)]
    return [*kinds, *healthy]


def arguments() -> argparse.Namespace:
    """The command's options."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.truth", description=__doc__)
    add_options(parser, 100, "judgement")
    parser.add_argument(
        "--kind", choices=(*KINDS, "none"), help="plant this alone (default: none, one or several are drawn)"
    )
    parser.add_argument(
        "--kinds",
        nargs="+",
        choices=(*CHANGES, HEALTHY, *UNEVEN, LATE, TWIN, PAIR),
        help=(
            f"programs of these kinds in turn: a cause that changes in time ({', '.join(CHANGES)}), uneven work"
            f" ({', '.join(UNEVEN)}), a rank that is late at a barrier ({LATE}), two causes that hide each other"
            f" ({PAIR}); and as many healthy ones as of each kind: with steps that differ by data ({HEALTHY}), or a"
            f" kind without its cause ({TWIN})"
        ),
    )
    parser.add_argument("--ideal", action="store_true", help="all ends at once, and reports that name all")
    parser.add_argument("--least", type=float, default=0.01, help="share of a cause that counts (default: 0.01)")
    parser.add_argument(
        "--write",
        type=Path,
        metavar="PAGE",
        help="write the tables into this page, such as docs/accuracy.md",
    )
    args = parsed(parser)
    if args.write and (args.kind or frozenset(args.kinds or ()) not in TABLES):
        whole = ", ".join(" ".join(sorted(kinds)) for kinds in TABLES if kinds)
        parser.error(f"--write has a table of programs without --kind and --kinds, and of these --kinds: {whole}")
    if args.write and (args.ideal or args.split != "unseen"):
        parser.error(
            "--write has tables of programs that nobody has seen, as profilers record them: add --split unseen"
        )
    if args.write:
        around_table(args.write, TABLES[frozenset(args.kinds or ())])  # before all the work
    if args.kind and args.kinds:
        parser.error("--kind plants one kind and --kinds draws other programs: name one of the two")
    if not 0 <= args.least < 1:
        parser.error(f"--least must be a share of 0 to 1; {args.least} was given")
    return args


def main() -> None:
    """Run the programs and print how right the diagnosis was."""
    args = arguments()
    judged: list[Judgement] = []
    of_kinds: list[CauseJudgement] = []
    kinds = in_turn(args.kinds or [], args.programs)
    begun = time.process_time()
    for index in range(args.programs):
        seed = seed_of(args.seed, index)
        with folder_for(args, f"{args.split}-{seed}") as folder:
            if kinds:
                kind = kinds[index % len(kinds)]
                of_kinds.append(run_kind(args.split, seed, kind, args.least, folder, ideal=args.ideal))
            else:
                judged.append(run_program(args.split, seed, args.kind, args.least, folder, ideal=args.ideal))
        show_progress(index + 1, args.programs)
    write_json(args, [vars(c) for c in of_kinds] + [j.as_dict() for j in judged])
    kind = (
        f" --kind {args.kind}" if args.kind else f" --kinds {' '.join(kinds)}" if kinds else ""
    ) + " --ideal" * args.ideal
    took = time.process_time() - begun
    tables = summary_of_causes(of_kinds, FAMILIES, args.least) if kinds else summary(judged, args.least)
    heading = f"{args.programs} programs, --split {args.split} --seed {args.seed}{kind}, {took:.0f} s of CPU time"
    with contextlib.suppress(BrokenPipeError):
        print(f"{heading}\n")
        print(tables)
        kind = " --kinds ITS_KIND" + " --ideal" * args.ideal if kinds else kind
        print(
            f"\nOne of them again: python -m benchmarks.truth --split {args.split}{kind} --programs 1 --keep FOLDER"
            " --seed SEED"
        )
    if args.write:
        write_table(
            args.write, TABLES[frozenset(args.kinds or ())], [f"{heading}, {date.today().isoformat()}:", "", tables]
        )


if __name__ == "__main__":
    main()

"""The verb `demo`: simulates a run with a known problem, imports and analyzes its reports, and prints the true cause."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from alltrace.cli.argument_types import place
from alltrace.cli.demo_cases import CASES, HANG_CASES
from alltrace.trace.errors import EXIT_DONE

if TYPE_CHECKING:
    import argparse

    from alltrace.api import OpenRun
    from alltrace.synth import Truth

_HIDDEN = {
    "info": {"reports", "start_ns", "end_ns", "process", "local_rank"},
    "breakdown": {"gpu", "span_ns", "compute_ns", "exposed_communication_ns", "exposed_copy_ns", "idle_ns"},
}
_FINDINGS = 2
_LOOK = (
    "alltrace ui {run}",
    "alltrace notebook {run} -o run.ipynb",
    'alltrace sql {run} "select rank, sum(\\"end\\" - start) as ns from kernels where kind = \'compute\' group by rank"',
)
EXAMPLE = "alltrace demo --output demo"


def configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "-o", "--output", type=place, default=Path("demo"), metavar="DIR", help="the folder for its files; default: demo"
    )
    parser.add_argument(
        "--case",
        choices=(*CASES, *HANG_CASES),
        default="slow-rank",
        metavar="CASE",
        help=f"the fault to simulate: {', '.join((*CASES, *HANG_CASES))}; default: slow-rank",
    )
    parser.add_argument("--ranks", type=int, default=16, metavar="N", help="number of ranks of the simulated run; default: 16")


def run(args: argparse.Namespace) -> int:
    from shlex import quote

    if args.case in HANG_CASES:
        return _hang(args.output / "job", args.case)

    from alltrace.api import OpenRun
    from alltrace.cli.progress import watching
    from alltrace.run.importer import import_reports
    from alltrace.synth import SCENARIOS, write_run

    reports, place = args.output / "reports", args.output / "run"
    run = quote(str(place))  # as a shell takes it
    case = CASES[args.case]
    about = SCENARIOS[case.scenario].about.replace("16 ranks", f"{args.ranks} ranks")
    _say(f"simulating: {about}{''.join(f'; {fault}' for fault in case.faults)}")
    planted: dict[str, Any] = {"faults": list(case.faults)} if case.faults else {}
    # with what an import asks nsys to export
    truth = write_run(case.scenario, reports, ranks=args.ranks, payloads=True, **planted)
    _say(f"importing the {args.ranks} reports in {reports} into {place}")
    with watching() as watcher:
        import_reports([str(reports)], place, watcher=watcher)
    opened = OpenRun(place)
    _show("who ran where", f"alltrace info {run}", opened.recipe("info").answer, _HIDDEN["info"])
    _show_findings(opened, f"alltrace diagnose {run} --limit {_FINDINGS}", run)
    _show("where the time went", f"alltrace breakdown {run}", opened.recipe("breakdown").answer, _HIDDEN["breakdown"])
    kernels = opened.recipe("kernels", names="short").answer
    _show("what the devices ran", f"alltrace kernels {run} --names short --limit 5", kernels, set(), 5)
    page = args.output / "report.html"
    _write_report(opened, page)
    _say(f"\na page with all of this and more, to open in a browser or to share:  $ alltrace report {run} -o {quote(str(page))}")
    look = "".join(f"\n  {command.format(run=run)}" for command in (*case.look, *_LOOK))
    _say(f"""
{case.about}
The truth, from {reports / "truth.json"}: {_planted(truth)}

Where to look next, in this run or in your own reports:{look}
  alltrace --help""")
    return EXIT_DONE


def _hang(folder: Path, name: str) -> int:
    """A job that hangs or died: what it left, and the verdict on it."""
    from shlex import quote

    from alltrace.cli.verbs.hang import verdict_text
    from alltrace.synth.hanging_jobs import HangFault, Job, Layout, write_job

    case = HANG_CASES[name]
    _say(f"simulating a job of 16 ranks in {folder}: tensor, data and pipeline parallel; its dumps were written 10 minutes later")
    truth = write_job(folder, Job(Layout(), HangFault(case.fault, case.ranks, call=2)))
    command = f"alltrace hang {quote(str(folder))}"
    _say(f"\nwho the others wait for:  $ {command}\n")
    _say(verdict_text(folder).rstrip())
    ranks = ", ".join(map(str, truth["ranks"]))
    _say(f"""
{case.about}
The truth, from {folder / "truth.json"}: {truth["kind"]} of ranks {ranks}.

Where to look next, in this job or in what your own left:
  {command} --format json
  alltrace logs flight-recorder {quote(str(folder))}/nccl_trace_rank_*.json --view entries
  alltrace explain {truth["kind"]}""")
    return EXIT_DONE


def _planted(truth: Truth) -> str:
    from dataclasses import fields

    from alltrace.synth.faults import FAULTS, Fault

    if not truth.faults:
        return "no fault was simulated."
    planted = truth.faults[0]
    shared = {f.name for f in fields(Fault)}
    values = {f.name: planted.get(f.name) for f in fields(FAULTS[planted["kind"]]) if f.name not in shared}
    detail = ", ".join(
        f"{name} {', '.join(map(str, value)) if isinstance(value, list) else value}"
        for name, value in values.items()
        if value not in (None, "")
    )
    everybody = len(planted["ranks"]) == len(truth.ranks)
    who = "all ranks" if everybody else f"rank{'s' if len(planted['ranks']) > 1 else ''} {', '.join(map(str, planted['ranks']))}"
    cost = f"; without it the run ends {planted['lost_ns'] / 1e6:.1f} ms earlier" if planted["lost_ns"] else ""
    return f"{planted['kind']} on {who}{f' ({detail})' if detail else ''}{cost}."


def _write_report(run: Any, page: Path) -> None:
    from alltrace.cli.output import emit
    from alltrace.report import gather, to_html

    emit([to_html(gather(run, str(run.path)))], page)


def _show_findings(opened: OpenRun, command: str, run: str) -> None:
    """The first findings as cards, as `diagnose` shows them on a terminal."""
    from alltrace.charts.text_table import terminal_width
    from alltrace.cli.cards import cards_text
    from alltrace.recipes.questions.diagnose.cards import told

    diagnosis = told(opened.recipe("diagnose").answer, {r.rank: r.host for r in opened.ranks})
    _say(f"\nwhat costs time, and who is responsible:  $ {command}\n")
    _say(cards_text(diagnosis._replace(notes=()), _FINDINGS, terminal_width() or 100, run).rstrip())


def _show(title: str, command: str, answer: Any, hidden: set[str], rows: int | None = None) -> None:
    """An answer as its verb shows it, without some columns, under the command that prints it in full."""
    from alltrace.charts.text_table import to_text
    from alltrace.cli.output import console_form

    table = answer.table.drop_columns([c for c in answer.table.column_names if c in hidden])
    shown = table if rows is None else table.slice(0, rows)
    _say(f"\n{title}:  $ {command}\n")
    _say(to_text(answer._replace(extra={}, notes=()), shown, form=console_form()).rstrip())


def _say(text: str) -> None:
    print(text, flush=True)  # noqa: T201

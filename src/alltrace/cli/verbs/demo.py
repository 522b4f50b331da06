"""The verb `demo`: simulates a known problem, imports and analyzes its reports, and prints the true cause."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from alltrace.cli.argument_types import place
from alltrace.trace.errors import EXIT_DONE

if TYPE_CHECKING:
    import argparse

    from alltrace.api import OpenRun
    from alltrace.synth import Truth


class Case(NamedTuple):
    scenario: str  # the scenario that is simulated; see `alltrace.synth.SCENARIOS`
    faults: tuple[str, ...]  # what is planted, as `alltrace synth --fault` takes it
    about: str  # what the first finding says, in one sentence
    look: tuple[str, ...]  # further commands to try, with `{run}` where the run directory goes


_HOST = ("alltrace gaps {run}", "alltrace recipe launches {run} --limit 10", "alltrace recipe idle {run} --limit 10")
_NETWORK = ("alltrace collectives {run}", "alltrace stragglers {run}", "alltrace overlap {run}")

CASES: dict[str, Case] = {
    "slow-rank": Case("straggler", (),
        "One rank computes longer than all others, and they wait for it. The first finding names it.",
        ("alltrace stragglers {run}", "alltrace whatif {run}",
            "alltrace kernels {run} --names short --by-rank --limit 20")),
    "slow-host": Case("healthy", ("slow-host:hosts=1:factor=1.3",),
        "All ranks of one host compute longer than those of the other host. The first finding names the host.",
        ("alltrace stragglers {run}", "alltrace whatif {run}", "alltrace breakdown {run}")),
    "imbalance": Case("experts", ("imbalance:ranks=3:extra=1.5",),
        "One rank has more work than its peers. Its device is as fast as theirs, so another device would not help.",
        ("alltrace stragglers {run}", "alltrace recipe launch-configurations {run} --limit 10",
            "alltrace whatif {run}")),
    "slow-communicator": Case("tensor-data", ("slow-communicator:factor=12",),
        "The transfers of one communicator take longer than those of similar communicators. No rank is late.",
        _NETWORK),
    "exposed-communication": Case("sharded", ("exposed-communication",),
        "Every kernel waits for the collective before it, so compute hides no communication.", _NETWORK),
    "data-stall": Case("healthy", ("data-stall:stall_ns=25000000",),
        "At the start of each step the devices wait until the host has the next batch.",
        ("alltrace gaps {run}", "alltrace stats nvtx_sum {run}", "alltrace steps {run} --per-step")),
    "launch-bound": Case("healthy", ("launch-bound",),
        "The kernels are so small that the device runs them faster than the host can launch them.", _HOST),
    "sync": Case("healthy", ("sync:host_ns=150000",),
        "The host waits for the device after every layer, and the device then waits for the host.",
        (*_HOST, "alltrace stats cuda_api_sum {run}")),
    "host-pause": Case("healthy", ("host-pause",),
        "In some steps the host launches nothing for tens of milliseconds, as during garbage collection.",
        (*_HOST, "alltrace steps {run} --per-step")),
    "allocation": Case("healthy", ("allocation",),
        "Device memory is allocated and freed in every layer, which stops the device each time.",
        (*_HOST, "alltrace stats cuda_api_sum {run}")),
    "pageable-copy": Case("healthy", ("pageable-copy",),
        "Batches are copied from memory that is not pinned, which is slow and makes the host wait.",
        ("alltrace recipe memory-bandwidth {run}", "alltrace overlap {run}",
            "alltrace stats cuda_gpu_mem_time_sum {run}")),
    "missing-rank": Case("healthy", ("missing-rank:ranks=5",),
        "The report of one rank is missing (`capture-fault`), so it is unknown whether the others wait for it.",
        ("alltrace info {run}", "alltrace collectives {run}")),
    "healthy": Case("healthy", (),
        "No fault was simulated. The findings show what such a run always loses, mostly communication that cannot "
        "be hidden.",
        ("alltrace efficiency {run}", "alltrace overlap {run}", "alltrace critical-path {run}")),
}  # fmt: skip


class HangCase(NamedTuple):
    fault: str  # what is planted: a kind of `alltrace.synth.hanging_jobs.FAULTS`
    ranks: tuple[int, ...]  # the culprits
    about: str  # what the verdict says, in one sentence


HANG_CASES: dict[str, HangCase] = {
    "hang": HangCase(
        "stuck", (9, 14), "Two ranks of a pipeline stop before a collective, and the other 14 wait for them."
    ),
    "mismatch": HangCase("size", (5,), "One rank enters a collective with another size, and no rank completes it."),
    "dead-rank": HangCase("killed", (7,), "One rank is killed, and leaves no dump; the launcher's log says so."),
}


_HIDDEN = {
    "info": {"reports", "start_ns", "end_ns", "process", "local_rank"},
    "breakdown": {"gpu", "span_ns", "compute_ns", "exposed_communication_ns", "exposed_copy_ns", "idle_ns"},
}
_FINDINGS = 2
_LOOK = (
    "alltrace ui {run}",
    "alltrace notebook {run} -o run.ipynb",
    (
        'alltrace sql {run} "select rank, sum(\\"end\\" - start) as ns from kernels where kind = \'compute\' group by'
        ' rank"'
    ),
)
EXAMPLE = "alltrace demo --output demo"


def configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "-o",
        "--output",
        type=place,
        default=Path("demo"),
        metavar="DIR",
        help="the folder for its files; default: demo",
    )
    parser.add_argument(
        "--case",
        choices=(*CASES, *HANG_CASES),
        default="slow-rank",
        metavar="CASE",
        help=f"the fault to simulate: {', '.join((*CASES, *HANG_CASES))}; default: slow-rank",
    )
    parser.add_argument(
        "--ranks", type=int, default=16, metavar="N", help="number of ranks of the simulated run; default: 16"
    )


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
    _say(
        f"\na page with all of this and more, to open in a browser or to share:  $ alltrace report {run} -o"
        f" {quote(str(page))}"
    )
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
    _say(
        f"simulating a job of 16 ranks in {folder}: tensor, data and pipeline parallel; its dumps were written 10"
        " minutes later"
    )
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
    who = (
        "all ranks"
        if everybody
        else f"rank{'s' if len(planted['ranks']) > 1 else ''} {', '.join(map(str, planted['ranks']))}"
    )
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

"""The verb `import`: makes a run directory, or brings it up to date; after an interruption it continues."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING

from alltrace.cli.argument_types import place
from alltrace.cli.command import add_import_options, add_pattern_option, rules_from
from alltrace.cli.engine import start_engine
from alltrace.trace.errors import EXIT_DONE, InputError, UsageError, printable
from alltrace.trace.number_text import counted

if TYPE_CHECKING:
    import argparse

    from alltrace.run.manifest import Manifest
    from alltrace.trace.kernel_rules import KernelRules

_LOGS = {
    "--nccl-log": "NCCL logs of the same job, to join with its reports",
    "--training-log": "the training log of the same job, for its steps",
    "--gpu-log": (
        "logs of the GPUs' clocks, power and temperature during the job, from nvidia-smi or DCGM; default:"
        " *.gpu-log.csv in the folders of reports"
    ),
    "--inspector-log": "files of NCCL Inspector of the same job, to join with its reports and for `--source inspector`",
}
EXAMPLE = "alltrace import ./reports/ -o run"


def configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("reports", nargs="*", metavar="REPORT", help="reports, folders of reports, patterns or URLs")
    parser.add_argument(
        "-o", "--output", type=place, required=True, metavar="RUN", help="the run directory to create or to finish"
    )
    how = parser.add_mutually_exclusive_group()
    how.add_argument(
        "--part",
        action="store_true",
        help="REPORT is one of a job's reports; the others are imported into RUN at the same time, on their own nodes",
    )
    how.add_argument(
        "--finish", action="store_true", help="finish the run from the reports imported with --part; takes no REPORT"
    )
    parser.add_argument("--only", metavar="TABLES", help="import only these tables, such as kernels,copies")
    for option, text in _LOGS.items():
        parser.add_argument(option, nargs="+", action="extend", default=[], metavar="FILE", help=text)
    add_pattern_option(parser, "with --training-log: ")
    parser.add_argument(
        "--gpu-log-utc-offset",
        metavar="OFFSET",
        help=(
            "how far the logs' local times are ahead of UTC, such as =+01:00 or =-07:30; default: from "
            "FILE.utc-offset, else detected"
        ),
    )
    group = parser.add_argument_group("name of the run, for `alltrace history`")
    group.add_argument(
        "--job",
        metavar="NAME",
        help="name of the job, the same in all its runs; default: the batch system's name of the job",
    )
    group.add_argument(
        "--revision", metavar="REV", help="version of the program, such as a git commit; default: the CI job's commit"
    )
    group.add_argument(
        "--tag", action="append", default=[], metavar="TAG", help="a tag of the run; may be given several times"
    )
    add_import_options(parser, last=False)


def run(args: argparse.Namespace) -> int:
    from alltrace.cli.progress import ALIGNING, stages, watching
    from alltrace.run.cache import fetch_all
    from alltrace.run.gpu_logs import logs_beside
    from alltrace.run.importer import import_reports
    from alltrace.run.labels import checked_labels
    from alltrace.run.parts import read_parts
    from alltrace.trace.cache_dir import default_folder

    if args.finish == bool(args.reports):
        wrong = (
            "--finish uses the reports imported with --part; leave out REPORT"
            if args.finish
            else "import needs a REPORT"
        )
        raise UsageError(wrong)
    rules = rules_from(args)
    labels = checked_labels(args.job, args.revision, args.tag)
    start_engine(args)
    if args.part:
        return _part(args, rules)
    offset = _checked_logs(args)
    folders = {str(Path(path).parent) for path in read_parts(args.output)} if args.finish else args.reports
    beside = [] if args.gpu_log else logs_beside(sorted(folders))

    def imported(gpu_logs: list[str]) -> Manifest:
        return import_reports(
            args.reports,
            args.output,
            tables=_tables(args.only),
            jobs=args.jobs,
            strict=args.strict,
            rules=rules,
            rank_from=args.rank_from,
            fetch=lambda urls: fetch_all(urls, args.cache_dir or default_folder()),
            watcher=watcher,
            nccl_logs=args.nccl_log,
            training_logs=args.training_log,
            training_patterns=args.pattern,
            gpu_logs=gpu_logs,
            gpu_log_offset_ns=offset,
            inspector_logs=args.inspector_log,
            labels=labels,
        )

    unused = []
    with watching() as watcher:
        try:
            manifest = imported(args.gpu_log or beside)
        except (InputError, UsageError) as error:
            if not beside or (isinstance(error, InputError) and not any(error.path.startswith(log) for log in beside)):
                raise
            unused = [f"GPU logs next to the reports were not joined: {error}"]
            manifest = imported([])
    notes = (*manifest.notes, *unused)
    if any(log.kind != "gpu" for log in manifest.logs):
        from alltrace.align.store import aligned
        from alltrace.run.store import Run

        with stages(len(manifest.ranks)) as advance_of:
            alignment = aligned(Run(args.output), jobs=args.jobs, progress=advance_of(ALIGNING))
        notes = (*notes, *alignment.notes, *alignment.steps_notes)
    rows = sum(sum(r.rows.values()) for r in manifest.ranks)
    out = sys.stderr
    ranks, hosts = counted(len(manifest.ranks), "rank"), counted(len(manifest.hosts), "host")
    print(f"{args.output}: {ranks} on {hosts}, {counted(rows, 'row')}", file=out)
    for note in notes:
        print(f"note: {printable(note)}", file=out)
    return EXIT_DONE


def _part(args: argparse.Namespace, rules: KernelRules | None) -> int:
    """Import reports into a run that other processes import too."""
    from alltrace.cli.progress import watching
    from alltrace.run.cache import fetch_all
    from alltrace.run.importer import import_part
    from alltrace.trace.cache_dir import default_folder

    logs = next(
        (
            f"--{n.replace('_', '-')}"
            for n in ("nccl_log", "training_log", "gpu_log", "inspector_log")
            if getattr(args, n)
        ),
        None,
    )
    logs = logs or next((f"--{n}" for n in ("job", "revision", "tag") if getattr(args, n)), None)
    if logs is not None:
        raise UsageError(f"{logs} is for the whole run; give it with --finish")
    with watching() as watcher:
        ranks = import_part(
            args.reports,
            args.output,
            tables=_tables(args.only),
            jobs=args.jobs,
            rules=rules,
            rank_from=args.rank_from,
            fetch=lambda urls: fetch_all(urls, args.cache_dir or default_folder()),
            watcher=watcher,
        )
    out, rows = sys.stderr, sum(sum(r.rows.values()) for r in ranks)
    numbers = ", ".join(str(r.rank) for r in ranks)
    print(f"{args.output}: {'rank' if len(ranks) == 1 else 'ranks'} {numbers}, {counted(rows, 'row')}", file=out)
    return EXIT_DONE


def _checked_logs(args: argparse.Namespace) -> int | None:
    """How far local times of GPU logs are ahead of UTC; faulty logs are reported before hours of import."""
    if args.gpu_log_utc_offset is not None and not args.gpu_log:
        raise UsageError("--gpu-log-utc-offset needs --gpu-log, which was not given")
    if args.pattern and not args.training_log:
        raise UsageError("--pattern needs --training-log, which was not given")
    logs = [*args.nccl_log, *args.training_log, *args.gpu_log, *args.inspector_log]
    if not logs:
        return None
    from alltrace.readers.training_log.formats import own_pattern
    from alltrace.run.gpu_logs import parse_utc_offset
    from alltrace.run.log_files import expand

    for text in args.pattern:
        own_pattern(text)
    expand(logs)
    return None if args.gpu_log_utc_offset is None else parse_utc_offset(args.gpu_log_utc_offset)


def _tables(text: str | None) -> list[str] | None:
    from alltrace.trace.schema import EVENT_TABLES

    if text is None:
        return None
    tables = [t.strip() for t in text.split(",") if t.strip()]
    for table in tables:
        if table not in EVENT_TABLES:
            raise UsageError.unknown("table for --only", table, EVENT_TABLES)
    if not tables:
        raise UsageError("--only is empty; expected names of tables such as kernels,copies")
    return tables

"""The verb `export`: writes a run for another tool, or checks a Paraver trace."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from alltrace.cli.argument_types import place
from alltrace.cli.command import add_import_options, add_rank_option, add_steps_option, open_from
from alltrace.trace.errors import EXIT_BREACH, EXIT_DONE, UsageError, printable
from alltrace.trace.number_text import counted
from alltrace.trace.range_selector import parse_range
from alltrace.trace.schema import EVENT_TABLES
from alltrace.trace.spans import WINDOW_WORDS, parse_ranks, parse_steps, parse_window

if TYPE_CHECKING:
    import argparse

    from alltrace.align.aligned import Aligned
    from alltrace.export.selection import Selection

FORMATS = ("paraver", "perfetto", "chrome", "talp", "parquet", "csv", "arrow")
_MEGABYTE = 1_000_000
# the formats that know an option
_ONLY = {
    "paraver": "ids fold_streams details demangled base_pcf cfgs",
    "perfetto chrome": "max_mb",
    "perfetto": "gpu_events",
}
EXAMPLE = "alltrace export paraver ./reports/ -o out.prv.gz --cfgs"


def configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("what", choices=(*FORMATS, "check"), metavar="FORMAT", help=f"{', '.join(FORMATS)}; or check")
    parser.add_argument(
        "run",
        nargs="+",
        metavar="RUN",
        help="a run directory, or reports, which are imported into the cache first; for check, .prv files",
    )
    parser.add_argument(
        "-o", "--output", type=place, metavar="PATH", help="the file to write; a new folder for parquet, csv and arrow"
    )
    add_import_options(parser)
    which = parser.add_argument_group("what of the run")
    add_rank_option(which)
    which.add_argument("--only", metavar="TABLES", help="only these tables, such as kernels,copies")
    add_steps_option(which, "from the start of the first of these steps to the end of the last")
    which.add_argument(
        "--window", metavar="WINDOW", help=f"only this time, with events cut at its borders: {WINDOW_WORDS}"
    )
    which.add_argument(
        "--range",
        metavar="NAME",
        help=(
            "from the first start of this NVTX range on any rank to its last end, or to the last end of work launched "
            "in it: RANGE[@DOMAIN][/INDEX], as in `nsys stats`; without an index, all ranges with that name"
        ),
    )
    prv = parser.add_argument_group("paraver")
    prv.add_argument(
        "--ids", choices=("extrae", "nsys2prv"), default="extrae", help="the numbering of event types; default: extrae"
    )
    prv.add_argument("--fold-streams", action="store_true", help="one row for all streams of a device")
    prv.add_argument(
        "--details",
        action="store_true",
        help="also write the geometry and correlation of launches, as nsys2prv always does",
    )
    prv.add_argument(
        "--demangled", action="store_true", help="show kernel names with template arguments and parameters"
    )
    prv.add_argument("--base-pcf", type=Path, metavar="FILE", help="use the values that names have in this .pcf")
    prv.add_argument("--cfgs", action="store_true", help="write a folder of configurations next to the trace")
    viewers = parser.add_argument_group("perfetto and chrome")
    viewers.add_argument(
        "--by-host", action="store_true", help="perfetto: a .tar with a trace for each host and Perfetto's manifest"
    )
    viewers.add_argument(
        "--gpu-events",
        action="store_true",
        help=(
            "perfetto: the work of GPUs as Perfetto's own GPU events, which it shows by GPU and queue, with launches of"
            " kernels; without flows between the members of a collective"
        ),
    )
    viewers.add_argument("--max-mb", type=float, metavar="MB", help="start a new file after this size, uncompressed")


def run(args: argparse.Namespace) -> int:
    _check_options(args)
    if args.what == "check":
        return _check(args)
    if args.output is None:
        raise UsageError(f"export {args.what} needs -o PATH")
    if args.what == "perfetto" and args.output.name.endswith(".json"):
        raise UsageError(f"-o is {args.output}; perfetto does not write JSON; expected a name such as out.pftrace")
    ranks, steps, window = parse_ranks(args.ranks), parse_steps(args.steps), parse_window(args.window)
    selectors = [f"--{name}" for name in ("steps", "window", "range") if getattr(args, name) is not None]
    if len(selectors) > 1:
        raise UsageError(f"{' and '.join(selectors)} were given; give one of them")
    within = None if args.range is None else parse_range("--range", args.range)
    if args.max_mb is not None and not 0 < args.max_mb < float("inf"):
        raise UsageError(f"--max-mb is {args.max_mb}; expected a number above 0")
    if args.by_host and (args.what != "perfetto" or args.max_mb is not None):
        raise UsageError("--by-host works with perfetto, and not with --max-mb")
    only = None if args.only is None else {t.strip() for t in args.only.split(",") if t.strip()}
    if only is not None and not only:
        raise UsageError("--only is empty; expected names of tables such as kernels,copies")
    run = open_from(args)
    from alltrace.align.store import aligned as align
    from alltrace.cli.progress import ALIGNING, stages
    from alltrace.export.selection import select
    from alltrace.recipes.execution.availability import notes_on_damage

    with stages(len(run.ranks)) as advance_of:
        aligned = align(run, jobs=args.jobs, progress=advance_of(ALIGNING))
    selection = select(run, ranks=ranks, only=only, window_ns=window, steps=steps, aligned=aligned, within=within)
    print(f"{args.output}: {_write(args, selection, aligned)}", file=sys.stderr)  # noqa: T201
    chosen = [r for r in run.ranks if ranks is None or r.rank in ranks]
    read: dict[str, tuple[str, ...]] = dict.fromkeys(EVENT_TABLES if only is None else only, ())
    for note in (*aligned.notes, *notes_on_damage(run, chosen, read, aligned=False)):
        print(f"note: {printable(note)}", file=sys.stderr)  # noqa: T201
    return EXIT_DONE


def _check_options(args: argparse.Namespace) -> None:
    """Raise for an option that the format would pass over in silence."""
    for formats, names in _ONLY.items():
        odd = next((n for n in names.split() if getattr(args, n) not in (None, False, "extrae")), None)
        if odd is not None and args.what not in formats.split():
            option = f"--{odd.replace('_', '-')}"
            raise UsageError(
                f"{option} works with {formats.replace(' ', ' and ')}, and the format is {args.what}; leave it out"
            )


def _write(args: argparse.Namespace, selection: Selection, aligned: Aligned) -> str:
    most = None if args.max_mb is None else int(args.max_mb * _MEGABYTE)
    if args.what == "paraver":
        from alltrace.export.paraver.writer import export_paraver

        done = export_paraver(
            selection,
            args.output,
            ids=args.ids,
            fold_streams=args.fold_streams,
            details=args.details or args.ids == "nsys2prv",
            demangled=args.demangled,
            base_pcf=args.base_pcf,
            cfgs=args.cfgs,
            jobs=args.jobs,
        )
        records = f"{done.states:,} states, {done.events:,} events, {done.communications:,} communications"
        return f"{done.tasks} tasks, {done.threads} threads, {records}"
    if args.what in ("chrome", "perfetto"):
        from alltrace.export.chrome import export_chrome
        from alltrace.export.perfetto import export_by_host, export_perfetto

        if args.by_host:
            written = export_by_host(
                selection, args.output, aligned=aligned, jobs=args.jobs, gpu_events=args.gpu_events
            )
        else:
            options: dict[str, Any] = {"aligned": aligned, "most_bytes": most, "jobs": args.jobs}
            written = (
                export_chrome(selection, args.output, **options)
                if args.what == "chrome"
                else export_perfetto(selection, args.output, **options, gpu_events=args.gpu_events)
            )
        where = "an archive" if args.by_host else counted(len(written.files), "file")
        crossed = f"; {written.beside:,} of them cross others and are on separate tracks" if written.beside else ""
        return f"{counted(written.slices, 'slice')} in {where}{crossed}"
    if args.what == "talp":
        from alltrace.export.talp import export_talp

        export_talp(selection, args.output, jobs=args.jobs)
        return f"the region Global of {counted(len(selection.ranks), 'rank')}"
    from alltrace.export.tables import export_tables

    rows = export_tables(selection, args.output, args.what, jobs=args.jobs)
    return f"{counted(len(rows), 'table')}, {counted(sum(rows.values()), 'row')}"


def _check(args: argparse.Namespace) -> int:
    from alltrace.export.paraver.checker import check

    faults = 0
    for name in args.run:
        report = check(Path(name))
        for fault in report.faults:
            print(f"{name}: {printable(fault)}")  # noqa: T201
        verdict = "no fault" if not report.count else f"{report.count:,} fault{'s' * (report.count > 1)}"
        print(f"{name}: {report.records:,} records, {verdict}")  # noqa: T201
        faults += report.count
    return EXIT_BREACH if faults else EXIT_DONE

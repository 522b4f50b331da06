"""The sub-verb `capture script`: writes a job script or manifest that profiles every rank."""

import argparse
import sys
from pathlib import Path
from typing import Any

from alltrace.capture.scripts.registry import TARGETS
from alltrace.cli.argument_types import file_or_output
from alltrace.trace.errors import EXIT_DONE, UsageError, printable

# an option and the setting that it is
_SHORT = {
    "name": "job.name", "nodes": "job.nodes", "ranks_per_node": "job.ranks_per_node", "reports": "job.output",
    "workload": "workload.kind", "profiler": "profiler.kind", "ranks": "profiler.ranks", "steps": "profiler.steps",
    "kernels": "profiler.kernels", "upload": "upload.url", "nccl_inspector": "nccl.inspector",
    "image": "kubernetes.image",
}  # fmt: skip
EXAMPLE = "alltrace capture script slurm --nodes 4 --steps 70:75 -o job.sbatch -- python train.py --batch 8"


def configure(parser: argparse.ArgumentParser) -> None:
    """The target, and where settings come from; the program follows a lone `--`."""
    parser.usage = f"{parser.prog} TARGET [options] [-- PROGRAM [ARGUMENT ...]]"
    width = max(len(t.name) for t in TARGETS)
    listed = "\n".join(f"  {t.name:<{width}}  {t.help}" for t in TARGETS)
    parser.epilog = f"targets:\n{listed}\n\n{parser.epilog}"
    parser.add_argument("target", nargs="?", metavar="TARGET", help=f"one of {', '.join(t.name for t in TARGETS)}")
    settings = parser.add_argument_group("settings")
    settings.add_argument(
        "--config", type=Path, metavar="FILE", help="read settings from this job.toml; options override them"
    )
    settings.add_argument(
        "--set",
        dest="assignments",
        action="append",
        default=[],
        metavar="SECTION.KEY=VALUE",
        help="any setting of a job.toml; may be given several times",
    )
    for option, setting in _SHORT.items():
        settings.add_argument(f"--{option.replace('_', '-')}", metavar="VALUE", help=f"is {setting}")
    settings.add_argument(
        "--top", nargs=2, metavar=("N", "RUN"), help="for ncu: the N compute kernels that took longest in RUN"
    )
    settings.add_argument(
        "--show-config", action="store_true", help="write the settings as a job.toml, each with a description"
    )
    parser.add_argument(
        "-o", "--output", type=file_or_output, metavar="FILE", help="write to FILE instead of standard output"
    )


def run(args: argparse.Namespace) -> int:
    from alltrace.capture.scripts.registry import render
    from alltrace.capture.scripts.settings import Job

    job = Job(_settings(args))
    if args.show_config:
        text = job.as_toml()
    elif args.target is None:
        raise UsageError(f"capture script needs a target, one of {', '.join(t.name for t in TARGETS)}")
    else:
        text = render(args.target, job)
    if args.output is None:
        sys.stdout.write(text)
        return EXIT_DONE
    try:
        args.output.write_text(text, encoding="utf-8")
    except OSError as error:
        raise UsageError(f"{args.output} cannot be written ({error.strerror}); give another --output") from error
    sys.stderr.write(printable(f"wrote {args.output}") + "\n")
    return EXIT_DONE


def _settings(args: argparse.Namespace) -> dict[str, Any]:
    from alltrace.capture.scripts.settings import parse_assignment, read_job
    from alltrace.cli.capturing.heaviest import checked_top, heaviest

    settings = read_job(args.config) if args.config else {}
    assignments = [f"{setting}={getattr(args, o)}" for o, setting in _SHORT.items() if getattr(args, o) is not None]
    for text in [*assignments, *args.assignments]:
        name, value = parse_assignment(text)
        section, _, key = name.partition(".")
        if section == "environment":
            settings["environment"] = {**settings.get("environment", {}), key: value}
        else:
            settings[name] = value
    if args.program:
        settings = {**settings, "workload.command": args.program}
        settings.setdefault("workload.kind", "command")
        if settings["workload.kind"] != "command":
            raise UsageError(
                f"workload.kind is {settings['workload.kind']}, but a program was given after --; give one of them"
            )
    top = checked_top(args.top)
    if top is not None:
        if "profiler.kernels" in settings:
            raise UsageError("--top and profiler.kernels both select the kernels to measure; give one of them")
        settings["profiler.kernels"] = heaviest(*top)
    return settings

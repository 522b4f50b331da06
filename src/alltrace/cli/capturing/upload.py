"""The sub-verb `capture upload`: copies the reports of a job away."""

import argparse
import sys
from pathlib import Path

from alltrace.trace.errors import EXIT_DONE, EXIT_INPUT, printable
from alltrace.trace.number_text import counted

EXAMPLE = "alltrace capture upload reports/4711 s3://bucket/profiles/4711"


def configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("places", type=Path, nargs="+", metavar="DIR", help="reports, or folders of files to copy")
    parser.add_argument(
        "url",
        metavar="URL",
        help="the destination, such as s3://bucket/folder, https://host/folder (by PUT) or file:///folder",
    )
    parser.add_argument(
        "--scrub", action="store_true", help="copy what `capture scrub` makes of nsys reports, and no other reports"
    )
    parser.add_argument(
        "--nsys", metavar="PATH", help="the nsys that exports reports for --scrub; default: as for capture exec"
    )


def run(args: argparse.Namespace) -> int:
    """Copy them; 3 if a file is not there afterwards, or is no whole report."""
    from alltrace.capture.profilers.tool import locate
    from alltrace.capture.scrub import scrub
    from alltrace.capture.upload import upload

    def scrubbed(report: Path, target: Path) -> None:
        scrub(report, target, nsys=lambda: locate("nsys", args.nsys))

    uploaded = upload(args.places, args.url, _say, scrub=scrubbed if args.scrub else None)
    for path, fault in uploaded.faults:
        _say(f"{path}: {fault}")
    there = f", {uploaded.present} were already there" if uploaded.present else ""
    print(  # noqa: T201
        printable(
            f"{counted(uploaded.copied, 'file')}, {counted(uploaded.size, 'byte')} copied to {uploaded.place}{there}"
        )
    )
    if not args.scrub:
        print(  # noqa: T201
            "reports contain the whole environment of the job, tokens included; share the folder only with people who"
            " may see it"
        )
    return EXIT_INPUT if uploaded.faults else EXIT_DONE


def _say(text: str) -> None:
    sys.stderr.write(f"alltrace capture: {printable(text)}\n")

"""The sub-verb `capture upload`: copies the reports of a job away."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING

from alltrace.trace.errors import EXIT_DONE, EXIT_INPUT, printable
from alltrace.trace.number_text import counted

if TYPE_CHECKING:
    import argparse

EXAMPLE = "alltrace capture upload reports/4711 s3://bucket/profiles/4711"


def configure(parser: argparse.ArgumentParser) -> None:
    """What is copied, and where to."""
    parser.add_argument("folder", type=Path, metavar="DIR", help="its files are copied, with all folders in it")
    parser.add_argument("url", metavar="URL", help="where to, such as s3://bucket/folder or gs://bucket/folder")


def run(args: argparse.Namespace) -> int:
    """Copy them; 3 where a file is not there afterwards, or is no whole report."""
    from alltrace.capture.upload import upload

    found = upload(args.folder, args.url, lambda text: _say(text))
    for path, fault in found.faults:
        _say(f"{path}: {fault}")
    there = f", {found.present} were there already" if found.present else ""
    print(printable(f"{counted(found.copied, 'file')}, {counted(found.size, 'byte')} copied to {args.url}{there}"))  # noqa: T201
    print("reports hold the whole environment of the job, tokens included; share the folder with those who may see it")  # noqa: T201
    return EXIT_INPUT if found.faults else EXIT_DONE


def _say(text: str) -> None:
    sys.stderr.write(f"alltrace capture: {printable(text)}\n")

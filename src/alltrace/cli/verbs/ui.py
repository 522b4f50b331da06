"""The verb `ui`: shows one run, or two side by side, in a browser."""

from __future__ import annotations

import argparse
import socket
import sys
from pathlib import Path
from urllib.parse import urlsplit

from alltrace.cli.command import add_import_options
from alltrace.cli.ending import ends_in_order
from alltrace.trace.errors import EXIT_DONE

_MOST_PORT = 65535
EXAMPLE = "alltrace ui ./reports/ --no-browser"


def configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("run", metavar="RUN", help="a run directory, a report or a folder of reports")
    parser.add_argument("other", nargs="?", metavar="RUN_B", help="another run to compare with")
    parser.add_argument(
        "--ncu",
        nargs="+",
        action="extend",
        default=[],
        type=Path,
        metavar="REPORT",
        help=(
            "reports of Nsight Compute (.ncu-rep, or a page that ncu printed); the page shows their roofline, weighted"
            " by RUN"
        ),
    )
    parser.add_argument(
        "--history",
        type=Path,
        metavar="HISTORY",
        help=(
            "a file that `alltrace history --history HISTORY` keeps; the page shows the step times, findings and slow"
            " hosts of its runs"
        ),
    )
    group = parser.add_argument_group("the server")
    group.add_argument(
        "--port", type=_port, default=0, metavar="N", help="the port to listen on; default: any free port"
    )
    group.add_argument(
        "--host",
        default="127.0.0.1",
        metavar="ADDRESS",
        help=(
            "the address to listen on; default: 127.0.0.1, which other machines cannot reach. Every address requires"
            " the token"
        ),
    )
    group.add_argument("--no-browser", action="store_true", help="print the page's address and do not open a browser")
    add_import_options(parser)


def run(args: argparse.Namespace) -> int:
    from alltrace.cli.kernel_reports import read_reports
    from alltrace.ui.history import HistoryFile
    from alltrace.ui.kernels import KernelReports
    from alltrace.ui.serve import serve

    reports, notes = read_reports(args.ncu)
    kernels = KernelReports([each for report in reports for each in report], notes) if reports else None
    history = None if args.history is None else HistoryFile(args.history)
    names = [text for text in (args.run, args.other) if text is not None]
    paths = [_run_of(text, args) for text in names]
    try:
        with ends_in_order():
            serve(
                paths,
                names,
                host=args.host,
                port=args.port,
                browser=not args.no_browser,
                jobs=args.jobs,
                tell=_tell,
                kernels=kernels,
                history=history,
            )
    except KeyboardInterrupt:  # how a server is stopped
        print(file=sys.stderr)  # noqa: T201
    return EXIT_DONE


def _run_of(text: str, args: argparse.Namespace) -> Path:
    """The run directory that a text names; reports are imported first. A run in import is shown as it is."""
    import argparse

    from alltrace.cli.command import open_from
    from alltrace.run.manifest import read_manifest
    from alltrace.run.resolve import given_run

    directory = given_run([text])
    if directory is not None and not read_manifest(directory).complete:
        return directory
    return Path(open_from(argparse.Namespace(**{**vars(args), "run": [text]})).path)


def _port(text: str) -> int:
    import argparse

    if not text.isascii() or not text.isdigit() or not int(text) <= _MOST_PORT:
        raise argparse.ArgumentTypeError(f"it is {text!r}, expected a number from 0 to {_MOST_PORT}")
    return int(text)


def _tell(address: str) -> None:
    print(address, flush=True)  # noqa: T201
    port = urlsplit(address).port
    tunnel = f"ssh -L {port}:127.0.0.1:{port} {socket.gethostname()}"
    print(  # noqa: T201
        f"From another machine: {tunnel}, then open the same address there. Ctrl-C stops the server.", file=sys.stderr
    )

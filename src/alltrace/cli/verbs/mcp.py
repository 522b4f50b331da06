"""The verb `mcp`: a Model Context Protocol server, for programs that ask questions about runs."""

import argparse
import sys
from contextlib import nullcontext
from pathlib import Path

from alltrace.cli.ending import ends_in_order
from alltrace.trace.errors import EXIT_DONE, UsageError, printable

_MOST_PORT = 65535
EXAMPLE = "alltrace mcp ./reports/"


def configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "root",
        nargs="*",
        type=Path,
        metavar="FOLDER",
        help="folders from which runs may be opened; default: the current one",
    )
    parser.add_argument(
        "--http",
        type=int,
        metavar="PORT",
        help="serve HTTP on this port of 127.0.0.1 (0: any free port), and print the address and a token; default: "
        "use standard input and output",
    )
    parser.add_argument(
        "--cache-dir",
        type=Path,
        metavar="DIR",
        help="the folder for imported reports; default: ALLTRACE_CACHE_DIR or the user's cache folder",
    )


def run(args: argparse.Namespace) -> int:
    from alltrace.mcp.server import serve

    roots = args.root or [Path()]
    for root in roots:
        if not root.exists():
            raise UsageError(f"{printable(str(root))}: there is no such folder; expected a folder of runs or reports")
    if args.http is not None and not 0 <= args.http <= _MOST_PORT:
        raise UsageError(f"--http is {args.http}; expected a port from 0 to {_MOST_PORT}")
    # a client that ends a server on its standard input closes that first
    with ends_in_order() if args.http is not None else nullcontext():
        serve(
            roots,
            cache_dir=args.cache_dir,
            port=args.http,
            tell=lambda text: print(text, file=sys.stderr, flush=True),  # noqa: T201
        )
    return EXIT_DONE

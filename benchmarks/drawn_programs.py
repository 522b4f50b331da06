"""Seeds, options and folders of the benchmarks that draw programs."""

from __future__ import annotations

import hashlib
import json
import sys
import tempfile
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import argparse
    from collections.abc import Iterator, Sequence

SPLITS = ("dev", "unseen")


def seed_of(seed: int, index: int) -> int:
    """The seed of a program; the first has that of the command, so that any program can be run alone."""
    if index == 0:
        return seed
    return int.from_bytes(hashlib.blake2b(f"{seed} {index}".encode(), digest_size=5).digest())


def drawing_seed(split: str, seed: int) -> int:
    """What a program is drawn from: different for each split."""
    return int.from_bytes(hashlib.blake2b(f"{split} {seed}".encode(), digest_size=7).digest())


def add_options(parser: argparse.ArgumentParser, programs: int, result: str) -> None:
    """Add the options of such a benchmark.

    Args:
        parser: The command's parser.
        programs: How many programs are drawn by default.
        result: What `--json` has of each program.
    """
    parser.add_argument("--programs", type=int, default=programs, help="how many programs (default: %(default)s)")
    parser.add_argument(
        "--seed", type=int, default=1, help="of the first program, from which those of the others follow"
    )
    parser.add_argument("--split", choices=SPLITS, default="dev", help="which programs (default: dev)")
    parser.add_argument("--keep", type=Path, metavar="FOLDER", help="keep reports and runs there")
    parser.add_argument("--json", type=Path, metavar="FILE", help=f"write each program's {result} there")


def parsed(parser: argparse.ArgumentParser) -> argparse.Namespace:
    """The options that were given; wrong ones end the process."""
    args = parser.parse_args()
    if args.programs < 1:
        parser.error(f"--programs must be at least 1; {args.programs} was given")
    return args


@contextmanager
def folder_for(args: argparse.Namespace, name: str) -> Iterator[Path]:
    """A folder for a program: of this name in `--keep`, or one that is removed afterwards."""
    if args.keep:
        yield args.keep / name
        return
    with tempfile.TemporaryDirectory(prefix="alltrace-drawn-", ignore_cleanup_errors=True) as folder:
        yield Path(folder)


def show_progress(number: int, total: int) -> None:
    """Tell a terminal how many programs are done."""
    if sys.stderr.isatty():
        print(f"\r{number} of {total}", end="", file=sys.stderr, flush=True)


def write_json(args: argparse.Namespace, rows: Sequence[dict[str, Any]]) -> None:
    """Write what came of each program into `--json`, if it is given."""
    if args.json:
        args.json.write_text(json.dumps(rows, indent=1))

"""`python -m tests.recorded make [RUN...]` makes the recorded runs; `record [RUN...]` records what is answered about
them."""

from __future__ import annotations

import argparse
import sys
import tempfile
from pathlib import Path

from tests.recorded.making import MOST_BYTES, MOST_RUN_BYTES, RUNS, make, size_of
from tests.recorded.worlds import WORLDS


def main() -> int:
    """Run what the command line says; 1 if a recorded answer has changed or a run is too large."""
    parser = argparse.ArgumentParser(prog="python -m tests.recorded", description=__doc__)
    parser.add_argument("command", choices=("make", "record"))
    parser.add_argument("runs", nargs="*", metavar="RUN", help=f"which (default: all): {', '.join(WORLDS)}")
    args = parser.parse_args()
    chosen = args.runs or list(WORLDS)
    unknown = [name for name in chosen if name not in WORLDS]
    if unknown:
        parser.error(f"unknown run {unknown[0]}; there are {', '.join(WORLDS)}")
    if args.command == "make":
        return _make(chosen)
    from tests.recorded.recording import record

    return record(chosen)


def _make(chosen: list[str]) -> int:
    too_large = False
    for name in chosen:
        with tempfile.TemporaryDirectory() as scratch:
            make(name, RUNS / name, Path(scratch))
        size = size_of(RUNS / name)
        too_large |= size > MOST_RUN_BYTES
        print(f"{name}: {size:,} bytes", flush=True)
    total = size_of(RUNS)
    print(f"together: {total:,} bytes")
    if too_large or total > MOST_BYTES:
        print(f"more than {MOST_RUN_BYTES:,} bytes for a run, or {MOST_BYTES:,} for all", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    raise SystemExit(main())

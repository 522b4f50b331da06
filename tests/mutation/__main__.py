"""Judges a sample of changes and prints each verdict. `python -m tests.mutation --help`."""

from __future__ import annotations

import argparse
import math
import random
import subprocess
import sys
import tempfile
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from queue import SimpleQueue

from tests.mutation.contexts import KEPT, Contexts, chosen_tests, record
from tests.mutation.judging import Tree
from tests.mutation.places import CORE, PACKAGE, Place, all_places, changed_lines, core_places


def main(arguments: list[str] | None = None) -> int:
    """0 whatever survived, because a survivor may do the same; 3 where the places to draw from cannot be known."""
    parser = argparse.ArgumentParser(prog="python -m tests.mutation", description=__doc__)
    parser.add_argument(
        "--limit", type=int, default=30, help="how many changes of Python, drawn at random (default: 30)"
    )
    parser.add_argument("--core", type=int, default=0, help=f"how many of the {len(CORE)} changes of compiled modules")
    parser.add_argument("--seed", type=int, default=1, help="which ones (default: 1)")
    parser.add_argument("--since", default="", help="draw from the lines that have changed since this commit")
    parser.add_argument(
        "--files", default="", help="of files whose names begin so, separated by commas: replay/,api.py"
    )
    parser.add_argument("--mirror", action="store_true", help="only the tests that mirror the file; records nothing")
    parser.add_argument("--record", action="store_true", help="record anew which tests execute which line")
    parser.add_argument("--minutes", type=float, default=0.0, help="end after these minutes (default: no limit)")
    parser.add_argument(
        "--tests-seconds", type=float, default=60.0, help="most seconds of tests for a change (default: 60)"
    )
    parser.add_argument("--jobs", type=int, default=2, help="how many at a time (default: 2)")
    chosen = parser.parse_args(arguments)
    try:
        sample = _drawn(chosen)
    except subprocess.CalledProcessError as error:
        print(f"what has changed since {chosen.since} is not known: {error.stderr.strip()}", file=sys.stderr)
        return 3
    if not sample:
        return 0
    contexts = None
    if not chosen.mirror:
        if chosen.record or not (KEPT / "source").is_dir():
            record()
        contexts = Contexts()
    _judge(sample, contexts, chosen)
    return 0


def _drawn(chosen: argparse.Namespace) -> list[Place]:
    prefixes = tuple(f for f in chosen.files.split(",") if f) or ("",)
    lines = changed_lines(chosen.since) if chosen.since else None
    if lines is not None:
        prefixes = tuple({file for file, _ in lines if file.startswith(prefixes)})
    pools = [
        [p for p in pool if p.file.startswith(prefixes) and (lines is None or (p.file, p.line) in lines)]
        for pool in (all_places(prefixes), core_places())
    ]
    draw = random.Random(chosen.seed)
    sample = [
        p
        for pool, count in zip(pools, (chosen.limit, chosen.core), strict=True)
        for p in draw.sample(pool, min(count, len(pool)))
    ]
    print(f"{len(sample)} of {sum(map(len, pools))} changes, seed {chosen.seed}", flush=True)
    return sample


def _judge(sample: list[Place], contexts: Contexts | None, chosen: argparse.Namespace) -> None:
    began = time.monotonic()
    counts: Counter[str] = Counter()
    trees: SimpleQueue[Tree] = SimpleQueue()

    def judge(place: Place, tests: list[str]) -> str | None:
        tree, start = trees.get(), time.monotonic()
        left_s = began + 60 * chosen.minutes - start if chosen.minutes else math.inf
        limit_s = 30 + 3 * chosen.tests_seconds
        try:
            if left_s < 0:
                return None
            verdict = tree.judged(place, tests, min(limit_s, left_s))
        finally:
            trees.put(tree)
        if verdict == "timeout" and left_s < limit_s:
            verdict = "unsure"
        count = f"{len(tests)} {'files' if contexts is None else 'tests'}"
        took = f"{time.monotonic() - start:.0f} s"
        change = f"{PACKAGE}/{place.file}:{place.line}: {place.old!r} -> {place.new!r}"
        print(f"{verdict:8} {change} ({count}, {took})", flush=True)
        return verdict

    with tempfile.TemporaryDirectory(prefix="mutation-", ignore_cleanup_errors=True) as folder:
        for number in range(min(chosen.jobs, len(sample))):
            place = Path(folder) / str(number)
            place.mkdir()
            trees.put(Tree(place))
        tests = [chosen_tests(p.file, p.line, contexts, chosen.tests_seconds) for p in sample]
        with ThreadPoolExecutor(chosen.jobs) as pool:
            counts.update(v for v in pool.map(judge, sample, tests) if v is not None)
    killed, judged = counts["killed"] + counts["timeout"], counts.total() - counts["unsure"]
    print(f"killed {killed} of {judged}" + (f" ({100 * killed / judged:.0f} %)" if judged else ""))


if __name__ == "__main__":
    sys.exit(main())

"""A few steps of a PyTorch trace, to keep: `python -m benchmarks.ladder.excerpt TRACE EXCERPT --steps 6:9`."""

from __future__ import annotations

import argparse
import gzip
import json
import sys
from pathlib import Path
from typing import Any

from alltrace.trace.errors import EXIT_DONE, EXIT_USAGE, UsageError

_STEP = "ProfilerStep#"
_LEFT_OUT = ("ac2g", "fwdbwd")
"""Arrows, which repeat what correlation and sequence numbers say."""


def excerpt(trace: dict[str, Any], first: int, end: int) -> dict[str, Any]:
    """The steps from number `first` to before `end` of a trace: what the host did, and what it launched.

    Raises:
        UsageError: The trace does not have these steps.
    """
    events = trace["traceEvents"]
    steps = {e["name"]: e for e in events if e.get("cat") == "user_annotation" and e["name"].startswith(_STEP)}
    chosen = [steps.get(f"{_STEP}{number}") for number in range(first, end)]
    if not chosen or None in chosen:
        raise UsageError(
            f"--steps {first}:{end}: the trace has {', '.join(sorted(steps)) or 'no steps'}; name some of these"
        )
    spans = [s for s in chosen if s is not None]
    begin, until = spans[0]["ts"], max(s["ts"] + s["dur"] for s in spans)
    complete = [e for e in events if e["ph"] == "X" and e.get("cat") not in _LEFT_OUT]
    of_host = [e for e in complete if not _on_device(e) and begin <= e["ts"] and e["ts"] + e["dur"] <= until]
    launched = {e["args"]["correlation"] for e in of_host if "correlation" in e.get("args", {})}
    of_device = [e for e in complete if _on_device(e) and e.get("args", {}).get("correlation") in launched]
    described = [e for e in events if e["ph"] == "M"]
    whole = {key: value for key, value in trace.items() if key not in ("traceEvents", "traceName")}
    return {**whole, "traceEvents": [*described, *of_host, *of_device]}


def _on_device(event: dict[str, Any]) -> bool:
    return event.get("cat") in ("kernel", "gpu_memcpy", "gpu_memset")


def main() -> int:
    """Write the excerpt that the arguments name; the code to exit with."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.ladder.excerpt", description=__doc__)
    parser.add_argument("trace", type=Path, help="a .pt.trace.json.gz")
    parser.add_argument("excerpt", type=Path, help="the .pt.trace.json.gz to write")
    parser.add_argument(
        "--steps", required=True, metavar="FIRST:END", help="numbers of the first step and of the one after the last"
    )
    given = parser.parse_args()
    try:
        first, end = (int(n) for n in given.steps.split(":"))
        with gzip.open(given.trace, "rt", encoding="utf-8") as file:
            found = excerpt(json.load(file), first, end)
        text = json.dumps(found, separators=(",", ":"))
        given.excerpt.write_bytes(gzip.compress(text.encode(), mtime=0))
    except ValueError as error:
        print(f"error: {given.trace} or --steps {given.steps}: {error}; name a trace and FIRST:END", file=sys.stderr)
        return EXIT_USAGE
    except (OSError, UsageError) as error:
        print(f"error: {error}", file=sys.stderr)
        return EXIT_USAGE
    return EXIT_DONE


if __name__ == "__main__":
    sys.exit(main())

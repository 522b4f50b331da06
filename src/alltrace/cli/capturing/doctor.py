"""The sub-verb `capture doctor`: says what is in the way of profiling."""

import argparse
import os
import sys

from alltrace.capture.doctor import Finding
from alltrace.trace.errors import EXIT_BREACH, EXIT_DONE, printable

_COLUMNS = ("host", "state", "what", "found", "fix")
EXAMPLE = "srun -N2 --ntasks-per-node=1 alltrace capture doctor"


def configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--format", choices=("table", "json"), default="table", help="json prints one line per host; default: table"
    )


def run(args: argparse.Namespace) -> int:
    """Show each finding with its fix; 1 if something must be mended before profiling."""
    from alltrace.capture.doctor import examine

    host = os.environ.get("SLURMD_NODENAME") or os.uname().nodename.split(".")[0]
    findings = examine()
    text = _as_json(host, findings) if args.format == "json" else _as_lines(host, findings)
    sys.stdout.write(text)  # one write, so that the lines of many hosts do not mix
    return EXIT_BREACH if any(one.state == "bad" for one in findings) else EXIT_DONE


def _as_lines(host: str, findings: list[Finding]) -> str:
    return "".join(
        printable(f"{host}: {one.state:<8}{one.what:<12}{one.found}" + (f"; fix: {one.fix}" if one.fix else "")) + "\n"
        for one in findings
    )


def _as_json(host: str, findings: list[Finding]) -> str:
    import json

    rows = [
        dict(zip(_COLUMNS, (host, one.state, one.what, one.found, one.fix or None), strict=True)) for one in findings
    ]
    columns = [{"name": name, "unit": None} for name in _COLUMNS]
    return json.dumps({"alltrace": 1, "verb": "capture doctor", "columns": columns, "rows": rows, "notes": []}) + "\n"

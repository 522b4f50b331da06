"""The verb `synth`: writes a simulated run: a report for every rank, and the truth about it."""

import argparse
import sys
from typing import Any

from alltrace.cli.argument_types import place
from alltrace.trace.errors import EXIT_DONE, UsageError
from alltrace.trace.number_text import counted

_NUMBERS = ("ranks", "hosts", "steps", "seed")
EXAMPLE = "alltrace synth sharded -o simulated --ranks 8 --fault slow-rank:ranks=3:factor=1.3"


def configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--list", action="store_true", help="name all scenarios")
    parser.add_argument("scenario", nargs="?", metavar="SCENARIO", help="the scenario; --list lists all")
    parser.add_argument("-o", "--output", type=place, metavar="DIR", help="the folder to write to")
    parser.add_argument(
        "--as",
        dest="form",
        choices=("sqlite", "parquetdir", "kineto"),
        default="sqlite",
        help="format of the reports; default: sqlite",
    )
    parser.add_argument(
        "--logs", action="store_true", help="also write the job's logs: an NCCL log per rank, and the training log"
    )
    for name in _NUMBERS:
        parser.add_argument(
            f"--{name}", type=int, metavar="N", help=f"set the number of {name}" if name != "seed" else "another seed"
        )
    parser.add_argument(
        "--fault",
        action="append",
        default=[],
        metavar="KIND[:FIELD=VALUE]...",
        help="simulate a fault, such as slow-rank:ranks=3,4:factor=1.5; may be given several times",
    )
    parser.add_argument(
        "--ideal",
        action="store_true",
        help=(
            "members of a collective end together, and reports have all names and sizes; without it ends scatter as"
            " measured on real machines, and reports have what profilers record by default"
        ),
    )
    parser.add_argument("--list-faults", action="store_true", help="list all faults and their fields")
    parser.add_argument(
        "--set",
        action="append",
        default=[],
        metavar="FIELD=VALUE",
        help="set any other field of the scenario, such as schema=3.7.2",
    )


def run(args: argparse.Namespace) -> int:
    from alltrace.synth import SCENARIOS, write_run
    from alltrace.synth.faults.parse import describe_faults
    from alltrace.synth.scenarios import scenario_named

    if args.list_faults:
        print("\n".join(describe_faults()))  # noqa: T201
        return EXIT_DONE
    if args.list:
        for name, scenario in SCENARIOS.items():
            print(f"{name:<16}{scenario.about}")  # noqa: T201
        return EXIT_DONE
    if args.scenario is None or args.output is None:
        raise UsageError("synth needs a scenario and -o DIR; `alltrace synth --list` lists the scenarios")
    changes: dict[str, Any] = {n: getattr(args, n) for n in _NUMBERS if getattr(args, n) is not None}
    if args.ideal:
        changes["ideal"] = True
    changes.update(_field(text) for text in args.set)
    scenario = scenario_named(args.scenario).override(**changes)
    if args.fault:
        scenario = scenario.override(faults=(*scenario.faults, *args.fault))
    truth = write_run(scenario, args.output, args.form, args.logs)
    print(f"{args.output}: {counted(len(truth.reports), 'report')} and truth.json", file=sys.stderr)  # noqa: T201
    return EXIT_DONE


def _field(text: str) -> tuple[str, Any]:
    name, equals, value = text.partition("=")
    if not equals or not name.isidentifier():
        raise UsageError(f"--set is {text!r}; expected FIELD=VALUE")
    from alltrace.synth.scenario import is_text

    if is_text(name):
        return name, value
    if value in ("true", "false"):
        return name, value == "true"
    for kind in (int, float):
        try:
            return name, kind(value)
        except ValueError:
            continue
    return name, value

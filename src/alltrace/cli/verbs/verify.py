"""The verb `verify`: reads all of a run directory and names the files that are not as they were written."""

import argparse
from pathlib import Path

from alltrace.cli.command import add_answer_options
from alltrace.trace.errors import EXIT_DONE, EXIT_INPUT

EXAMPLE = "alltrace verify run"


def configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("run", type=Path, metavar="RUN", help="a run directory")
    add_answer_options(parser)


def run(args: argparse.Namespace) -> int:
    import pyarrow as pa

    from alltrace.cli.output import check_output, write_answer
    from alltrace.recipes.base import Answer, Column
    from alltrace.run.verify import Damage, verify

    check_output(args)
    damages = verify(args.run)
    types = {name: pa.int32() if name == "rank" else pa.string() for name in Damage._fields}
    table = pa.Table.from_pylist([damage._asdict() for damage in damages], pa.schema(types))
    note = "some files are missing or damaged" if damages else "all files are intact"
    write_answer("verify", Answer(table, tuple(Column(name, "any", None, "") for name in types), (note,)), {}, args)
    return EXIT_INPUT if damages else EXIT_DONE

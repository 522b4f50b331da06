"""The verb `sql`: answers one read-only query over the canonical tables of all ranks."""

import argparse

from alltrace.cli.command import add_answer_options, add_run_argument, open_from
from alltrace.trace.errors import EXIT_DONE

EXAMPLE = 'alltrace sql ./reports/ "select rank, count(*) from kernels group by rank order by rank"'


def configure(parser: argparse.ArgumentParser) -> None:
    add_run_argument(parser)
    parser.add_argument(
        "query", metavar="QUERY", help="a query in DuckDB's SQL dialect; docs/tables.md lists tables and columns"
    )
    add_answer_options(parser)


def run(args: argparse.Namespace) -> int:
    from alltrace.cli.output import check_output, write_answer
    from alltrace.recipes.questions.sql import query_on_engine

    check_output(args)
    run = open_from(args)
    write_answer("sql", query_on_engine(run, args.query), run.facts(), args)
    return EXIT_DONE

"""`alltrace nsys recipe`: a recipe over several reports; its tables go to a folder under NVIDIA's names."""

from __future__ import annotations

import argparse
import json
import os
import re
import socket
import sys
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

import pyarrow as pa

from alltrace.cli.nsys.arguments import RefusedError
from alltrace.trace.errors import EXIT_DONE, InputError, UsageError, printable

if TYPE_CHECKING:
    from collections.abc import Sequence

    from alltrace.recipes.base import Answer, AnswerTable, Question

_LEFT_OUT = {
    "diff": "alltrace compares runs, not folders of recipes: `alltrace diff RUN_A RUN_B`",
    "nic_metric_map": "network_traffic_map replaced it in 2024.3, which no longer swaps received and sent bytes",
    "dx12_mem_ops": "alltrace does not import graphics",
    "gfx_hotspot": "alltrace does not import graphics",
    "gpu_vram_usage_trace": "alltrace does not import graphics",
    "nvtx_cpu_topdown": "alltrace does not import counters of CPU cores",
    "s3_access_sum": "alltrace does not import accesses to S3",
}
"""Recipes that are refused, each with the reason."""

_PATTERN = re.compile(r"%(q\{([^}]*)\}|[hpn%])")
_INDEXED = ("stats", "all_stats", "rank_stats")
_REPORT_ENDINGS = (".nsys-rep", ".qdrep", ".sqlite")


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        raise UsageError(f"{message}; `alltrace {self.prog} --help` shows the usage")


def run(arguments: Sequence[str]) -> int:
    """Answer a command line; returns the exit code."""
    words = list(arguments)
    quiet = bool(words) and words[0] in ("-q", "--quiet")
    words = words[1:] if quiet else words
    if not words or words[0] in ("-h", "--help", "--help-recipes"):
        _show_recipes()
        return EXIT_DONE
    name, *rest = words
    recipe = _find(name)
    args = _parser(name, recipe).parse_args(rest)
    return _ask(name, recipe, args, quiet=quiet)


def names() -> dict[str, str]:
    from alltrace.nvidia.recipe import NsysRecipe
    from alltrace.recipes.reference import summary
    from alltrace.recipes.registry import find
    from alltrace.recipes.registry import names as all_names

    recipes = {name: find(name) for name in all_names()}
    return {n: summary(r) for n, r in recipes.items() if isinstance(r, NsysRecipe)}


def _show_recipes() -> None:
    print("usage: alltrace nsys recipe [-q] NAME [options]\n\nrecipes:")  # noqa: T201
    for name, about in names().items():
        print(f"  {name} -- {about}")  # noqa: T201


def _find(name: str) -> Question:
    from alltrace.nvidia.recipe import NsysRecipe
    from alltrace.recipes.registry import find

    if name in _LEFT_OUT:
        raise RefusedError(f"nsys recipe {name} is refused: {_LEFT_OUT[name]}")
    try:
        recipe = find(name)
    except UsageError as error:
        raise RefusedError(str(error)) from error
    if not isinstance(recipe, NsysRecipe):
        raise RefusedError(f"{name} is a recipe of alltrace only: `alltrace recipe {name} RUN`")
    return recipe


def _parser(name: str, recipe: Question) -> argparse.ArgumentParser:
    from alltrace.recipes.reference import description

    parser = _Parser(
        prog=f"nsys recipe {name}",
        description=description(recipe),
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument(
        "--input",
        nargs="+",
        action="extend",
        metavar="INPUT",
        help="reports or folders of reports; `folder:n` for its first n",
    )
    parser.add_argument(
        "--output", metavar="OUTPUT", help="the folder to create; %%q{ENV}, %%h, %%p, %%n and %%%% are replaced"
    )
    parser.add_argument("--force-overwrite", action="store_true", help="write to an existing folder")
    parser.add_argument(
        "--auto-increment", action="store_true", help="if the folder exists, write to one with a number appended"
    )
    parser.add_argument("--csv", action="store_true", help="also write each table as CSV")
    parser.add_argument(
        "--mode",
        choices=("unset", "none", "concurrent", "dask-futures"),
        default="unset",
        help="how to process the ranks",
    )
    parser.add_argument("--export-dir", metavar="DIR", help="accepted; alltrace keeps what it imports in its cache")
    for option in recipe.options:
        about = {"help": option.help.replace("%", "%%")}
        option.add_to(parser, **about, **({} if option.type is bool else {"required": option.required}))
    return parser


def _ask(name: str, recipe: Question, args: argparse.Namespace, *, quiet: bool) -> int:
    from alltrace.cli.command import add_run_argument, open_from
    from alltrace.recipes.execution.ask import answer_of, checked

    question = checked(recipe, {o.name: getattr(args, o.name) for o in recipe.options})
    inputs = _inputs(args.input or ["."])
    address = os.environ.get("DASK_SCHEDULER_ADDRESS")
    engine = (
        ["--jobs", "1"]
        if args.mode == "none"
        else ["--dask", address]
        if args.mode == "dask-futures" and address
        else []
    )
    parser = argparse.ArgumentParser()
    add_run_argument(parser)
    opened = open_from(parser.parse_args([*engine, "--", *inputs]))
    place, taken = _place(name, args)
    with closing(answer_of(opened, question, jobs=1 if args.mode == "none" else None, stream=True)) as answer:
        for note in answer.notes:
            print(f"alltrace: {printable(note)}", file=sys.stderr)  # noqa: T201
        if all(table.is_empty for table in answer.all_tables().values()):
            if not quiet:
                print("No output generated: the reports have no data for this recipe.")  # noqa: T201
            return EXIT_DONE
        if taken and not quiet:
            print(f"WARNING: {printable(taken)} exists, so the output goes to {place}", file=sys.stderr)  # noqa: T201
        _write(name, answer, place, opened.facts(), csv=args.csv)
    if not quiet:
        print(f"Generated:\n    {printable(str(place))}")  # noqa: T201
    return EXIT_DONE


def _inputs(texts: Sequence[str]) -> list[str]:
    """What to read; `folder:n` is the first n reports of a folder."""
    inputs = []
    for text in texts:
        if Path(text).exists():
            inputs.append(text)
            continue
        folder, colon, count = text.rpartition(":")
        if not (colon and count.isdigit() and Path(folder).is_dir()):
            raise UsageError(f"--input is {text!r}; expected a report, or a folder of reports, that exists")
        stems: dict[str, Path] = {}
        for path in sorted(Path(folder).iterdir()):
            if path.suffix in _REPORT_ENDINGS:  # an export next to its report is the same report
                stems.setdefault(path.stem, path)
        chosen = [str(stems[stem]) for stem in sorted(stems)][: int(count)]
        if not chosen:
            raise InputError(
                folder, found="there is no report in it", expected="files that end with .nsys-rep or .sqlite"
            )
        inputs += chosen
    return inputs


def _place(name: str, args: argparse.Namespace) -> tuple[Path, str | None]:
    """The folder to write to, and the requested one if it exists."""
    if args.output:
        wanted = _filled(args.output)
        if args.force_overwrite or not Path(wanted).exists():
            if Path(wanted).is_file():
                raise UsageError(f"--output is {wanted!r}, a file; expected a folder")
            return Path(wanted), None
        return _numbered(wanted if args.auto_increment else name), wanted
    return _numbered(name), None


def _numbered(base: str) -> Path:
    number = 1
    while Path(f"{base}-{number}").exists():
        number += 1
    return Path(f"{base}-{number}")


def _filled(pattern: str) -> str:
    """The name with the machine's and the environment's facts in it."""
    values = {"h": socket.gethostname(), "p": str(os.getpid()), "%": "%", "n": "%n"}
    filled = _PATTERN.sub(lambda m: os.environ.get(m[2], "") if m[2] is not None else values[m[1]], pattern)
    if "%n" not in filled:
        return filled
    number = 1
    while Path(filled.replace("%n", str(number))).exists():
        number += 1
    return filled.replace("%n", str(number))


def _write(name: str, answer: Answer, place: Path, facts: Any, *, csv: bool) -> None:
    from alltrace.cli.output_folder import Folder

    tables = {label: _indexed(label, table) for label, table in answer.all_tables().items()}
    main = tables[answer.name]
    whole = answer._replace(
        table=main.table, stream=main.stream, further={n: t for n, t in tables.items() if n != answer.name}
    )
    Folder(str(place), ("parquet", "csv") if csv else ("parquet",)).write(name, whole, facts)


def _indexed(label: str, table: AnswerTable) -> AnswerTable:
    """The table with what makes pandas take its first column for the index, if nsys' tables have one."""
    if table.stream is not None:
        return table
    rows = table.table
    index = "Rank" if label == "files" else rows.column_names[0] if label in _INDEXED else None
    if index is None:
        return table
    for place, field in enumerate(rows.schema):
        if pa.types.is_dictionary(field.type):
            rows = rows.set_column(place, field.name, rows.column(place).cast(pa.string()))
    described = [
        {
            "name": f.name,
            "field_name": f.name,
            "pandas_type": _word(f.type),
            "numpy_type": _word(f.type, "object"),
            "metadata": None,
        }
        for f in rows.schema
    ]
    facts = {"index_columns": [index], "column_indexes": [], "columns": described, "pandas_version": "2.0.0"}
    return table._replace(
        table=rows.replace_schema_metadata({**(rows.schema.metadata or {}), "pandas": json.dumps(facts)})
    )


def _word(kind: Any, of_text: str = "unicode") -> str:
    return of_text if pa.types.is_string(kind) else str(kind).replace("double", "float64")

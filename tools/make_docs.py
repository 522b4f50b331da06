"""Writes the reference pages in docs/ from the declarations in the code. `python tools/make_docs.py [--check]`.

docs/tables.md is made from the schema, docs/recipes.md from the registries of recipes and stats reports,
docs/man/alltrace.1 from the registry of verbs and docs/cli.md. In docs/cli.md the comment `<!-- options of: VERB -->`
is followed by a table of the verb's options up to `<!-- end of options -->`, and `<!-- output of: COMMAND -->` by what
the command prints, on a small simulated run. In docs/logs.md `<!-- columns of: KIND VIEW -->` is followed by the
columns of a view of `logs` up to `<!-- end of columns -->`, and in docs/history.md by the columns of a question;
options are as in docs/cli.md.
"""

from __future__ import annotations

import argparse
import contextlib
import importlib
import inspect
import io
import os
import pkgutil
import re
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator, Sequence

    from alltrace.recipes.base import Question
    from alltrace.trace.schema import Table

ROOT = Path(__file__).resolve().parents[1]
DOCS = ROOT / "docs"
SHARED = ("reading reports", "output")
_OPTIONS = re.compile(r"<!-- options of: (?P<name>.+?) -->\n.*?<!-- end of options -->\n", re.DOTALL)
_COLUMNS = re.compile(r"<!-- columns of: (?P<kind>\S+) (?P<view>\S+) -->\n.*?<!-- end of columns -->\n", re.DOTALL)
_TARGETS = re.compile(r"(<!-- targets of: capture script -->\n).*?(<!-- end of targets -->\n)", re.DOTALL)
_SETTINGS = re.compile(r"(<!-- settings of: capture script -->\n).*?(<!-- end of settings -->\n)", re.DOTALL)
_MADE = "<!-- made by tools/make_docs.py; change the declarations in the code and run it again -->"

_TABLES = f"""# The canonical tables

{_MADE}

What every reader writes, every run stores, every recipe reads and every query sees. In `alltrace sql`, in
`run.table(...)` and in `run.connect()` each table has `rank` and `host` before its own columns, names are text, and
times are on the run's aligned clock, 0 at the run's first event.

* A column of type `time` is int64 nanoseconds; intervals are half-open, `[start, end)`. In a run's files times are on
  the clock of the rank's host, relative to the rank's time base.
* A column of type `name` is the int64 id of a string in `names`; `enum` is one of a few words.
* `process`, `thread` and `device` are row numbers of the rank's dictionaries `processes`, `threads` and `devices`.
* What a source does not have is null, not 0.

In SQL, tables with `start` and `end` also have `duration`, in ns. `end` is a word of SQL, so a query writes it in
double quotes: `"end"`. SQL has one table more: `ranks` with `rank`, `local_rank`, `host`, `rank_source`, `start_ns`,
`end_ns` and `role`.
"""
_SHARED = """## Of all ranks

`members` and `steps` are made when a question first aligns the ranks, and empty before; `gpu_log` is made of
[GPU logs](logs.md#gpu-logs), `inspector` of [NCCL Inspector's files](logs.md#logs-inspector), `near_cpus` of
[NCCL's logs](logs.md#join-logs-with-a-run). SQL also has them.
"""

_RECIPES = f"""# Recipes

{_MADE}

A recipe is one question over all ranks; its answer is a table. Ask one with `alltrace recipe NAME RUN`, or in Python
with `run.recipe("NAME")`; the main ones are also verbs. `alltrace recipe --list` names them all. Every recipe takes
`--ranks` and the [options that all answers share](cli.md#options-that-many-verbs-share). The columns listed are those
of the answer without options; `--by-rank` puts the rank in front. Columns in bold say what a row is about and what the
answer is: a terminal always shows them, however narrow it is.

Another package adds recipes by the entry-point group `alltrace.recipes`: a name, and a module with the question as
`QUESTION`.
"""

_NSYS = """# The recipes of nsys

`alltrace recipe NAME RUN` answers what `nsys recipe NAME` answers, with its options, tables and columns, over ranks
instead of files: ranks are numbered as the launcher did, and times count from the start of the session, as those of
nsys do, on the aligned clock of all ranks. Where nsys' answer is approximate or wrong, ours is [exact and
right](nsys-differences.md#recipes). A recipe can bear the name of a report of `alltrace stats`, such as `nvtx_sum`: the
report is one table of all ranks' events, in the form of `nsys stats`; the recipe has further tables that keep the ranks
apart, in the form of `nsys recipe`.

Most have several tables. On a terminal and in CSV the first is shown; `--table NAME` shows another, JSON has all, and
`-o DIR/` (or a URL such as `s3://bucket/prefix`) writes each to a file, `--csv` also as CSV. `alltrace recipe all RUN
-o DIR` writes those of every recipe that the run has data for, and an index.

All of them take these filters. A row passes when it overlaps what the filter names; it is not cut.
"""

_STATS = """# The reports of nsys stats

`alltrace stats NAME RUN` gives the report that `nsys stats -r NAME` gives, column for column, over all ranks together;
`--by-rank` keeps the ranks apart. Options can also be spelled with the name, as in `alltrace stats
cuda_gpu_kern_sum:base RUN`. In Python it is `run.recipe("stats:NAME")`.
"""


def main() -> int:
    """Write the pages; with `--check` only say whether they are up to date."""
    made = rendered()
    stale = [path for path, text in made.items() if not path.is_file() or path.read_text(encoding="utf-8") != text]
    if "--check" in sys.argv[1:]:
        for path in stale:
            print(f"{path.relative_to(ROOT)} is not up to date; run python tools/make_docs.py")
        return 1 if stale else 0
    for path in stale:
        path.write_text(made[path], encoding="utf-8")
        print(f"wrote {path.relative_to(ROOT)}")
    return 0


def rendered() -> dict[Path, str]:
    """What each page should be."""
    return {
        DOCS / "tables.md": tables_page(),
        DOCS / "recipes.md": recipes_page(),
        DOCS / "cli.md": cli_page(),
        DOCS / "logs.md": logs_page(),
        DOCS / "history.md": history_page(),
        DOCS / "capture.md": capture_page(),
        DOCS / "capture-scripts.md": capture_scripts_page(),
        DOCS / "man" / "alltrace.1": man_page(),
    }


def man_page() -> str:
    """The page of `man alltrace`: verbs, exit codes and variables as in docs/cli.md; options are in the verbs' help."""
    from alltrace.cli.registry import VERBS

    cli = (DOCS / "cli.md").read_text(encoding="utf-8")
    lines = [
        '.TH ALLTRACE 1 "" "alltrace" "User Commands"',
        ".SH NAME",
        r"alltrace \- merge the profiler reports of a distributed GPU run and say where the time went",
        ".SH SYNOPSIS",
        r".B alltrace \fIVERB\fR [\fIOPTION\fR]... [\fIRUN\fR]...",
        ".SH DESCRIPTION",
        (
            r"RUN is a run directory that \fBalltrace import\fR made; or reports, folders of reports, patterns or URLs,"
            r" which are"
        ),
        (
            r"imported into the cache first. \fBalltrace VERB \-\-help\fR shows the options of a verb, \fBalltrace"
            r" explain TERM\fR"
        ),
        "what a kind of finding, a recipe, a table or a column means.",
        ".SH VERBS",
        *_roff_items((verb.name, verb.help) for verb in VERBS),
    ]
    for title, heading in (("EXIT STATUS", "Exit codes"), ("ENVIRONMENT", "Environment variables")):
        table = cli.partition(f"\n## {heading}\n")[2].partition("\n## ")[0]
        rows = [row.strip("| ").split(" | ", 1) for row in table.splitlines() if row.startswith("| ")]
        lines += [f".SH {title}", *_roff_items((name, what) for name, what in rows[1:])]
    examples = ("alltrace import reports/ -o run", "alltrace diagnose run", "alltrace ui run")
    return "\n".join([*lines, ".SH EXAMPLES", ".nf", *map(_roff, examples), ".fi"]) + "\n"


def _roff_items(items: Iterable[tuple[str, str]]) -> list[str]:
    return [line for name, what in items for line in (".TP", f".B {_roff(name)}", _roff(what))]


def _roff(text: str) -> str:
    """A line of Markdown as roff."""
    text = re.sub(r"\[([^]]*)\]\([^)]*\)", r"\1", text).replace("\\", r"\e").replace("-", r"\-")
    text = re.sub(r"`([^`]*)`", r"\\fB\1\\fR", text)
    return rf"\&{text}" if text.startswith((".", "'")) else text


def tables_page() -> str:
    """The page of the canonical tables."""
    from alltrace.run.overlay import SHARED_TABLES
    from alltrace.trace.schema import DICTIONARIES, EVENT_TABLES, TABLES

    pages = [_TABLES, "## Events\n", *(_table(TABLES[t]) for t in EVENT_TABLES)]
    pages += ["## Dictionaries\n", *(_table(TABLES[t]) for t in DICTIONARIES)]
    pages += [_SHARED, *(_table(t) for t in SHARED_TABLES.values())]
    return "\n".join(pages).rstrip("\n") + "\n"


def _table(table: Table) -> str:
    order = f" Sorted by {_words(table.sort_keys)}." if table.sort_keys else ""
    rows = [(f"`{c.name}`", c.type, "ns" if c.type == "time" else c.unit, c.doc) for c in table.columns]
    return f"### `{table.name}`\n\n{table.doc}{order}\n\n{_grid(('column', 'type', 'unit', 'meaning'), rows)}"


def recipes_page() -> str:
    """The page of the recipes and the stats reports."""
    from alltrace.nvidia.filters import FILTERS, PROJECTED
    from alltrace.recipes.registry import NVIDIA_RECIPES, RECIPES, REPORTS, find, find_report

    pages = [_RECIPES, *(_recipe(find(n), f"alltrace recipe {n}") for n in sorted(RECIPES) if n not in NVIDIA_RECIPES)]
    filters = (*FILTERS, PROJECTED)
    pages += [_NSYS, _option_grid(filters)]
    pages += [_recipe(find(n), f"alltrace recipe {n}", {o.name for o in filters}) for n in sorted(NVIDIA_RECIPES)]
    pages += [_STATS, *(_recipe(find_report(n), f"alltrace stats {n}") for n in REPORTS)]
    return "\n".join(pages).rstrip("\n") + "\n"


def _option_grid(options: Iterable[Any]) -> str:
    rows = [(f"`--{o.name.replace('_', '-')}`", _default(o), o.help) for o in options]
    return _grid(("option", "default", "what"), rows)


def _recipe(recipe: Question, command: str, told: Collection[str] = ()) -> str:
    from alltrace.trace.columns import by_importance

    reads = (
        f"`{command} RUN` reads {_words(recipe.tables)}" if recipe.tables else f"`{command} RUN` reads the run's facts"
    )
    groups = recipe.needs({o.name: o.default for o in recipe.options})
    needed = [f"any of {_words(g)}" if len(g) > 1 else _words(g) for g in groups]
    needs = f"; a rank needs {' and '.join(needed)}" if needed else ""
    parts = [f"## `{recipe.name}`\n\n{inspect.cleandoc(recipe.doc or '')}\n\n{reads}{needs}.\n"]
    own = [o for o in recipe.options if o.name not in told]
    if own:
        parts.append(_option_grid(own))
    defaults = {o.name: o.default for o in recipe.options}
    columns = recipe.answer_columns(defaults)
    always = {c.name for c in by_importance(columns, recipe.important) if c.importance == 1}
    parts.append(
        _grid(
            ("column", "unit", "meaning"),
            [(f"**`{c.name}`**" if c.name in always else f"`{c.name}`", c.unit, c.doc) for c in columns],
        )
    )
    for option in own:
        for value in option.choices or ():
            others = [c for c in recipe.answer_columns({**defaults, option.name: value}) if c not in columns]
            if others:
                parts.append(f"With `{' '.join(option.words(value))}`:\n")
                parts.append(_grid(("column", "unit", "meaning"), [(f"`{c.name}`", c.unit, c.doc) for c in others]))
    further = list(getattr(recipe, "results", {}))[1:]
    if further:
        parts.append(f"Further tables: {_words(further)}.\n")
    return "\n".join(parts)


def _default(option: Any) -> str:
    if option.required:
        return "must be given"
    if option.type is bool:
        return "on" if option.default else "off"
    values = "" if option.choices is None else f" (one of {_words(option.choices)})"
    return ("" if option.default is None else f"`{option.default}`") + values


def logs_page() -> str:
    """The page of the logs, with its tables of options and columns."""
    text = _OPTIONS.sub(lambda found: _options(found["name"]), (DOCS / "logs.md").read_text(encoding="utf-8"))
    return _COLUMNS.sub(
        lambda found: _columns(found["kind"], found["view"], log_columns(found["kind"])[found["view"]]), text
    )


def _columns(kind: str, view: str, columns: Sequence[Any]) -> str:
    grid = _grid(("column", "unit", "meaning"), [(f"`{c.name}`", c.unit, c.doc) for c in columns])
    return f"<!-- columns of: {kind} {view} -->\n\n{grid}\n<!-- end of columns -->\n"


def log_columns(kind: str) -> dict[str, tuple[Any, ...]]:
    """The columns of each view of a kind of log."""
    from alltrace.recipes.logs import NCCL_VIEWS, flight_recorder, inspector, nccl_tests, training

    return {
        "nccl": {view: pkgutil.resolve_name(place).columns for view, place in NCCL_VIEWS.items()},
        "nccl-tests": nccl_tests.COLUMNS,
        "training": {"summary": training.SUMMARY, "steps": training.STEPS},
        "flight-recorder": flight_recorder.COLUMNS,
        "inspector": inspector.COLUMNS,
    }[kind]


def history_page() -> str:
    """The page of many runs, with the columns of each question."""
    from alltrace.history.questions import COLUMNS

    text = (DOCS / "history.md").read_text(encoding="utf-8")
    return _COLUMNS.sub(lambda found: _columns(found["kind"], found["view"], COLUMNS[found["view"]]), text)


def cli_page() -> str:
    """The page of the command line, with its tables of options and its outputs."""
    text = _OPTIONS.sub(lambda found: _options(found["name"]), (DOCS / "cli.md").read_text(encoding="utf-8"))
    with _example_run():
        return str(_make_readme().fill_outputs(text))


def _make_readme() -> Any:
    sys.path.insert(0, str(ROOT))
    try:
        return importlib.import_module("tools.make_readme")
    finally:
        sys.path.remove(str(ROOT))


def capture_page() -> str:
    """The page of capturing, with the tables of options of its verbs."""
    return _OPTIONS.sub(lambda found: _options(found["name"]), (DOCS / "capture.md").read_text(encoding="utf-8"))


def capture_scripts_page() -> str:
    """The page of job scripts, with targets, options, settings and an example."""
    from alltrace.capture.scripts.registry import TARGETS
    from alltrace.capture.scripts.settings import SETTINGS

    text = _OPTIONS.sub(
        lambda found: _options(found["name"]), (DOCS / "capture-scripts.md").read_text(encoding="utf-8")
    )
    targets = _grid(("target", "what"), [(f"`{t.name}`", t.help) for t in TARGETS])
    settings = _grid(
        ("setting", "default", "what"),
        [(f"`{s.name}`", _setting_default(s.default), _setting_doc(s)) for s in SETTINGS],
    )
    text = _TARGETS.sub(lambda found: f"{found[1]}\n{targets}\n{found[2]}", text)
    text = _SETTINGS.sub(lambda found: f"{found[1]}\n{settings}\n{found[2]}", text)
    return str(_make_readme().fill_outputs(text))


def _setting_default(value: Any) -> str:
    return "" if value in ("", [], {}) else f"`{str(value).lower() if isinstance(value, bool) else value}`"


def _setting_doc(setting: Any) -> str:
    return str(setting.help) + (f" ({_words(setting.choices)})" if setting.choices else "")


def _options(name: str) -> str:
    found = verb_options("overlap", (name,)) if name in SHARED else verb_options(name)
    return f"<!-- options of: {name} -->\n\n{_grid(('option', 'what'), found)}\n<!-- end of options -->\n"


def verb_options(name: str, groups: Sequence[str] | None = None) -> list[tuple[str, str]]:
    """Each option and argument of a verb with its help, of these groups or of all but those that verbs share."""
    from alltrace.cli.registry import CAPTURE_VERBS, VERBS

    outer, _space, kind = name.partition(" ")
    if outer == "capture" and kind:
        verb, kind = next(v for v in CAPTURE_VERBS if v.name == kind), ""
    else:
        verb = next(v for v in VERBS if v.name == outer)
    parser = argparse.ArgumentParser(add_help=False)
    verb.command().configure(parser)
    if kind:
        kinds = next(a for a in parser._actions if isinstance(a, argparse._SubParsersAction))
        parser = kinds.choices[kind]
    return [
        (_spelled(action), (action.help or "").replace("%%", "%"))
        for group in parser._action_groups
        if (group.title in groups if groups else group.title not in SHARED)
        for action in group._group_actions
    ]


def _spelled(action: argparse.Action) -> str:
    if isinstance(action.metavar, tuple):
        return f"`{', '.join(action.option_strings)} {' '.join(action.metavar)}`"
    value = (
        f" {action.metavar or '|'.join(map(str, action.choices or [action.dest.upper()]))}" if action.nargs != 0 else ""
    )
    return f"`{', '.join(action.option_strings)}{value}`" if action.option_strings else f"`{action.metavar}`"


@contextlib.contextmanager
def _example_run() -> Iterator[None]:
    """A folder with the reports that the examples use, as the current one."""
    from alltrace.cli.main import main as alltrace

    before, cache = Path.cwd(), os.environ.get("ALLTRACE_CACHE_DIR")
    with tempfile.TemporaryDirectory() as folder:
        try:
            os.chdir(folder)
            os.environ["ALLTRACE_CACHE_DIR"] = str(Path(folder) / "cache")
            with contextlib.redirect_stderr(io.StringIO()):
                alltrace(["synth", "tiny", "--ideal", "-o", "reports"])
            yield
        finally:
            os.chdir(before)
            os.environ.pop("ALLTRACE_CACHE_DIR")
            if cache is not None:
                os.environ["ALLTRACE_CACHE_DIR"] = cache


def _grid(head: Sequence[str], rows: Iterable[Sequence[str | None]]) -> str:
    lines = [head, ["---"] * len(head), *rows]
    return "".join("| " + " | ".join(_cell(cell) for cell in line) + " |\n" for line in lines)


def _cell(text: str | None) -> str:
    return "" if text is None else text.replace("|", "\\|").replace("<", "&lt;")


def _words(names: Iterable[str]) -> str:
    return ", ".join(f"`{n}`" for n in names)


if __name__ == "__main__":
    raise SystemExit(main())

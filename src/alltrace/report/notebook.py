"""A Jupyter notebook that opens a run by the library and draws what its recipes answer; written as plain JSON."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Sequence
from typing import Any

from alltrace.recipes.base import Question
from alltrace.recipes.execution.ask import wants_alignment
from alltrace.recipes.execution.availability import not_imported
from alltrace.report.markdown import literal
from alltrace.report.words import described
from alltrace.run.store import Run
from alltrace.trace.errors import UsageError

FIRST = (
    "diagnose",
    "activity",
    "breakdown",
    "overlap",
    "stragglers",
    "critical-path",
    "steps",
    "efficiency",
    "kernels",
    "collectives",
)
"""The recipes that come first, in this order; others follow by name."""

_SETUP = """from pathlib import Path

import duckdb
import plotly.graph_objects as go
import plotly.io

import alltrace
from alltrace.trace.errors import AlltraceError

run = alltrace.open({inputs})
page = "http://127.0.0.1:8765/"  # where rows lead that have a time: alltrace ui RUN --port 8765
# figures are kept as HTML too, with the library that draws them, so that a notebook as a page has them without a network
plotly.io.renderers.default = "plotly_mimetype+notebook"


def show(name, rows=10, **options):
    \"\"\"Print a recipe's first rows and notes; what comes back, a figure or findings, is drawn in the last line of a cell.\"\"\"
    try:
        if name == "diagnose":
            return run.diagnosis(**options)
        result = run.recipe(name, **options)
    except AlltraceError as error:
        print(error)
        return None
    table = result.to_arrow()
    if table.num_columns:
        duckdb.from_arrow(table.slice(0, rows)).show(max_width=200)
    for note in result.notes:
        print("note:", note)
    for number, link in enumerate(result.timeline_links(page)[:rows], 1):
        if link is not None:
            print(f"row {number} on the timeline: {link}")
    if result.answer.chart is None or not table.num_rows:
        return None
    return go.Figure(result.figure())


run.facts()"""

_SQL = """run.connect().sql(
    'select rank, kind, count(*) as kernels, sum("end" - start) as ns from kernels group by all order by all limit 20'
).show()"""


def notebook(inputs: Sequence[str], name: str, recipes: Iterable[Question], cache_dir: str | None = None) -> str:
    """The text of a notebook (format 4.5).

    `inputs`: what `alltrace.open` opens; written into the notebook as Python literals, with any characters. `name`:
    the name of the run. `recipes`: the recipes that it runs, in this order.
    """
    arguments = [repr(i) for i in inputs] + ([f"cache_dir=Path({cache_dir!r})"] if cache_dir is not None else [])
    cells = [
        _markdown(f"# {literal(name)}\n\nEvery cell runs one recipe. Change its options, or run others: `alltrace recipe --list`."),
        _code(_SETUP.replace("{inputs}", ", ".join(arguments))),
    ]
    for recipe in recipes:
        cells.append(_markdown(f"## {recipe.name}\n\n{described(recipe)}"))
        cells.append(_code(f"show({recipe.name!r})"))
        if recipe.name == "operators":
            cells.append(_code("show('operators', by='module')"))
    cells += [_markdown("## SQL\n\nQuery the tables of all ranks."), _code(_SQL)]
    document = {
        "cells": [{**cell, "id": hashlib.sha256(f"{n}".encode()).hexdigest()[:12]} for n, cell in enumerate(cells)],
        "metadata": {
            "kernelspec": {"display_name": "Python 3", "language": "python", "name": "python3"},
            "language_info": {"name": "python"},
        },
        "nbformat": 4,
        "nbformat_minor": 5,
    }
    return json.dumps(document, indent=1, ensure_ascii=True) + "\n"


def recipes_for(run: Run, wanted: Sequence[str] | None = None) -> list[Question]:
    """The recipes that a notebook of the run uses: those with tables that some rank has and without required options.

    `wanted`: names of recipes; None for all possible ones. Raises `UsageError`: the recipe does not exist, or it
    needs an option.
    """
    from alltrace.recipes.registry import find, names

    if wanted is not None:
        chosen = [find(n) for n in wanted]
        for recipe in chosen:
            needed = [o.name for o in recipe.options if o.required]
            if needed:
                raise UsageError(f"{recipe.name} needs --{needed[0].replace('_', '-')}, so it cannot be in a notebook")
        return chosen
    every = names()
    order = [*(n for n in FIRST if n in every), *(n for n in every if n not in FIRST)]
    return [r for r in map(find, order) if _can_ask(run, r)]


def _can_ask(run: Run, recipe: Question) -> bool:
    if any(o.required for o in recipe.options):
        return False
    options = {o.name: o.default for o in recipe.options}
    if not_imported(run.manifest, recipe, options, aligned=wants_alignment(recipe, run, options)):
        return False
    groups = recipe.needs(options)
    # what is derived over all ranks exists only after its first use
    return all("collectives" in group or any(run.has(rank, t) for rank in run.ranks for t in group) for group in groups)


def _markdown(text: str) -> dict[str, Any]:
    return {"cell_type": "markdown", "metadata": {}, "source": text}


def _code(text: str) -> dict[str, Any]:
    return {"cell_type": "code", "execution_count": None, "metadata": {}, "outputs": [], "source": text}

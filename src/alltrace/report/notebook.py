"""A Jupyter notebook that opens a run by the library and draws what its recipes answer; written as plain JSON."""

import hashlib
import json
from collections.abc import Iterable, Sequence
from typing import Any

from alltrace.recipes.base import Question
from alltrace.recipes.execution.ask import ask, wants_alignment
from alltrace.recipes.execution.availability import not_imported
from alltrace.recipes.questions.diagnose.cards import Proof, told
from alltrace.recipes.registry import find, names
from alltrace.report.markdown import literal
from alltrace.report.words import described
from alltrace.run.store import Run
from alltrace.trace.errors import AlltraceError, UsageError

USUAL = (
    Proof("breakdown", {}),
    Proof("steps", {}),
    Proof("overlap", {}),
    Proof("kernels", {"names": "short"}),
    Proof("idle", {}),
)
"""What is asked after the tables that the findings rest on."""

MOST_CELLS = 10
_AROUND = 5  # cells that every notebook has: its title, the run, the findings, SQL, and the list of other recipes

_SETUP = """from pathlib import Path

import plotly.graph_objects as go
import plotly.io
from IPython.display import display

import alltrace
from alltrace.trace.errors import AlltraceError

run = alltrace.open({inputs})
# figures are kept as HTML too, with the library that draws them, so that a notebook as a page has them offline
plotly.io.renderers.default = "plotly_mimetype+notebook"


def show(name, **options):
    \"\"\"Show a recipe's table and notes, with links to the page (alltrace ui RUN --port 8765); return a picture.\"\"\"
    try:
        result = run.recipe(name, **options)
    except AlltraceError as error:
        print(error)
        return None
    display(result)
    return go.Figure(result.figure()) if result.answer.chart is not None and len(result) else None


run.facts()"""

_SQL = """# any question to the tables of all ranks
run.sql("select rank, kind, count(*) as n, sum(duration) as ns from kernels group by all order by all limit 20")"""


def notebook(
    inputs: Sequence[str], name: str, proofs: Sequence[Proof], others: Iterable[str] = (), cache_dir: str | None = None
) -> str:
    """The text of a notebook (format 4.5), of `MOST_CELLS` cells unless more is asked."""
    # `inputs`: what `alltrace.open` opens; written into the notebook as Python literals, with any characters. `proofs`:
    # the recipes that it asks after the findings, in this order, with their options.
    arguments = [repr(i) for i in inputs] + ([f"cache_dir=Path({cache_dir!r})"] if cache_dir is not None else [])
    listed = ", ".join(f"`{other}`" for other in others)
    cells = [
        _markdown(f"# {literal(name)}\n\nFirst the findings, then the tables that they rest on, in their order."),
        _code(_SETUP.replace("{inputs}", ", ".join(arguments))),
        _code("run.diagnose()"),
        *(_code(_call(proof)) for proof in proofs),
        _code(_SQL),
        *([_markdown(f"Other recipes that this run can answer, each with `show(NAME)`: {listed}.")] if listed else []),
    ]
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


def _call(proof: Proof) -> str:
    options = "".join(f", {name}={value!r}" for name, value in proof.options.items())
    return f"# {described(find(proof.recipe))}\nshow({proof.recipe!r}{options})"


def recipes_for(run: Run, wanted: Sequence[str] | None = None) -> tuple[list[Proof], list[str]]:
    """What a notebook of the run asks after the findings, and the names of the other recipes that it could ask."""
    # Asked are the tables that the findings rest on, in their order, then what is usual, as many as there is room for.
    if wanted is not None:
        chosen = [find(n) for n in wanted]
        for recipe in chosen:
            needed = [o.name for o in recipe.options if o.required]
            if needed:
                raise UsageError(f"{recipe.name} needs --{needed[0].replace('_', '-')}, so it cannot be in a notebook")
        return [Proof(recipe.name, {}) for recipe in chosen if recipe.name != "diagnose"], []
    known = [name for name in names() if _can_ask(run, find(name))]
    proofs: dict[str, Proof] = {}
    for proof in (*_proofs(run), *USUAL):
        if proof.recipe in known and len(proofs) < MOST_CELLS - _AROUND:
            proofs.setdefault(proof.recipe, proof)
    return list(proofs.values()), [name for name in known if name not in proofs and name != "diagnose"]


def _proofs(run: Run) -> list[Proof]:
    """The tables that the findings of a run rest on, in their order; none of a run that cannot be judged."""
    try:
        diagnosis = told(ask(run, "diagnose").read(), {r.rank: r.host for r in run.ranks})
    except AlltraceError:
        return []
    return [card.proof for card in diagnosis.cards if card.proof is not None]


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

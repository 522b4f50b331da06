"""Findings, kept with the run: in `RUN/findings`, or in the cache folder if the run cannot be written.

They are the last stage of what is computed once per run, after clocks and levels of detail. They are used as an answer
only if the facts of the run, its alignment and the code that finds them are the same.
"""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from alltrace.recipes.base import Answer, Question
from alltrace.run.checked_arrow import read_signed, write_table
from alltrace.run.derived import Place, code_version, place_of
from alltrace.run.manifest import plain
from alltrace.run.store import Run
from alltrace.run.verify import FINDINGS

_NOTES = b"alltrace.notes"


def kept_findings(run: Run, recipe: Question, options: Mapping[str, Any]) -> Answer | None:
    """What `recipe` last found in all of `run`, which is aligned; None if it must be computed again."""

    def read(path: Path, signature: str) -> Answer | None:
        table = read_signed(path, signature)
        if table is None:
            return None
        facts = dict(table.schema.metadata)
        notes = tuple(json.loads(facts.pop(_NOTES)))
        return Answer(table.replace_schema_metadata(facts or None), recipe.answer_columns(options), notes)

    return _place(run, recipe, options).find(read)


def keep_findings(run: Run, recipe: Question, options: Mapping[str, Any], answer: Answer) -> None:
    """Store what `recipe` found; if nothing can be written, it is computed again the next time."""
    facts = {**(answer.table.schema.metadata or {}), _NOTES: json.dumps(answer.notes).encode()}
    table = answer.table.replace_schema_metadata(facts)
    _place(run, recipe, options).keep(lambda path, signature: write_table(path, table, signature))


def _place(run: Run, recipe: Question, options: Mapping[str, Any]) -> Place:
    """Where findings are: by all that is known of the run, its alignment, and the code."""
    alignment = None if run.overlay is None else run.overlay.facts
    inputs = [code_version(), recipe.name, options, plain(run.manifest), alignment]
    return place_of(run, f"{FINDINGS}/{recipe.name}.arrow", inputs)

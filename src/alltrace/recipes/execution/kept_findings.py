"""Findings, kept with the run: in `RUN/findings`, or in the cache folder if the run cannot be written.

They are the last stage of what is computed once per run, after clocks and levels of detail. They are used as an answer only if
the facts of the run, its alignment and the code that finds them are the same.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping
from contextlib import suppress
from hashlib import blake2b
from pathlib import Path
from typing import Any

from alltrace.recipes.base import Answer, Question
from alltrace.run.checked_arrow import read_table, write_table
from alltrace.run.code_version import code_version
from alltrace.run.manifest import plain
from alltrace.run.store import Run
from alltrace.run.verify import FINDINGS
from alltrace.trace.cache_dir import default_folder, existing_folder, own_folder
from alltrace.trace.errors import AlltraceError

_SIGNATURE, _NOTES = b"alltrace.signature", b"alltrace.notes"


def kept_findings(run: Run, recipe: Question, options: Mapping[str, Any]) -> Answer | None:
    """What `recipe` last found in all of `run`, which is aligned; None if it must be computed again."""
    signature = _signature(run, recipe, options)
    for place in _places(run, recipe, signature):
        with suppress(AlltraceError, ValueError, KeyError, TypeError):
            table = read_table(place)
            facts = dict(table.schema.metadata or {})
            if facts.pop(_SIGNATURE) == signature.encode():
                notes = tuple(json.loads(facts.pop(_NOTES)))
                return Answer(table.replace_schema_metadata(facts or None), recipe.answer_columns(options), notes)
    return None


def keep_findings(run: Run, recipe: Question, options: Mapping[str, Any], answer: Answer) -> None:
    """Store what `recipe` found; if nothing can be written, it is computed again the next time."""
    signature = _signature(run, recipe, options)
    facts = {**(answer.table.schema.metadata or {}), _SIGNATURE: signature.encode(), _NOTES: json.dumps(answer.notes).encode()}
    if os.access(run.path, os.W_OK):
        place = _with_run(run, recipe)
    else:
        try:
            place = _in_cache(own_folder(default_folder()), signature)
        except AlltraceError:
            return
    with suppress(OSError):
        place.parent.mkdir(parents=True, exist_ok=True)
        write_table(place, answer.table.replace_schema_metadata(facts))


def _places(run: Run, recipe: Question, signature: str) -> Iterator[Path]:
    yield _with_run(run, recipe)
    cache = existing_folder()
    if cache is not None:
        yield _in_cache(cache, signature)


def _with_run(run: Run, recipe: Question) -> Path:
    return run.path / FINDINGS / f"{recipe.name}.arrow"


def _in_cache(cache: Path, signature: str) -> Path:
    return cache / FINDINGS / f"{signature}.arrow"


def _signature(run: Run, recipe: Question, options: Mapping[str, Any]) -> str:
    """What findings are made from: all that is known of the run, its alignment, and the code."""
    alignment = None if run.overlay is None else run.overlay.facts
    text = json.dumps([code_version(), recipe.name, options, plain(run.manifest), alignment], sort_keys=True)
    return blake2b(text.encode(), digest_size=16).hexdigest()

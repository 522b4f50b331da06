"""Questions over all ranks: tables in, a table out."""

from importlib import import_module
from typing import Any


def load(place: str) -> Any:
    """The question at `place`: a module with the attribute `QUESTION` (before 0.3 `RECIPE`), or `module:attribute`."""
    path, _, name = place.partition(":")
    module = import_module(path)
    question = getattr(module, name or ("QUESTION" if hasattr(module, "QUESTION") else "RECIPE"))
    return question() if isinstance(question, type) else question

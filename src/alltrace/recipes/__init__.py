"""Questions over all ranks: tables in, a table out."""

from __future__ import annotations

from importlib import import_module
from typing import Any


def load(place: str) -> Any:
    """The recipe at `place`: a module with the attribute `RECIPE`, or `module:Attribute`, a recipe or its class."""
    module, _, name = place.partition(":")
    found = getattr(import_module(module), name or "RECIPE")
    return found() if isinstance(found, type) else found

"""Reads back the traces for viewers that `alltrace export chrome` writes."""

from __future__ import annotations

from typing import TYPE_CHECKING

from alltrace.readers.kineto import OWN, head_of

if TYPE_CHECKING:
    from pathlib import Path


def is_report(path: Path) -> bool:
    """Whether `path` begins like a trace that alltrace exported."""
    return OWN in head_of(path)

"""Reads back the traces for viewers that `alltrace export chrome` writes."""

from pathlib import Path

from alltrace.readers.kineto import OWN, head_of


def is_report(path: Path) -> bool:
    """Whether `path` begins like a trace that alltrace exported."""
    return OWN in head_of(path)

"""Which tables of an export become which canonical tables, as plain declarations."""

from __future__ import annotations

from typing import TYPE_CHECKING

from alltrace.readers.nsys.mapping.cuda import CUDA
from alltrace.readers.nsys.mapping.fields import Field, Source, constant
from alltrace.readers.nsys.mapping.host import HOST

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator

__all__ = ["SOURCES", "Field", "Source", "find_table", "sources_of"]

SOURCES: tuple[Source, ...] = (*CUDA, *HOST)


def find_table(tables: Collection[str], name: str) -> str | None:
    """The table called `name`, or else its version with the highest suffix `_V<n>`, or None."""
    if name in tables:
        return name
    beginning = f"{name}_V"
    versions = [t for t in tables if t.startswith(beginning) and t[len(beginning) :].isdecimal()]
    return max(versions, key=lambda t: int(t[len(beginning) :]), default=None)


def sources_of(table: str, tables: Collection[str]) -> Iterator[tuple[str, Source]]:
    """The tables of an export that hold rows of a canonical table, each with its mapping."""
    for source in SOURCES:
        if source.table != table:
            continue
        if not source.source.endswith("*"):
            found = find_table(tables, source.source)
            if found:
                yield found, source
            continue
        beginning = source.source[:-1]
        stems = sorted({_stem(t) for t in tables if t.startswith(beginning)})
        for stem in stems:
            found = find_table(tables, stem)
            if found:
                kind = stem[len(beginning) :].lower().replace("_", "-")
                yield found, Source(table, found, {**source.fields, "kind": constant(kind)})


def _stem(table: str) -> str:
    head, mark, version = table.rpartition("_V")
    return head if mark and version.isdecimal() else table

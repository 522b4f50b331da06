"""Which tables of an export become which canonical tables, as plain declarations."""

from __future__ import annotations

import re
from functools import lru_cache
from operator import itemgetter
from typing import TYPE_CHECKING

from alltrace.readers.nsys.mapping.cuda import CUDA
from alltrace.readers.nsys.mapping.fields import Field, Source, constant
from alltrace.readers.nsys.mapping.host import HOST
from alltrace.trace.schema import TABLES

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Mapping

__all__ = ["SOURCES", "Field", "Source", "find_table", "missing_columns", "sources_of", "unread", "unreadable"]

_LONGEST_VERSION = 10

SOURCES: tuple[Source, ...] = (*CUDA, *HOST)


def find_table(tables: Collection[str], name: str) -> str | None:
    """The table called `name`, or else its version with the highest suffix `_V<n>`, or None."""
    return name if name in tables else _newest(tuple(tables)).get(name)


@lru_cache(8)
def _newest(tables: tuple[str, ...]) -> dict[str, str]:
    """The table with the highest suffix `_V<n>` of each name."""
    versions = [(int(t[len(stem) + 2 :]), stem, t) for t in reversed(tables) if (stem := _stem(t)) != t]
    return {stem: table for _, stem, table in sorted(versions, key=itemgetter(0))}


_NEEDED: dict[str, tuple[tuple[str, ...], tuple[str, ...]]] = {
    "NVTX_EVENTS": (("ranges", "marks"), ("start", "eventType")),
    "NVTXT_EVENTS": (("ranges", "marks"), ("start", "eventType")),
    "GPU_METRICS": (("gpu_metrics",), ("timestamp", "typeId", "metricId", "value")),
    "NET_NIC_METRIC": (("nic_metrics",), ("start", "end", "metricsListId", "metricsIdx", "value")),
    "NET_IB_SWITCH_METRIC": (("switch_metrics",), ("start", "end", "metricsListId", "metricsIdx", "value")),
    "COMPOSITE_EVENTS": (("samples",), ("start",)),
    "OSRT_FILE_ACCESS_EVENTS": (("file_accesses",), ("startedAt", "fileAccessId")),
}
"""Tables that no `Source` maps: their canonical tables, and the columns that their rows require."""


def missing_columns(table: str, columns: Collection[str]) -> list[str]:
    """The columns that a table of `_NEEDED` cannot be read without, and lacks."""
    return [c for c in _NEEDED[_stem(table)][1] if c not in columns]


def unreadable(tables: Mapping[str, Collection[str]]) -> Iterator[tuple[str, tuple[str, ...], list[str]]]:
    """The tables of an export that cannot be read: the canonical table of each, and the columns it lacks for that."""
    for stem, (canonical, _) in _NEEDED.items():
        table = find_table(tables, stem)
        if table is not None and (missing := missing_columns(table, tables[table])):
            yield table, canonical, missing
    for made_of in dict.fromkeys(source.table for source in SOURCES):
        for table, source in sources_of(made_of, tables):
            time = source.fields.get(TABLES[made_of].order or "")
            if time is not None and time.column is not None and time.column not in tables[table]:
                yield table, (made_of,), [time.column]


_OTHERS_READ = re.compile(
    r"(ANALYSIS|TARGET_INFO|META_DATA|EXPORT_META_DATA|ENUM|MPI_(RANKS|COMMUNICATORS)|NVTX_PAYLOAD|GENERIC_EVENT|OSRT_FILE_ACCESS|"
    r"NIC_ID_MAP|SAMPLING_CALLCHAINS|DIAGNOSTIC_EVENT|CUPTI_ACTIVITY_KIND_CUDA_EVENT)(_|S$|$)"
)
"""Tables that complete rows of others, or say something of the report."""
_NAMED_BY_NSYS = re.compile(r"[A-Z][A-Z0-9]*(_[A-Z0-9]+)+")
"""As Nsight Systems names tables of events; `nsys stats` and others add further tables to an export."""


def unread(tables: Collection[str]) -> Iterator[str]:
    """The tables of an export, by name, whose events become rows of no canonical table."""
    read = {raw for canonical in TABLES for raw, _ in sources_of(canonical, tables)}
    for table in sorted(tables):
        stem = _stem(table)
        if table not in read and stem not in _NEEDED and not _OTHERS_READ.match(stem) and _NAMED_BY_NSYS.fullmatch(table):
            yield table


def sources_of(table: str, tables: Collection[str]) -> list[tuple[str, Source]]:
    """The tables of an export that hold rows of a canonical table, each with its mapping."""
    return _sources(tuple(tables)).get(table, [])


@lru_cache(8)  # the reports of a job mostly have the same tables
def _sources(tables: tuple[str, ...]) -> dict[str, list[tuple[str, Source]]]:
    by_table: dict[str, list[tuple[str, Source]]] = {}
    for source in SOURCES:
        by_table.setdefault(source.table, []).extend(_matching(source, tables))
    return by_table


def _matching(source: Source, tables: tuple[str, ...]) -> Iterator[tuple[str, Source]]:
    if not source.source.endswith("*"):
        table = find_table(tables, source.source)
        if table:
            yield table, source
    else:
        beginning = source.source[:-1]
        stems = sorted({_stem(t) for t in tables if t.startswith(beginning)})
        for stem in stems:
            table = find_table(tables, stem)
            if table:
                kind = stem[len(beginning) :].lower().replace("_", "-")
                yield table, Source(source.table, table, {**source.fields, "kind": constant(kind)})


def _stem(table: str) -> str:
    head, mark, version = table.rpartition("_V")
    return head if mark and version.isdecimal() and len(version) < _LONGEST_VERSION else table

"""The tracks of a rank: what lies on one line of the timeline, and which columns of which table say so."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from alltrace.trace.errors import UsageError
from alltrace.trace.kernel_rules import COMMUNICATION

if TYPE_CHECKING:
    from numpy.typing import NDArray

SUMMARY = "summary"
"""The key of the track that shows what all devices of a rank did."""

CLASSES = ("compute", "communication", "copy", "api", "range", "mpi", "host", "collective")
"""What a slice is, by code."""

COMPUTE, COMMUNICATION_CODE, COPY, API, RANGE, MPI, HOST, COLLECTIVE = range(len(CLASSES))


@dataclass(frozen=True)
class Source:
    """A table with intervals, as the timeline sees it.

    Attributes:
        table: The canonical table.
        group: First part of its tracks' keys; tables with the same group share tracks.
        track: The columns that say which track a row lies on.
        name: The column of names, or of words that stand for one, or of a number.
        code: The class of its slices; kernels are told apart by their kind.
    """

    table: str
    group: str
    track: tuple[str, ...]
    name: str
    code: int


_GPU = ("process", "device", "stream")

SOURCES: dict[str, Source] = {
    s.table: s
    for s in (
        Source("kernels", "gpu", _GPU, "short_name", COMPUTE),
        Source("copies", "gpu", _GPU, "kind", COPY),
        Source("graphs", "gpu", _GPU, "graph", COMPUTE),
        Source("collectives", "collectives", ("communicator",), "op", COLLECTIVE),
        Source("ranges", "ranges", ("thread",), "name", RANGE),
        Source("api", "api", ("thread",), "name", API),
        Source("mpi", "mpi", ("thread",), "name", MPI),
        Source("ucx", "ucx", ("thread",), "name", MPI),
        Source("osrt", "osrt", ("thread",), "name", HOST),
        Source("syscalls", "syscalls", ("thread",), "name", HOST),
        Source("openacc", "openacc", ("thread",), "name", HOST),
        Source("openmp", "openmp", ("thread",), "name", HOST),
    )
}
"""The tables with intervals, in the order in which their tracks are shown."""


@dataclass(frozen=True)
class Samples:
    """A table of samples: time, what is sampled, value."""

    table: str
    group: str
    track: tuple[str, ...]
    time: str


SAMPLES: dict[str, Samples] = {
    s.table: s
    for s in (
        Samples("gpu_metrics", "metric", ("device", "metric"), "time"),
        Samples("nic_metrics", "nic", ("nic", "metric"), "start"),
        Samples("switch_metrics", "switch", ("guid", "metric"), "start"),
        Samples("generic_metrics", "generic", ("source", "metric"), "time"),
    )
}
"""The tables of samples."""

_ALL: tuple[Source | Samples, ...] = (*SOURCES.values(), *SAMPLES.values())

GROUPS = frozenset(s.group for s in _ALL)
"""The groups of tracks."""


def tables_of(group: str) -> list[str]:
    """The tables whose rows lie on the tracks of a group."""
    return [s.table for s in _ALL if s.group == group]


def key_of(group: str, values: Any) -> str:
    """The key of a track: its group and the values of its columns, -1 for null."""
    return "/".join([group, *(str(int(v)) for v in values)])


def parse_key(key: str) -> tuple[str, tuple[int, ...]]:
    """The group and the values of a track's key.

    Raises:
        UsageError: It is no key of a track.
    """
    group, *rest = key.split("/")
    widths = {len(s.track) for s in _ALL if s.group == group}
    try:
        values = tuple(int(v) for v in rest)
    except ValueError:
        values = ()
    if key != SUMMARY and (len(values) not in widths or not all(-(1 << 63) <= v < 1 << 63 for v in values)):
        raise UsageError(f"there is no track {key!r}; expected a key such as gpu/0/0/7")
    return group, values


def integers(table: Any, column: str) -> NDArray[Any]:
    """A column of an Arrow table as int64, -1 where it is null."""
    values = table.column(column)
    if values.null_count:
        values = pc.fill_null(values, pa.scalar(-1, values.type))
    found: NDArray[Any] = values.to_numpy().astype(np.int64, copy=False)
    return found


def intervals(table: Any, open_end: int | None = None) -> tuple[NDArray[Any], NDArray[Any]]:
    """`start` and `end` of rows as int64; a missing end is `open_end` or the start, and no end lies before its start."""
    starts_column, ends_column = table.column("start"), table.column("end")
    if "api_start" in table.column_names:  # a communication operation of which only the call is known
        starts_column = pc.coalesce(starts_column, table.column("api_start"))
        ends_column = pc.coalesce(ends_column, table.column("api_end"), starts_column)
    starts = (pc.fill_null(starts_column, 0) if starts_column.null_count else starts_column).to_numpy()
    if ends_column.null_count:
        ends_column = pc.coalesce(ends_column, starts_column) if open_end is None else pc.fill_null(ends_column, open_end)
    ends = (pc.fill_null(ends_column, 0) if ends_column.null_count else ends_column).to_numpy()
    return starts, np.maximum(starts, ends)


def codes_of(source: Source, table: Any) -> NDArray[Any]:
    """The class of each row, as in `CLASSES`: int8 array."""
    if source.table != "kernels":
        return np.full(table.num_rows, source.code, np.int8)
    kinds = table.column("kind").combine_chunks()
    if not len(kinds):
        return np.zeros(0, np.int8)
    words = kinds.dictionary.to_pylist()
    table_of = np.array([COMMUNICATION_CODE if w in COMMUNICATION else COMPUTE for w in words] + [COMPUTE], np.int8)
    numbers = kinds.indices.fill_null(len(words)) if kinds.null_count else kinds.indices  # filling copies
    found: NDArray[Any] = table_of[numbers.to_numpy(zero_copy_only=False)]
    return found


def columns_for(source: Source, *, names: bool) -> list[str]:
    """The columns that tell where and when the rows of a table are, and what they are called."""
    found = ["start", "end", *source.track]
    if source.table == "kernels":
        found += ["kind", *(["name"] if names else [])]
    if source.table == "collectives":
        found += ["api_start", "api_end"]
    return list(dict.fromkeys([*found, *([source.name] if names else [])]))

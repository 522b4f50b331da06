"""The recipe `file_access_sum`: reading and writing, from the calls of the operating system's runtime."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from alltrace.nvidia.filters import pattern_of
from alltrace.nvidia.nsys.base import FILE, FILE_CELL, RANK_CELL, Cell, NsysRecipe, files
from alltrace.nvidia.nsys.file_accesses import (
    ACCESS_READS,
    ACCESS_RESULTS,
    access_rows,
    access_tables,
)
from alltrace.nvidia.report import RANK
from alltrace.recipes.analysis.distribution import COUNT, VALUE, collect, summarize
from alltrace.recipes.analysis.nvtx_projection import SPAN_COLUMNS
from alltrace.recipes.analysis.part_rows import with_rank
from alltrace.recipes.base import Chart, Option
from alltrace.trace.arrays import integers
from alltrace.trace.grouping import group

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from alltrace.recipes.base import Answer, Part, RankTables, RunFacts

_CALLS = {
    "read": ("read", "pread", "pread64", "readv", "preadv", "preadv2", "preadv64", "preadv64v2"),
    "write": ("write", "pwrite", "pwrite64", "writev", "pwritev", "pwritev2", "pwritev64", "pwritev64v2"),
    "stream": (
        "fread", "fwrite", "fgets", "fputs", "fread_unlocked", "fwrite_unlocked", "getline", "getdelim", "fprintf", "vfprintf",
    ),
    "open": ("open", "open64", "openat", "openat64", "creat", "creat64", "fopen", "fopen64", "fdopen", "freopen", "freopen64"),
    "close": ("close", "fclose"),
    "seek": ("lseek", "lseek64", "fseek", "fseeko", "fseeko64", "rewind"),
    "sync": ("fsync", "fdatasync", "sync", "syncfs", "sync_file_range", "fflush", "msync"),
    "metadata": (
        "stat", "stat64", "fstat", "fstat64", "lstat", "lstat64", "fstatat", "statx", "statfs", "fstatfs", "access", "faccessat",
        "ftruncate", "ftruncate64", "truncate", "fallocate", "posix_fallocate", "unlink", "unlinkat", "rename", "renameat", "mkdir",
        "rmdir", "opendir", "readdir", "closedir", "chmod", "fchmod",
    ),
}  # fmt: skip
_KIND = {name: kind for kind, names in _CALLS.items() for name in names}
_SIZED = ("read", "write")
_SMALL_BYTES = 4096
_CALL = (
    Cell("Function", "text", "Call."),
    Cell("Kind", "text", f"What it does: {', '.join(_CALLS)}."),
    Cell("Count", "int", "How many calls."),
    Cell("Bytes", "bytes", "Bytes that the calls returned; null for calls that return none."),
    Cell("Avg Size", "mean_bytes", "Bytes per call that moved any."),
    Cell("Total Time", "ns", "Durations together."),
    Cell("Avg", "mean_ns", "Mean duration."),
    Cell("Med", "mean_ns", "Median duration."),
    Cell("Min", "ns", "Shortest."),
    Cell("Max", "ns", "Longest."),
)


class FileAccessSum(NsysRecipe):
    """Reading and writing: by function, file, process and host, over all ranks and on each, and a histogram of sizes.

    `operations` and `sizes` are taken from the calls of the operating system's runtime that a report holds (`--trace=osrt`): bytes
    are what `read`, `write` and similar calls returned; these calls also move data of pipes and sockets. `file_access` and what
    follows are taken from the accesses to files by name, of reports with `--osrt-file-access=true`; the files with most bytes come
    first.
    """

    name = "file_access_sum"
    device = False
    tables: ClassVar[Mapping[str, tuple[str, ...]]] = {
        "osrt": ("start", "end", "name", "return_value"),
        "file_accesses": ACCESS_READS,
    }
    own: ClassVar[tuple[Option, ...]] = (
        Option("ignore", str, None, "Leave out files with a path that this regular expression matches."),
        Option("per_nvtx", bool, False, "Also list the accesses by the innermost NVTX range of their thread."),
    )
    results: ClassVar[Mapping[str, tuple[Cell, ...]]] = {
        "operations": _CALL,
        "rank_operations": (*_CALL, RANK_CELL, FILE_CELL),
        "sizes": (
            Cell("Kind", "text", "read or write."),
            Cell("Size Start", "bytes", "Smallest size of the bin; 0 has its own bin."),
            Cell("Size End", "bytes", "The bin's sizes are smaller than this."),
            Cell("Count", "int", "Calls that moved bytes in this bin."),
            Cell("Bytes", "bytes", "Bytes together."),
        ),
        **ACCESS_RESULTS,
    }
    chart: ClassVar[Chart | None] = Chart("bars", "Function", ("Total Time",))

    def prepared(self, options: Mapping[str, Any], run: RunFacts) -> Mapping[str, Any]:
        """The options.

        Raises:
            UsageError: What is to be ignored is not a valid regular expression.
        """
        pattern_of("--ignore", options["ignore"])
        return super().prepared(options, run)

    def reads(self, options: Mapping[str, Any]) -> dict[str, tuple[str, ...]]:
        """The calls and accesses, and with `--per-nvtx` the ranges around them."""
        wanted = super().reads(options)
        if options["per_nvtx"]:
            wanted["ranges"] = tuple(dict.fromkeys((*wanted.get("ranges", ()), *SPAN_COLUMNS)))
        return wanted

    def without(self, options: Mapping[str, Any]) -> dict[str, str]:
        """What follows for `--per-nvtx`."""
        return {**super().without(options), **({"ranges": "no access is in a range"} if options["per_nvtx"] else {})}

    def map_rank(self, rank: RankTables, options: Mapping[str, Any]) -> Any:
        """Durations and sizes of each function, and the accesses of each file and range, under one roof."""
        accesses = access_rows(rank, options)
        return pa.concat_tables([self._calls(rank), accesses], promote_options="default")

    def _calls(self, rank: RankTables) -> Any:
        """Two distributions under one roof: durations, then sizes, of each function."""
        calls = rank.table("osrt", self.tables["osrt"])
        names = calls.column("name").unique()
        mine = names.filter(pc.is_in(rank.texts(names), value_set=pa.array(list(_KIND))))
        calls = calls.filter(pc.and_(pc.is_in(calls.column("name"), value_set=mine), calls.column("end").is_valid()))
        sized = names.filter(pc.is_in(rank.texts(names), value_set=pa.array([c for k in _SIZED for c in _CALLS[k]])))
        moved = calls.filter(pc.is_in(calls.column("name"), value_set=sized))
        moved = moved.filter(pc.fill_null(pc.greater_equal(moved.column("return_value"), 0), fill_value=False))
        took = collect({"name": calls.column("name")}, pc.subtract(calls.column("end"), calls.column("start")))
        size = collect({"name": moved.column("name")}, moved.column("return_value"))
        tables = [t.append_column("what", pa.array([w] * t.num_rows, pa.string())) for t, w in ((took, "time"), (size, "size"))]
        return pa.concat_tables(tables)

    def combine(self, parts: Sequence[Part], run: RunFacts, options: Mapping[str, Any]) -> Answer:
        """The three tables, the longest total first."""
        if not parts:
            return self.answer({}, ("no call that reads or writes was recorded",))
        whole = pa.concat_tables([with_rank(part.table, part.rank) for part in parts])
        accesses, notes = access_tables(whole, run)
        whole = whole.filter(pc.is_in(whole.column("what"), value_set=pa.array(["time", "size"])))
        if not whole.num_rows:
            return self.answer(accesses, notes)
        codes, first = group([whole.column("name")])
        functions = run.texts(whole.column("name").take(pa.array(first)))
        whole = whole.append_column("row", pa.array(codes))
        labels = files(run)
        each = _operations(whole, functions, [RANK, "row"])
        each["Rank"] = each.pop(RANK)
        each[FILE] = pa.array([labels[r] for r in each["Rank"].to_pylist()], pa.string())
        sizes, small = _sizes(whole, functions)
        every = _operations(whole, functions, ["row"])
        return self.answer({"operations": every, "rank_operations": each, "sizes": sizes, **accesses}, (*small, *notes))


def _operations(whole: Any, functions: Any, keys: Sequence[str]) -> dict[str, Any]:
    """The cells of `_CALL` and of `keys`."""
    took = summarize(whole.filter(pc.equal(whole.column("what"), "time")).select([*keys, VALUE, COUNT]))
    moved = whole.filter(pc.equal(whole.column("what"), "size")).select([*keys, VALUE, COUNT])
    total = summarize(moved).select([*keys, "total"])
    some = summarize(moved.filter(pc.greater(moved.column(VALUE), 0))).select([*keys, "mean"]).rename_columns([*keys, "size"])
    joined = took.join(total, list(keys), right_suffix=" bytes").join(some, list(keys))
    names = functions.take(joined.column("row").combine_chunks())
    joined = joined.append_column("Function", names)
    rank = [(RANK, "ascending")] if RANK in keys else []
    joined = joined.take(pc.sort_indices(joined, [*rank, ("total", "descending"), ("Function", "ascending")]))
    kinds = pa.array([_KIND[n] for n in joined.column("Function").to_pylist()], pa.string())
    return {
        "Function": joined.column("Function"), "Kind": kinds, "Count": joined.column(COUNT), "Bytes": joined.column("total bytes"),
        "Avg Size": joined.column("size"), "Total Time": joined.column("total"), "Avg": joined.column("mean"),
        "Med": joined.column("median"), "Min": joined.column("min"), "Max": joined.column("max"),
        **({RANK: joined.column(RANK)} if rank else {}),
    }  # fmt: skip


def _sizes(whole: Any, functions: Any) -> tuple[dict[str, Any], list[str]]:
    """The histogram of sizes by powers of two, and what is to be said of small ones."""
    moved = whole.filter(pc.equal(whole.column("what"), "size"))
    value, count = integers(moved.column(VALUE)), integers(moved.column(COUNT))
    kinds = np.array([_KIND[n] for n in functions.take(moved.column("row").combine_chunks()).to_pylist()], object)
    power = np.frexp(value.astype(np.float64))[1]
    columns: dict[str, list[Any]] = {title: [] for title in ("Kind", "Size Start", "Size End", "Count", "Bytes")}
    notes = []
    for kind in _SIZED:
        mine = kinds == kind
        for p in np.unique(power[mine]).tolist():
            rows = mine & (power == p)
            cells = (kind, 0 if p == 0 else 1 << (p - 1), 1 << p, int(count[rows].sum()), int((count[rows] * value[rows]).sum()))
            for column, cell in zip(columns.values(), cells, strict=True):
                column.append(cell)
        some = mine & (value > 0)
        calls, small = int(count[some].sum()), int(count[some & (value < _SMALL_BYTES)].sum())
        if calls and 2 * small > calls:
            share = 100.0 * small / calls
            notes.append(
                f"{share:.0f} % of the calls that {kind} move less than 4096 bytes; larger or buffered ones cost less time"
            )
    return (columns if columns["Kind"] else {}), notes


RECIPE = FileAccessSum()

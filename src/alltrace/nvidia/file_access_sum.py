"""The recipe `file_access_sum`: reading and writing, from the calls of the operating system's runtime and by file."""

from collections.abc import Sequence
from typing import Any, ClassVar

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from alltrace.nvidia.cells import RANK_CELL, Cell, cells
from alltrace.nvidia.filters import pattern_of
from alltrace.nvidia.recipe import FILE, FILE_CELL, Results, SqlNsysRecipe, file_column
from alltrace.nvidia.report import RANK
from alltrace.recipes.analysis.lookups import column, texts_of
from alltrace.recipes.analysis.nvtx_projection import SPAN_COLUMNS, innermost_ranges
from alltrace.recipes.analysis.statistics_sql import statistics_statement
from alltrace.recipes.base import Answer, Chart, Option, Options, Part, RunFacts
from alltrace.recipes.sql_recipe import Statements, id_table
from alltrace.run.rank import Rank
from alltrace.trace.arrays import integers

_CALLS = {
    "read": ("read", "pread", "pread64", "readv", "preadv", "preadv2", "preadv64", "preadv64v2"),
    "write": ("write", "pwrite", "pwrite64", "writev", "pwritev", "pwritev2", "pwritev64", "pwritev64v2"),
    "stream": (
        "fread", "fwrite", "fgets", "fputs", "fread_unlocked", "fwrite_unlocked", "getline", "getdelim", "fprintf",
        "vfprintf",
    ),
    "open": ("open", "open64", "openat", "openat64", "creat", "creat64", "fopen", "fopen64", "fdopen", "freopen",
        "freopen64"),
    "close": ("close", "fclose"),
    "seek": ("lseek", "lseek64", "fseek", "fseeko", "fseeko64", "rewind"),
    "sync": ("fsync", "fdatasync", "sync", "syncfs", "sync_file_range", "fflush", "msync"),
    "metadata": (
        "stat", "stat64", "fstat", "fstat64", "lstat", "lstat64", "fstatat", "statx", "statfs", "fstatfs", "access",
        "faccessat", "ftruncate", "ftruncate64", "truncate", "fallocate", "posix_fallocate", "unlink", "unlinkat",
        "rename", "renameat", "mkdir", "rmdir", "opendir", "readdir", "closedir", "chmod", "fchmod",
    ),
}  # fmt: skip
_SIZED = ("read", "write")
_SMALL_BYTES = 4096
_CALL = cells(
    "Function | text | Call.",
    f"Kind | text | What it does: {', '.join(_CALLS)}.",
    "Count | int | How many calls.",
    "Bytes | bytes | Bytes that the calls returned; null for calls that return none.",
    "Avg Size | mean_bytes | Bytes per call that moved any.",
    "Total Time | ns | Durations together.",
    "Avg | mean_ns | Mean duration.",
    "Med | mean_ns | Median duration.",
    "Min | ns | Shortest.",
    "Max | ns | Longest.",
)
_ACCESS = cells(
    "Reads | int | Calls that read.",
    "Writes | int | Calls that write.",
    "Opens | int | Calls that open.",
    "Closes | int | Calls that close.",
    "Bytes Read | bytes | Bytes read.",
    "Bytes Written | bytes | Bytes written.",
    "Avg Read Size | mean_bytes | Bytes per call that reads; null without any.",
    "Avg Write Size | mean_bytes | Bytes per call that writes; null without any.",
    f"Small Calls | int | Calls that moved 1 to {_SMALL_BYTES - 1} bytes.",
    "Read Time | ns | Durations of the calls that read, together.",
    "Write Time | ns | The same of those that write.",
    "Other Time | ns | The same of all others.",
    "Total Time | ns | All of these.",
)
_FILES = Cell("Files", "int", "Files that were accessed.")

_KINDS = " ".join(f"WHEN text IN {names!r} THEN '{kind}'" for kind, names in _CALLS.items())
_SMALL = f"count_if(bytes BETWEEN 1 AND {_SMALL_BYTES - 1})"
# two distributions of calls, of durations and of sizes, and what accesses add up to by file, process and kind, and by
# range
_MAP = f"""
WITH called AS (
  SELECT osrt.rank, name, "end" - start AS took, return_value AS size, names.value AS text
  FROM osrt JOIN names ON names.id = name
  WHERE names.value IN {tuple(n for names in _CALLS.values() for n in names)!r} AND "end" IS NOT NULL
),
accessed AS (
  SELECT file_accesses.rank, host, file, range, pid, coalesce(kind, 'other') AS kind,
    greatest(coalesce("end" - start, 0), 0) AS took,
    if(kind IN ('read', 'write'), greatest(coalesce(bytes, 0), 0), 0) AS bytes
  FROM file_accesses
    LEFT JOIN processes ON processes.rank = file_accesses.rank AND processes.process = file_accesses.process
)
SELECT rank, 'time' AS what, name, NULL::VARCHAR AS host, NULL::BIGINT AS pid, NULL::VARCHAR AS kind,
  took AS value, count(*) AS count, NULL::BIGINT AS bytes, NULL::BIGINT AS took, NULL::BIGINT AS small
FROM called GROUP BY rank, name, called.took
UNION ALL SELECT rank, 'size', name, NULL, NULL, NULL, size, count(*), NULL, NULL, NULL FROM called
WHERE size >= 0 AND text IN {tuple(n for kind in _SIZED for n in _CALLS[kind])!r} GROUP BY rank, name, size
UNION ALL SELECT rank, 'file', file, host, pid, kind, NULL, count(*), sum(bytes), sum(took), {_SMALL}
FROM accessed GROUP BY rank, file, host, pid, kind"""
_MAP_RANGES = f"""
UNION ALL SELECT rank, 'range', range, NULL, NULL, kind, NULL, count(*), sum(bytes), sum(took), {_SMALL}
FROM accessed GROUP BY rank, range, kind"""
_SIZES = f"""
SELECT "Kind", if(p = 0, 0, pow(2, p - 1))::BIGINT AS "Size Start", pow(2, p)::BIGINT AS "Size End",
sum(count) AS "Count",
  sum(value::HUGEINT * count) AS "Bytes"
FROM (
  SELECT CASE {_KINDS} END AS "Kind", if(value = 0, 0, length(bin(value))) AS p, value, count
  FROM (SELECT text_of(name) AS text, value, count FROM parts WHERE what = 'size')
) GROUP BY "Kind", p ORDER BY "Kind", p"""


def _sum_of(number: str, *kinds: str) -> str:
    where = f" FILTER (kind IN ({', '.join(map(repr, kinds))}))" if kinds else ""
    return f"coalesce(sum({number}){where}, 0)"


_SUMS = f"""
  {_sum_of("count", "read")} AS "Reads", {_sum_of("count", "write")} AS "Writes",
  {_sum_of("count", "open")} AS "Opens", {_sum_of("count", "close")} AS "Closes",
  {_sum_of("bytes", "read")} AS "Bytes Read", {_sum_of("bytes", "write")} AS "Bytes Written",
  "Bytes Read" / nullif("Reads", 0) AS "Avg Read Size", "Bytes Written" / nullif("Writes", 0) AS "Avg Write Size",
  {_sum_of("small")} AS "Small Calls", {_sum_of("took", "read")} AS "Read Time", {_sum_of("took", "write")} AS
  "Write Time",
  {_sum_of("took", "open", "close", "other")} AS "Other Time", "Read Time" + "Write Time" + "Other Time" AS "Total Time"
FROM (SELECT *, coalesce(text_of(name), '') AS path FROM parts) WHERE what = """
_HOTTEST = '"Bytes Read" + "Bytes Written" DESC, "Total Time" DESC'
_ACCESS_STATEMENTS = {
    "file_access": (
        f"""SELECT *, CASE WHEN "Reads" > 0 AND "Writes" > 0 THEN 'mixed' WHEN "Reads" > 0 THEN 'read-only'
    WHEN "Writes" > 0 THEN 'write-only' ELSE 'no data' END AS "Pattern"
FROM (SELECT path AS "Path", count(DISTINCT rank) AS "Ranks",{_SUMS}'file' GROUP BY path) ORDER BY {_HOTTEST},
"Path\""""
    ),
    "process_access": f"""SELECT rank AS "Rank", pid AS "PID", count(DISTINCT path) AS "Files",{_SUMS}'file'
GROUP BY rank, pid ORDER BY rank, pid""",
    "host_access": (
        'SELECT host AS "Host", count(DISTINCT rank) AS "Ranks", '
        f"""count(DISTINCT path) AS "Files",{_SUMS}'file'
GROUP BY host ORDER BY host"""
    ),
    "range_access": (
        f"""SELECT text_of(name) AS "Range",{_SUMS}'range' GROUP BY "Range" ORDER BY {_HOTTEST}, "Range\""""
    ),
}


class FileAccessSum(SqlNsysRecipe):
    """Reading and writing: by function, file, process and host, over all ranks and on each, and a histogram of sizes.

    `operations` and `sizes` are taken from the calls of the operating system's runtime that a report holds
    (`--trace=osrt`): bytes are what `read`, `write` and similar calls returned; these calls also move data of pipes and
    sockets. `file_access` and what follows are taken from the accesses to files by name, of reports with
    `--osrt-file-access=true`; the files with most bytes come first.
    """

    name = "file_access_sum"
    device = False
    tables = {  # noqa: RUF012
        "osrt": ("start", "end", "name", "return_value"),
        "file_accesses": ("start", "end", "process", "thread", "file", "access", "kind", "bytes"),
    }
    own: ClassVar[tuple[Option, ...]] = (
        Option("ignore", str, None, "Leave out files with a path that this regular expression matches."),
        Option("per_nvtx", bool, False, "Also list the accesses by the innermost NVTX range of their thread."),
    )
    results: ClassVar[Results] = {
        "operations": _CALL,
        "rank_operations": (*_CALL, RANK_CELL, FILE_CELL),
        "sizes": cells(
            "Kind | text | read or write.",
            "Size Start | bytes | Smallest size of the bin; 0 has its own bin.",
            "Size End | bytes | The bin's sizes are smaller than this.",
            "Count | int | Calls that moved bytes in this bin.",
            "Bytes | bytes | Bytes together.",
        ),
        "file_access": (
            *cells(
                "Path | text | The file.",
                "Pattern | text | read-only, write-only, mixed, or no data where nothing was read or written.",
                "Ranks | int | Ranks that accessed it.",
            ),
            *_ACCESS,
        ),
        "process_access": (RANK_CELL, Cell("PID", "int", "Process id."), _FILES, *_ACCESS),
        "host_access": (*cells("Host | text | Host.", "Ranks | int | Its ranks that access files."), _FILES, *_ACCESS),
        "range_access": (Cell("Range", "text", "Innermost NVTX range; null outside of all."), *_ACCESS),
    }
    chart = Chart("bars", "Function", ("Total Time",))

    def prepared(self, options: Options, run: RunFacts) -> Options:
        """The options. Raises `UsageError`: what is to be ignored is not a valid regular expression."""
        pattern_of("--ignore", options["ignore"])
        return super().prepared(options, run)

    def reads(self, options: Options) -> dict[str, tuple[str, ...]]:
        """The calls and accesses, and with `--per-nvtx` the ranges around them."""
        wanted = super().reads(options)
        if options["per_nvtx"]:
            wanted["ranges"] = tuple(dict.fromkeys((*wanted.get("ranges", ()), *SPAN_COLUMNS)))
        return wanted

    def without(self, options: Options) -> dict[str, str]:
        return {**super().without(options), **({"ranges": "no access is in a range"} if options["per_nvtx"] else {})}

    @property
    def statements(self) -> Statements:
        return self.select(
            lambda options: f"{_MAP}{_MAP_RANGES if options['per_nvtx'] else ''}",
            reduce=_reduce_statement,
            rank_tables=self._rank_tables,
            computed="the files, hosts and ranges of each access",
        )

    def _rank_tables(self, rank: Rank, options: Options) -> dict[str, Any]:
        """The calls; the accesses that are not ignored, with the host and the range around; and the processes."""
        accesses = id_table(rank, "file_accesses", self.tables["file_accesses"])
        pattern = pattern_of("--ignore", options["ignore"])
        if pattern is not None and accesses.num_rows:
            texts = texts_of(rank, integers(accesses.column("file"), -1))
            hits = zip(texts, pattern.matches(texts.values()), strict=True)
            ignored = pa.array([i for i, hit in hits if i != -1 and hit], pa.int64())
            accesses = accesses.filter(pc.invert(pc.is_in(accesses.column("file"), value_set=ignored)))
        ranges = pa.nulls(accesses.num_rows, pa.int64())
        if options["per_nvtx"] and accesses.num_rows:
            thread, start, end = (integers(accesses.column(c), -1) for c in ("thread", "start", "end"))
            # a thread that is not known is in no range
            ranges = pc.if_else(
                pa.array(thread >= 0), innermost_ranges(rank, np.maximum(thread, 0), start, end), ranges
            )
        accesses = accesses.append_column("range", ranges).append_column(
            "host", pa.array([rank.host] * accesses.num_rows, pa.string())
        )
        calls = id_table(rank, "osrt", self.tables["osrt"])
        return {"osrt": calls, "file_accesses": accesses, "processes": id_table(rank, "processes", ["process", "pid"])}

    def combine(self, parts: Sequence[Part], run: RunFacts, options: Options) -> Answer:
        if not parts:
            return self.answer({}, ("no call that reads or writes was recorded",))

        def rows(table: str, *, by_rank: bool = False) -> Any:
            return self.statements.over_parts(parts, run, {**options, "table": table, "by_rank": by_rank})

        accesses = {name: rows(name) for name in _ACCESS_STATEMENTS}
        notes = _hints(accesses["file_access"])
        tables = {name: _by_title(table) for name, table in accesses.items()}
        operations = rows("operations")
        if operations.num_rows:
            of_rank, sizes = rows("operations", by_rank=True), rows("sizes")
            rank = of_rank.column(RANK)
            tables["operations"], tables["sizes"] = _operations(operations), _by_title(sizes)
            tables["rank_operations"] = {**_operations(of_rank), "Rank": rank, FILE: file_column(run, rank.to_pylist())}
            notes = (*_small_sizes(sizes.to_pylist()), *notes)
        return self.answer(tables, notes)


def _reduce_statement(options: Options) -> str:
    """The statement of the table that the option `table` names; `operations` perhaps for each rank."""
    if options["table"] != "operations":
        return {**_ACCESS_STATEMENTS, "sizes": _SIZES}[options["table"]]
    by_rank = bool(options.get("by_rank"))
    moved = {"moved": "sum(count) FILTER (value > 0)"}
    statistics = statistics_statement(
        {"what": "what", "Function": "text_of(name)"}, ("what", "name"), quartiles=False, by_rank=by_rank, further=moved
    )
    of = "AND sized.rank = timed.rank" if by_rank else ""
    return f"""
WITH described AS ({statistics})
SELECT timed.* EXCLUDE (what, moved), sized.total AS "Bytes", sized.total / sized.moved AS "Avg Size"
FROM described AS timed LEFT JOIN described AS sized ON sized."Function" = timed."Function" AND sized.what = 'size' {of}
WHERE timed.what = 'time' ORDER BY {"timed.rank, " if by_rank else ""}timed.total DESC, timed."Function\""""


def _by_title(table: Any) -> dict[str, Any]:
    return {name: table.column(name) for name in table.column_names} if table.num_rows else {}


def _operations(table: Any) -> dict[str, Any]:
    kind = {name: kind for kind, names in _CALLS.items() for name in names}
    names = {"Count": "count", "Total Time": "total", "Avg": "mean", "Med": "median", "Min": "min", "Max": "max"}
    return {
        **{title: table.column(name) for title, name in names.items()},
        **{title: table.column(title) for title in ("Function", "Bytes", "Avg Size")},
        "Kind": pa.array([kind[name] for name in table.column("Function").to_pylist()], pa.string()),
    }


def _small_sizes(sizes: list[dict[str, Any]]) -> list[str]:
    notes = []
    for kind in _SIZED:
        bins = [row for row in sizes if row["Kind"] == kind and row["Size Start"] > 0]
        calls, small = (
            sum(row["Count"] for row in bins),
            sum(row["Count"] for row in bins if row["Size End"] <= _SMALL_BYTES),
        )
        if calls and 2 * small > calls:
            share = 100.0 * small / calls
            notes.append(
                f"{share:.0f} % of the calls that {kind} move less than 4096 bytes; larger or buffered ones cost less"
                " time"
            )
    return notes


def _hints(by_file: Any) -> tuple[str, ...]:
    reads, writes, small, total, other = (
        int(pc.sum(column(by_file, name)).as_py() or 0)
        for name in ("Reads", "Writes", "Small Calls", "Total Time", "Other Time")
    )
    notes = []
    if reads + writes and 2 * small > reads + writes:
        share = 100.0 * small / (reads + writes)
        notes.append(
            f"{share:.0f} % of the accesses to files move less than {_SMALL_BYTES} bytes; larger or buffered ones cost"
            " less time"
        )
    if total and 2 * other > total:
        share = 100.0 * other / total
        notes.append(
            f"{share:.0f} % of the time in accesses to files is opening, closing and the like, and not data; fewer, "
            "larger files or handles that stay open cost a file system's metadata less"
        )
    return tuple(notes)


file_access_sum = FileAccessSum()

"""Who an export is about: exporter, ranks, processes, warnings."""

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import numpy as np

from alltrace.readers.base import WORLD_SIZE, ReportProcess, ReportWarning
from alltrace.readers.nsys.columns import as_integers
from alltrace.readers.nsys.entities import TID_BITS, TID_MASK, Entities, pid_of
from alltrace.readers.nsys.mapping import find_table, unread, unreadable
from alltrace.readers.nsys.small import raw_type, small_rows, whole
from alltrace.readers.nsys.source import RawSource
from alltrace.readers.nsys.strings import Strings
from alltrace.trace.arrays import unpacked
from alltrace.trace.errors import printable
from alltrace.trace.nsys_payloads import EXPORT
from alltrace.trace.schema import EVENT_TABLES

NEWEST_SCHEMA = (3, 30)
_GPU_WORK = (
    "CUPTI_ACTIVITY_KIND_KERNEL",
    "CUPTI_ACTIVITY_KIND_GRAPH_TRACE",
    "CUPTI_ACTIVITY_KIND_MEMCPY",
    "CUPTI_ACTIVITY_KIND_MEMSET",
)
_CONTEXTS = ("TARGET_INFO_CUDA_CONTEXT_INFO", "TARGET_INFO_CUDA_STREAM", "TARGET_INFO_CUDA_NULL_STREAM")
_MPI_THREAD = re.compile(r"MPI Rank (\d{1,9})")
_HOST_WORK = ("CUPTI_ACTIVITY_KIND_RUNTIME", "NVTX_EVENTS", "NVTXT_EVENTS", "MPI_OTHER_EVENTS", "OSRT_API")
_LAST_RESORT = "PROFILER_OVERHEAD"


def metadata(source: RawSource) -> dict[str, str]:
    """What the exporter says about itself; empty for exports before 2021."""
    for table in ("META_DATA_EXPORT", "EXPORT_META_DATA"):
        values = {
            str(k): str(v) for k, v in small_rows(source, table, "name", "value") if k is not None and v is not None
        }
        if values:
            return {k: v for k, v in values.items() if v.isprintable()}
    return {}


def world_size(source: RawSource, variables: dict[str, str]) -> int | None:
    """The number of ranks of the job: of the largest communicator, else of the launcher's variables."""
    sizes = [whole(s) or 0 for (s,) in small_rows(source, "MPI_COMMUNICATORS", "size")]
    largest = max(sizes, default=0)
    if largest > 0:
        return largest
    for name in WORLD_SIZE:
        if variables.get(name, "").isdecimal() and int(variables[name]) > 0:
            return int(variables[name])
    return None


def mpi_ranks(source: RawSource, strings: Strings) -> dict[int, int]:
    """MPI_COMM_WORLD's rank by global id without thread bits; of old exports by threads called `MPI Rank <n>`."""
    ranks: dict[int, int] = {}
    for global_tid, rank in small_rows(source, "MPI_RANKS", "globalTid", "rank"):
        thread, number = whole(global_tid), whole(rank)
        if thread is not None and number is not None:
            ranks.setdefault(thread >> TID_BITS, number)
    if ranks or find_table(source.tables, "MPI_RANKS") or not _may_be_mpi(source):
        return ranks
    for global_tid, name in small_rows(source, "ThreadNames", "globalTid", "nameId"):
        thread, string_id = whole(global_tid), whole(name)
        if thread is None or string_id is None or thread & TID_MASK != pid_of(thread):
            continue
        match = _MPI_THREAD.fullmatch(strings.text(string_id) or "")
        if match:
            ranks.setdefault(thread >> TID_BITS, int(match[1]))
    return ranks


def _may_be_mpi(source: RawSource) -> bool:
    if any(t.startswith("MPI_") for t in source.tables):
        return True
    version = re.match(r"(\d+)\.", metadata(source).get("EXPORT_SCHEMA_VERSION", ""))
    return version is None or int(version[1]) < 3  # before 3.0, MPI calls were NVTX ranges


def processes(
    source: RawSource, entities: Entities, ranks: dict[int, int], known: Sequence[ReportProcess] = ()
) -> tuple[ReportProcess, ...]:
    """The processes with GPU work or an MPI rank, else all, the busiest first; those `known` keep their rows."""
    if known:
        for process in known:
            entities.process_row((process.source_id or 0) << TID_BITS)
        return tuple(known)
    gpu = _gpu_processes(source)
    keys = sorted({*gpu, *ranks}) or _busiest(source)
    chosen = []
    for key in keys:
        row = entities.process_row(key << TID_BITS)
        chosen.append(
            ReportProcess(
                process=row,
                pid=pid_of(key << TID_BITS),
                name=entities.process_name(row),
                mpi_rank=ranks.get(key),
                gpu=key in gpu,
                device_ordinal=gpu.get(key),
                source_id=key,
            )
        )
    return tuple(chosen)


def _gpu_processes(source: RawSource) -> dict[int, int | None]:
    """The processes with work on a GPU, each with the lowest CUDA ordinal it used."""
    tables = [t for t in (find_table(source.tables, name) for name in _GPU_WORK) if t and source.count_about(t)]
    if not tables:
        return {}
    contexts = [row for table in _CONTEXTS for row in small_rows(source, table, "processId", "deviceId")]
    only = {p for pid, _ in contexts if (p := whole(pid))}
    if len(only) == 1:  # reading every row for what is known already would take long
        for table in tables:
            for batch in _process_batches(source, table, 64):
                ordinals = _ordinals(batch)
                if {pid_of(key << TID_BITS) for key in ordinals} == only:
                    key = next(iter(ordinals))
                    return {key: _lowest([ordinals[key], *(whole(n) for pid, n in contexts if whole(pid) in only)])}
                break
    ordinals = {}
    for table in tables:
        for batch in _process_batches(source, table, 131_072):
            for key, ordinal in _ordinals(batch).items():
                ordinals[key] = _lowest([ordinal, ordinals.get(key)])
    return ordinals


def _lowest(ordinals: list[int | None]) -> int | None:
    return min((o for o in ordinals if o is not None), default=None)


def _process_batches(source: RawSource, table: str, rows: int) -> Iterator[Any]:
    types = source.tables[table]
    columns = {c: raw_type(types[c]) for c in ("globalPid", "deviceId") if c in types}
    if "globalPid" in columns:
        yield from source.batches(table, columns, rows)


def _ordinals(batch: Any) -> dict[int, int | None]:
    """The processes of a batch, each with its lowest CUDA ordinal."""
    values, nothing = unpacked(as_integers(batch.column(0)))
    keys = values >> TID_BITS
    ordinals = unpacked(as_integers(batch.column(1)))[0] if batch.num_columns > 1 else None
    if nothing is not None:
        keys = keys[~nothing]
        ordinals = ordinals[~nothing] if ordinals is not None else None
    if not len(keys):
        return {}
    distinct = keys[:1] if (keys == keys[0]).all() else np.unique(keys)
    return {int(k): int(ordinals[keys == k].min()) if ordinals is not None else None for k in distinct.tolist()}


def _busiest(source: RawSource) -> list[int]:
    """The processes with events on the host, the one with the most first."""
    counts: Counter[int] = Counter()
    for name in (*_HOST_WORK, _LAST_RESORT):
        table = find_table(source.tables, name)
        if (name == _LAST_RESORT and counts) or table is None or "globalTid" not in source.tables[table]:
            continue
        for batch in source.batches(table, {"globalTid": raw_type(source.tables[table]["globalTid"])}):
            values, _ = unpacked(as_integers(batch.column(0)).drop_null())
            keys, times = np.unique(values >> TID_BITS, return_counts=True)
            counts.update(dict(zip(keys.tolist(), times.tolist(), strict=True)))
    return [key for key, _ in sorted(counts.items(), key=lambda item: (-item[1], item[0]))]


def without_payloads(source: RawSource, *, exported: bool) -> str:
    """Why NCCL's ranges may lack payloads, and what to do; `exported`: whether alltrace made the export of a report."""
    about = metadata(source)
    lacking = "NCCL's ranges have no payload, which names sizes and communicators"
    if all(about.get(f"EXPORT_PARAM_INCLUDE_{what}") == "true" for what in ("BLOBS", "JSON")):
        return (
            f"{lacking}: neither NCCL nor the profiler recorded it; NCCL's logs have both (import --nccl-log); such"
            " ranges"
        )
    if exported:
        return f"{lacking}: the nsys used here cannot export it; set ALLTRACE_NSYS to a newer one; such ranges"
    return (
        f"{lacking}: nsys leaves it out by default; import the .nsys-rep itself, or export it again with `{EXPORT}`;"
        " such ranges"
    )


def warnings(source: RawSource, tables: Iterable[str], schema_version: str | None) -> tuple[ReportWarning, ...]:
    """What a user should know about the report."""
    messages: list[ReportWarning] = []
    have = set(tables)
    if "graphs" in have:
        text = (
            "CUDA graphs were traced as a whole, so the kernels inside them are unknown (capture with"
            " --cuda-graph-trace=node)."
        )
        messages.append(ReportWarning(text, ("kernels",)))
    if not have & {"kernels", "copies", "api", "graphs"}:
        messages.append(ReportWarning("The report has no CUDA events."))
    if not have & {"ranges", "marks"}:
        messages.append(ReportWarning("The report has no NVTX events."))
    version = re.match(r"(\d+)\.(\d+)", schema_version or "")
    if version and (int(version[1]), int(version[2])) > NEWEST_SCHEMA:
        text = (
            f"The export's schema {version[0]} is newer than {NEWEST_SCHEMA[0]}.{NEWEST_SCHEMA[1]}, the newest"
            " supported version."
        )
        messages.append(ReportWarning(text, EVENT_TABLES))
    for table, canonical, missing in unreadable(source.tables):
        columns = f"no column {missing[0]}" if len(missing) == 1 else f"no columns {', '.join(missing)}"
        messages.append(
            ReportWarning(f"Table {printable(table)} has {columns}, so none of its rows are read.", canonical)
        )
    if not_read := [printable(table) for table in unread(source.tables) if source.count_about(table)]:
        messages.append(ReportWarning(f"Tables with rows that alltrace does not read: {', '.join(not_read)}."))
    messages.extend(_diagnostics(source))
    return tuple(messages)


_DIAGNOSED = (
    (re.compile(r"\b(dropped|lost|discarded|overflow)", re.IGNORECASE), "events or samples were lost", EVENT_TABLES),
    (re.compile(r"buffer.*(full|exhaust|exceed)", re.IGNORECASE), "a buffer was full", EVENT_TABLES),
    (
        re.compile(r"\bnot supported\b", re.IGNORECASE),
        "something traced is not supported by this version of the profiler",
        (),
    ),
)


def _diagnostics(source: RawSource) -> list[ReportWarning]:
    """Counts by kind of the profiler's own complaints; never their text, which can hold paths and secrets."""
    counts: dict[tuple[str, tuple[str, ...]], int] = {}
    for severity, text in small_rows(source, "DIAGNOSTIC_EVENT", "severity", "text"):
        if (whole(severity) or 0) < 2:  # 1 is information
            continue
        for pattern, kind, tables in _DIAGNOSED:
            if text and pattern.search(str(text)[:4096]):
                counts[kind, tables] = counts.get((kind, tables), 0) + 1
                break
    return [
        ReportWarning(f"The profiler reported {n} time{'s' if n > 1 else ''} that {kind}.", tables)
        for (kind, tables), n in counts.items()
    ]

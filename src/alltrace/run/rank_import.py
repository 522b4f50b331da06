"""One task of an import: the ranks that share reports, from those reports to their committed folders."""

import os
import platform
import shutil
from collections import defaultdict
from collections.abc import Callable, Collection, Generator, Iterator, Mapping, Sequence
from contextlib import closing
from itertools import groupby
from operator import itemgetter
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from alltrace.readers.base import ReportProcess, ReportReader, ReportWarning
from alltrace.readers.registry import open_report
from alltrace.readers.spool import SpooledReader
from alltrace.run.checksums import write_rank_record
from alltrace.run.collective_copies import mark_collective_copies
from alltrace.run.host_paths import host_path, naming_host
from alltrace.run.identity import RankPlan
from alltrace.run.manifest import RANKS, Device, RankRecord, ReportRecord, rank_folder
from alltrace.run.meeting_kernels import keep_unknown_kernels
from alltrace.run.missing_records import Missing, missing_records
from alltrace.run.pieces import Piece, Sinks, grouped
from alltrace.run.plausibility import set_aside
from alltrace.run.prefetch import prefetched
from alltrace.run.row_groups import one_thread
from alltrace.run.windows import between, last_attempt, merged_spans, recorded_windows, windows_of
from alltrace.trace.arrays import integers
from alltrace.trace.communication_kernels import KernelRule
from alltrace.trace.kernel_rules import KernelRules, built_in_rules
from alltrace.trace.schema import DICTIONARIES, EVENT_TABLES

_BUDGET_BYTES = 12 << 20
_TELL_MISSING = ("kernels", "copies", "graphs", "api")
_AHEAD = 3  # batches that are decoded while others are sorted and written
_ROWS_WORTH_A_THREAD = 200_000

Readers = dict[str, ReportReader]
"""Reports that stay open from the first look until they are read, in the same process, by path."""


class RankTask(NamedTuple):
    """What one worker imports."""

    run: str
    reports: Mapping[int, ReportRecord]  # the reports by their row in the manifest
    ranks: tuple[RankPlan, ...]  # the ranks; all their sources are among the reports
    signatures: Mapping[int, Mapping[str, Any]]  # the inputs of each rank
    tables: tuple[str, ...]  # the canonical event tables wanted
    rules: tuple[KernelRule, ...]  # the kernel rules
    processes: Mapping[int, tuple[ReportProcess, ...]] = {}  # the processes of each report, as opening it found them
    # for each report, the ranks made from it, including those that need no import, and their processes
    owners: Mapping[int, tuple[tuple[int, tuple[int, ...]], ...]] = {}
    scratch: Mapping[int, str] = {}  # for each report the folder with the files made to open it; empty if none
    rows: Mapping[int, int] = {}  # approximate number of rows of each report
    # the reports that are already open, by path, if the task runs in this process; each is taken out and closed
    readers: Readers = {}  # noqa: RUF012  no task adds one


def import_ranks(task: RankTask, advance: Callable[[int], None]) -> list[RankRecord]:
    """Read the reports of `task` and commit its ranks, or nothing where one is damaged (`InputError`)."""
    run = Path(task.run)
    # workers on several hosts may share a number
    staging = run / RANKS / f".{platform.node()}-{os.getpid()}-{task.ranks[0].rank}"
    # each is renamed, not moved out of a folder to remove: ext4 looks at all that was removed last for each new file
    folders = [staging, *(Path(f"{staging}-{s.report}-{r.rank}") for r in task.ranks for s in r.sources)]
    for folder in filter(Path.exists, folders):
        shutil.rmtree(folder, ignore_errors=True)
    try:
        pieces: dict[int, list[Piece]] = defaultdict(list)
        for index in task.reports:
            mine = {r.rank for r in task.ranks if any(s.report == index for s in r.sources)}
            for rank, piece in _read_report(index, mine, task, staging, advance):
                pieces[rank].append(piece)
        return [_commit(run, task, plan, pieces[plan.rank], staging) for plan in task.ranks]
    finally:
        for folder in filter(Path.exists, folders):
            shutil.rmtree(folder, ignore_errors=True)


def _read_report(
    report: int, mine: Collection[int], task: RankTask, folder: Path, advance: Callable[[int], None]
) -> Iterator[tuple[int, Piece]]:
    scratch = Path(task.scratch[report]) if task.scratch.get(report) else None
    if scratch is not None:
        scratch.mkdir(exist_ok=True)
    path = task.reports[report].path
    at = host_path(path)
    with naming_host(at.host):
        reader = task.readers.pop(path, None) or open_report(at.path, task.processes.get(report, ()), scratch)
        try:
            yield from _split(reader, report, mine, task, folder, advance)
        finally:
            reader.close()
            if scratch is not None:
                shutil.rmtree(scratch, ignore_errors=True)


def _split(
    reader: ReportReader,
    report: int,
    mine: Collection[int],
    task: RankTask,
    folder: Path,
    advance: Callable[[int], None],
) -> Iterator[tuple[int, Piece]]:
    kinds = _KernelKinds(reader, task.rules)
    owners = task.owners[report]
    router = _Router([processes for _, processes in owners])
    pieces = {}
    for n, (rank, _) in enumerate(owners):
        if rank in mine:
            place = Path(f"{folder}-{report}-{rank}")
            place.mkdir(parents=True)
            pieces[n] = Piece(place, report=report)
    budget = _BUDGET_BYTES // max(1, min(4, len(pieces)))
    passes = 1
    if isinstance(reader, SpooledReader):  # its rows are read once before they come
        reader.advance, passes = lambda rows: advance(rows - rows // 2), 2
    rows = _batches(reader, task, kinds)
    large = task.rows.get(report, _ROWS_WORTH_A_THREAD) >= _ROWS_WORTH_A_THREAD
    with one_thread() as encoder, closing(prefetched(rows, _AHEAD) if large else rows) as batches:
        for _, of_report in groupby(batches, key=itemgetter(0)):
            with Sinks(pieces, folder, budget, encoder, task.reports[report].path) as sinks:
                for _, name, batch in of_report:
                    for n, part in router.split(batch):
                        if n in pieces:  # the others are there already
                            sinks.append(name, n, part)
                    advance(batch.num_rows // passes)
    dictionaries = reader.dictionaries()
    warnings = reader.warnings()
    for n, piece in pieces.items():
        for name in DICTIONARIES:
            table = dictionaries.get(name)
            if table is not None:
                piece.write_dictionary(name, router.dictionary(table, n) if len(owners) > 1 else table)
        if piece.open_end_ns is None and piece.end_ns is not None:
            piece.open_end_ns = piece.end_ns
        piece.warnings = warnings
        set_aside(piece, folder, task.reports[report].path)
        piece.windows = windows_of(piece)
        if len(task.reports) > 1:
            piece.release()
        yield owners[n][0], piece


def _batches(
    reader: ReportReader, task: RankTask, kinds: "_KernelKinds"
) -> Generator[tuple[tuple[str, ...], str, Any], None, None]:
    """The rows of all wanted tables: which tables are read together, the table, and the batch."""
    for group in grouped(task.tables):
        for name, batch in reader.stream(group):
            yield group, name, kinds.fill(batch) if name == "kernels" else batch


class _Router:
    """Splits batches of one report over its ranks by process; rows without a known process go to the first rank."""

    def __init__(self, owned: Sequence[tuple[int, ...]]) -> None:
        self._owned = owned

    def split(self, batch: Any) -> Iterator[tuple[int, Any]]:
        if len(self._owned) == 1 or "process" not in batch.schema.names:
            yield 0, batch
            return
        owner = self._owner_of(batch.column("process"))
        for n in range(len(self._owned)):
            mask = owner == n
            if mask.all():
                yield n, batch
            elif mask.any():
                yield n, pc.filter(batch, pa.array(mask))

    def dictionary(self, table: Any, piece: int) -> Any:
        """The rows of a dictionary that are a piece's: those of its processes; those without one are all pieces'."""
        if "process" not in table.column_names:
            return table
        return table.filter(pa.array(self._owner_of(table.column("process")) == piece))

    def _owner_of(self, processes: Any) -> Any:
        values = integers(processes, -1)
        top = max((p for owned in self._owned for p in owned), default=0)
        lookup = np.zeros(max(top, int(values.max(initial=0))) + 2, np.int32)
        for n, owned in enumerate(self._owned):
            lookup[list(owned)] = n
        # -1 is the last element, which no process has
        return lookup[values]


class _KernelKinds:
    """Fills `kernels.kind` by the rules, once per name."""

    def __init__(self, reader: ReportReader, rules: Sequence[KernelRule]) -> None:
        built_in = built_in_rules()
        self._rules = (
            built_in if tuple(rules) == built_in.rules else KernelRules(rules[: len(rules) - len(built_in.rules)])
        )
        self._reader = reader

    def fill(self, batch: Any) -> Any:
        # the best name a kernel has is the demangled one
        encoded = pc.dictionary_encode(pc.coalesce(batch.column("name"), batch.column("short_name")))
        kinds = pc.dictionary_encode(
            pa.array(self._rules.kinds(encoded.dictionary.to_pylist(), self._texts), pa.string())
        )
        indices = pc.take(kinds.indices, encoded.indices)
        column = pa.DictionaryArray.from_arrays(indices, kinds.dictionary)
        return batch.set_column(batch.schema.get_field_index("kind"), batch.schema.field("kind"), column)

    def _texts(self) -> dict[int | None, str]:
        names = self._reader.dictionaries()["names"]
        return dict(zip(names.column("id").to_pylist(), names.column("value").to_pylist(), strict=True))


def _commit(run: Path, task: RankTask, plan: RankPlan, pieces: Sequence[Piece], staging: Path) -> RankRecord:
    """Put a rank's folder in its place, whole."""
    order = [s.report for s in plan.sources]
    piece = pieces[0]
    of_import: list[ReportWarning] = []
    if len(pieces) > 1:
        from alltrace.run.report_merge import join_pieces

        by_report = {p.report: p for p in pieces}
        begin = last_attempt([by_report[i] for i in order])
        if begin:
            text = "reports of earlier attempts of the process, which was started again and has its last attempt here"
            of_import.append(ReportWarning(text, EVENT_TABLES, begin))
            order = order[begin:]
        pieces = [by_report[i] for i in order]
        shifts = [_shift(task, order[0], i) for i in order]
        windows = recorded_windows(
            (a + shift, b + shift) for p, shift in zip(pieces, shifts, strict=True) for a, b in p.spans
        )
        piece = pieces[0]
        if len(pieces) > 1:
            parts = [(p.folder, shift, p.rows) for p, shift in zip(pieces, shifts, strict=True)]
            piece = join_pieces(parts, staging / f"joined-{plan.rank}", staging)
    else:
        windows = piece.windows
    if windows:
        of_import.append(
            ReportWarning("windows were recorded; the time between them is not judged", EVENT_TABLES, len(windows))
        )
    record = task.reports[order[0]]
    mark_collective_copies(piece, staging / f"marked-{plan.rank}")
    keep_unknown_kernels(piece)
    missing = missing_records(piece) if set(_TELL_MISSING) <= set(task.tables) else Missing()
    row_warnings = {str(p.report): p.row_warnings for p in pieces if p.row_warnings}
    of_import += missing.warnings
    if of_import:
        row_warnings[str(order[0])] = (*row_warnings.get(str(order[0]), ()), *of_import)
    warnings = {str(p.report): p.warnings for p in pieces if p.warnings}
    rank = RankRecord(
        rank=plan.rank,
        local_rank=plan.local_rank,
        host=plan.host,
        pids=plan.pids,
        devices=_devices(piece, plan.host),
        rank_source=plan.source,
        reports=tuple(order),
        time_base_utc_ns=record.utc_ns,
        start_ns=piece.start_ns,
        end_ns=piece.end_ns,
        rows=piece.rows,
        open_end_ns=piece.open_end_ns,
        warnings=warnings,
        row_warnings=row_warnings,
        lacking=_lacking(pieces),
        missing_records=missing.records,
        unrecorded=merged_spans((*missing.unrecorded, *between(windows))),
        windows=windows,
        doubt=next((p.doubt for p in pieces if p.doubt is not None), None),
    )
    write_rank_record(piece.folder, rank, task.signatures[plan.rank])
    place = run / rank_folder(plan.rank)
    shutil.rmtree(place, ignore_errors=True)
    piece.folder.rename(place)
    piece.release()
    return rank


def _lacking(pieces: Sequence[Piece]) -> dict[str, tuple[str, ...]]:
    """The columns without a value in any piece that has rows of a table."""
    by_table: dict[str, tuple[str, ...]] = {}
    for piece in pieces:
        for table, columns in piece.lacking.items():
            by_table[table] = tuple(c for c in columns if c in by_table.get(table, columns))
    return {table: columns for table, columns in by_table.items() if columns}


def _shift(task: RankTask, first: int, other: int) -> int:
    a, b = task.reports[first].utc_ns, task.reports[other].utc_ns
    return b - a if a is not None and b is not None else 0


def _devices(piece: Piece, host: str) -> tuple[Device, ...]:
    """The devices that the rank used, out of all that its reports describe."""
    if not (piece.folder / "devices.parquet").is_file():
        return ()
    rows = piece.read("devices", ["device", "ordinal", "uuid", "bus_id", "name"])
    texts = piece.names.texts(rows.column("name").combine_chunks()).to_pylist()
    return tuple(
        Device(r["device"], r["ordinal"], r["uuid"], r["bus_id"], text, host)
        for r, text in zip(rows.to_pylist(), texts, strict=True)
        if r["device"] in piece.devices
    )

"""The reports on unified memory: bytes migrated and pages faulted, by address, in all, and by instruction."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar

import pyarrow as pa
import pyarrow.compute as pc

from alltrace.nvidia.stats.base import BY_RANK, RANK, RANK_CELL, Cell, StatsReport, with_rank
from alltrace.nvidia.stats.cuda import durations
from alltrace.recipes.analysis.lookups import column
from alltrace.recipes.base import Chart, Option

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from alltrace.recipes.base import Answer, Part, RankTables, RunFacts

_SUMS = ("htod", "dtoh", "took_ns", "cpu", "gpu")
_SCHEMA = pa.schema([(name, pa.int64()) for name in ("address", *_SUMS)])


class ActivityReport(StatsReport):
    """A report on the activity of all ranks by virtual address.

    A part has `address` (null if the source has none), `htod` and `dtoh` (bytes migrated), `took_ns` (time of these migrations),
    `cpu` and `gpu` (page faults); each null if there was none.
    """

    tables: ClassVar[Mapping[str, tuple[str, ...]]] = {
        "copies": ("start", "end", "kind", "bytes", "address"),
        "page_faults": ("kind", "address", "count"),
    }

    def map(self, rank: RankTables, options: Mapping[str, Any]) -> Any:
        """The rank's activity by address."""
        copies, faults = (rank.table(name, columns) for name, columns in self.tables.items())
        parts = [_SCHEMA.empty_table()]
        for name, word in (("htod", "UvmHtoD"), ("dtoh", "UvmDtoH")):
            moved = {"address": column(copies, "address"), name: column(copies, "bytes"), "took_ns": durations(copies)}
            parts.append(_of_kind(moved, copies, word))
        for name in ("cpu", "gpu"):
            faulted = {"address": column(faults, "address"), name: pc.fill_null(column(faults, "count"), 1)}
            parts.append(_of_kind(faulted, faults, name))
        return _summed(pa.concat_tables(parts, promote_options="default"), ["address"])

    def together(self, parts: Sequence[Part], options: Mapping[str, Any]) -> Any:
        """The activity of all ranks by address, and by rank (first column `rank`) if requested."""
        tables = [with_rank(part) for part in parts if part.table.num_rows]
        empty = _SCHEMA.insert(0, pa.field(RANK, pa.int64())).empty_table()
        return _summed(pa.concat_tables([empty, *tables]), [RANK, "address"] if options.get("by_rank") else ["address"])


class UmSum(ActivityReport):
    """Unified-memory migrations and page faults by virtual address, the fastest migrations first."""

    name = "um_sum"
    title = "Unified Memory Analysis Summary"
    options: ClassVar[tuple[Option, ...]] = (
        Option("rows", int, default=10, help="The most rows; a negative number for all."),
        BY_RANK,
    )
    cells: ClassVar[tuple[Cell, ...]] = (
        Cell("Virtual Address", "text", "Base address of the pages."),
        Cell("HtoD Migration size", "size", "Bytes moved from host to device."),
        Cell("DtoH Migration size", "size", "Bytes moved from device to host."),
        Cell("CPU Page Faults", "int", "Page faults on the CPU."),
        Cell(" GPU Page Faults", "int", "Page faults on GPUs."),
        Cell("Migration Throughput", "throughput", "Bytes moved times the whole number of such moves that fit in a second."),
    )
    chart: ClassVar[Chart | None] = Chart(
        "stacked_bars", "Virtual Address", ("HtoD Migration size (MB)", "DtoH Migration size (MB)")
    )

    def reduce(self, parts: Sequence[Part], run: RunFacts, options: Mapping[str, Any]) -> Answer:
        """The activity of all ranks by address."""
        table = self.together(parts, options)
        table = table.filter(pc.is_valid(table.column("address")))
        moved = pc.add(pc.fill_null(table.column("htod"), 0), pc.fill_null(table.column("dtoh"), 0))
        took = table.column("took_ns")
        per_second = pc.divide(pa.scalar(1_000_000_000, pa.int64()), pc.if_else(pc.greater(took, 0), took, None))
        rate = pc.multiply(moved.cast(pa.float64(), safe=False), per_second.cast(pa.float64()))
        faulted = pc.if_else(pc.is_valid(table.column("cpu")), 0, pc.if_else(pc.is_valid(table.column("gpu")), 1, 2))
        table = table.append_column("rate", rate).append_column("faulted", faulted)
        order = [(RANK, "ascending")] if options.get("by_rank") else []
        table = table.take(
            pc.sort_indices(table, [*order, ("rate", "descending"), ("faulted", "ascending"), ("address", "ascending")])
        )
        rows = options.get("rows", 10)
        if rows >= 0:
            table = table.slice(0, rows)
        columns = {
            "Virtual Address": _hexadecimal(table.column("address")),
            "HtoD Migration size": table.column("htod"),
            "DtoH Migration size": table.column("dtoh"),
            "CPU Page Faults": table.column("cpu"),
            " GPU Page Faults": table.column("gpu"),
            "Migration Throughput": table.column("rate"),
        }
        if options.get("by_rank"):
            columns[RANK_CELL.title] = table.column(RANK)
        return self.answer(columns, options)


class UmTotalSum(ActivityReport):
    """Unified-memory migrations and page faults in all; no row where there were none."""

    name = "um_total_sum"
    title = "Unified Memory Totals Summary"
    cells: ClassVar[tuple[Cell, ...]] = (
        Cell("Total HtoD Migration Size", "size", "Bytes moved from host to device."),
        Cell("Total DtoH Migration Size", "size", "Bytes moved from device to host."),
        Cell("Total CPU Page Faults", "int", "Page faults on the CPU."),
        Cell("Total GPU PageFaults", "int", "Page faults on GPUs; empty if there were none."),
        Cell("Minimum Virtual Address", "text", "Lowest address moved or faulted on."),
        Cell("Maximum Virtual Address", "text", "Highest address moved or faulted on."),
    )

    def reduce(self, parts: Sequence[Part], run: RunFacts, options: Mapping[str, Any]) -> Answer:
        """The activity of all ranks."""
        table = self.together(parts, options)
        keys = [RANK] if options.get("by_rank") else []
        sums = [*((name, "sum") for name in _SUMS), ("address", "min"), ("address", "max")]
        # without keys nothing has sums too, but is not a row
        found = table.group_by(keys, use_threads=False).aggregate(sums).slice(0, table.num_rows)
        columns = {
            "Total HtoD Migration Size": found.column("htod_sum"),
            "Total DtoH Migration Size": found.column("dtoh_sum"),
            "Total CPU Page Faults": pc.fill_null(found.column("cpu_sum"), 0),
            "Total GPU PageFaults": found.column("gpu_sum"),
            "Minimum Virtual Address": _hexadecimal(found.column("address_min")),
            "Maximum Virtual Address": _hexadecimal(found.column("address_max")),
        }
        if keys:
            columns[RANK_CELL.title] = found.column(RANK)
        return self.answer(columns, options)


class UmCpuPageFaultsSum(StatsReport):
    """Unified-memory page faults on the CPU by the instruction that caused them, the most first."""

    name = "um_cpu_page_faults_sum"
    title = "Unified Memory CPU Page Faults Summary"
    tables: ClassVar[Mapping[str, tuple[str, ...]]] = {"page_faults": ("kind", "source")}
    cells: ClassVar[tuple[Cell, ...]] = (
        Cell("CPU Page Faults", "int", "Page faults."),
        Cell("CPU Instruction Address", "text", "Instruction that caused them, resolved where the source has symbols."),
    )
    chart: ClassVar[Chart | None] = Chart("bars", "CPU Instruction Address", ("CPU Page Faults",))

    def map(self, rank: RankTables, options: Mapping[str, Any]) -> Any:
        """How often each instruction (`source`, a name id) faulted, as `count_all`."""
        faults = rank.table("page_faults", self.tables["page_faults"])
        faults = faults.filter(pc.equal(faults.column("kind").cast(pa.string()), "cpu"))
        return faults.group_by("source", use_threads=False).aggregate([([], "count_all")])

    def reduce(self, parts: Sequence[Part], run: RunFacts, options: Mapping[str, Any]) -> Answer:
        """How often each instruction faulted on all ranks."""
        tables = [with_rank(part) for part in parts if part.table.num_rows]
        if not tables:
            return self.answer({cell.title: [] for cell in self.answer_cells(options)}, options)
        keys = [RANK] if options.get("by_rank") else []
        table = pa.concat_tables(tables).group_by([*keys, "source"], use_threads=False).aggregate([("count_all", "sum")])
        table = table.append_column("text", pc.fill_null(run.texts(column(table, "source")), ""))
        order = [*((key, "ascending") for key in keys), ("count_all_sum", "descending"), ("text", "ascending")]
        table = table.take(pc.sort_indices(table, order))
        columns = {"CPU Page Faults": table.column("count_all_sum"), "CPU Instruction Address": table.column("text")}
        if keys:
            columns[RANK_CELL.title] = table.column(RANK)
        return self.answer(columns, options)


def _of_kind(columns: Mapping[str, Any], events: Any, kind: str) -> Any:
    return pa.table(dict(columns)).filter(pc.equal(column(events, "kind").cast(pa.string()), kind))


def _summed(table: Any, keys: list[str]) -> Any:
    found = table.group_by(keys, use_threads=False).aggregate([(name, "sum") for name in _SUMS])
    return found.select([*keys, *(f"{name}_sum" for name in _SUMS)]).rename_columns([*keys, *_SUMS])


def _hexadecimal(addresses: Any) -> Any:
    """`0x7F0000001000` for each address, null for null; a negative one is the unsigned number of the same 64 bits."""
    return pa.array([None if a is None else f"0x{a & 0xFFFFFFFFFFFFFFFF:X}" for a in addresses.to_pylist()], pa.string())

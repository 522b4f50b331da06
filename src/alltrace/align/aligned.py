"""An alignment, opened: collectives, instances and steps of all ranks on the aligned clock."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from functools import cached_property

import pyarrow as pa
import pyarrow.compute as pc

from alltrace.align.capture_slowdown import CaptureSlowdown
from alltrace.align.schema import Group
from alltrace.run.manifest import Clock
from alltrace.run.overlay import MEMBERS, STEPS
from alltrace.run.parquet import read_parquet
from alltrace.run.store import Run
from alltrace.trace.distinct import rows_by

_DESCRIBED = (
    "op", "bytes", "datatype", "stream", "device", "evidence", "group_size", "root", "group_rank", "wait_start", "tag",
    "synchronous",
)  # fmt: skip


def clock_error_ns(
    one: int, other: int, errors_ns: Mapping[int, int | None], components: Mapping[int, int], shared: Mapping[int, int]
) -> int | None:
    """How far the clocks of two ranks may be off against each other; None if that is unknown."""
    if one == other or (one in shared and shared[one] == shared.get(other)):
        return 0
    both_errors = errors_ns.get(one), errors_ns.get(other)
    if both_errors[0] is None or both_errors[1] is None or components.get(one) != components.get(other):
        return None
    return math.ceil(math.hypot(both_errors[0], both_errors[1]))


class Aligned:
    """What needs all ranks at once, on the run's aligned clock.

    `run` is the run with the alignment's clocks: its tables are aligned, `collectives` among them. `notes` is what a
    reader must know of clocks and matches, `steps_notes` of the steps, `unmatched` the operations of each rank that
    found no partner. `matching_score` says how sure it is which ranks communicate, from 0 to 1: the share of operations
    that are explained, each weighed by how sure its match is; None if there is no communication. `matching_reason` is
    one sentence where the score is too low to compute a loss or a wait from, else None. `doubted` has for each rank
    whose times are in doubt, and that is therefore compared with no other, the reason.
    """

    def __init__(self, run: Run) -> None:
        self.run = run
        facts = run.overlay.facts if run.overlay else {}
        self.notes: tuple[str, ...] = tuple(facts.get("notes", ()))
        self.steps_notes: tuple[str, ...] = tuple(facts.get("steps_notes", ()))
        self.groups: tuple[Group, ...] = tuple(
            Group(**{**g, "ranks": tuple(g["ranks"])}) for g in facts.get("groups", ())
        )
        self.matching_score: float | None = facts.get("matching_score")
        self.matching_reason: str | None = facts.get("matching_reason")
        self.doubted: dict[int, str] = {int(r): why for r, why in facts.get("doubted", {}).items()}
        self.unmatched: dict[int, int] = {int(r): int(n) for r, n in facts.get("unmatched", {}).items()}
        self._components = {int(r): int(n) for r, n in facts.get("components", {}).items()}
        self._errors = {int(r): n for r, n in facts.get("errors_ns", {}).items()}
        self._shared = {int(r): n for r, n in facts.get("shared", {}).items()}

    @property
    def clocks(self) -> tuple[Clock, ...]:
        """One per host."""
        return self.run.manifest.clocks

    def collectives(self, rank: int) -> pa.Table:
        """The canonical table `collectives` of one rank, as a `pyarrow.Table`."""
        return self.run.rank(rank).table("collectives")

    @cached_property
    def members(self) -> pa.Table:
        """The members of all matched instances, as a `pyarrow.Table` sorted by instance and rank.

        The columns of `MEMBERS` with aligned times, and:

        * `op`, `bytes`, `datatype`, `stream`, `device`, `evidence`: of the rank's own operation; texts are
          dictionary-encoded;
        * `group_size`: ranks of the communicator, as the profiler reports, or the number seen;
        * `members`: ranks seen in the instance;
        * `synchronising`: whether no member can leave before the last has arrived;
        * `arrival_ns`: when the rank's part started (`start`);
        * `first_arrival_ns`, `last_arrival_ns`, `last_rank`, `last_end_ns`: of the instance; of equal arrivals the
          lowest rank's;
        * `awaited_rank`, `awaited_ns`: the member that the rank waits for, and its arrival: the last to arrive of those
          it needs. Leaves of a broadcast or scatter need their root, which needs nobody; of a reduce or gather the root
          needs the leaves, and of a scan each rank those before it. A receive of MPI needs its send. A send needs its
          receive if it is synchronous, or larger than what the library holds for receivers, which shows by how others
          ended; else nobody;
        * `wait_start_ns`: from when the rank waits: its arrival, or the start of the call that completes what it only
          began then; of several that one call completes, each from the arrival on that the rank awaited before;
        * `wait_ns`: from there to the awaited arrival, or to its own end where that is earlier; never negative;
        * `until_ns`: its end; of several that one call completes, for all but the last when the awaited rank has
          arrived;
        * `transfer_ns`: from the last arrival to the last end of the instance, or of those members that waited by then;
          never negative;
        * `error_ns`: how far the rank's clock may be off against the awaited rank's; 0 for one clock, null if unknown;
        * `fact`: whether the wait is at least that, so that it is larger than an error of the clocks.
        """
        from alltrace.align.members import described

        stored, tables = MEMBERS.arrow_schema().empty_table(), {}
        if self.run.overlay is not None:
            stored = read_parquet(self.run.overlay.files.path("members.parquet"), MEMBERS.column_names)
            stored = self._on_the_clock(stored.cast(MEMBERS.arrow_schema()), MEMBERS.time_columns())
            tables = {r.rank: self.run.rank(r.rank).table("collectives", _DESCRIBED) for r in self.run.ranks}
        sizes = [g.size for g in self.groups]
        return described(stored, tables, group_sizes=sizes, texts=self.run.texts, error_ns=self.error_ns)

    def unmatched_members(self, rank: int) -> tuple[pa.Table, list[str | None]]:
        """Operations of a rank without its partners' reports, each as the one member of an instance, as in `members`.

        `group_size` is None if the profiler does not say it. `communicator` is the row of the list, which has the
        names.
        """
        from alltrace.align.members import described

        table = self.collectives(rank)
        start, end = (pc.coalesce(table.column(n), table.column(f"api_{n}")) for n in ("start", "end"))
        names = table.column("communicator").combine_chunks().dictionary_encode(null_encoding="encode")
        row = pa.array(range(table.num_rows), pa.int64())
        members = pa.table(
            {
                "instance": row,
                "communicator": names.indices,
                "ordinal": row,
                "rank": pa.array([rank] * table.num_rows),
                "row": row,
                "start": start,
                "end": end,
                "confidence": pa.array([1.0] * table.num_rows),
            }
        ).cast(MEMBERS.arrow_schema())
        members = members.filter(pc.and_(pc.is_valid(start), pc.is_valid(end)))
        sizes = [0] * len(names.dictionary)
        rows = described(members, {rank: table}, group_sizes=sizes, texts=self.run.texts, error_ns=self.error_ns)
        size = table.column("group_size").take(rows.column("row"))
        rows = rows.set_column(rows.column_names.index("group_size"), "group_size", size)
        return rows, self.run.texts(names.dictionary).to_pylist()

    @cached_property
    def steps(self) -> pa.Table:
        """The steps of all ranks (`STEPS`), with aligned times."""
        overlay = self.run.overlay
        if overlay is None or not overlay.files.has("steps.parquet"):
            return STEPS.arrow_schema().empty_table()
        found = read_parquet(overlay.files.path("steps.parquet"), STEPS.column_names, ["kind", "source"])
        return self._on_the_clock(found.cast(STEPS.arrow_schema()), STEPS.time_columns())

    @cached_property
    def capture_slowdown(self) -> CaptureSlowdown | None:
        """How much longer captured steps take than others; None if no log and no program reports it."""
        from alltrace.align.capture_slowdown import capture_slowdown, slowdown_by_program, step_time_marks
        from alltrace.run.run_logs import printed_steps

        if any(log.kind == "training" for log in self.run.manifest.logs):
            found = capture_slowdown(self.steps, printed_steps(self.run.path))
            if found is not None:
                return found
        return slowdown_by_program(self.steps, step_time_marks(self.run.name_table()))

    def error_ns(self, one: int, other: int) -> int | None:
        """How far the clocks of two ranks may be off, half of the 95 % interval; None if it is not known.

        It is 0 for ranks that share a clock.
        """
        return clock_error_ns(one, other, self._errors, self._components, self._shared)

    def is_fact(self, wait_ns: int, one: int, other: int) -> bool:
        """Whether a wait of one rank for another is at least what their clocks may be off."""
        error = self.error_ns(one, other)
        return error is not None and wait_ns >= error

    def _on_the_clock(self, table: pa.Table, times: Sequence[str]) -> pa.Table:
        """`table`, which has a column `rank`, with its times from the ranks' files to the aligned clock."""
        of_rank = rows_by(table.column("rank").to_numpy())
        clocks = {r.rank: self.run.clock(r) for r in self.run.ranks if r.rank in of_rank}
        for name in times:
            column = table.column(name).combine_chunks()
            missing = column.is_null().to_numpy(zero_copy_only=False)
            values = column.fill_null(0).to_numpy(zero_copy_only=False).copy()
            for rank, rows in of_rank.items():
                values[rows] = clocks[rank].apply(values[rows])
            table = table.set_column(table.column_names.index(name), name, pa.array(values, pa.int64(), mask=missing))
        return table

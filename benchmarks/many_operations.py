"""Memory and time of matching: `python -m benchmarks.many_operations [--operations 500 2000 8000] [--unnamed]`.

Makes the operations of a job with tensor groups of 8 ranks, each group on a separate host with a clock of its own, as
tables and without reports. Each number of operations per rank is matched twice, in a process each: with tables that are
read from files again and again, as an alignment does if they are many, and with all in memory. The table has what
finding instances and clocks takes, the making of the tables, the share of instances found that are right and of those
there that are found, and the largest error of a host's offset and rate.
"""

from __future__ import annotations

import argparse
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from alltrace.align.clock_sharing import PlacedRank
from alltrace.align.clocks import solve
from alltrace.align.matching import match
from alltrace.align.related_clocks import placing_of
from alltrace.align.timelines import MATCHED_COLUMNS, MOST_IN_MEMORY, Timelines
from alltrace.trace.names import name_id
from alltrace.trace.schema import TABLES

if TYPE_CHECKING:
    from collections.abc import Iterator

    from numpy.typing import NDArray

    from alltrace.align.clocks import Solution

_TENSOR = 8
_PER_STEP = 4
"""Operations of a tensor group between two of all groups."""
_BETWEEN_NS, _TAKES_NS, _JITTER_NS = 2_000_000.0, 100_000.0, 500.0
_STAMP_NS, _DRIFT, _STAMP_OF_REPORT_NS = 3e6, 20e-6, 1e6
_WORDS = ("AllReduce", "bfloat16", "ReduceScatter")


class Job:
    """The operations of a job, made from random numbers that depend on the rank alone.

    Args:
        ranks: The ranks.
        operations: The operations of each.
        named: Whether they have a communicator.
    """

    def __init__(self, ranks: int, operations: int, *, named: bool) -> None:
        self.ranks, self.operations, self._named = ranks, operations, named
        rng = np.random.default_rng(7)
        hosts = -(-ranks // _TENSOR)
        self.offsets_ns = rng.uniform(-_STAMP_NS, _STAMP_NS, hosts)
        self.rates = rng.uniform(-_DRIFT, _DRIFT, hosts)
        self.offsets_ns[0] = self.rates[0] = 0.0
        self._stamps = rng.integers(-int(_STAMP_OF_REPORT_NS), int(_STAMP_OF_REPORT_NS), ranks)
        place = np.arange(operations)
        self._of_all = place % (_PER_STEP + 1) == _PER_STEP
        self._end = np.cumsum(rng.uniform(0.5, 1.5, operations) * _BETWEEN_NS)
        self.names = {name_id(w): w for w in (*_WORDS, *(f"tensor {g}" for g in range(hosts)), "all")}

    def tables(self) -> Iterator[tuple[int, pa.Table]]:
        """The operations of each rank, in the time of its files, whose zero is off from its stamp."""
        schema = TABLES["collectives"].arrow_schema()
        evidence = pa.array(["nvtx+kernel"]).dictionary_encode().cast(schema.field("evidence").type)
        for rank in range(self.ranks):
            group = rank // _TENSOR
            rng = np.random.default_rng([1, rank])
            own = np.random.default_rng([2, group]).uniform(-0.2, 0.2, self.operations) * _BETWEEN_NS
            end = self._end + np.where(self._of_all, 0.0, own) + rng.uniform(0, _JITTER_NS, self.operations)
            start = end - _TAKES_NS - rng.exponential(_TAKES_NS, self.operations)
            start[1:] = np.maximum(start[1:], np.maximum.accumulate(end)[:-1])  # one operation after another
            start, end = (
                (t * (1 + self.rates[group]) + self.offsets_ns[group] + self._stamps[rank]) for t in (start, end)
            )
            many = self.operations
            columns = {
                "start": start.astype(np.int64),
                "end": end.astype(np.int64),
                "stream": np.where(self._of_all, 8, 7),
                "communicator": np.where(self._of_all, name_id("all"), name_id(f"tensor {group}")),
                "op": np.where(self._of_all, name_id("ReduceScatter"), name_id("AllReduce")),
                "datatype": np.full(many, name_id("bfloat16")),
                "bytes": np.full(many, 1 << 20),
                "evidence": evidence.take(pa.array(np.zeros(many, np.int32))),
            }
            if not self._named:
                del columns["communicator"]
            arrays = {n: pa.array(columns[n]) if n in columns else pa.nulls(many) for n in MATCHED_COLUMNS}
            yield rank, pa.table({n: a.cast(schema.field(n).type) for n, a in arrays.items()})

    def placed(self) -> list[PlacedRank]:
        """The ranks, each with a report of its own."""
        return [PlacedRank(r, f"host {r // _TENSOR}", r, 0) for r in range(self.ranks)]

    def texts(self, ids: pa.Array) -> pa.Array:
        """The strings of name ids."""
        return pa.array([self.names.get(i) for i in ids.to_pylist()], pa.string())

    def quality(self, members: pa.Table) -> tuple[float, float]:
        """The share of instances that are right, and that of those there are that were found whole."""
        instance, rank, row = (members.column(c).to_numpy().astype(np.int64) for c in ("instance", "rank", "row"))
        truth = np.where(self._of_all[row], row, (rank // _TENSOR + 1) * self.operations + row)
        order = np.argsort(instance, kind="stable")
        heads = np.flatnonzero(np.concatenate(([True], np.diff(instance[order]) != 0)))
        pure = np.minimum.reduceat(truth[order], heads) == np.maximum.reduceat(truth[order], heads)
        size = np.diff(np.append(heads, len(order)))
        whole = pure & (size == np.where(truth[order][heads] < self.operations, self.ranks, _TENSOR))
        there = int(self._of_all.sum()) + len(self.offsets_ns) * int((~self._of_all).sum())
        return float(pure.mean()), float(whole.sum()) / there

    def clock_errors(self, solution: Solution) -> tuple[float, float]:
        """The largest error of a host's offset, ns, and of its rate, ppm, against the first host's."""
        found = np.array([c.drift_ppm for c in solution.clocks])
        ahead: NDArray[np.float64] = np.array([solution.ahead_ns[r] for r in range(self.ranks)], np.float64)
        true = self._stamps + np.repeat(self.offsets_ns, _TENSOR)[: self.ranks]
        error = ahead - true
        return float(np.abs(error - error[0]).max()), float(np.abs(found - self.rates * 1e6).max())


def matched(ranks: int, operations: int, *, named: bool, files: bool) -> str:
    """A cell for each of: CPU seconds, peak, quality, errors; of this process."""
    job = Job(ranks, operations, named=named)
    with tempfile.TemporaryDirectory() as folder:

        def file(rank: int) -> Path:
            return Path(folder, f"{rank}.parquet")

        for rank, table in job.tables():
            pq.write_table(table, file(rank))
        most = MOST_IN_MEMORY if files else ranks * operations
        matching = match(
            Timelines(list(range(ranks)), lambda rank: pq.read_table(file(rank)), job.texts, most),
            placing_of(job.placed()),
        )
        solution = solve(matching.evidence(), job.placed())
        tables = list(matching.tables())
        taken = _taken()
    right, whole = job.quality(pa.concat_tables(tables))
    offset, rate = job.clock_errors(solution)
    return f"{taken} | {right:.4%} | {whole:.4%} | {offset:,.0f} ns | {rate:.4f} ppm |"


def _taken() -> str:
    return f"{time.process_time():.1f} s | {resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024:.0f} MB"


def main(arguments: list[str] | None = None) -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--ranks", type=int, default=512)
    parser.add_argument("--operations", type=int, nargs="+", default=[500, 2000, 8000])
    parser.add_argument("--unnamed", action="store_true", help="without communicators, which are inferred")
    parser.add_argument("--one", choices=("files", "memory"), help="only this, in this process")
    args = parser.parse_args(arguments)
    if args.one:
        print(matched(args.ranks, args.operations[0], named=not args.unnamed, files=args.one == "files"))
        return
    print(
        "| operations of each rank | | CPU time | peak | right | found | offset | rate"
        " |\n|---|---|---|---|---|---|---|---|",
        flush=True,
    )
    for many in args.operations:
        for one in ("files", "memory"):
            own = ["--ranks", str(args.ranks), "--operations", str(many), "--one", one, *["--unnamed"] * args.unnamed]
            done = subprocess.run(
                [sys.executable, "-m", "benchmarks.many_operations", *own], capture_output=True, text=True, check=False
            )
            cells = done.stdout.strip() if done.returncode == 0 else f"failed: {done.stderr.splitlines()[-1:]}"
            print(f"| {many:,} | {one} | {cells}", flush=True)


if __name__ == "__main__":
    main()

"""Collectives by copy engines: copies within a call of NCCL answer as the kernels that do the same would, and no others
do."""

from __future__ import annotations

import shutil
import sqlite3
from contextlib import closing

import pyarrow.parquet as pq
import pytest
from tests.making import make_run

import alltrace
from alltrace.recipes.execution.ask import ask
from alltrace.recipes.questions.diagnose.calls import Calls
from alltrace.recipes.questions.diagnose.gaps import activity
from alltrace.recipes.questions.diagnose.rank_facts import gather
from alltrace.run.collective_copies import mark_collective_copies
from alltrace.run.pieces import Piece
from alltrace.synth import write_run

TWIN = (
    "breakdown", "overlap", "idle", "stragglers", "collectives", "steps", "step-time", "whatif", "critical-path",
    "efficiency",
)  # fmt: skip


def by_copies(path):
    """Make each all-gather's kernel three copies of one call, which fill its time: 4 bytes, the data, 4 bytes."""
    with closing(sqlite3.connect(path)) as base:
        kernels = base.execute(
            "SELECT k.rowid, k.start, k.end, k.deviceId, k.contextId, k.streamId, k.correlationId, k.globalPid FROM"
            " CUPTI_ACTIVITY_KIND_KERNEL k JOIN StringIds s ON s.id = k.shortName WHERE s.value LIKE"
            " 'ncclDevKernel_AllGather%'"
        ).fetchall()
        base.execute(
            "INSERT INTO StringIds (id, value) SELECT max(id) + 1, 'cudaMemcpyBatchAsync_v12080' FROM StringIds"
        )
        (batch,) = base.execute("SELECT max(id) FROM StringIds").fetchone()
        for row, start, end, device, context, stream, correlation, process in kernels:
            first, last = start + (end - start) // 10, end - (end - start) // 10
            for begin, until, size, kind in ((start, first, 4, 10), (first, last, 8_333_333, 8), (last, end, 4, 8)):
                base.execute(
                    "INSERT INTO CUPTI_ACTIVITY_KIND_MEMCPY (start, end, deviceId, contextId, streamId, correlationId,"
                    " globalPid, bytes, copyKind, srcKind, dstKind) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, 2, 2)",
                    (begin, until, device, context, stream, correlation, process, size, kind),
                )
            base.execute("DELETE FROM CUPTI_ACTIVITY_KIND_KERNEL WHERE rowid = ?", (row,))
            base.execute(
                "UPDATE CUPTI_ACTIVITY_KIND_RUNTIME SET nameId = ? WHERE correlationId = ? AND globalTid >> 24 = ?",
                (batch, correlation, process >> 24),
            )
        base.commit()
    return len(kernels)


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    place = tmp_path_factory.mktemp("copies")
    kernels, copies = place / "kernels", place / "copies"
    write_run("sharded", kernels, format="sqlite", seed=3, steps=3, ranks=4, ideal=True)
    shutil.copytree(kernels, copies)
    counts = [by_copies(path) for path in sorted(copies.glob("*.sqlite"))]
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("ALLTRACE_CACHE_DIR", str(place / "cache"))
        yield alltrace.open(str(kernels)), alltrace.open(str(copies)), counts


def test_copies_of_collectives_are_marked_and_no_others(runs):
    _, run, counts = runs
    for rank, count in enumerate(counts):
        rows = run.table("copies", ranks=[rank]).arrow().read_all().to_pylist()
        assert sum(r["collective"] is True for r in rows) == 3 * count > 0
        assert {r["kind"] for r in rows if r["collective"]} == {"DtoD", "PtoP"}
        assert {r["collective"] for r in rows if r["kind"] in ("HtoD", "DtoH")} == {None}
        assert rows == sorted(rows, key=lambda r: (r["device"], r["context"], r["stream"], r["start"]))


@pytest.mark.parametrize("question", TWIN)
def test_a_collective_by_copies_is_answered_as_the_same_by_a_kernel(runs, question):
    whole, copied, _ = runs
    expected, found = (ask(run, question, jobs=1) for run in (whole, copied))
    assert expected.table.num_rows
    assert found.table.to_pylist() == expected.table.to_pylist()


def test_what_they_are_made_from_is_said(runs):
    _, run, counts = runs
    words = [
        r["evidence"] for r in run.table("collectives", ranks=[0]).arrow().read_all().to_pylist() if r["op"] is not None
    ]
    assert words.count("nvtx+copy") == counts[0]
    assert words.count("nvtx+kernel") > 0


def test_diagnose_does_not_call_them_transfers_of_the_program(runs):
    whole, run, _ = runs
    kinds = [
        {(r["kind"], tuple(r["ranks"])) for r in ask(one, "diagnose", jobs=1).table.to_pylist()} for one in (whole, run)
    ]
    assert kinds[0] == kinds[1]


def test_what_diagnose_takes_of_a_rank_is_the_same(runs):
    told = []
    for run in runs[:2]:
        facts, _ = gather(run.rank(0), None)
        rank = run.rank(0)
        graphs, copies = rank.table("graphs"), rank.table("copies")
        its = activity(graphs, copies, Calls(rank, graphs, copies))
        spans = {name: getattr(its, name) for name in ("compute", "communication", "copies", "transfers", "queued")}
        told.append(
            (
                facts.copy_kinds,
                facts.copy_bytes.tolist(),
                {n: (m.starts.tolist(), m.ends.tolist()) for n, m in spans.items()},
            )
        )
    assert told[0] == told[1]


class Case:
    """One rank's tables with a call of NCCL from 100 to 200, and a copy that was launched at 150."""

    def __init__(self, **changes):
        self.copies = [
            {"start": 300, "end": 310, "kind": "DtoD", "bytes": 4},
            {"start": 310, "end": 390, "kind": "DtoD", "bytes": 4096},
        ]
        self.calls = [{"start": 100, "end": 200, "name": "ncclAllGather", "kind": "pushpop"}]
        self.api = [{"start": 150, "end": 160, "name": "cudaMemcpyBatchAsync", "correlation": 7}]
        for name, change in changes.items():
            setattr(self, name, [{**row, **c} for row, c in zip(getattr(self, name), change, strict=False)])

    def marked(self, tmp_path):
        copies = [{"correlation": 7, **c} for c in self.copies]
        run = make_run(tmp_path / "run", {0: {"copies": copies, "api": self.api, "ranges": self.calls}})
        folder = tmp_path / "run" / "ranks" / "rank=0"
        names = folder / "names.parquet"
        names.write_bytes((tmp_path / "run" / "names.parquet").read_bytes())
        mark_collective_copies(Piece(folder, run.ranks[0].rows), tmp_path / "scratch")
        return pq.read_table(folder / "copies.parquet").column("collective").to_pylist()


@pytest.mark.parametrize(
    ("changes", "marked"),
    [
        ({}, [True, True]),
        ({"calls": [{"name": "ncclGroupEnd"}]}, [True, True]),
        ({"calls": [{"end": None}]}, [True, True]),  # the capture ended in the call
        ({"calls": [{"name": "ncclCommInitRank"}]}, [None, None]),
        ({"calls": [{"name": "forward"}]}, [None, None]),
        ({"calls": [{"end": 150}]}, [None, None]),
        ({"calls": [{"thread": 1}]}, [None, None]),
        ({"api": [{"correlation": 8}]}, [None, None]),
        ({"copies": [{"bytes": 64}, {}]}, [None, None]),  # a communicator of one rank copies to itself
        ({"copies": [{"bytes": 64, "src_device": 0, "dst_device": 1}, {}]}, [True, True]),
        ({"copies": [{"kind": "HtoD"}, {}]}, [None, None]),  # what a communicator is set up with
        ({"copies": [{}, {"kind": "memset"}]}, [None, None]),
    ],
)
def test_which_copies_communicate(tmp_path, changes, marked):
    assert Case(**changes).marked(tmp_path) == marked

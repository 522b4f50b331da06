"""Whether launching threads had a CPU: against a simulation moment by moment, on a real report, and in words."""

from __future__ import annotations

import json
import sqlite3
from contextlib import closing
from itertools import pairwise

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from alltrace.api import OpenRun
from alltrace.recipes.analysis.host_state import (
    COLLECT,
    CpuPlaces,
    HostState,
    compared_hosts,
    compared_places,
    cpu_places,
    host_state,
)
from alltrace.run.importer import import_reports
from alltrace.trace.intervals import Merged

SPANS = Merged(np.array([10, 40], np.int64), np.array([30, 50], np.int64))
MAIN = np.array([0], np.int64)


class Rank:
    """The tables of a rank: scheduling events as (time, thread, cpu, whether it begins to run), and samples."""

    def __init__(self, events, samples=(), sockets=(), near=(), nodes=()):
        names = sorted({name for _, _, name in samples if name})
        self._texts = dict(enumerate(names))
        ids = [None if name is None else names.index(name) for _, _, name in samples]
        columns = {
            "sched": ("time thread cpu scheduled_in", [*zip(*events, strict=True)]),
            "samples": (
                "time thread cpu symbol",
                [*[*zip(*samples, strict=True)][:2], [7] * len(ids), ids] if samples else [],
            ),
        }
        types = {"scheduled_in": pa.bool_()}
        self._tables = {
            table: pa.table(
                {n: pa.array(v, types.get(n, pa.int64())) for n, v in zip(names.split(), values, strict=True)}
            )
            for table, (names, values) in columns.items()
            if values
        }
        if sockets:
            self._tables["cpus"] = pa.table({"cpu": [*range(len(sockets))], "socket": sockets})
        if nodes:
            self._tables["devices"] = pa.table({"numa_node": pa.array(nodes, pa.int32())})
        self._near = near

    def shared(self, table):
        assert table == "near_cpus"
        return pa.table({"cpu": self._near}) if self._near else None

    def has(self, table):
        return table in self._tables

    def table(self, table, columns):
        return self._tables[table].select(columns)

    def texts(self, ids):
        return pa.array([self._texts.get(i) for i in ids.to_pylist()], pa.string())


def state_of(events, samples=(), threads=MAIN):
    return host_state(Rank(events, samples), threads, SPANS)


@given(
    st.dictionaries(
        st.tuples(st.integers(0, 2), st.integers(0, 60)),
        st.tuples(st.integers(0, 1), st.booleans()),
        min_size=1,
        max_size=25,
    )
)
def test_shares_are_those_of_a_simulation(events):
    state = state_of([(t, n, cpu, on) for (n, t), (cpu, on) in events.items()])
    first, last = min(t for _, t in events), max(t for _, t in events)
    moments = [t for t in (*range(10, 30), *range(40, 50)) if first <= t < last]

    def at(thread, moment):
        """Whether a thread has a CPU, and which one it has or has left."""
        mine = sorted((t, cpu, on) for (n, t), (cpu, on) in events.items() if n == thread)
        before = [e for e in mine if e[0] <= moment]
        if before:
            return before[-1][2], before[-1][1]
        return (True, mine[0][1]) if mine and not mine[0][2] else (False, None)

    if not moments or not any(n == 0 for n, _ in events):
        assert state is None
        return
    off = [t for t in moments if not at(0, t)[0]]
    taken = [t for t in off if at(0, t)[1] is not None and any(at(n, t) == (True, at(0, t)[1]) for n in (1, 2))]
    assert state.on_cpu_share == pytest.approx(1 - len(off) / len(moments))
    assert state.taken_share == (pytest.approx(len(taken) / len(off)) if off else None)
    assert state.running == pytest.approx(sum(at(n, t)[0] for t in moments for n in range(3)) / len(moments))


@pytest.mark.parametrize(
    ("samples", "symbol", "share"),
    [
        (
            [(t, 0, "gc_collect_main") for t in (10, 15, 20, 29)] + [(41, 0, "memcpy")] + [(35, 0, "memcpy")] * 9,
            "gc_collect_main",
            0.8,
        ),
        ([(12, 0, "a")] * 4 + [(12, 1, "a")] * 9, "", 0.0),  # too few of the launching thread
        ([(12, 0, f"f{n}") for n in range(9)], "", 0.0),  # none stands out
        ([(12, 0, "0x7f00")] * 3 + [(12, 0, None)] * 3 + [(12, 0, "read")] * 3, "read", 1 / 3),
    ],
)
def test_the_function_of_most_samples_is_named(samples, symbol, share):
    state = state_of([], samples)
    if not symbol:
        assert state is None
    else:
        assert (state.symbol, state.symbol_share, state.on_cpu_share) == (symbol, pytest.approx(share), None)


def test_nothing_is_known_of_no_thread():
    assert state_of([(0, 0, 1, True), (60, 0, 1, False)], threads=np.empty(0, np.int64)) is None


BUSY = HostState(0.95, 0.0, 3.0)


@pytest.mark.parametrize(
    ("states", "ranks", "sentence"),
    [
        (
            {3: HostState(0.9, 0.0, 1.0, "gc_collect_main", 0.83), 1: HostState(0.4, 0.0, 1.0)},
            [3],
            (
                "The launching thread of rank 3 was on a CPU for 90 % of that time (other ranks: 40 %), so it was busy."
                " 83 % of its CPU samples there are in `gc_collect_main`."
            ),
        ),
        (
            {3: HostState(0.1, 0.75, 8.0), 4: HostState(0.1, 0.75, 8.0), 1: BUSY},
            [3, 4],
            (
                "The launching thread of ranks 3-4 was on a CPU for 10 % of that time (other ranks: 95 %), so it waited"
                " or could not run. Other threads of the job had the CPU that it left for 75 % of the rest: give it its"
                " own core."
            ),
        ),
        ({0: HostState(0.5)}, [0], "The launching thread of rank 0 was on a CPU for 50 % of that time."),
        ({0: HostState(symbol="read", symbol_share=0.5)}, [0], "50 % of its CPU samples there are in `read`."),
        ({0: None, 1: BUSY}, [0], COLLECT),
    ],
)
def test_sentences(states, ranks, sentence):
    assert compared_hosts(states, ranks).sentence == sentence


def test_numbers():
    said = compared_hosts({3: HostState(0.1, 0.75, 8.0), 1: BUSY, 2: HostState(0.85, None, 4.0), 4: None}, [3])
    assert said.evidence == {
        "on_cpu_share": 0.1,
        "peers_on_cpu_share": pytest.approx(0.9),
        "cpu_taken_share": 0.75,
        "peers_cpu_taken_share": 0.0,
        "running_threads": 8.0,
        "peers_running_threads": 3.5,
    }
    assert (
        "cpu_taken_share" not in compared_hosts({1: HostState(0.8, 1.0, 1.0)}, [1]).evidence
    )  # there is hardly a rest


def test_moves_and_homes_are_those_of_launching_threads():
    # on CPU 4 for 30 ns, on CPU 36 for 10, and back for 10; the other thread wanders too
    events = [
        (0, 0, 4, True),
        (30, 0, 4, False),
        (30, 0, 36, True),
        (40, 0, 36, False),
        (40, 0, 4, True),
        (50, 0, 4, False),
    ]
    events += [(t, 1, t, bool(t % 2)) for t in range(50)]
    places = cpu_places(Rank(events), MAIN)
    assert places == CpuPlaces(pytest.approx(2 / 50e-9), {"4": pytest.approx(0.8)})
    assert cpu_places(Rank([], [(t, 0, "f") for t in range(9)]), MAIN) == CpuPlaces(None, {"7": 1.0})
    assert cpu_places(Rank([], [(t, 1, "f") for t in range(9)]), MAIN) is None
    assert cpu_places(Rank([]), MAIN) is None


def test_the_node_of_a_thread_and_of_its_gpu_are_those_that_are_stated():
    # CPUs 0, 1, 4 and 5 are of socket 0, 2 and 3 of socket 8; the thread is on CPU 1 for 30 ns, and on CPU 3 for 10
    events = [(0, 0, 1, True), (30, 0, 1, False), (30, 0, 3, True), (40, 0, 3, False)]
    sockets = [0, 0, 8, 8, 0, 0]
    places = cpu_places(Rank(events, sockets=sockets, near=[2, 3], nodes=[1, 1]), MAIN)
    assert places.sockets == {"0": pytest.approx(0.75), "8": pytest.approx(0.25)}
    assert (places.socket, places.socket_cpus) == ("0", {"0": "0-1, 4-5", "8": "2-3"})
    assert (places.near, places.away_share, places.numa_node) == ("2-3", pytest.approx(0.75), 1)
    assert cpu_places(Rank(events, near=[1, 3, 9]), MAIN).away_share == pytest.approx(0.0)
    unstated = cpu_places(Rank(events, sockets=[0] * 6, nodes=[0, 1]), MAIN)
    assert (unstated.sockets, unstated.socket, unstated.near, unstated.away_share, unstated.numa_node) == (
        {},
        None,
        "",
        None,
        None,
    )


STAYS = CpuPlaces(0.1, {"8": 1.0})
SOCKETS = {"0": "0-7", "1": "8-15"}


def on(zero, one, node=None, **more):
    """A rank that is on sockets 0 and 1 for these shares of its time."""
    return CpuPlaces(sockets={"0": zero, "1": one}, socket_cpus=SOCKETS, numa_node=node, **more)


HOSTS = {0: "a", 1: "a", 2: "a", 3: "b", 4: "b"}


@pytest.mark.parametrize(
    ("states", "ranks", "sentence", "evidence"),
    [
        (
            {0: CpuPlaces(40.0), 1: STAYS, 3: STAYS},
            [0],
            (
                "The launching thread of rank 0 came to another CPU 40.0 times per second on CPUs, those of the others"
                " 0.1 times: bind each rank to cores of the NUMA node of its GPU (the reports do not state which)."
            ),
            {"cpu_moves_per_s": 40.0, "peers_cpu_moves_per_s": 0.1},
        ),
        (
            {0: CpuPlaces(40.0), 1: CpuPlaces(42.0), 2: CpuPlaces(2.0)},
            [0, 1],
            (
                "The launching threads of ranks 0-1 came to another CPU 41.0 times per second on CPUs, those of the"
                " others 2.0 times: bind each rank to cores of the NUMA node of its GPU (the reports do not state"
                " which)."
            ),
            {"cpu_moves_per_s": 41.0, "peers_cpu_moves_per_s": 2.0},
        ),
        (
            {0: STAYS, 1: CpuPlaces(0.1, {"8": 0.6, "9": 0.4}), 2: CpuPlaces(0.1, {"3": 1.0})},
            [0],
            (
                "Ranks 0-1 both launch from CPU 8: bind each to its own cores of the NUMA node of its GPU (the reports"
                " do not state which)."
            ),
            {"shared_cpu_share": 0.6},
        ),
        (
            {3: CpuPlaces(0.0, {"2": 0.5, "5": 0.5}, near="0-7"), 4: CpuPlaces(0.0, {"2": 0.5, "5": 0.5})},
            [4],
            (
                "Ranks 3-4 both launch from CPUs 2, 5: bind each to its own cores of the NUMA node of its GPU (rank 3:"
                " CPUs 0-7)."
            ),
            {"shared_cpu_share": 1.0},
        ),
        ({0: STAYS, 3: STAYS}, [0], "", {}),  # CPUs of two hosts
        ({0: STAYS, 1: CpuPlaces(0.0, {"9": 1.0})}, [0], "", {}),
        ({0: CpuPlaces(40.0), 1: CpuPlaces(30.0)}, [0], "", {}),  # all wander
        ({0: CpuPlaces(40.0), 1: CpuPlaces(30.0)}, [0, 1], "", {}),  # nothing is usual
        ({0: None, 1: STAYS}, [0], "", {}),
        (
            {
                0: CpuPlaces(0.0, {"9": 0.9}, near="0-7", away_share=0.9),
                1: CpuPlaces(0.0, {"1": 1.0}, near="0-7", away_share=0.0),
            },
            [0, 1],
            (
                "The launching thread of rank 0 was away from the NUMA node of its GPU for 90 % of its time, most on"
                " CPU 9: bind it to CPUs 0-7, which NCCL's log states as near that GPU."
            ),
            {"other_node_share": 0.9},
        ),
        (
            {0: on(0.9, 0.1, near="0-7", away_share=0.1), 1: on(0.0, 1.0), 2: on(0.0, 1.0)},
            [0],
            "",
            {},
        ),  # the others are away
        (
            {0: on(0.1, 0.9, 0), 1: on(1.0, 0.0, 0), 2: on(0.9, 0.1, 0), 3: on(0.0, 1.0, 1)},
            [0],
            (
                "The launching thread of rank 0 spent 90 % of its time away from socket 0 (CPUs 0-7), from which ranks"
                " 1-2 whose GPUs are of the same NUMA node (0) launch."
            ),
            {"other_node_share": 0.9},
        ),
        (
            {0: on(0.1, 0.9), 1: on(1.0, 0.0), 2: on(0.9, 0.1)},
            [0],
            (
                "The launching thread of rank 0 spent 90 % of its time away from socket 0 (CPUs 0-7), from which ranks"
                " 1-2 of the same host launch. Which socket its GPU is attached to is not stated."
            ),
            {"other_node_share": 0.9},
        ),
        (
            {0: on(0.4, 0.6), 1: on(1.0, 0.0), 2: on(0.0, 1.0)},
            [0],
            (
                "The launching thread of rank 0 ran on several sockets, 60 % on socket 1 (CPUs 8-15), 40 % on socket 0"
                " (CPUs 0-7) of its time: bind it to CPUs of one."
            ),
            {"other_node_share": 0.4},
        ),
        ({0: on(0.0, 1.0), 1: on(1.0, 0.0), 2: on(0.0, 1.0)}, [0], "", {}),  # the job has ranks on both
        (
            {0: on(0.0, 1.0, 1), 1: on(1.0, 0.0, 0), 2: on(1.0, 0.0, 0)},
            [0],
            "",
            {},
        ),  # each at its GPU's node, as far as is stated
        ({0: on(0.0, 1.0), 3: on(1.0, 0.0), 4: on(1.0, 0.0)}, [0], "", {}),  # sockets of another host
        ({0: on(0.4, 0.6), 1: on(0.4, 0.6), 2: on(0.5, 0.5)}, [0], "", {}),  # all do
    ],
)
def test_unusual_places_are_told(states, ranks, sentence, evidence):
    said = compared_places(states, ranks, HOSTS)
    assert (said.sentence, said.evidence, said.slower) == (sentence, pytest.approx(evidence), bool(sentence))


@pytest.mark.corpus
@pytest.mark.parametrize("name", ["llm_nvtx_nsys2025", "saxpy_mpi_nsys2022.2", "fuser_nvtx_nsys2025.1"])
def test_the_share_of_a_real_thread_is_that_of_its_events(corpus, tmp_path, name):
    report = corpus / "nsys" / f"{name}.sqlite"
    import_reports([str(report)], tmp_path / "run", jobs=1)
    rank = OpenRun(tmp_path / "run").in_session_time().rank(0)
    with closing(sqlite3.connect(f"file:{report}?mode=ro&immutable=1", uri=True)) as db:
        (busiest,) = db.execute(
            "SELECT globalTid FROM SCHED_EVENTS GROUP BY 1 ORDER BY count(*) DESC LIMIT 1"
        ).fetchone()
        rows = db.execute(
            "SELECT start, isSchedIn FROM SCHED_EVENTS WHERE globalTid = ? ORDER BY 1, 2", (busiest,)
        ).fetchall()
    known = rank.table("threads", ("thread", "tid")).to_pylist()
    (thread,) = [t["thread"] for t in known if t["tid"] == busiest & 0xFFFFFF]
    ran = sum(end - start for (start, on), (end, _) in pairwise(rows) if on)
    span = Merged(np.array([rows[0][0]], np.int64), np.array([rows[-1][0]], np.int64))
    state = host_state(rank, np.array([thread], np.int64), span)
    assert state.on_cpu_share == pytest.approx(ran / (rows[-1][0] - rows[0][0]), abs=1e-9)


@pytest.mark.corpus
def test_the_sockets_of_a_real_thread_are_those_of_its_cpus(corpus, tmp_path):
    report = corpus / "nsys" / "schema3.1_nsys2023.1.sqlite"
    import_reports([str(report)], tmp_path / "run", jobs=1)
    rank = OpenRun(tmp_path / "run").in_session_time().rank(0)
    with closing(sqlite3.connect(f"file:{report}?mode=ro&immutable=1", uri=True)) as db:
        (text,) = db.execute("SELECT value FROM TARGET_INFO_SYSTEM_ENV WHERE name = 'CpuInfo'").fetchone()
        rows = db.execute("SELECT globalTid, start, cpu, isSchedIn FROM SCHED_EVENTS ORDER BY 1, 2, 4").fetchall()
    items = {item["cpuid"]: item["socket"] for item in json.loads(text)["items"]}
    assert {(r["cpu"], r["socket"]) for r in rank.table("cpus", ("cpu", "socket")).to_pylist()} == set(items.items())
    tids = {t["tid"]: t["thread"] for t in rank.table("threads", ("thread", "tid")).to_pylist()}
    ran = {0: 0, 1: 0}
    for (tid, start, cpu, begins), (other, end, *_) in pairwise(rows):
        if tid == other and begins:
            ran[items[cpu]] += end - start
    last = max(start for _, start, _, _ in rows)
    ran_on = {tid: (start, cpu) for tid, start, cpu, begins in rows if begins}
    left = {tid: begins for tid, _, _, begins in rows}
    for tid, begins in left.items():  # what runs at the end of the recording
        ran[items[ran_on[tid][1]]] += last - ran_on[tid][0] if begins else 0
    places = cpu_places(rank, np.array(sorted(tids.values()), np.int64))
    assert places.sockets == pytest.approx({str(n): ns / sum(ran.values()) for n, ns in ran.items()}, abs=0.01)
    assert places.socket_cpus == {"0": "0-11, 24-35", "1": "12-23, 36-47"}
    assert (places.near, places.numa_node) == ("", None)  # no such export states them

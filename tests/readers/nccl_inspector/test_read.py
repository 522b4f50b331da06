"""Verbose files as reports: who ran when, on which communicator, and what questions make of it."""

from __future__ import annotations

import pytest
from tests.inspector_writing import collective, message, record, stats, write

from alltrace.api import open_run
from alltrace.readers.nccl_inspector import is_report
from alltrace.readers.nccl_inspector.read import open_report
from alltrace.readers.registry import is_report as is_any_report
from alltrace.recipes.execution.ask import ask
from alltrace.run.importer import import_reports
from alltrace.trace.errors import InputError

BASE_US = 1_795_626_190_000_000
STEP_US = 5_000
ARRIVES_US = {0: 0, 1: 100, 2: 900, 3: 300}
"""When each rank arrives at the all-reduce of a step, which all end at 1,400."""


def verbose(start_us, end_us):
    events = [{"channel_id": 0, "kernel_start_ts": start_us, "kernel_stop_ts": end_us, "kernel_record_ts": end_us}]
    return {"event_trace_ts": {"coll_start_ts": start_us, "coll_stop_ts": start_us, "kernel_events": events}}


def written(folder, ahead_us=0, steps=40):
    """Two hosts, of which the second's clock is ahead; both functions have the same numbers, drained one after the
    other."""
    ranks = {}
    for rank, arrives in ARRIVES_US.items():
        shift = BASE_US + (ahead_us if rank > 1 else 0)
        of = {"size": 4, "host": f"h{rank // 2}"}
        reduced, gathered = [], []
        for n in range(steps):
            begin = shift + n * STEP_US
            its = verbose(begin + arrives + 7, begin + 1_400)
            reduced.append(record(rank, collective("AllReduce", n, 1_400 - arrives, **its), **of))
            its = verbose(begin + 2_000, begin + 2_500)
            gathered.append(record(rank, collective("AllGather", n, 500, 1 << 18, **its), **of))
        ranks[rank] = [*reduced, *gathered] if rank % 2 else [*gathered, *reduced]
    return write(folder, ranks)


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    folder = tmp_path_factory.mktemp("inspector")
    import_reports(written(folder / "files", ahead_us=30_000), folder / "run", jobs=1)
    return open_run(str(folder / "run"))


def test_the_ranks_are_those_of_the_largest_communicator(run):
    assert [(r.rank, r.host, r.pids, r.rank_source) for r in run.ranks] == [
        (r, f"h{r // 2}", (100 + r,), "the largest communicator") for r in range(4)
    ]


def test_collectives_are_matched_by_function_and_number_on_aligned_clocks(run):
    rows = {r["op"]: r for r in ask(run, "collectives", jobs=1).table.to_pylist()}
    reduced, gathered = rows["AllReduce"], rows["AllGather"]
    assert (reduced["instances"], reduced["incomplete"], reduced["group_size"], reduced["bytes"]) == (40, 0, 4, 1 << 20)
    assert (reduced["skew_median_ns"], reduced["transfer_median_ns"]) == (900_000, 500_000)
    assert (gathered["instances"], gathered["skew_max_ns"], gathered["transfer_median_ns"]) == (40, 0, 500_000)


def test_the_straggler_is_named_and_nothing_is_said_of_why(run):
    answer = ask(run, "stragglers", jobs=1)
    first, *others = answer.table.to_pylist()
    assert (first["rank"], first["caused_percent"], first["cause"]) == (2, 100.0, None)
    assert first["caused_ns"] == 40 * (900 + 800 + 600) * 1_000
    assert sorted(r["waited_ns"] for r in others) == [40 * us * 1_000 for us in (600, 800, 900)]
    assert not [n for n in answer.notes if "would save most" in n]


def test_what_is_left_out_and_lost_is_a_note_of_every_answer(tmp_path):
    plain = record(0, collective("AllReduce", 9, 5), size=1)
    timed = record(0, collective("AllReduce", 8, 5, **verbose(BASE_US, BASE_US + 5)), size=1)
    other = record(0, collective("AllReduce", 8, 5, **verbose(BASE_US, BASE_US + 5)), size=1, pid=7)
    (path,) = write(
        tmp_path, {0: [record(0, stats(3, 1), key="dump_stats", version="v4.1", size=1), timed, plain, "{", other]}
    )
    found = open_report(tmp_path / path)
    assert {(w.text.split(",")[0], w.number) for w in found.report.warnings} == {
        ("records that NCCL Inspector's buffers lost", 4),
        ("operations without times", 1),
        ("lines that are not records", 1),
        ("records of other processes than the first of the file", 1),
    }
    assert all(w.tables == ("collectives",) for w in found.report.warnings)


def test_a_message_has_its_peer_and_no_number(tmp_path):
    trace = {"event_trace_ts": {"kernel_events": [{"kernel_start_ts": BASE_US, "kernel_stop_ts": BASE_US + 30}]}}
    (path,) = write(tmp_path, {0: [record(0, message("Send", 5, 1) | trace, key="p2p_perf")]})
    ((_, batch),) = open_report(tmp_path / path).stream(("collectives",))
    row = batch.to_pylist()[0]
    assert (row["peer"], row["sequence"], row["end"] - row["start"], row["bytes"]) == (1, None, 30_000, 1 << 18)


def test_a_file_without_times_is_refused_with_the_question_to_ask(tmp_path):
    (path,) = write(tmp_path, {0: [record(0, collective("AllReduce", 9, 5))]})
    with pytest.raises(InputError, match=r"its operations have no times.*DUMP_VERBOSE=1.*logs inspector"):
        open_report(tmp_path / path)


def test_it_is_read_only_where_it_is_named(tmp_path):
    path = tmp_path / written(tmp_path, steps=1)[0]
    assert is_report(path)
    assert not is_any_report(path)
    assert not is_report(tmp_path)
    (tmp_path / "other.log").write_text('{"a": 1}\n')
    assert not is_report(tmp_path / "other.log")
    with pytest.raises(InputError, match="no report in it"):
        import_reports([str(tmp_path)], tmp_path / "run", jobs=1)

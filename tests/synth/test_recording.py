import json
import sqlite3
from collections import defaultdict
from contextlib import closing

import numpy as np
import pytest

from alltrace.synth import SCENARIOS, write_run
from alltrace.synth.recording import record
from alltrace.synth.scenario import AS_RECORDED, IDEAL
from alltrace.synth.scenarios import scenario_named
from alltrace.synth.simulate import simulate
from alltrace.trace.errors import UsageError


def _recorded(*faults, **changes):
    run = simulate(SCENARIOS["healthy"].override(**{"steps": 4, "ranks": 4, "faults": faults, **changes}, ideal=True))
    return run, record(run)


def test_events_are_missing_without_a_word_and_alike_for_one_seed():
    run, recordings = _recorded(dropped_share=0.05)
    for whole, recording in zip(run.timelines, recordings, strict=True):
        assert recording.complaints == ()
        for name in ("kernels", "api", "ranges"):
            kept = len(recording.timeline.tables[name]) / len(whole.tables[name])
            assert kept == pytest.approx(0.95, abs=0.05)
    first, second = (set(r.timeline.kernels["correlation"].tolist()) for r in recordings[:2])
    assert first != second
    one, two = (_recorded("dropped-events:ranks=0", outlier_share=0.1, dropped_share=0.1)[1] for _ in range(2))
    for first, second in zip(one, two, strict=True):
        for name, rows in first.timeline.tables.items():
            assert rows["start"].tolist() == second.timeline.tables[name]["start"].tolist()


def test_some_ends_of_collectives_are_far_off():
    run, recordings = _recorded(outlier_share=0.2, outlier_ms=5.0, ranks=16, steps=8)
    errors = []
    for whole, recording in zip(run.timelines, recordings, strict=True):
        moved = recording.timeline.kernels["end"] - whole.kernels["end"]
        nccl = whole.kernels["stream"] != 7
        assert not moved[~nccl].any()
        errors.append(moved[nccl])
        assert (recording.timeline.kernels["end"] - recording.timeline.kernels["start"]).min() >= 500
    errors = np.concatenate(errors)
    assert (errors != 0).mean() == pytest.approx(0.2, abs=0.05)
    assert 4_000_000 < np.abs(errors).max() <= 5_000_000


FEW = 0.2
"""What fewer of the exports have is more than can be expected of a recording."""

LAYOUTS = ("tensor-data", "pipeline", "experts", "sharded")


@pytest.fixture(scope="module")
def recorded(tmp_path_factory):
    """One run of each layout, by scenario: its truth, with its folder."""
    folder = tmp_path_factory.mktemp("recorded")
    return {name: write_run(name, folder / name, ranks=8, steps=2, ideal=False) for name in LAYOUTS}


def filled(path):
    """By table with rows, by column the share of rows that have a value."""
    found = {}
    with closing(sqlite3.connect(f"file:{path}?mode=ro", uri=True)) as database:
        for (table,) in database.execute("SELECT name FROM sqlite_master WHERE type = 'table'").fetchall():
            names = [row[1] for row in database.execute(f'PRAGMA table_info("{table}")')]
            counts = ", ".join(f'count("{name}")' for name in names)
            rows, *values = database.execute(f'SELECT count(*), {counts} FROM "{table}"').fetchone()
            if rows:
                found[table] = dict(zip(names, (n / rows for n in values), strict=True))
    return found


def kinder(simulated, real):
    """What an export has that few real ones have: tables of facts, and columns of those that have the table."""
    found = []
    for table, columns in simulated.items():
        if table.startswith("ENUM_"):
            continue
        if table.startswith("TARGET_INFO_") and np.mean([table in tables for tables in real]) < FEW:
            found.append(table)
        for column in (c for c, share in columns.items() if share):
            shares = [tables[table][column] > 0 for tables in real if column in tables.get(table, ())]
            if shares and np.mean(shares) < FEW:
                found.append(f"{table}.{column}")
    return found


@pytest.mark.corpus
def test_no_column_is_filled_that_default_exports_leave_out(recorded, corpus, tmp_path):
    real = [filled(path) for path in sorted((corpus / "nsys").glob("*.sqlite"))]
    assert len(real) > 10
    for truth in recorded.values():
        assert kinder(filled(truth.reports[0]), real) == []
    ideal = write_run("tensor-data", tmp_path, ranks=8, steps=2, ideal=True)
    assert kinder(filled(ideal.reports[0]), real) == ["TARGET_INFO_CUDA_DEVICE", "NVTX_EVENTS.jsonText"]


def query(path, statement):
    with closing(sqlite3.connect(path)) as database:
        return database.execute(statement).fetchall()


def test_no_payloads_and_streams_numbered_by_each_rank(recorded):
    for truth in recorded.values():
        for path in truth.reports:
            assert query(path, "SELECT count(*) FROM NVTX_EVENTS WHERE domainId > 0 AND eventType = 59")[0][0] > 0
            assert query(path, "SELECT count(jsonText), count(binaryData) FROM NVTX_EVENTS") == [(0, 0)]
            options = dict(query(path, "SELECT name, value FROM META_DATA_EXPORT WHERE name LIKE '%INCLUDE%'"))
            assert options == {"EXPORT_PARAM_INCLUDE_BLOBS": "false", "EXPORT_PARAM_INCLUDE_JSON": "false"}
    for truth in recorded.values():
        streams = [
            frozenset(s for (s,) in query(p, "SELECT DISTINCT streamId FROM CUPTI_ACTIVITY_KIND_KERNEL"))
            for p in truth.reports
        ]
        assert len(set(streams)) > 1
        assert all(7 in own for own in streams)
        listed = [
            frozenset(s for (s,) in query(p, "SELECT streamId FROM TARGET_INFO_CUDA_STREAM")) for p in truth.reports
        ]
        assert all(own <= facts for own, facts in zip(streams, listed, strict=True))


def test_members_of_one_collective_may_have_other_kernels():
    run = simulate(scenario_named("tensor-data").override(ideal=False, ranks=8, steps=2))
    kernels = defaultdict(set)
    for rank, line in enumerate(run.timelines):
        by_launch = dict(zip(line.kernels["correlation"].tolist(), line.kernels["kernel"].tolist(), strict=True))
        for instance in run.collectives:
            if rank in instance.correlations:
                kernels[instance.group, instance.sequence].add(by_launch[instance.correlations[rank]])
    assert {len(found) for found in kernels.values()} == {1, 2}


@pytest.mark.sampled(4)
@pytest.mark.parametrize("name", LAYOUTS)
def test_ends_scatter_and_none_is_before_the_last_arrival(name):
    scenario = scenario_named(name).override(ranks=8, steps=2)
    spreads = {}
    for factor in (0.0, 1.0, 10.0):
        run = simulate(scenario.override(scatter=factor))
        assert all(min(i.ends.values()) >= max(i.arrivals.values()) for i in run.collectives)
        spreads[factor] = np.median([max(i.ends.values()) - min(i.ends.values()) for i in run.collectives])
    assert spreads[0.0] <= 2_000
    assert 2_000 < spreads[1.0] < spreads[10.0] / 5


def test_what_waits_for_a_late_end_is_late_too():
    scenario = scenario_named("tensor-data").override(ranks=8, steps=2)
    last = [simulate(scenario.override(scatter=factor)).steps[:, -1, 1].max() for factor in (0.0, 30.0)]
    assert last[1] > last[0] + 100_000


def test_all_to_alls_are_groups_of_sends_and_receives(recorded):
    names = {
        n
        for (n,) in query(
            recorded["experts"].reports[0],
            "SELECT DISTINCT s.value FROM NVTX_EVENTS e JOIN StringIds s ON s.id = textId",
        )
    }
    assert {"ncclGroupStart", "ncclSend", "ncclRecv", "ncclGroupEnd"} <= names
    assert "ncclAlltoAll" not in names


def test_the_kind_world_and_that_of_recordings_set_the_same_values_and_single_ones_can_be_changed():
    assert IDEAL.keys() == AS_RECORDED.keys()
    assert all(IDEAL[name] != AS_RECORDED[name] for name in IDEAL)
    kind, unkind = (scenario_named("tiny").override(ideal=ideal) for ideal in (True, False))
    assert (kind.environment.payloads, kind.links.scatter) == (True, 0.0)
    assert (unkind.environment.payloads, unkind.links.scatter) == (False, 1.0)
    assert scenario_named("tiny").override(ideal=False, scatter=3.0).links.scatter == 3.0
    with pytest.raises(UsageError, match="ideal must be true or false"):
        scenario_named("tiny").override(ideal=1)


def test_a_trace_of_the_pytorch_profiler_has_its_own_streams_and_its_arguments(tmp_path):
    truth = write_run("tensor-data", tmp_path, "kineto", ranks=8, steps=2, ideal=False)
    streams = []
    for path in truth.reports:
        events = json.loads(path.read_text())["traceEvents"]
        assert any(e["args"].get("Process Group Name") for e in events if e["name"] == "record_param_comms")
        streams.append(frozenset(e["args"]["stream"] for e in events if e.get("cat") == "kernel"))
    assert len(set(streams)) > 1

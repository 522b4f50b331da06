"""One run as each recorder records it, and the comparison of what is found."""

from __future__ import annotations

import json
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from alltrace.synth import SCENARIOS
from benchmarks.recorder_files import RECORDERS, write_recorded
from benchmarks.recorders import KINDS, LAYOUTS, Compared, Verdict, draw, same, summary

TINY = SCENARIOS["tiny"].override(ideal=False)


def recorder(name):
    [found] = [r for r in RECORDERS if r.name == name]
    return found


def written(name, folder, scenario=TINY):
    reports, logs = write_recorded(scenario, recorder(name), folder)
    return sorted(p for p in reports.iterdir() if not p.name.startswith("truth")), logs


def query(path, statement):
    with closing(sqlite3.connect(path)) as database:
        return database.execute(statement).fetchall()


RANGES = "SELECT count(*), count(jsonText) FROM NVTX_EVENTS WHERE domainId > 0 AND eventType = 59"
KERNELS = """
    SELECT k.start, k.end FROM CUPTI_ACTIVITY_KIND_KERNEL k JOIN StringIds s ON s.id = k.shortName
    WHERE s.value LIKE 'nccl%' ORDER BY k.start
"""


def test_every_recorder_sees_the_same_kernels(tmp_path):
    names = [r.name for r in RECORDERS if r.format == "sqlite"]
    kernels = [query(written(name, tmp_path / name)[0][0], KERNELS) for name in names]
    assert kernels[0]
    assert all(k == kernels[0] for k in kernels)


def test_payloads_names_and_no_ranges(tmp_path):
    [(ranges, payloads)] = query(written("nsys, payloads", tmp_path / "a")[0][0], RANGES)
    assert ranges == payloads > 0
    assert query(written("nsys, names", tmp_path / "b")[0][0], RANGES) == [(ranges, 0)]
    path = written("nsys, no NCCL ranges", tmp_path / "c")[0][0]
    assert query(path, RANGES) == [(0, 0)]
    assert query(path, "SELECT count(*) FROM NVTX_EVENTS")[0][0] > 0


@pytest.mark.parametrize("layout", ["tensor-data", "pipeline", "experts"])
def test_the_trace_of_nccl_has_a_row_for_each_channel_and_one_number_on_all_ranks(layout, tmp_path):
    scenario = SCENARIOS[layout].override(ranks=8, steps=1, ideal=False, microbatches=2, layers=4)
    paths, _ = written("nsys, NCCL trace", tmp_path, scenario)
    ranks_of = {}
    for rank, path in enumerate(paths):
        rows = query(
            path, "SELECT start, end, jsonText FROM NVTX_EVENTS WHERE jsonText LIKE '%operationId%' ORDER BY start"
        )
        told = [(start, end, json.loads(text)) for start, end, text in rows if "channelId" in text]
        first = [(start, end) for start, end, about in told if about["channelId"] == 0]
        assert set(first) == set(query(path, KERNELS))
        assert {about["channelId"] for *_, about in told} == {0, 1}
        for _, _, about in told:
            if about.get("peer") == about["commRank"]:
                continue  # a member's part of an all-to-all that stays with it
            ranks_of.setdefault(about["operationId"], set()).add((rank, about["commRank"]))
    assert all(len(ranks) > 1 for ranks in ranks_of.values())
    assert all(len({place for _, place in ranks}) == len(ranks) for ranks in ranks_of.values())


def test_a_trace_of_the_pytorch_profiler_with_and_without_arguments(tmp_path):
    with_them, without = (
        [json.loads(p.read_text()) for p in written(name, tmp_path / name)[0]]
        for name in ("Kineto, arguments", "Kineto, no arguments")
    )
    assert all(any(e["name"] == "record_param_comms" for e in t["traceEvents"]) for t in with_them)
    assert not any(e["name"] == "record_param_comms" for t in without for e in t["traceEvents"])
    assert all(
        t["distributedInfo"]["rank"] == r
        for r, t in enumerate(sorted(without, key=lambda t: t["distributedInfo"]["rank"]))
    )


def test_logs_are_beside_the_reports(tmp_path):
    reports, logs = written("nsys, NCCL logs", tmp_path)
    assert len(reports) == len(logs["nccl_logs"]) == 2
    assert all("NCCL INFO" in Path(log).read_text() for log in logs["nccl_logs"])
    _, files = written("nsys, Inspector", tmp_path / "inspector")
    records = [[json.loads(line) for line in Path(file).read_text().splitlines()] for file in files["inspector_logs"]]
    assert [len(own) for own in records] == [4, 4]
    assert all(
        "kernel_start_ts" in each["coll_perf"]["event_trace_ts"]["kernel_events"][0] for own in records for each in own
    )


def test_a_database_of_rocprofv3_has_the_same_kernels_of_communication(tmp_path):
    [path, _], _ = written("rocprofv3", tmp_path / "amd")
    [dispatches] = query(path, "SELECT name FROM sqlite_master WHERE name LIKE 'rocpd_kernel_dispatch%'")
    [symbols] = query(path, "SELECT name FROM sqlite_master WHERE name LIKE 'rocpd_info_kernel_symbol%'")
    joined = f'"{dispatches[0]}" k JOIN "{symbols[0]}" s ON s.id = k.kernel_id'
    found = query(path, f"SELECT k.end - k.start FROM {joined} WHERE s.display_name LIKE 'nccl%' ORDER BY k.start")
    same = query(written("nsys, names", tmp_path / "nvidia")[0][0], KERNELS)
    assert [took for (took,) in found] == [end - start for start, end in same]


@pytest.mark.parametrize(
    ("loss", "ranks", "expected"),
    [(0.2, (3,), (True, True)), (0.21, (3,), (True, True)), (0.225, (3,), (True, False)), (0.2, (4,), (False, True))],
)
def test_verdicts_are_compared_by_kind_culprits_and_loss(loss, ranks, expected):
    assert same(Verdict("a", "straggler", (3,), 0.2), Verdict("b", "straggler", ranks, loss)) == expected


def test_small_losses_may_differ_by_a_point():
    assert same(Verdict("a", "sync", (), 0.004), Verdict("b", "sync", (), 0.013)) == (True, True)


def test_the_summary_counts_what_is_given_and_compares_only_that():
    verdicts = [Verdict(r.name, "straggler", (1,), 0.2) for r in RECORDERS]
    verdicts[1] = Verdict(RECORDERS[1].name, "sync", (), 0.2)
    verdicts[2] = Verdict(RECORDERS[2].name, "straggler", (1,), None)
    text = summary([Compared(5, "healthy", "slow-rank", "straggler", tuple(verdicts))])
    count = len(RECORDERS) - 1
    assert f"| all | {count * (count - 1) // 2} | {(count - 1) * (count - 2) // 2} |" in text
    assert "| nsys, names | 1 | 0 | 1 | 0 | 0 | 1 of 1 |" in text
    assert "| nsys, NCCL trace | 1 | 1 | 0 | 0 | 0 | 0 of 1 |" in text
    assert "seed 5" in text


def test_programs_are_drawn_by_their_seed_and_of_every_layout_and_kind():
    drawn = [draw(seed, 1.0) for seed in range(120)]
    assert draw(7, 1.0) == drawn[7]
    assert {scenario.name for scenario, _ in drawn} == set(LAYOUTS)
    assert {fault.partition(":")[0] or "none" for _, fault in drawn} == set(KINDS)

"""The truth about matching: which kernels of which device are one operation."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from dataclasses import replace

import pytest

from benchmarks.matching import write_program
from benchmarks.programs.layouts import LAYOUTS, Setting, draw_for_matching
from benchmarks.programs.planted import Seen, Window, planted
from benchmarks.programs.worlds import as_ideal


def query(path, statement):
    with closing(sqlite3.connect(path)) as database:
        return database.execute(statement).fetchall()


def test_operations_of_a_device_are_numbered_by_start_whatever_their_communicator():
    seen = [
        Seen(0, 0, 500, 7, 1, 0), Seen(0, 0, 100, 9, 0, 0), Seen(0, 0, 900, 9, 0, 1),
        Seen(1, 0, 50, 5, 0, 0), Seen(1, 0, 80, 5, 0, 1), Seen(1, 1, 60, 5, 1, 0),
    ]  # fmt: skip
    found = planted(seen)
    assert found.instances == {
        (0, 0): {(0, 0, 0), (1, 0, 0)},
        (0, 1): {(0, 0, 2), (1, 0, 1)},
        (1, 0): {(0, 0, 1), (1, 1, 0)},
    }
    assert found.numbers[0, 0, 500, 7] == (0, 0, 1)
    assert found.communicators[0, 0, 1] == 1


def test_an_operation_of_which_one_member_is_recorded_is_no_instance():
    assert planted([Seen(0, 0, 100, 7, 0, 0), Seen(0, 0, 200, 7, 0, 1), Seen(1, 0, 100, 7, 0, 1)]).instances == {
        (0, 1): {(0, 0, 1), (1, 0, 0)}
    }


def test_a_window_has_an_end_and_what_was_dropped_is_not_in_it():
    window = Window(100, 200, ((120, 130),))
    assert [window.keeps(t) for t in (99, 100, 119, 120, 130, 199, 200)] == [
        False,
        True,
        True,
        False,
        True,
        True,
        False,
    ]
    assert window.contains(125)


@pytest.mark.sampled(6)
@pytest.mark.parametrize("layout", LAYOUTS)
def test_every_kernel_of_nccl_in_the_reports_is_a_member(layout, tmp_path):
    program = draw_for_matching(3, Setting(layout, "names", 1.0), 8)
    truth, reports, _ = write_program(program, tmp_path / "reports")
    for report in reports:
        kernels = query(
            report.path,
            "SELECT start, streamId FROM CUPTI_ACTIVITY_KIND_KERNEL k JOIN StringIds s ON s.id = k.shortName "
            "WHERE value LIKE 'nccl%' ORDER BY start, streamId",
        )
        numbers = [truth.numbers[report.rank, 0, start, stream] for start, stream in kernels]
        assert numbers == [(report.rank, 0, n) for n in range(len(kernels))]
    members = [m for instance in truth.instances.values() for m in instance]
    assert len(members) == len(set(members)) == len(truth.numbers)
    sizes = {frozenset(m[0] for m in i) for i in truth.instances.values()}
    assert sizes == {
        frozenset(c.ranks) for c in program.communicators if (program.communicators.index(c), 0) in truth.instances
    }


def test_devices_of_a_process_are_in_one_report_with_a_thread_each(tmp_path):
    program = draw_for_matching(3, Setting("tp-dp", "ids", 1.0, "4 devices"))
    truth, [report], _ = write_program(program, tmp_path / "reports")
    assert {m[:2] for m in truth.numbers.values()} == {(0, device) for device in range(4)}
    launches = query(
        report.path,
        "SELECT k.deviceId, count(*), count(DISTINCT r.globalTid), min(k.correlationId) FROM CUPTI_ACTIVITY_KIND_KERNEL"
        " k JOIN CUPTI_ACTIVITY_KIND_RUNTIME r USING (correlationId) GROUP BY 1 ORDER BY 1",
    )
    assert [row[0] for row in launches] == [0, 1, 2, 3]
    assert all(threads == 2 for *_, threads, _ in launches)  # forward and backward
    kernels, distinct = query(
        report.path, "SELECT count(*), count(DISTINCT correlationId) FROM CUPTI_ACTIVITY_KIND_KERNEL"
    )[0]
    assert kernels == distinct == sum(row[1] for row in launches)
    alone = replace(program, view=replace(program.view, devices=1))
    assert len(write_program(alone, tmp_path / "alone")[0].instances) == len(truth.instances)


def streams(report):
    return {row[0] for row in query(report.path, "SELECT DISTINCT streamId FROM CUPTI_ACTIVITY_KIND_KERNEL")}


def kernel_names(report):
    return {
        row[0]
        for row in query(
            report.path,
            "SELECT DISTINCT s.value FROM CUPTI_ACTIVITY_KIND_KERNEL k JOIN StringIds s ON s.id = k.shortName "
            "WHERE s.value LIKE '%AllReduce%'",
        )
    }


def test_streams_and_kernels_have_names_of_their_own_on_each_rank_and_the_same_in_the_kind_world(tmp_path):
    program = draw_for_matching(3, Setting("tp-dp", "ids", 1.0), 8)
    _, reports, _ = write_program(program, tmp_path / "unkind")
    assert len({frozenset(streams(r)) for r in reports}) > 1
    assert len({frozenset(kernel_names(r)) for r in reports}) > 1 or len(kernel_names(reports[0])) > 1
    _, reports, _ = write_program(as_ideal(program), tmp_path / "ideal")
    assert len({frozenset(streams(r)) for r in reports}) == 1
    assert {frozenset(kernel_names(r)) for r in reports} == {frozenset(kernel_names(reports[0]))}


def test_stages_exchange_in_groups_on_one_communicator_for_each_pipeline(tmp_path):
    program = draw_for_matching(4, Setting("pp-batched", "ids", 1.0), 8)
    program = replace(program, view=replace(program.view, nccl="json"))
    _, reports, _ = write_program(program, tmp_path / "reports")
    names = query(
        reports[0].path,
        "SELECT coalesce(e.text, s.value), count(*) FROM NVTX_EVENTS e LEFT JOIN StringIds s ON s.id = e.textId "
        "WHERE domainId = 1 AND eventType = 59 GROUP BY 1",
    )
    counts = dict(names)
    assert counts["ncclGroupStart"] == counts["ncclGroupEnd"] > 0
    assert counts["ncclSend"] == counts["ncclRecv"] == program.steps * program.micro
    identifiers = {c.identifier for c in program.communicators if c.role == "exchange"}
    assert len(identifiers) == program.grid.dp * program.grid.tp

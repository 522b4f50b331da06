"""What makes order harder to see is in the reports: groups of several communicators, splits, captured steps, windows,
losses."""

from __future__ import annotations

import json
import sqlite3
from collections import Counter
from contextlib import closing
from dataclasses import replace
from itertools import pairwise

import pytest

from benchmarks.matching import write_program
from benchmarks.programs.layouts import Setting, draw_for_matching, special_of
from benchmarks.programs.model import RENEWED, SPECIALS
from benchmarks.programs.training import CAPTURED, Lowered


def query(path, statement):
    with closing(sqlite3.connect(path)) as database:
        return database.execute(statement).fetchall()


def drawn(special, layout="tp-dp", **changes):
    program = draw_for_matching(6, Setting(layout, "ids", 1.0, special=special), 8)
    view = replace(program.view, nccl="json")
    return replace(program, view=view, tp_on_compute=False, rooted=False, **changes)


def ranges(path):
    """Start, end, name and payload of NCCL's ranges, in the order of starts."""
    rows = query(
        path,
        "SELECT start, end, coalesce(e.text, s.value), jsonText FROM NVTX_EVENTS e LEFT JOIN StringIds s ON s.id ="
        " e.textId WHERE domainId = 1 AND eventType = 59 ORDER BY start",
    )
    return [(start, end, name, json.loads(payload) if payload else {}) for start, end, name, payload in rows]


LAUNCHES = """
    SELECT r.start, k.start, k.end, k.streamId, k.graphNodeId FROM CUPTI_ACTIVITY_KIND_KERNEL k
    JOIN CUPTI_ACTIVITY_KIND_RUNTIME r USING (correlationId) JOIN StringIds s ON s.id = k.shortName
    WHERE s.value LIKE 'nccl%' ORDER BY k.start
"""


def test_a_group_of_several_communicators_launches_a_kernel_of_each_at_its_end(tmp_path):
    program = drawn("one group")
    _, reports, _ = write_program(program, tmp_path / "reports")
    found = ranges(reports[0].path)
    ends = [r for r in found if r[2] == "ncclGroupEnd"]
    assert len(ends) == program.steps
    launches = [row[0] for row in query(reports[0].path, LAUNCHES)]
    for end in ends:
        place = found.index(end)
        assert [r[2] for r in found[place - 3 : place]] == ["ncclGroupStart", "ncclAllReduce", "ncclAllReduce"]
        assert len({r[3]["NCCL communicator ID"] for r in found[place - 2 : place]}) == 2
        assert sum(end[0] <= at < end[1] for at in launches) == 2


def test_a_communicator_on_two_streams_keeps_its_order():
    program = drawn("two streams", "dp")
    lowered = Lowered(program)
    recorded = lowered.execute(record=True).recorded[0]
    index = program.communicators_of[0]["dp"]
    own = sorted(k for k in recorded.kernels if k[6] == index)
    assert len({k[2] for k in own}) == 2
    assert [k[8] for k in own] == list(range(len(own)))
    assert all(later[0] >= earlier[1] for earlier, later in pairwise(own))


@pytest.mark.parametrize(
    ("special", "calls"), [("split", ["ncclCommSplit"]), ("re-created", ["ncclCommAbort", "ncclCommInitRankConfig"])]
)
def test_a_communicator_is_replaced_while_the_job_runs(special, calls, tmp_path):
    program = drawn(special, "dp", norm=False)
    truth, reports, _ = write_program(program, tmp_path / "reports")
    found = [r for r in ranges(reports[0].path) if r[2] != "ncclCommInitRank"]
    assert [r[2] for r in found if r[2].startswith("ncclComm")] == calls
    identifiers = [r[3]["NCCL communicator ID"] for r in found if not r[2].startswith("ncclComm")]
    assert len(set(identifiers)) == (2 if special == "split" else 1)
    before = identifiers.index(identifiers[-1]) if special == "split" else len(identifiers) * RENEWED // program.steps
    assert before == len(identifiers) * RENEWED // program.steps
    assert len(truth.instances) == len(identifiers)


@pytest.mark.parametrize("special", ["captured", "captured before"])
def test_a_captured_step_has_its_ranges_once_and_its_kernels_in_every_replay(special, tmp_path):
    program = drawn(special, layers=2, micro=1)
    _, reports, _ = write_program(program, tmp_path / "reports")
    kernels = [row for row in query(reports[0].path, LAUNCHES) if row[4]]
    replays = Counter(row[0] for row in kernels)
    counted = program.steps - CAPTURED - (special == "captured before")
    assert len(replays) == counted
    assert len(set(replays.values())) == 1
    assert len({row[4] for row in kernels}) == len(kernels) / counted
    collectives = [r for r in ranges(reports[0].path) if r[2] == "ncclAllReduce"]
    if special == "captured":  # once before it is captured, and once while
        assert len(collectives) == 2 * len(kernels) / counted
        assert max(r[1] for r in collectives) < min(row[1] for row in kernels if row[0] == min(replays))
    else:
        assert collectives == []


def test_windows_begin_and_end_at_other_operations_on_each_rank(tmp_path):
    whole, _, _ = write_program(drawn(""), tmp_path / "whole")
    cut, reports, _ = write_program(drawn("windows"), tmp_path / "cut")
    assert len({len(r.seen) for r in reports}) > 1 or len({r.seen[0].number for r in reports}) > 1
    assert 0 < len(cut.instances) < len(whole.instances)
    firsts = {r.rank: {k.number for k in r.seen if k.communicator == 0} for r in reports}
    assert min(min(n) for n in firsts.values() if n) > 0


def test_records_that_were_dropped_lack_on_some_ranks_alone(tmp_path):
    program = drawn("dropped")
    whole, _, _ = write_program(replace(program, view=replace(program.view, dropped=())), tmp_path / "whole")
    cut, reports, _ = write_program(program, tmp_path / "cut")
    lost = {rank for rank, *_ in program.view.dropped}
    sizes = {r.rank: sum(m[0] == r.rank for m in whole.numbers.values()) - len(r.seen) for r in reports}
    assert {rank for rank, missing in sizes.items() if missing} == lost
    assert len(ranges(reports[min(lost)].path)) > 0
    assert len(cut.numbers) < len(whole.numbers)


def test_every_special_is_in_at_least_ten_of_eighty_programs():
    counts = Counter(special_of(index).special for index in range(80))
    assert counts == dict.fromkeys(SPECIALS, 10)

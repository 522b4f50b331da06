from __future__ import annotations

import pytest
from tests.making import make_run
from tests.tiles.conftest import ranges, rank_rows

from alltrace.tiles.details import event_details, instance_of, neighbour
from alltrace.tiles.events import EventReader
from alltrace.trace.errors import UsageError

US = 1000


def test_a_kernel_knows_its_call_and_the_ranges_around_it(view):
    found = event_details(view.events, 0, "kernels", 0)
    assert (found["name"], found["track"], found["host"]) == ("gemm_kernel", "gpu/0/0/7", "host0")
    assert {k: found["columns"][k] for k in ("start", "end", "duration_ns", "kind")} == {
        "start": 40 * US,
        "end": 80 * US,
        "duration_ns": 40 * US,
        "kind": "compute",
    }
    assert "registers" not in found["columns"], "null columns are left out"
    # of the nested calls the outermost
    assert (found["call"]["row"], found["call"]["track"]) == (0, "api/0")
    assert found["call"]["columns"]["name"] == "cudaLaunchKernel_v7000"
    assert [(r["name"], r["start"], r["end"]) for r in found["ranges"]] == [("step 0", 0, 130 * US), ("forward", 10 * US, 35 * US)]


def test_a_call_knows_what_it_launched(view):
    found = event_details(view.events, 0, "api", 0)
    assert found["launched"] == [{"table": "kernels", "row": 0, "track": "gpu/0/0/7", "start": 40 * US, "end": 80 * US}]
    assert [r["name"] for r in found["ranges"]] == ["step 0", "forward"]


def test_what_a_call_launched_may_have_no_end(tmp_path):
    rows = rank_rows()
    rows["kernels"][0]["end"] = None  # as in a damaged export
    found = event_details(EventReader(make_run(tmp_path / "run", {0: rows})), 0, "api", 0)
    assert [(w["start"], w["end"]) for w in found["launched"]] == [(40 * US, 40 * US)]


def test_a_range_is_not_around_itself(view):
    assert [r["name"] for r in event_details(view.events, 0, "ranges", 1)["ranges"]] == ["step 0"]


def test_a_collective_knows_every_member_and_who_was_last(waiting):
    (row,) = [r for r in range(5) if event_details(waiting.events, 0, "kernels", r)["columns"]["start"] == 130 * US]
    operation = event_details(waiting.events, 0, "kernels", row)["collective"]
    found = instance_of(waiting.events, 0, operation)
    assert (found["last_rank"], found["last_arrival"], found["end"]) == (1, 135 * US, 150 * US)
    waits = {m["rank"]: (m["start"], m["end"], m["wait_ns"]) for m in found["members"]}
    assert waits == {0: (130 * US, 150 * US, 5 * US), 1: (135 * US, 150 * US, 0)}
    assert [m["certain"] for m in found["members"]] == [True, False]
    assert found["perhaps_last"] == [1]
    assert instance_of(waiting.events, 0, 99) is None


@pytest.mark.parametrize(
    ("error", "component", "clock", "least"),
    [(4000, 0, 1, 5000), (4001, 0, 1, 5001), (None, 0, 1, None), (1, 1, 1, None), (None, 0, 0, 0)],
)
def test_a_wait_is_a_fact_from_what_the_clocks_may_be_off_on(waiting, error, component, clock, least):
    waiting.run.overlay.facts["errors_ns"] = {"0": 3000, "1": error}
    waiting.run.overlay.facts["shared"] = {"0": 0, "1": clock}
    waiting.run.overlay.facts["components"] = {"0": 0, "1": component}
    (row,) = [r for r in range(5) if event_details(waiting.events, 0, "kernels", r)["columns"]["start"] == 130 * US]
    operation = event_details(waiting.events, 0, "kernels", row)["collective"]
    found = instance_of(waiting.events, 0, operation)
    members = {m["rank"]: (m["wait_ns"], m["least_ns"], m["certain"]) for m in found["members"]}
    sure = least is not None and least <= 5000
    assert members == {0: (5000, least, sure), 1: (0, 0, False)}
    assert found["perhaps_last"] == ([1] if sure else [0, 1])


def test_without_an_alignment_nothing_is_matched(tmp_path):
    from alltrace.tiles.events import EventReader

    assert instance_of(EventReader(make_run(tmp_path / "one", {0: rank_rows()})), 0, 0) is None


def test_the_next_and_previous_event_of_a_name(waiting):
    reader = waiting.events
    starts = [event_details(reader, 1, "kernels", r)["columns"]["start"] // US for r in range(5)]
    first = starts.index(30)
    found = neighbour(reader, 1, "kernels", first, forward=True)
    assert (found["start"], found["track"]) == (135 * US, "gpu/0/0/20")
    back = neighbour(reader, 1, "kernels", found["row"], forward=False)
    assert back["start"] == 30 * US
    assert neighbour(reader, 1, "kernels", first, forward=False) is None
    assert neighbour(reader, 1, "kernels", starts.index(0), forward=True) is None


def test_neighbours_that_start_together_are_passed_one_by_one(tmp_path):
    rows = [{"start": s, "end": e, "name": "f", "kind": "pushpop"} for s, e in ((0, 5), (10, 99), (10, 50), (10, 20), (60, 90))]
    reader = EventReader(make_run(tmp_path / "run", {0: {"ranges": rows}}))
    for forward, first in ((True, 0), (False, 4)):
        row, met = {"row": first}, []
        while row is not None and len(met) < 9:
            met.append(row["row"])
            row = neighbour(reader, 0, "ranges", row["row"], forward=forward)
        assert met == (list(range(5)) if forward else list(range(4, -1, -1)))


def test_only_what_lies_on_a_track_has_neighbours(tmp_path):
    rows = {"syncs": [{"start": 0, "end": 5, "kind": "event"}], "ranges": ranges([(0, 5, "f", 0)])}
    reader = EventReader(make_run(tmp_path / "run", {0: rows}))
    assert event_details(reader, 0, "syncs", 0)["columns"]["kind"] == "event"
    with pytest.raises(UsageError, match="unknown table with events"):
        neighbour(reader, 0, "syncs", 0, forward=True)


@pytest.mark.parametrize(
    ("table", "row", "message"),
    [("kernels", 99, "no row 99"), ("kernel", 0, "did you mean kernels"), ("names", 0, "unknown table")],
)
def test_what_is_not_there_is_refused(view, table, row, message):
    with pytest.raises(UsageError, match=message):
        event_details(view.events, 0, table, row)

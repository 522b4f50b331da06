import pytest
from tests.making import collective, kernel, make_run

from alltrace.tiles.area import area_facts
from alltrace.tiles.events import EventReader
from alltrace.tiles.two_spans import difference
from alltrace.trace.errors import UsageError


@pytest.fixture
def reader(tmp_path):
    """Two steps of 100 ns on two ranks; in the second `slow` lasts 30 ns longer on rank 1, and `once` runs there alone."""

    def rows(rank):
        kernels = []
        for step in (0, 1):
            at = 100 * step
            late = 30 * rank * step
            kernels += [kernel(at, at + 20 + late, "slow"), collective(at + 60, at + 90)]
        return {"kernels": [*kernels, *([kernel(155, 158, "once")] if rank else [])]}

    return EventReader(make_run(tmp_path / "run", {r: rows(r) for r in (0, 1)}))


def test_what_differs_between_two_steps_comes_first(reader):
    found = difference(reader, [0, 1], (0, 100), (100, 200))
    assert [(r["name"], r["first_count"], r["second_count"], r["more_ns"]) for r in found["names"]] == [
        ("slow", 2, 2, 30),
        ("once", 0, 1, 3),
        ("ncclDevKernel_AllReduce_Sum_f32_RING_LL", 2, 2, 0),
    ]
    assert {r["class"]: (r["first_ns"], r["second_ns"], r["more_ns"]) for r in found["breakdown"]} == {
        "compute_ns": (20, 36.5, 16.5),
        "exposed_communication_ns": (30, 30, 0),
        "exposed_copy_ns": (0, 0, 0),
        "idle_ns": (50, 33.5, -16.5),
    }
    assert (found["ranks_asked"], found["ranks_done"]) == (2, 2)


def test_both_are_of_the_same_ranks_where_time_was_short(reader, monkeypatch):
    def hurried(reader, area, token, **more):
        done = dict(list(area.tracks.items())[: 1 if area.start_ns else 2])
        return area_facts(reader, area._replace(tracks=done), token, **more)

    monkeypatch.setattr("alltrace.tiles.two_spans.area_facts", hurried)
    found = difference(reader, [1, 0], (0, 100), (100, 200))
    assert (found["ranks_asked"], found["ranks_done"]) == (2, 1)
    assert [(r["first_count"], r["second_count"]) for r in found["names"] if r["name"] == "slow"] == [(1, 1)]
    assert [r["first_ns"] for r in found["breakdown"]] == [20, 30, 0, 50]


def test_an_empty_range_is_refused(reader):
    with pytest.raises(UsageError, match="empty"):
        difference(reader, [0], (5, 5), (0, 9))

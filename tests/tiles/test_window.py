import re

import pytest
from tests.making import collective, copy, kernel, make_run
from tests.tiles.conftest import busy_run

from alltrace.tiles.area import area_facts
from alltrace.tiles.build import pyramid
from alltrace.tiles.cancel import CancelledError, Token
from alltrace.tiles.events import Bounded, EventReader
from alltrace.tiles.search import MARKS, search
from alltrace.tiles.two_spans import difference
from alltrace.tiles.usual_steps import UsualSteps
from alltrace.tiles.view import View
from alltrace.tiles.waits import matched, waited_and_caused, worst_instance
from alltrace.tiles.window import NamesLike, events_between, longest_named, summary
from alltrace.trace.errors import UsageError

US = 1000


def test_ranges_are_divided_exactly_also_where_nothing_ran(view):
    found = summary(view.events, [0, 1], 60 * US, 115 * US)
    # 20 to 75 us on the kernels' own clock
    first = {
        "rank": 0,
        "device": 0,
        "compute_ns": 30 * US,
        "exposed_communication_ns": 10 * US,
        "exposed_copy_ns": 5 * US,
        "idle_ns": 10 * US,
    }
    assert found["breakdown"] == [first, {**first, "rank": 1}]
    kernels = {k["name"]: (k["count"], k["total_ns"], k["min_ns"], k["max_ns"]) for k in found["kernels"]}
    assert kernels["gemm_kernel"] == (2, 40 * US, 20 * US, 20 * US)
    assert kernels["ncclDevKernel_AllReduce_Sum_f32_RING_LL"] == (2, 35 * US, 15 * US, 20 * US)
    assert (found["ranks_asked"], found["ranks_done"]) == (2, 2)
    rows = summary(view.events, [0, 1], 5 * US, 15 * US, gpus=view.gpus)["breakdown"]
    nothing = {"compute_ns": 0, "exposed_communication_ns": 0, "exposed_copy_ns": 0, "idle_ns": 10 * US}
    assert rows == [{"rank": r, "device": 0, **nothing} for r in (0, 1)]
    assert summary(view.events, [0, 1], 60 * US, 115 * US, gpus=view.gpus) == summary(
        view.events, [0, 1], 60 * US, 115 * US
    )
    with pytest.raises(UsageError, match="from 5 to 5 ns is empty"):
        summary(view.events, [0], 5, 5)
    assert summary(view.events, [], 0, 5)["breakdown"] == []
    assert summary(view.events, [0], -(10**15), -(10**14))["kernels"] == []
    assert events_between(view.events, [0], ["kernels"], 10**12, 10**13)["row"] == []


def test_events_come_in_order_with_name_track_and_row(view):
    found = events_between(view.events, [0], ["kernels", "copies"], 0, 10**9)
    assert found["start"] == [40 * US, 70 * US, 90 * US, 110 * US]
    assert found["duration_ns"] == [40 * US, 20 * US, 10 * US, 10 * US]
    assert found["table"] == ["kernels", "kernels", "kernels", "copies"]
    assert found["track"] == ["gpu/0/0/7", "gpu/0/0/20", "gpu/0/0/7", "gpu/0/0/30"]
    assert (found["row"], found["complete"]) == ([0, 2, 1, 0], True)


def test_copies_and_graphs_are_found_by_name_before_anybody_looked_at_them(tmp_path):
    rows = {"copies": [copy(0, 10), copy(20, 30, "memset")], "graphs": [{"start": 40, "end": 50, "graph": 3}]}
    run = make_run(tmp_path / "run", {0: rows, 1: rows})
    for name in ("memset", "graph 3"):
        pattern = f"^{name}$"
        found = search(EventReader(run), pattern, [0, 1])
        assert (found["names"], found["events"]["name"], found["complete"]) == ([name], [name] * 2, True)
        assert (
            events_between(EventReader(run), [0, 1], ["copies", "graphs"], 0, 99, pattern=pattern)["name"] == [name] * 2
        )


def test_events_of_more_ranks_than_are_looked_at_are_not_all(view, monkeypatch):
    monkeypatch.setattr("alltrace.tiles.window.MOST_RANKS", 1)
    assert events_between(view.events, [0], ["kernels"], 0, 10**9)["complete"]
    found = events_between(view.events, [0, 1], ["kernels"], 0, 10**9)
    assert (set(found["rank"]), found["complete"]) == ({0}, False)


def test_events_are_filtered_by_name_track_and_length(view):
    ask = (view.events, [0, 1], ["kernels"], 0, 10**9)
    assert set(events_between(*ask, pattern="soft.*kernel$")["name"]) == {"softmax_kernel"}
    assert events_between(*ask, track="gpu/0/0/20")["rank"] == [0, 1]
    assert events_between(*ask, least_ns=20 * US)["duration_ns"] == [40 * US, 40 * US, 20 * US]
    assert events_between(*ask, pattern="no such")["row"] == []
    assert NamesLike(view.events, "(a+)+$" * 5).ids().tolist() == []
    for bad in ("(", "a{9999}", "\ud800", "(?=x)"):
        with pytest.raises(UsageError, match="is not a valid regular expression"):
            NamesLike(view.events, bad)
    with pytest.raises(UsageError, match="longer than"):
        NamesLike(view.events, "x" * 1001)
    view.tiles([(0, "gpu/0/0/30")], 9, 0, 1)
    assert search(view.events, "^HtoD$", [0])["events"]["table"] == ["copies"]
    assert longest_named(view.events, 0, "HtoD", UsualSteps(view.run))[2:] == (110 * US, 120 * US)
    assert longest_named(view.events, 0, "nothing of that name", UsualSteps(view.run)) is None


def test_more_events_than_can_be_shown_are_cut_and_said_to_be(tmp_path, monkeypatch):
    run = busy_run(tmp_path / "run", 1000)
    monkeypatch.setattr("alltrace.tiles.window.MOST_EVENTS", 300)
    found = events_between(EventReader(run), [0], ["kernels", "ranges"], 0, 10**9)
    assert (len(found["row"]), found["complete"]) == (300, False)


def test_work_stops_when_nobody_waits(view):
    token = Token()
    token.cancel()
    for work in (summary,):
        with pytest.raises(CancelledError):
            work(view.events, [0], 0, 10, token)
    with pytest.raises(CancelledError):
        search(view.events, "x", [0], token=token)


def test_who_waited_and_who_caused_it_have_the_same_sum(waiting):
    assert waited_and_caused(waiting.run) == {0: (10 * US, 0), 1: (0, 10 * US)}
    found, steps = matched(waiting.run), UsualSteps(waiting.run)
    worst = worst_instance(waiting.run, found, [1], steps)
    assert (worst.start, worst.end) in [(130 * US, 150 * US), (330 * US, 350 * US)]
    assert worst.ranks == (0, 1), "who waited longest comes first"
    assert worst_instance(waiting.run, found, [0], steps) is None
    longest = worst_instance(waiting.run, found, [0], steps, transfer=True)
    last = {
        i: max(s for j, s in zip(found["instance"], found["start"], strict=True) if j == i) for i in found["instance"]
    }
    transfers = [e - last[i] for i, e in zip(found["instance"], found["end"], strict=True)]
    assert max(transfers) == longest.end - max(longest.arrivals)


def test_without_an_alignment_nobody_waited(tmp_path):
    run = busy_run(tmp_path / "run", 10)
    assert waited_and_caused(run) == {}
    assert worst_instance(run, matched(run), [0], UsualSteps(run)) is None
    assert "waiting" not in View(run, pyramid(run, jobs=1)).metrics


def test_a_bounded_cache_forgets_the_oldest():
    cache = Bounded(100)
    made = []

    def make(key):
        return cache.get(key, lambda: made.append(key) or key, lambda _: 40)

    for key in ("a", "b", "a", "c", "a", "b"):
        assert make(key) == key
    assert made == ["a", "b", "c", "b"]
    assert cache.nbytes == 80


@pytest.fixture
def reader(tmp_path):
    """Two steps of 100 ns on two ranks; in the second `slow` lasts 30 ns longer on rank 1, and `once` runs there
    alone."""

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


def test_a_search_finds_names_and_where_they_are(view):
    found = search(view.events, "(?i)GEMM|^forw", [0, 1])
    assert set(found["names"]) >= {"gemm_kernel", "forward"}
    events = found["events"]
    assert sorted(zip(events["rank"], events["table"], strict=True)) == [
        (0, "kernels"),
        (0, "ranges"),
        (1, "kernels"),
        (1, "ranges"),
    ]
    assert (found["complete"], found["total"], found["by_rank"]) == (True, 4, {"0": 2, "1": 2})
    assert events["start"] == sorted(events["start"])


def test_all_are_counted_where_some_are_told(tmp_path):
    """Against the rows that the run was made from."""
    rows = {r: [kernel(1000 * i, 1000 * i + 10, f"k{(i * (r + 1)) % 5}") for i in range(3000)] for r in range(3)}
    reader = EventReader(make_run(tmp_path / "run", {r: {"kernels": k} for r, k in rows.items()}))
    found = search(reader, "^k[13]$", [0, 1, 2], most=40)
    expected = {r: [k["start"] for k in k if re.fullmatch("k[13]", k["name"])] for r, k in rows.items()}
    assert found["by_rank"] == {str(r): len(s) for r, s in expected.items()}
    assert (found["total"], found["complete"]) == (sum(map(len, expected.values())), False)
    assert (len(found["events"]["row"]), found["ranks_asked"], found["ranks_done"]) == (40, 3, 3)
    width = reader.run.span_ns[1] // MARKS
    for rank, marks in found["marks"].items():
        starts = expected[int(rank)]
        assert set(marks) <= set(starts)
        assert {m // width for m in marks} == {s // width for s in starts}
        assert len(marks) <= MARKS + 1
    for rank, row, start in zip(*(found["events"][c] for c in ("rank", "row", "start")), strict=True):
        assert reader.run.rank(rank).table("kernels", ["start"])["start"][row].as_py() == start


def test_after_some_seconds_what_was_found_is_told(view, monkeypatch):
    monkeypatch.setattr("alltrace.tiles.search.MOST_SECONDS", -1)
    found = search(view.events, "gemm", [0, 1])
    assert (found["ranks_asked"], found["ranks_done"], found["complete"], found["total"]) == (2, 1, False, 1)


def test_nothing_found_and_no_expression(view):
    assert search(view.events, "no such", [0])["events"]["row"] == []
    with pytest.raises(UsageError, match="is not a valid regular expression"):
        search(view.events, "(", [0])

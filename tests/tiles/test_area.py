"""Areas against plain loops over the rows that the run was made from."""

import random
from collections import defaultdict

import pytest
from tests.making import copy, kernel, make_run
from tests.tiles.conftest import US, rank_rows

from alltrace.tiles.area import LONGEST, Area, area_facts
from alltrace.tiles.events import EventReader
from alltrace.tiles.flame import Flame, nested_in
from alltrace.trace.errors import UsageError


def nest_of(seed, thread):
    """Ranges that are nested, some with the same chain of names."""
    at = random.Random(seed)
    rows = []

    def inside(start, end, depth):
        while start < end and depth < 5:
            start += at.randrange(1, 40)
            stop = min(end, start + at.randrange(5, 400))
            if start >= stop:
                return
            name = at.choice("abc")
            operator = at.random() < 0.5
            rows.append(
                {"start": start, "end": stop, "name": name, "depth": depth, "kind": "pushpop", "thread": thread}
                | ({"domain": "cpu_op"} if operator else {})
            )
            if at.random() < 0.8:
                inside(start, stop, depth + 1)
            start = stop

    inside(0, 3000, 0)
    return rows


def brute(ranks, start, end, only=lambda row: True):
    """Total, self and count by chain of names."""
    found = defaultdict(lambda: [0, 0, 0])
    for rows in ranks:
        its = sorted((r for r in rows if only(r)), key=lambda r: (r["thread"], r["start"], -r["end"]))
        for i, row in enumerate(its):
            above = [
                o
                for k, o in enumerate(its)
                if o["thread"] == row["thread"] and k < i and o["start"] <= row["start"] and o["end"] >= row["end"]
            ]
            part = max(0, min(row["end"], end) - max(row["start"], start))
            if not part:
                continue
            chain = tuple(o["name"] for o in above)
            found[(*chain, row["name"])][0] += part
            found[(*chain, row["name"])][1] += part
            found[(*chain, row["name"])][2] += 1
            if above:
                found[chain][1] -= part
    return {k: tuple(v) for k, v in found.items() if v[2]}


def chains(flame):
    found = {}
    names = []
    for i, (name, parent) in enumerate(zip(flame["name"], flame["parent"], strict=True)):
        assert parent < i
        names.append((*(names[parent] if parent >= 0 else ()), name))
        assert names[-1] not in found
        found[names[-1]] = tuple(flame[c][i] for c in ("total_ns", "self_ns", "count"))
    return found


@pytest.mark.parametrize("flame", ["ranges", "operators"])
def test_a_flame_graph_adds_up_chains_of_names_of_all_ranks(tmp_path, flame):
    threads = [{"thread": t, "process": 0, "tid": 10 + t} for t in (0, 1)]
    ranks = {r: {"ranges": nest_of(r, 0) + nest_of(100 + r, 1), "threads": threads} for r in range(3)}
    reader = EventReader(make_run(tmp_path / "run", ranks))
    first = min(r["start"] for rows in ranks.values() for r in rows["ranges"])
    only = (lambda r: "domain" in r) if flame == "operators" else (lambda r: True)
    for start, end in ((0, 3000), (701, 1399), (5, 6)):
        asked = Area(dict.fromkeys(range(3), ("summary",)), start, end, flame)
        expected = brute([rows["ranges"] for rows in ranks.values()], start + first, end + first, only)
        assert chains(area_facts(reader, asked)["flame"]) == expected
    thread = Area({1: ("ranges/1",)}, 0, 3000, flame)
    expected = brute([[r for r in ranks[1]["ranges"] if r["thread"] == 1]], first, first + 3000, only)
    assert chains(area_facts(reader, thread)["flame"]) == expected


def test_stacks_are_of_python_functions(tmp_path):
    frames = [
        {"start": s, "end": e, "thread": 0, "name": n} for s, e, n in ((0, 100, "main"), (10, 60, "f"), (20, 30, "f"))
    ]
    reader = EventReader(make_run(tmp_path / "run", {0: {"frames": frames, "kernels": [kernel(0, 100)]}}))
    found = chains(area_facts(reader, Area({0: ("summary",)}, 0, 50, "stacks"))["flame"])
    assert found == {("main",): (50, 10, 1), ("main", "f"): (40, 30, 1), ("main", "f", "f"): (10, 10, 1)}


def test_the_shortest_chains_are_left_out_and_counted(tmp_path, monkeypatch):
    rows = [{"start": 0, "end": 1000, "name": "top", "kind": "pushpop"}]
    rows += [
        {"start": 100 * i, "end": 100 * i + 10 + i, "name": f"n{i}", "kind": "pushpop", "depth": 1} for i in range(9)
    ]
    reader = EventReader(make_run(tmp_path / "run", {0: {"ranges": rows}}))
    monkeypatch.setattr("alltrace.tiles.flame.MOST_NODES", 4)
    flame = Flame(0, 1000)
    flame.add(nested_in(reader, 0, "ranges", 0, 1000))
    nodes = flame.nodes()
    assert (nodes["total_ns"], nodes["parent"], nodes["left_out"]) == ([1000, 18, 17, 16], [-1, 0, 0, 0], 6)
    assert Flame(0, 5).nodes()["name"] == []


def test_totals_count_the_part_of_each_event_in_the_time(tmp_path):
    reader = EventReader(make_run(tmp_path / "run", {0: rank_rows(), 1: rank_rows(5)}))
    run_start = 40 * US  # time 0 is the start of the outermost range
    whole = area_facts(reader, Area({0: ("summary",), 1: ("summary",)}, run_start + 20 * US, run_start + 75 * US))
    totals = {r["name"]: (r["kind"], r["count"], r["total_ns"], r["min_ns"], r["max_ns"]) for r in whole["totals"]}
    assert totals["gemm_kernel"] == ("compute", 2, 40 * US, 20 * US, 20 * US)
    assert totals["ncclDevKernel_AllReduce_Sum_f32_RING_LL"] == ("communication", 2, 35 * US, 15 * US, 20 * US)
    assert totals["HtoD"] == ("copy", 2, 10 * US, 5 * US, 5 * US)
    assert whole["names"] == len(totals) == 4
    assert [(r["rank"], r["compute_ns"], r["idle_ns"]) for r in whole["breakdown"]] == [
        (0, 30 * US, 10 * US),
        (1, 30 * US, 10 * US),
    ]
    assert (whole["ranks_asked"], whole["ranks_done"]) == (2, 2)
    stream = area_facts(reader, Area({0: ("gpu/0/0/20",)}, 0, 200 * US))
    assert [r["name"] for r in stream["totals"]] == ["ncclDevKernel_AllReduce_Sum_f32_RING_LL"]
    assert stream["breakdown"] == []
    api = area_facts(reader, Area({1: ("api/0", "ranges/0")}, 0, 200 * US))
    assert {r["kind"] for r in api["totals"]} == {"api", "range"}


def test_the_histogram_has_every_event_and_the_longest_lead_to_their_places(tmp_path):
    at = random.Random(1)
    lengths = [at.randrange(0, 1 << at.randrange(1, 30)) for _ in range(400)]
    rows = [kernel(1 << 31 | i << 30, (1 << 31 | i << 30) + n, f"k{i % 3}") for i, n in enumerate(lengths)]
    reader = EventReader(make_run(tmp_path / "run", {0: {"kernels": rows[::2]}, 4: {"kernels": rows[1::2]}}))
    every = {0: ("gpu/0/0/7",), 4: ("gpu/0/0/7",)}
    found = area_facts(reader, Area(every, 0, 1 << 60))
    histogram = found["histogram"]
    assert sum(histogram["count"]) == 400
    assert sum(histogram["total_ns"]) == sum(lengths)
    for low, high, count in zip(histogram["from_ns"], histogram["to_ns"], histogram["count"], strict=True):
        assert count == sum(low <= max(n, 1) < high for n in lengths)
    longest = found["longest"]
    assert [e["duration_ns"] for e in longest] == sorted(lengths, reverse=True)[:LONGEST]
    for event in longest[:5]:
        row = reader.run.rank(event["rank"]).table("kernels", ["start", "end"]).slice(event["row"], 1).to_pylist()[0]
        assert (row["start"], row["end"] - row["start"]) == (event["start"], event["duration_ns"])
    one = area_facts(reader, Area(every, 0, 1 << 60, pattern="^k1$"))
    assert sum(one["histogram"]["count"]) == len(range(1, 400, 3))
    assert {e["name"] for e in one["longest"]} == {"k1"}
    assert len(one["totals"]) == 3


@pytest.mark.parametrize(
    ("area", "message"),
    [
        (Area({0: ("summary",)}, 5, 5), "is empty"),
        (Area({0: ("summary",)}, 0, 5, "x"), "kind of flame graph"),
        (Area({0: ("summary",)}, 0, 5, pattern="("), "not a valid regular expression"),
        (Area({9: ("summary",)}, 0, 5), "rank 9 is not in the run"),
        (Area({0: ("what/0",)}, 0, 5), "unknown track"),
    ],
)
def test_what_is_no_area_is_refused(tmp_path, area, message):
    reader = EventReader(make_run(tmp_path / "run", {0: {"copies": [copy(0, 5)]}}))
    with pytest.raises(UsageError, match=message):
        area_facts(reader, area)

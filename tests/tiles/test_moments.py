"""Tracks of tables with moments as rows: CPU samples, scheduling, memory."""

import random

import numpy as np
import pytest
from tests.making import kernel, make_run

from alltrace.tiles.area import Area, area_facts
from alltrace.tiles.build import pyramid
from alltrace.tiles.details import event_details, neighbour
from alltrace.tiles.events import EventReader
from alltrace.tiles.labels import labelled
from alltrace.tiles.search import search
from alltrace.tiles.view import View

THREADS = [{"thread": t, "process": 0, "tid": 50 + t, "name": f"t{t}"} for t in (0, 1)]


def sched_rows(seed, count=60):
    at = random.Random(seed)
    rows = []
    for thread in (0, 1):
        time, running = 0, False
        for _ in range(count):
            time += at.randrange(1, 90)
            running = not running if at.random() < 0.9 else running
            rows.append({"time": time, "thread": thread, "cpu": at.randrange(3), "scheduled_in": running})
    return rows


def viewed(folder, tables):
    run = make_run(folder, {0: {"threads": THREADS, "kernels": [kernel(0, 10)], **tables}})
    return View(run, pyramid(run, jobs=1))


def test_a_thread_runs_from_one_event_to_its_next(tmp_path, monkeypatch):
    for module in ("row_groups", "track_row_groups"):
        monkeypatch.setattr(f"alltrace.run.{module}.ROW_GROUP_ROWS", 16)
    rows = sched_rows(3)
    view = viewed(tmp_path / "run", {"sched": rows})
    assert len(view.events.rank(0).pieces("sched")) > 4
    expected = []
    for thread in (0, 1):
        own = [r for r in rows if r["thread"] == thread]
        ends = [*(r["time"] for r in own[1:]), own[-1]["time"]]
        expected += [
            (f"sched/{thread}", r["time"], e, f"CPU {r['cpu']}")
            for r, e in zip(own, ends, strict=True)
            if r["scheduled_in"]
        ]
    found = []
    for events in view.events.window(0, "sched", -1, 10**9):
        texts = view.events.texts(events.name)
        found += [
            (events.key, s, e, texts[n]) for s, e, n in zip(events.start, events.end, events.name.tolist(), strict=True)
        ]
    assert sorted(found) == sorted(expected)
    assert {t["label"] for t in labelled(view, 0)} >= {"scheduling, t0 (50)", "scheduling, t1 (51)"}
    area = area_facts(view.events, Area({0: ("sched/0", "sched/1")}, 0, 10**9))
    assert {t["name"]: t["total_ns"] for t in area["totals"]} == {
        f"CPU {c}": sum(e - s for _, s, e, n in expected if n == f"CPU {c}") for c in range(3)
    }
    hits = search(view.events, "^CPU 1$", [0])
    assert hits["total"] == sum(n == "CPU 1" for *_, n in expected)
    (row, start) = (hits["events"][c][0] for c in ("row", "start"))
    told = event_details(view.events, 0, "sched", row)
    assert (told["name"], told["columns"]["time"], told["span"]["start"]) == ("CPU 1", start, start)
    assert told["span"]["end"] == next(e for _, s, e, _ in expected if s == start)
    assert neighbour(view.events, 0, "sched", row, forward=True)["start"] > start


def test_a_sample_lasts_to_the_next_of_its_thread_but_not_over_a_gap(tmp_path):
    times = [0, 100, 200, 300, 5000, 5100]
    rows = [{"time": t, "thread": 0, "symbol": f"f{t % 300}"} for t in times]
    view = viewed(tmp_path / "run", {"samples": rows})
    (events,) = view.events.window(0, "samples", -1, 10**9)
    assert (events.end - events.start).tolist() == [100, 100, 100, 200, 100, 100]
    assert [view.events.texts(events.name)[n] for n in events.name.tolist()] == [
        "f0",
        "f100",
        "f200",
        "f0",
        "f200",
        "f0",
    ]
    assert event_details(view.events, 0, "samples", 3)["span"] == {"start": 300, "end": 500}
    assert any(t["label"] == "CPU samples, t0 (50)" and t["rows"] == 6 for t in labelled(view, 0))


@pytest.mark.parametrize("many", [False, True], ids=["few", "levels"])
def test_memory_holds_from_one_change_to_the_next(tmp_path, many):
    at = random.Random(8)
    held, total, rows = [], 0, []
    for i in range(3000 if many else 40):
        size = at.randrange(1, 1000)
        if held and at.random() < 0.5:
            size = held.pop()
            rows.append({"time": 50 * i, "kind": "free", "memory": "device", "bytes": size})
            total -= size
        else:
            held.append(size)
            rows.append({"time": 50 * i, "kind": "allocate", "memory": "device", "bytes": size})
            total += size
        rows[-1]["total"] = total
        rows.append({"time": 50 * i + 1, "kind": "allocate", "memory": "pinned", "bytes": 1 << 40})
    given = [{k: v for k, v in r.items() if k != "total"} for r in rows]
    allocations = [
        {"time": r["time"], "allocated_bytes": r["total"], "memory": "cuda", "kind": r["kind"]}
        for r in rows
        if "total" in r
    ]
    view = viewed(tmp_path / "run", {"memory": given, "allocations": allocations})
    levels = {r["time"]: r["total"] for r in rows if "total" in r}
    for key, label in (("memory/0", "CUDA memory, GPU 0"), ("allocations/0", "allocated memory, GPU 0")):
        assert any(t["key"] == key and t["label"] == label for t in labelled(view, 0))
        for level in (3, 8):
            (tile, *_), _ = view.tiles([(0, key)], level, 0, 1)
            for b in range(0, 512, 7):
                start, end = b << level, (b + 1) << level
                if start >= view.grid.span_ns:
                    assert np.isnan(tile.arrays["mean"][b])
                    continue
                inside = [v for t, v in levels.items() if start <= t < end]
                before = [v for t, v in levels.items() if t < start]
                if inside:
                    assert (tile.arrays["least"][b], tile.arrays["most"][b]) == (min(inside), max(inside))
                elif before:
                    assert tile.arrays["mean"][b] == before[-1]


@pytest.mark.parametrize("stated", [True, False])
def test_the_memory_of_the_allocator_is_that_of_the_recipe_also_where_a_trace_states_no_totals(tmp_path, stated):
    from alltrace.recipes.execution.ask import ask

    sizes = [(0, 2 << 30), (100, 1 << 29), (300, -(1 << 29)), (400, -(2 << 30)), (500, -(1 << 20))]
    total, rows = 1 << 20, []
    for time, size in sizes:
        total += size
        row = {"time": time, "memory": "cuda", "kind": "free" if size < 0 else "allocate", "bytes": abs(size)}
        rows.append(row | ({"allocated_bytes": total} if stated else {}))
    view = viewed(tmp_path / "run", {"allocations": rows})
    (tile, *_), _ = view.tiles([(0, "allocations/0")], 2, 0, 1)
    peaks = [row["allocated_bytes"] for row in ask(view.run, "memory-timeline", {"bins": 5}).table.to_pylist()]
    assert np.nanmax(tile.arrays["most"]) == max(peaks) == 2.5 * 2**30 + 2**20


def test_samples_without_a_value_and_ranks_without_samples(tmp_path):
    samples = [{"time": 10 * i, "device": 0, "metric": "SM Active", "value": None if i % 2 else 50.0} for i in range(6)]
    view = viewed(tmp_path / "run", {"gpu_metrics": samples})
    (track,) = (t["key"] for t in labelled(view, 0) if t["group"] == "metric")
    (tile, *_), _ = view.tiles([(0, track)], 3, 0, 1)
    assert np.nanmin(tile.arrays["least"]) == 50.0
    view = viewed(tmp_path / "2" / "run", {})
    assert not {t["group"] for t in labelled(view, 0)} & {"samples", "sched", "memory", "allocations"}
    assert list(EventReader(view.run).window(0, "sched", 0, 100)) == []

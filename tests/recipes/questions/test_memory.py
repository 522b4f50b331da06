"""`memory`, `memory-timeline`, `memory-peak`, `memory-steps`: blocks by hand, against a plain computation, of real
traces."""

from __future__ import annotations

import random
from collections import Counter, defaultdict

import pytest
from tests import kineto_truth as truth
from tests.making import make_run
from tests.recipes.work import module, operator

from alltrace.api import open_run

TRACES = (
    "hta/df_index_resolver__df_index_resolver.json.gz",
    "tb_plugin/resnet50_workers0.pt.trace.json.gz",
    "tb_plugin/resnet50_workers4.pt.trace.json.gz",
    "tracelens/h100__Qwen_Qwen1.5-0.5B-Chat__1016005.json.gz",
    "tracelens/h100__gaunernst_bert-small-uncased__1016001.json.gz",
)


def block(time, size, address=None, total=None, reserved=None, **others):
    kind = "free" if size < 0 else "allocate"
    own = {
        "time": time,
        "kind": kind,
        "bytes": abs(size),
        "address": address,
        "allocated_bytes": total,
        "reserved_bytes": reserved,
    }
    return {"memory": "cuda", **own, **others}


def steps():
    """Three steps of 100 ns with an operator each; a weight, an activation in each step, and 10 bytes that each leaves
    behind.

    10 bytes from before the capture are freed at 5.
    """
    ranges, blocks, total = [], [block(5, -10, 7, 90, 200)], 90
    for n in range(4):
        start = 100 * n
        ranges += [
            {"start": start, "end": start + 100, "name": f"ProfilerStep#{n + 3}", "kind": "pushpop"},
            operator("aten::mm", start + 10, start + 60),
            operator("aten::empty", start + 20, start + 40),
            module("Model_0", start + 8, start + 70),
        ]
        blocks += [
            block(start + 30, 10, 1000 + n, total + 10, 200),
            block(start + 50, 40, 500, total + 50, 200 + 50 * n),
            block(start + 90, -40, 500, total + 10, 200 + 50 * n),
        ]
        total += 10
    return {"ranges": ranges, "allocations": blocks}


def rows(run, name, *facts, **options):
    return [tuple(r[f] for f in facts) for r in run.recipe(name, **options).to_pylist()]


def test_the_peak_and_what_is_kept(tmp_path):
    run = make_run(tmp_path, {0: steps(), 1: {"allocations": [block(3, 8), block(4, 8), block(9, -8)]}})
    facts = (
        "rank",
        "gpu",
        "memory",
        "peak_bytes",
        "peak_at_ns",
        "peak_step",
        "reserved_at_peak_bytes",
        "peak_reserved_bytes",
    )
    assert rows(run, "memory", *facts) == [
        (0, "GPU-0", "cuda", 170, 350, 6, 350, 350),
        (1, "GPU-1", "cuda", 16, 4, None, None, None),
    ]
    facts = (
        "first_bytes",
        "last_bytes",
        "allocations",
        "handed_out_bytes",
        "kept",
        "kept_bytes",
        "frees",
        "unmatched_frees",
    )
    assert rows(run, "memory", *facts) == [(100, 130, 8, 200, 4, 40, 5, 1), (0, 8, 2, 16, None, None, 1, None)]
    assert [r["unused_percent"] for r in run.recipe("memory").to_pylist()] == [pytest.approx(100 * 180 / 350), None]
    notes = run.recipe("memory").notes
    assert (
        "rank 1: the trace does not contain the total allocated memory, so sizes are summed from the start of the"
        " capture" in notes
    )
    assert "rank 1: the trace has no addresses, so frees cannot be matched with their blocks" in notes


def test_where_most_is_allocated_before_the_first_event_that_is_the_peak(tmp_path):
    run = make_run(tmp_path, {0: {"allocations": [block(5, -30, 1, 70), block(6, 20, 1, 90)]}})
    assert rows(run, "memory", "peak_bytes", "first_bytes") == [(100, 100)]
    assert rows(run, "memory-peak", "name", "peak_bytes") == [("before the capture", 100), (None, 0)]
    assert rows(run, "memory-timeline", "allocated_bytes", bins=1) == [(100,)]


def test_what_lived_at_the_peak_by_who_asked_for_it(tmp_path):
    run = make_run(tmp_path, {0: steps(), 1: steps()})
    facts = (
        "name",
        "ranks",
        "peak_bytes",
        "peak_blocks",
        "most_bytes",
        "most_rank",
        "allocations",
        "handed_out_bytes",
        "net_bytes",
    )
    assert rows(run, "memory-peak", *facts) == [
        ("before the capture", 2, 180, None, 90, 0, None, None, None),
        ("aten::mm", 2, 80, 2, 40, 0, 8, 320, 320),
        ("aten::empty", 2, 80, 8, 40, 0, 8, 80, 80),
        (None, 2, 0, 0, 0, 0, 0, 0, -340),
    ]
    assert rows(run, "memory-peak", "name", "peak_bytes", by="module")[1:2] == [("Model_0", 160)]
    assert rows(run, "memory-peak", "name", "peak_bytes", by="step")[1:] == [
        ("6", 100),
        ("3", 20),
        ("4", 20),
        ("5", 20),
    ]
    first, *_ = run.recipe("memory-peak", top=1).to_pylist()
    assert (first["memory"], first["peak_percent"]) == ("cuda", pytest.approx(100 * 180 / 340))
    assert "1 of 4 rows are shown (--top)" in run.recipe("memory-peak", top=1).notes


def test_what_steps_leave_behind_is_named(tmp_path):
    run = make_run(tmp_path, {0: steps()})
    facts = (
        "step",
        "start_bytes",
        "end_bytes",
        "growth_bytes",
        "peak_bytes",
        "peak_reserved_bytes",
        "allocations",
        "handed_out_bytes",
    )
    assert rows(run, "memory-steps", *facts) == [
        (3, 100, 100, 0, 140, 200, 2, 50),
        (4, 100, 110, 10, 150, 250, 2, 50),
        (5, 110, 120, 10, 160, 300, 2, 50),
        (6, 120, 130, 10, 170, 350, 2, 50),
    ]
    assert {r["pool"] for r in run.recipe("memory-steps").to_pylist()} == {"0 · cuda"}
    assert rows(run, "memory-steps", "outlived_bytes", "outlived_by") == [(10, "aten::empty")] * 3 + [(None, None)]
    assert (
        run.recipe("memory-steps").notes[-1]
        == "rank 0: memory of cuda grows in each of 3 steps, by 0.000 MB a step, most of it allocated by aten::empty: a"
        " leak, if no step keeps something on purpose"
    )


def test_pools_of_a_rank_are_told_apart(tmp_path):
    devices = [{"device": n, "ordinal": n, "uuid": f"GPU-{n}", "name": "H200"} for n in range(2)]
    blocks = [block(1, 8, 1), block(2, 9, 1, device=1), block(3, 4, 2, device=None, memory="cpu")]
    found = rows(
        make_run(tmp_path, {0: {"devices": devices, "allocations": blocks}}), "memory-timeline", "pool", "gpu", bins=1
    )
    assert found == [("0 · cuda · GPU-0", "GPU-0"), ("0 · cuda · GPU-1", "GPU-1"), ("0 · cpu", None)]


def test_random_blocks_are_as_a_plain_loop_has_them(tmp_path):
    draw = random.Random(5)
    blocks, live, total, time = [], {}, 1000, 0
    expected = {"peak": (1000, -1), "net": Counter(), "alive": {}}
    for row in range(600):
        time += draw.randint(0, 3) if row else 0
        if live and draw.random() < 0.48:
            address = draw.choice(sorted(live))
            size = -live.pop(address)[0]
        else:
            address, size = draw.choice([a for a in range(1, 90) if a not in live]), draw.randint(1, 50)
            live[address] = (size, row)
        total += size
        blocks.append(block(time, size, address, total, source_row=row + 1))
        if total > expected["peak"][0]:
            expected["peak"], expected["alive"] = (total, time), dict(live)
    draw.shuffle(blocks)
    run = make_run(tmp_path, {0: {"allocations": blocks}})
    assert rows(run, "memory", "peak_bytes", "peak_at_ns", "kept_bytes", "last_bytes") == [
        (*expected["peak"], sum(size for size, _ in live.values()), total)
    ]
    known = sum(size for size, _ in expected["alive"].values())
    assert dict(rows(run, "memory-peak", "name", "peak_bytes")) == {
        None: known,
        "before the capture": expected["peak"][0] - known,
    }
    for bins in (1, 7, 100):
        found = run.recipe("memory-timeline", bins=bins).to_pylist()
        assert max(r["allocated_bytes"] for r in found) == expected["peak"][0]
        for r in found:
            moments = [(b["time"], b["source_row"], b["allocated_bytes"]) for b in blocks if b["time"] < r["end_ns"]]
            carried = [m for m in sorted(moments) if m[0] < r["start_ns"]][-1:]
            inside = [m for m in moments if m[0] >= r["start_ns"]]
            begin = carried or [(0, 0, 1000)]
            assert r["allocated_bytes"] == max(m[2] for m in (*begin, *inside))
            assert (r["gpu"], r["reserved_bytes"]) == ("GPU-0", None)


@pytest.mark.sampled(5)
@pytest.mark.corpus
@pytest.mark.parametrize("name", TRACES)
def test_real_traces_are_as_plain_loops_have_them(corpus, name, tmp_path):
    path = corpus / "kineto" / name
    events = truth.without_step_numbers(truth.load(path))
    expected = {pool: truth.memory(events, pool) for pool in truth.pools(events)}
    run = open_run(path, cache_dir=tmp_path)
    found = run.recipe("memory").to_pylist()
    facts = ("peak_bytes", "last_bytes", "allocations", "handed_out_bytes", "frees", "kept_bytes", "unmatched_frees")
    assert Counter(tuple(r[f] for f in facts) for r in found) == Counter(
        tuple(e[f] for f in facts) for e in expected.values()
    )
    net, peaks = defaultdict(int), defaultdict(int)
    for pool, own in expected.items():
        for owner, size in own["net"].items():
            net[owner, pool[0]] += size
        for owner, size in own["alive"].items():
            peaks[owner, pool[0]] += size
    by_operator = run.recipe("memory-peak", top=0).to_pylist()
    kinds = {0: "cpu", 1: "cuda"}
    named = [r for r in by_operator if r["name"] != "before the capture"]
    assert {(r["name"], r["memory"]): r["net_bytes"] for r in named} == {(n, kinds[k]): v for (n, k), v in net.items()}
    if all(e["kept_bytes"] is not None for e in expected.values()):
        assert {(r["name"], r["memory"]): r["peak_bytes"] for r in named if r["peak_bytes"]} == {
            (n, kinds[k]): v for (n, k), v in peaks.items()
        }

"""Kernels of replayed graphs, and the operators around their launches in the capture."""

from __future__ import annotations

import json
from random import Random

import pytest
from tests.making import make_run
from tests.recipes.work import call, launched, operator

from alltrace.recipes.analysis.graph_captures import order_of

LAUNCHES = [
    call(100, 110, 1, "cudaStreamBeginCapture_v10000"),
    call(120, 130, 2),
    call(121, 129, 2, "cuLaunchKernel"),  # within the one before
    call(140, 150, 3, "cudaMemcpyAsync"),
    call(150, 155, 4, "cudaLaunchKernelExC", thread=1),  # of the backward's thread
    call(160, 170, 5, "cudaLaunchHostFunc"),
    call(180, 190, 6, "cudaStreamEndCapture_v10000"),
    call(200, 205, 7),  # behind the capture
]
REPLAYS = [call(1000, 1010, 50, "cudaGraphLaunch_v10000"), call(2000, 2010, 51, "cudaGraphLaunch_v10000")]
SHAPES = json.dumps({"Input Dims": [[8, 16], [16, 4]], "Input type": ["float", "float"]})
RANGES = [
    operator("aten::mm", 115, 135, payload=SHAPES),
    operator("aten::sum", 145, 160, thread=1),
    operator("replay", 990, 2100),
    operator("aten::add", 195, 210),
]
OUTSIDE = [("other", 7, 300, 303)]
FIRST, SECOND = [("gemm", 50, 1100, 1110), ("add", 50, 1110, 1114)], [("gemm", 51, 2100, 2130), ("add", 51, 2130, 2135)]


def tables(kernels, api=(*LAUNCHES, *REPLAYS), nodes=None):
    rows = launched([*OUTSIDE, *kernels])
    for row, node in zip(rows, nodes or [], strict=False):
        row["graph_node"] = node
    threads = [{"thread": n, "process": 0, "tid": 4001 + n, "name": f"t{n}"} for n in range(2)]
    return {"threads": threads, "ranges": RANGES, "kernels": rows, "api": list(api)}


def sums(answer):
    return {r["name"]: (r["gpu_total_ns"], r["tflop_per_s"]) for r in answer.to_pylist() if r["gpu_total_ns"]}


def share(percent):
    return f"{percent} of the GPU time of replayed graphs counts where the capture launched it, joined by order"


def test_kernels_of_replays_belong_to_the_operators_of_the_capture(tmp_path):
    run = make_run(tmp_path, {0: tables([*FIRST, *SECOND])})
    answer = run.recipe("operators")
    # there is no rate: the operator was called once and its kernel ran twice
    assert sums(answer) == {"aten::mm": (40, None), "aten::sum": (9, None), "aten::add": (3, None)}
    assert {r["name"]: r["flops"] for r in answer.to_pylist()}["aten::mm"] == 2 * 8 * 16 * 4
    assert share("100.0 %") in answer.notes
    origins = run.recipe("kernel-origins")
    assert {(r["name"], r["operator"], r["total_ns"]) for r in origins.to_pylist()} == {
        ("gemm", "aten::mm", 40),
        ("add", "aten::sum", 9),
        ("other", "aten::add", 3),
    }
    assert share("100.0 %") in origins.notes


def test_nodes_tell_the_order_where_kernels_start_in_another(tmp_path):
    kernels = [("add", 50, 1100, 1104), ("gemm", 50, 1101, 1111)]
    run = make_run(tmp_path, {0: tables(kernels, [*LAUNCHES, REPLAYS[0]], nodes=[None, 12, 11])})
    assert sums(run.recipe("operators"))["aten::mm"] == (10, None)
    run = make_run(tmp_path / "unnumbered", {0: tables(kernels, [*LAUNCHES, REPLAYS[0]])})
    assert sums(run.recipe("operators"))["aten::mm"] == (4, None)


@pytest.mark.parametrize(
    ("kernels", "api", "percent"),
    [
        ([*FIRST, ("more", 50, 1120, 1121), *SECOND], (*LAUNCHES, *REPLAYS), "70.0 %"),  # the first has another size
        (
            [*FIRST, ("gemm", 51, 2100, 2130), ("mul", 51, 2130, 2135)],
            (*LAUNCHES, *REPLAYS),
            "0.0 %",
        ),  # two graphs of one size
        (
            [*FIRST, *SECOND],
            (*LAUNCHES, *REPLAYS, *(c | {"start": c["start"] + 300, "end": c["end"] + 300} for c in LAUNCHES[:-1])),
            "0.0 %",  # two captures of one size
        ),
    ],
)
def test_what_may_be_of_another_graph_stays_with_the_replay(tmp_path, kernels, api, percent):
    answer = make_run(tmp_path, {0: tables(kernels, api)}).recipe("operators")
    assert share(percent) in answer.notes
    assert sums(answer)["replay"][0] > 0


def test_what_fills_and_copies_on_rocm_is_no_launch_of_the_capture(tmp_path):
    def hip(row):
        return {**row, "name": row["name"].replace("cuda", "hip")}

    api = [hip(row) for row in (*LAUNCHES, *REPLAYS)]
    blits = [("__amd_rocclr_fillBufferAligned.kd", 50, 1098, 1100), ("__amd_rocclr_copyBuffer", 51, 2136, 2140)]
    run = make_run(tmp_path, {0: tables([*FIRST, *SECOND, *blits], api)})
    answer = run.recipe("operators")
    assert {name: took for name, (took, _) in sums(answer).items()} == {
        "aten::mm": 40,
        "aten::sum": 9,
        "aten::add": 3,
        "replay": 6,
    }
    assert share("100.0 %") in answer.notes


def test_without_a_capture_nothing_is_said(tmp_path):
    answer = make_run(tmp_path, {0: tables(FIRST, [REPLAYS[0], LAUNCHES[-1]])}).recipe("operators")
    assert sums(answer) == {"replay": (14, None), "aten::add": (3, None)}
    assert not any("replayed graphs" in note for note in answer.notes)


@pytest.mark.parametrize(
    ("captured", "replayed", "order"),
    [
        ([4, 15, 15, 12], [4, 15, 15, 12] * 2, [0, 1, 2, 3] * 2),
        ([4, 15, 15, 12], [15, 12, 4, 15, 15, 12, 4], [2, 3, 0, 1, 2, 3, 0]),  # begins and ends within a pass
        (
            [4, 9, 9, 1, 5, 8, 8, 1],
            [5, 8, 8, 1, 5, 8, 8, 1, 4, 9, 9, 1],
            [4, 5, 6, 7, 4, 5, 6, 7, 0, 1, 2, 3],
        ),  # of two batch sizes
        ([4, 15, 15, 12, 4, 15, 15, 12], [4, 15, 15, 12], None),  # two batch sizes alike
        ([15, 15, 15], [15, 15, 15], None),
        ([4, 15, 15, 12], [4, 15, 12], None),  # one is lost
        ([7, 7, 9, 9], [], []),
        ([7, 7, 9], [7, 7, 9], None),  # may be three batch sizes,
    ],
)
def test_the_order_tells_graphs_of_one_size_apart(captured, replayed, order):
    assert order_of(captured, replayed) == ([None] * len(replayed) if order is None else order)


def test_no_replay_is_ever_taken_for_another_graph():
    random = Random(5)
    known = total = 0
    for _ in range(1500):
        length, batches = random.randint(8, 24), random.randint(1, 3)
        captured = [random.randint(1, 3) for _ in range(length * batches)]
        if len({tuple(captured[n * length : (n + 1) * length]) for n in range(batches)}) < batches:
            continue  # batch sizes that look alike: passes may follow each other as the captures did
        passes = [random.randrange(batches) for _ in range(random.randint(1, 5))]
        true = [b * length + place for b in passes for place in range(length)]
        cut = slice(random.randrange(length), len(true) - random.randrange(length))
        found = order_of(captured, [captured[n] for n in true[cut]])
        assert all(f in (None, t) for f, t in zip(found, true[cut], strict=True)), (captured, passes, cut)
        known += sum(f is not None for f in found)
        total += len(found)
    assert known > 0.8 * total


def test_kernels_of_pieces_belong_to_the_operators_of_their_own_capture(tmp_path):
    """Four graphs of one, two, two and three kernels, captured one after the other; two passes replay them in that
    order."""
    pieces = [["a"], ["b", "c"], ["d", "e"], ["f", "g", "h"]]
    api, ranges, kernels, at = [], [], [], 100
    for words in pieces:
        api.append(call(at, at + 1, len(api), "cudaStreamBeginCapture_v10000"))
        for word in words:
            at += 10
            api.append(call(at, at + 5, len(api)))
            ranges.append(operator(f"aten::{word}", at - 1, at + 6))
        api.append(call(at + 10, at + 11, len(api), "cudaStreamEndCapture_v10000"))
        at += 20
    for _ in range(2):
        for words in pieces:
            at += 1000
            number = len(api)
            api.append(call(at, at + 5, number, "cudaGraphLaunch_v10000"))
            kernels += [(word, number, at + 10 + 20 * n, at + 20 + 20 * n) for n, word in enumerate(words)]
    answer = make_run(tmp_path, {0: tables(kernels, api) | {"ranges": ranges, "kernels": launched(kernels)}}).recipe(
        "kernel-origins"
    )
    assert {(r["name"], r["operator"], r["count"]) for r in answer.to_pylist()} == {
        (w, f"aten::{w}", 2) for w in "abcdefgh"
    }
    assert share("100.0 %") in answer.notes

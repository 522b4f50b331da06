"""Slow operators, on kernels whose rate and roof are known, and on real traces whose names say what is slow about
them."""

from __future__ import annotations

import json

import pytest
from tests.making import make_run
from tests.recipes.work import call, launched, operator

import alltrace

US = 1000
H200 = {"device": 0, "ordinal": 0, "uuid": "GPU-0", "name": "NVIDIA H200", "sm_count": 132}
HALF = "c10::BFloat16"
SQUARE = [(8192, 8192), (8192, 8192)]
SQUARE_NS = 2 * 8192**3 / 989.4e3
"""What such a product takes at the roof."""


def run_of(folder, *given, device=H200, kind=HALF):
    """A rank that calls operators, as (name, shapes, kernel, ns), one after the other."""
    ranges, calls, kernels, at = [], [], [], 100 * US
    for number, (name, shapes, kernel, took) in enumerate(given, 1):
        about = {"Input Dims": [list(s) for s in shapes], "Input type": [kind] * len(shapes)}
        ranges.append(operator(name, 100 * number, 100 * number + 50, payload=json.dumps(about)))
        calls.append(call(100 * number + 10, 100 * number + 20, number))
        kernels += launched([(kernel, number, at, at + int(took))])
        at += int(took)
    return make_run(folder, {0: {"ranges": ranges, "api": calls, "kernels": kernels, "devices": [device]}})


def slow(run):
    return [r for r in run.recipe("diagnose").to_pylist() if r["kind"] == "slow-operator"]


def test_a_large_product_near_the_roof_is_not_slow(tmp_path):
    assert slow(run_of(tmp_path, ("aten::mm", SQUARE, "nvjet_tst_128x256_64x4", SQUARE_NS / 0.7))) == []


def test_what_its_shapes_slow_down_is_told_below_half_of_the_roof_and_others_below_a_third(tmp_path):
    odd = [(4097, 4097), (4097, 4097)]
    ideal = 2 * 4097**3 / 989.4e3
    assert slow(run_of(tmp_path / "near", ("aten::mm", odd, "gemm", ideal / 0.52))) == []
    assert len(slow(run_of(tmp_path / "below", ("aten::mm", odd, "gemm", ideal / 0.48)))) == 1
    assert slow(run_of(tmp_path / "even", ("aten::mm", SQUARE, "gemm", SQUARE_NS / 0.37))) == []
    assert len(slow(run_of(tmp_path / "uneven", ("aten::mm", SQUARE, "gemm", SQUARE_NS / 0.33)))) == 1


def test_opportunities_below_three_percent_are_not_told(tmp_path):
    given = [("aten::mm", SQUARE, "gemm", SQUARE_NS)] * 30
    assert slow(run_of(tmp_path, *given, ("aten::mm", SQUARE, "gemm_slow", SQUARE_NS))) == []
    odd = ("aten::mm", [(4097, 4097), (4097, 4097)], "gemm", 4 * 2 * 4097**3 / 989.4e3)
    assert slow(run_of(tmp_path / "odd", *given, odd)) == []
    assert len(slow(run_of(tmp_path / "more", *given, odd, odd, odd, odd))) == 1


def test_a_product_far_below_the_roof_says_how_far(tmp_path):
    (row,) = slow(run_of(tmp_path, ("aten::mm", SQUARE, "nvjet_tst_128x256_64x4", SQUARE_NS / 0.2)))
    assert row["where"] == "aten::mm 8192x8192 8192x8192 BFloat16"
    assert row["lost_ns"] is None
    assert row["opportunity_share"] == pytest.approx(0.8, abs=1e-3)
    evidence = {k: v for k, v in row["evidence"].items() if v is not None}
    assert evidence["roof_share"] == pytest.approx(0.2, abs=1e-3)
    assert evidence["tflop_per_s"] == pytest.approx(0.2 * 989.4, rel=1e-3)
    assert evidence["roof_tflop_per_s"] == 989.4
    assert evidence["ridge_flop_per_byte"] == pytest.approx(989.4e3 / 4800, abs=0.1)
    assert evidence["flop_per_byte"] == pytest.approx(2 * 8192**3 / (3 * 2 * 8192**2), rel=1e-3)
    assert row["severity"] == "low"


def test_shapes_of_one_operator_and_reason_are_one_finding(tmp_path):
    odd = [(4097, 4097), (4097, 4097)]
    other = [(2049, 4097), (4097, 4097)]
    ideal = [2 * s[0][0] * 4097 * 4097 / 989.4e3 for s in (odd, other)]
    given = [
        ("aten::mm", odd, "gemm", 4 * ideal[0]),
        ("aten::mm", other, "gemm", 4 * ideal[1]),
        ("aten::mm", SQUARE, "gemm", SQUARE_NS),
    ]
    (row,) = slow(run_of(tmp_path, *given))
    assert row["where"] == "aten::mm 4097x4097 4097x4097 BFloat16"
    assert row["advice"].startswith("Misaligned: k 4097, n 4097 are no multiples of 8 elements")
    total = 4 * sum(ideal) + SQUARE_NS
    assert row["opportunity_share"] == pytest.approx(3 * sum(ideal) / total, rel=1e-3)


def test_of_nested_operators_the_outermost_with_known_work_counts_once(tmp_path):
    run = run_of(tmp_path, ("aten::mm", SQUARE, "gemm", 5 * SQUARE_NS))
    inner = json.dumps({"Input Dims": [[8192, 8192]] * 2, "Input type": [HALF] * 2})
    ranges = [operator("aten::matmul", 90, 200, payload=inner), operator("aten::mm", 100, 150, payload=inner)]
    kernels = launched([("gemm", 1, 10_000, 10_000 + int(5 * SQUARE_NS))])
    run = make_run(
        tmp_path / "nested", {0: {"ranges": ranges, "api": [call(110, 120, 1)], "kernels": kernels, "devices": [H200]}}
    )
    (row,) = slow(run)
    assert row["where"].startswith("aten::matmul ")
    assert row["evidence"]["calls"] == 1


def test_few_rows_are_an_opportunity_of_other_shapes_even_at_the_roof_of_the_memory(tmp_path):
    shapes = [(1, 8192), (8192, 8192)]
    took = 2 * (8192 * 8192 + 2 * 8192) / 4800 / 0.9
    (row,) = slow(run_of(tmp_path, ("aten::mm", shapes, "gemv", took)))
    assert row["evidence"]["roof_share"] == pytest.approx(0.9, abs=0.01)
    assert "memory-bound" in row["advice"].lower()
    assert row["opportunity_share"] > 0.9


def test_what_moves_data_at_the_rate_of_the_memory_is_not_slow(tmp_path):
    bytes_ns = 3 * 2 * 8192**2 / 4800
    assert slow(run_of(tmp_path, ("aten::add", SQUARE, "elementwise_kernel", bytes_ns / 0.8))) == []
    (row,) = slow(run_of(tmp_path / "slow", ("aten::add", SQUARE, "elementwise_kernel", bytes_ns / 0.3)))
    assert "30 % of what the memory of the device carries" in row["advice"]


def test_attention_in_separate_kernels_is_not_fused(tmp_path):
    shapes = [(4, 16, 2048, 64)] * 3
    softmax = "void softmax_warp_forward<float, float, float, 7, false, false>(float)"
    (row,) = slow(run_of(tmp_path, ("aten::scaled_dot_product_attention", shapes, softmax, 5_000_000)))
    assert row["advice"].startswith("Not fused")


def test_the_rate_of_fp32_is_that_of_what_the_kernel_multiplies_in(tmp_path):
    took = 2 * 8192**3 / 494.7e3 / 0.6
    tf32 = "void cutlass::Kernel<cutlass_80_tensorop_s1688gemm_128x128_16x5_tn_align4>(T1::Params)"
    assert slow(run_of(tmp_path, ("aten::mm", SQUARE, tf32, took), kind="float")) == []
    # in fp32 it would be above the roof
    assert slow(run_of(tmp_path / "fp32", ("aten::mm", SQUARE, "ampere_sgemm_128x64_tn", took), kind="float")) == []


@pytest.mark.parametrize("device", [{**H200, "name": None, "sm_count": None}, {**H200, "name": "NVIDIA Unheard-of 1"}])
def test_on_an_unknown_device_only_what_is_slow_on_any_is_told(tmp_path, device):
    run = run_of(tmp_path, ("aten::mm", SQUARE, "gemm", SQUARE_NS), device=device)
    assert slow(run) == []
    (note,) = (n for n in run.recipe("diagnose").notes if "table of roofs" in n)
    assert note.startswith("rank 0: aten::mm 8192x8192 8192x8192 BFloat16 runs at 989 TFLOP/s, bound by compute; ")
    odd = [(4097, 4097), (4097, 4097)]
    (row,) = slow(run_of(tmp_path / "odd", ("aten::mm", odd, "gemm", 500 * US), device=device))
    assert row["evidence"]["roof_share"] is None
    assert row["evidence"]["roof_tflop_per_s"] is None
    assert "not known" in row["loss_note"]
    # a third of what the slowest device of the table does
    below = ("aten::mm", SQUARE, "gemm", 4 * 2 * 8192**3 / 65e3)
    (row,) = slow(run_of(tmp_path / "below", below, device=device))
    assert "25 % of the rate of any device" in row["advice"]
    assert row["opportunity_share"] == pytest.approx(0.75, abs=1e-3)


def test_a_wide_pointwise_convolution_gains_half_on_any_device(tmp_path):
    ranges_of = {"Input Dims": [[16, 1024, 14, 14], [2048, 1024, 1, 1]], "Input type": ["float"] * 2}
    said = ["", "", "", "[1, 1]", "[0, 0]", "[1, 1]", "False", "[0, 0]", "1"]
    payload = json.dumps({**ranges_of, "Concrete Inputs": said})
    table = {
        "ranges": [operator("aten::convolution", 100, 150, payload=payload)],
        "api": [call(110, 120, 1)],
        "devices": [{**H200, "name": None}],
    }
    (row,) = slow(make_run(tmp_path, {0: {**table, "kernels": launched([("igemm", 1, 1000, 600_000)])}}))
    assert row["opportunity_share"] == pytest.approx(0.5, abs=1e-3)


def test_what_has_too_little_work_for_a_kernel_is_short(tmp_path):
    given = [("aten::mul", [(64, 64), (64, 64)], "vectorized_elementwise_kernel", 9_000)] * 10
    (row,) = slow(run_of(tmp_path, *given))
    assert row["advice"].startswith("Short: ")
    assert row["evidence"]["calls"] == 10


def test_ranks_that_could_save_half_of_the_most_are_named(tmp_path):
    def rank_of(factor):
        payload = json.dumps({"Input Dims": [[8192, 8192]] * 2, "Input type": [HALF] * 2})
        kernels = launched([("gemm", 1, 1000, 1000 + int(factor * SQUARE_NS)), ("other", 2, 10**8, 10**8 + 10**6)])
        return {
            "ranges": [operator("aten::mm", 100, 150, payload=payload)],
            "api": [call(110, 120, 1), call(200, 210, 2)],
            "kernels": kernels,
            "devices": [H200],
        }

    (row,) = slow(make_run(tmp_path, {0: rank_of(9), 1: rank_of(1), 2: rank_of(7), 3: rank_of(4)}))
    assert row["ranks"] == [0, 2]


@pytest.mark.corpus
@pytest.mark.parametrize(
    ("trace", "operator", "words"),
    [
        ("conv_01_large_spatial_small_ch", "aten::convolution", ("few channels", "2048 x 2048")),
        ("conv_04_depthwise", "aten::convolution", ("depthwise", "memory-bound")),
        ("conv_05_pointwise_1x1", "aten::convolution", ("pointwise", "1 x 1")),
        ("elem_01_add_poor_bw", "aten::add", ("poor bandwidth",)),
        ("gemm_01_compute_few_tiles", "aten::mm", ("few tiles", "8 tiles for 304 multiprocessors")),
        ("gemm_03_compute_misaligned", "aten::mm", ("misaligned", "4097")),
        ("moe_01_many_experts_few_tokens", "vllm::rocm_aiter_fused_moe", ("few tokens per expert", "64 experts")),
        ("moe_03_top1_sparse", "vllm::rocm_aiter_fused_moe", ("top-1", "sparse")),
        ("sdpa_01_long_seq_low_eff", "aten::scaled_dot_product_attention", ("low efficiency", "long sequence")),
        ("sdpa_03_short_seq_overhead", "aten::scaled_dot_product_attention", ("short sequence", "overhead")),
    ],
)
def test_real_traces_name_their_operator_and_why(corpus, tmp_path, trace, operator, words):
    run = alltrace.open(corpus / f"kineto/tracelens_evals/{trace}.json.gz", cache_dir=tmp_path)
    (row,) = slow(run)
    assert row["where"].startswith(f"{operator} ")
    assert [w for w in words if w not in row["advice"].lower()] == []


@pytest.mark.corpus
def test_what_is_compute_bound_on_an_unknown_device_is_a_note(corpus, tmp_path):
    run = alltrace.open(corpus / "kineto/tracelens_evals/moe_05_large_capacity.json.gz", cache_dir=tmp_path)
    assert slow(run) == []
    (note,) = (n for n in run.recipe("diagnose").notes if "table of roofs" in n)
    assert "vllm::rocm_aiter_fused_moe" in note
    assert "1,024 tokens of capacity for each of 8 experts" in note

"""Opportunities in compute, on kernels with savings that follow from a data sheet or from counting."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.making import collective, kernel, make_run

from alltrace.recipes.questions.diagnose import potential

US = 1000
SGEMM = "ampere_sgemm_128x64_tn"
TF32 = "void cutlass::Kernel<cutlass_80_tensorop_s1688gemm_128x128_16x5_tn_align4>(T1::Params)"
BF16 = "ampere_bf16_s16816gemm_bf16_128x128_ldg8_f2f_stages_32x5_nn"
GEMV = "void gemv2T_kernel_val<int, int, float, float, float, float, 128, 16>(T1)"
MEM_EFFICIENT = "fmha_cutlassF_f32_aligned_64x64_rf_sm80(PyTorchMemEffAttention::AttentionKernel<float>)"
ADD = "void at::native::vectorized_elementwise_kernel<(int)4, at::native::CUDAFunctor_add<float>>(int, T2, T3)"
SOFTMAX = "void <unnamed>::softmax_warp_forward<float, float, float, (int)7, (bool)0, (bool)0>(T2 *, const T1 *, int)"
LOG_SOFTMAX = (
    "void <unnamed>::softmax_warp_forward<float, float, float, (int)7, (bool)1, (bool)0>(T2 *, const T1 *, int)"
)
NORM = "void at::native::<unnamed>::vectorized_layer_norm_kernel<float, float>(int, T2)"
KINDS = ("precision", "attention", "fusion", "shapes", "small-kernels")
A100 = {
    "device": 0, "ordinal": 0, "uuid": "GPU-0", "name": "NVIDIA A100-SXM4-80GB", "sm_count": 108, "compute_major": 8,
    "compute_minor": 0, "max_warps_per_sm": 64, "max_blocks_per_sm": 32, "max_registers_per_sm": 65536,
    "max_shared_memory_per_sm": 167936,
}  # fmt: skip


def run_of(folder, *given, device=A100, gap=0, launched=0, streams=(7,), **others):
    """A rank that runs kernels, as (name, us), one after the other, the same ones on each stream; all launched before
    the first, or `launched` ns before each."""
    rows, calls, at = [], [], 1000 * US
    for number, (name, took) in enumerate(given, 1):
        rows += (kernel(at, at + int(took * US), name, correlation=number, stream=s, **others) for s in streams)
        call = at - launched if launched else number * 100
        calls.append({"start": call, "end": call + 50, "name": "cudaLaunchKernel", "correlation": number})
        at += int(took * US) + gap
    return make_run(folder, {0: {"kernels": rows, "api": calls, "devices": [device]}})


def found_in(run):
    return {r["kind"]: r for r in run.recipe("diagnose").to_pylist() if r["kind"] in KINDS}


def shares(run):
    return {kind: round(r["opportunity_share"], 4) for kind, r in found_in(run).items()}


@pytest.mark.parametrize(
    ("name", "saved"),
    [(SGEMM, 1 - 19.5 / 312), (TF32, 1 / 2), (MEM_EFFICIENT, 1 - 52 / 312), (GEMV, 1 / 2), (BF16, None)],
)
def test_precision_saves_by_the_ratio_of_the_data_sheet(tmp_path, name, saved):
    found = shares(run_of(tmp_path, (name, 600), (BF16, 400)))
    assert found == ({} if saved is None else {"precision": round(0.6 * saved, 4)})


def test_a_device_without_peaks_has_no_precision(tmp_path):
    assert shares(run_of(tmp_path, (SGEMM, 600), device={**A100, "name": "NVIDIA Unheard-of 1"})) == {}
    assert shares(run_of(tmp_path / "none", (SGEMM, 600), device={**A100, "name": None})) == {}


def test_of_kernels_in_a_row_that_only_move_data_all_but_the_longest_can_be_saved(tmp_path):
    given = [(BF16, 500), (ADD, 100), (NORM, 200), (ADD, 100), (BF16, 50), (ADD, 50)]
    assert shares(run_of(tmp_path, *given)) == {"fusion": 0.2}


def test_a_row_ends_where_another_stream_or_step_begins(tmp_path):
    rows = [kernel(n * 100 * US, (n + 1) * 100 * US, ADD, stream=n % 2) for n in range(4)]
    assert shares(make_run(tmp_path, {0: {"kernels": rows, "devices": [A100]}})) == {"fusion": 0.5}


@pytest.mark.parametrize(
    ("given", "saved"),
    [
        ([(BF16, 400), (ADD, 100), (SOFTMAX, 200), (BF16, 300)], {"attention": 0.3}),
        ([(BF16, 400), (SOFTMAX, 300), (BF16, 300)], {"attention": 0.3}),
        ([(BF16, 400), (ADD, 100), (LOG_SOFTMAX, 200), (BF16, 300)], {"fusion": 0.1}),
        ([(BF16, 400), (ADD, 100), (SOFTMAX, 200)], {"fusion": round(100 / 700, 4)}),
        ([(SOFTMAX, 300), (BF16, 400)], {}),
    ],
)
def test_attention_that_is_not_fused_is_a_softmax_between_two_products(tmp_path, given, saved):
    assert shares(run_of(tmp_path, *given)) == saved


COPY = (
    "void at::native::unrolled_elementwise_kernel<at::native::direct_copy_kernel_cuda(at::TensorIteratorBase &)>(int)"
)
SOFTMAX_BACKWARD = (
    "void <unnamed>::softmax_warp_backward<float, float, float, (int)7, (bool)0, (bool)0>(T2 *, const T1 *, int)"
)


@pytest.mark.parametrize(
    ("given", "saved"),
    [
        # casts around the products, and half of products in TF32
        (
            [(ADD, 100), (COPY, 50), (TF32, 200), (SOFTMAX, 300), (TF32, 200), (COPY, 50), (BF16, 100)],
            0.05 + 0.1 + 0.3 + 0.1 + 0.05,
        ),
        # forward has one product on each side, backward two
        ([(TF32, 100), (TF32, 100), (SOFTMAX, 400), (TF32, 100), (TF32, 100), (BF16, 200)], 0.4 + 2 * 0.05),
        ([(TF32, 100), (TF32, 100), (SOFTMAX_BACKWARD, 400), (TF32, 100), (TF32, 100), (BF16, 200)], 0.4 + 4 * 0.05),
        (
            [(TF32, 100), (COPY, 100), (TF32, 100), (SOFTMAX_BACKWARD, 300), (TF32, 100), (BF16, 100), (TF32, 200)],
            0.1 + 0.3 + 3 * 0.05,
        ),
        # no product beyond, no copy beyond something else
        ([(COPY, 100), (ADD, 100), (BF16, 200), (SOFTMAX, 400), (BF16, 200)], 0.4),
    ],
)
def test_a_fused_attention_spares_casts_and_multiplies_in_half_precision(tmp_path, given, saved):
    assert shares(run_of(tmp_path, *given))["attention"] == pytest.approx(saved, abs=2e-4)


@pytest.mark.parametrize(
    ("grid", "empty"),
    [
        (108, 0.0),
        (109, 1 - 109 / 216),
        (54, 1 / 2),
        (1, 1 - 1 / 108),
        (1080, 0.0),
        (None, 0.0),
    ],
)
def test_shapes_save_what_the_last_wave_leaves_empty(tmp_path, grid, empty):
    # 255 registers and 256 threads: one block on a multiprocessor
    run = run_of(
        tmp_path, (BF16, 1000), grid_x=grid, grid_y=1, grid_z=1, block_x=256, block_y=1, block_z=1, registers=255
    )
    assert shares(run) == ({"shapes": round(empty, 4)} if empty else {})


def test_idle_time_before_small_kernels_that_are_queued_is_that_of_small_kernels(tmp_path):
    given = [(BF16, 5)] * 100
    found = found_in(run_of(tmp_path / "queued", *given, gap=2 * US))
    assert found["small-kernels"]["opportunity_share"] == pytest.approx(99 * 2 / (100 * 5 + 99 * 2))
    assert found["small-kernels"]["evidence"]["kernels_per_step"] == 99
    assert "small-kernels" not in found_in(run_of(tmp_path / "large", *[(BF16, 50)] * 100, gap=2 * US))
    assert "small-kernels" not in found_in(run_of(tmp_path / "graph", *given, gap=2 * US, graph_node=1))
    late = run_of(tmp_path / "late", *given, gap=2 * US, launched=1 * US)
    assert "small-kernels" not in found_in(late)


@pytest.mark.parametrize("at_once", [10, 1000])
def test_kernels_that_begin_together_share_the_idle_time_before_them(tmp_path, monkeypatch, at_once):
    monkeypatch.setattr(potential, "BLOCK_ROWS", at_once)
    found = found_in(run_of(tmp_path, *[(BF16, 5)] * 100, gap=2 * US, streams=(7, 8)))
    assert found["small-kernels"]["opportunity_share"] == pytest.approx(99 * 2 / (100 * 5 + 99 * 2))
    assert found["small-kernels"]["evidence"]["kernels_per_step"] == 99


def test_an_opportunity_is_no_loss_and_comes_last(tmp_path):
    rows = (
        run_of(tmp_path, *[(SGEMM, 400), (ADD, 300), (ADD, 300)] * 3, gap=100 * US, launched=10 * US)
        .recipe("diagnose")
        .to_pylist()
    )
    kinds = [r["kind"] for r in rows]
    assert kinds[-2:] == ["precision", "fusion"]
    assert "launch-bound" in kinds[:-2]
    for row in rows[-2:]:
        assert (row["lost_ns"], row["lost_share"], row["severity"]) == (None, None, "low")
        assert row["loss_note"]
        assert row["evidence"]["basis"] == "ceiling"
    assert all(r["opportunity_share"] is None for r in rows[:-2])


def test_of_several_ranks_the_one_that_could_save_most_tells_and_those_near_it_are_named(tmp_path):
    def rank(name):
        return {"kernels": [kernel(0, 900 * US, name), collective(900 * US, 1000 * US)], "devices": [A100]}

    found = found_in(make_run(tmp_path, {0: rank(TF32), 1: rank(BF16), 2: rank(TF32)}))
    assert found["precision"]["ranks"] == [0, 2]
    assert found["precision"]["opportunity_share"] == pytest.approx(0.45)


@settings(max_examples=15, deadline=None)
@given(
    given=st.lists(
        st.tuples(st.sampled_from([SGEMM, TF32, BF16, GEMV, ADD, SOFTMAX, NORM, "x"]), st.integers(0, 50)),
        min_size=1,
        max_size=30,
    ),
    gap=st.integers(0, 20_000),
    grid=st.sampled_from([None, 0, 1, 108, 1 << 30]),
    threads=st.sampled_from([None, 0, 32, 1024, 1 << 20]),
    registers=st.sampled_from([None, 0, 255, 1 << 20]),
)
def test_shares_are_shares_whatever_the_kernels(tmp_path_factory, given, gap, grid, threads, registers):
    launch = {
        "grid_x": grid,
        "grid_y": 1,
        "grid_z": 1,
        "block_x": threads,
        "block_y": 1,
        "block_z": 1,
        "registers": registers,
    }
    run = run_of(tmp_path_factory.mktemp("run"), *given, gap=gap, **launch)
    assert all(0 <= share <= 1 for share in shares(run).values())

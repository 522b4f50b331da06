"""What shapes say of an operator's speed, on calls whose reason follows from the tile, the alignment or the
intensity."""

from __future__ import annotations

import json

import pytest

from alltrace.recipes.analysis.device_peaks import device_of_code, lowest_ridge, lowest_roof, roof_of
from alltrace.recipes.analysis.flops import call_of, work_of
from alltrace.recipes.analysis.operator_shapes import moved_bytes, reasons_of

HALF, WIDE = "c10::BFloat16", "float"
TILE_256 = "Cijk_Ailk_Bljk_BBS_BH_MT256x128x64_MI16x16x16x1_SN_GSU2_ISA942"
MOE = "vllm::rocm_aiter_fused_moe"
SDPA = "aten::scaled_dot_product_attention"
ADD = "aten::add"


def called(*shapes, kind=HALF, strides=None, values=None):
    about = {"Input Dims": [list(s) for s in shapes], "Input type": [kind if s else "" for s in shapes]}
    if strides is not None:
        about["Input Strides"] = [list(s) for s in strides]
    if values is not None:
        about["Concrete Inputs"] = values
    return call_of(json.dumps(about))


def names(name, *shapes, units=132, kernel="", **others):
    return [r.name for r in reasons_of(name, called(*shapes, **others), units, kernel)]


@pytest.mark.parametrize(
    ("name", "shapes", "others", "expected"),
    [
        ("aten::mm", [(4096, 4096), (4096, 4096)], {}, []),
        ("aten::mm", [(4097, 4097), (4097, 4097)], {}, ["misaligned"]),
        # the number of rows is not the length of one
        ("aten::mm", [(4097, 4096), (4096, 4096)], {}, []),
        # rows of 4097 elements that begin at multiples of 4104
        ("aten::mm", [(4096, 4097), (4097, 4096)], {"strides": [(4104, 1), (4096, 1)]}, []),
        ("aten::mm", [(4096, 4097), (4097, 4096)], {"strides": [(4097, 1), (4096, 1)]}, ["misaligned"]),
        # 4 elements of fp32 are 16 bytes
        ("aten::mm", [(4096, 4100), (4100, 4096)], {"kind": WIDE}, []),
        ("aten::mm", [(256, 131072), (131072, 512)], {"units": 304, "kernel": TILE_256}, ["few tiles"]),
        ("aten::mm", [(1024, 4096), (4096, 1024)], {}, ["few tiles"]),  # 64 for 132 multiprocessors
        ("aten::mm", [(1152, 4096), (4096, 1024)], {}, []),
        ("aten::bmm", [(64, 256, 512), (64, 512, 512)], {}, []),
        ("aten::linear", [(2, 2048, 4096), (4096, 4096), (4096,)], {}, []),
        ("aten::linear", [(1, 1, 4096), (4096, 4096)], {}, ["few rows"]),
        ("aten::mm", [(8192, 64), (64, 8192)], {}, ["short sums"]),
        ("aten::mm", [(8192, 128), (128, 8192)], {}, []),
        ("aten::addmm", [(4096,), (8, 4096), (4096, 4096)], {}, ["few rows"]),
        ("aten::mm", [(4096, 4096), (4096, 4096)], {"strides": [(8192, 2), (4096, 1)]}, ["strided"]),
        # transposed is not strided
        ("aten::mm", [(4096, 4096), (4096, 4096)], {"strides": [(1, 4096), (4096, 1)]}, []),
        ("aten::conv2d", [(32, 3, 224, 224), (64, 3, 7, 7)], {}, ["few channels"]),
        ("aten::conv2d", [(32, 256, 56, 56), (256, 1, 3, 3)], {}, ["depthwise"]),
        ("aten::conv2d", [(32, 256, 56, 56), (256, 8, 3, 3)], {}, ["grouped"]),
        ("aten::conv2d", [(32, 256, 56, 56), (512, 256, 1, 1)], {"kind": WIDE}, ["pointwise"]),
        ("aten::conv2d", [(32, 256, 56, 56), (512, 256, 1, 1)], {}, []),
        ("aten::conv2d", [(32, 250, 56, 56), (512, 250, 3, 3)], {}, ["misaligned"]),
        ("aten::conv2d", [(1, 512, 7, 7), (512, 512, 3, 3)], {}, ["few tiles"]),
        ("aten::convolution_backward", [(1, 512, 7, 7), (1, 512, 7, 7), (512, 512, 3, 3)], {}, ["few tiles"]),
        (SDPA, [(16, 32, 128, 128)] * 3, {}, ["short sequence"]),
        (SDPA, [(1, 32, 32768, 128)] * 3, {}, ["low efficiency"]),
        (SDPA, [(8, 32, 4096, 60)] * 3, {}, ["misaligned", "low efficiency"]),
        (SDPA, [(1, 2, 2048, 128)] * 3, {}, ["few tiles"]),
        (SDPA, [(64, 32, 1, 128), (64, 32, 4096, 128), (64, 32, 4096, 128)], {}, ["few queries"]),
        ("aten::_flash_attention_forward", [(16, 128, 32, 128)] * 3, {}, ["short sequence"]),
        (MOE, [(16, 4096), (64, 22016, 4096), (64, 4096, 11008), (16, 2)], {}, ["few tokens per expert"]),
        (MOE, [(4096, 8192), (8, 44032, 8192), (8, 8192, 22016), (4096, 2)], {}, []),
        (ADD, [(8192, 8192), (8192, 8192)], {"strides": [(1, 8192), (1, 8192)]}, []),
        (ADD, [(8192, 8192), (8192, 8192)], {"strides": [(8192, 1), (1, 8192)]}, ["strided"]),
        ("aten::clone", [(4096, 4096)], {"strides": [(16384, 2)]}, ["strided"]),
        (ADD, [(8192, 8192), (8192, 1)], {}, ["broadcast"]),
        ("aten::layer_norm", [(8192, 8192), (8192,), (8192,)], {}, []),
        # strides that no tensor has say nothing
        ("aten::mm", [(4096, 4096), (4096, 4096)], {"strides": [(1, 1), (1, 1)]}, []),
        ("aten::mm", [(4096,)], {}, []),
        ("aten::unheard_of", [(8192, 8192)], {}, []),
    ],
)  # fmt: skip
def test_reasons(name, shapes, others, expected):
    assert names(name, *shapes, **others) == expected


def test_tiles_are_those_of_the_kernel_and_each_part_of_a_split_sum_counts():
    def tiles(kernel):
        return reasons_of("aten::mm", called((256, 131072), (131072, 512)), 304, kernel)[0].tiles

    assert tiles(TILE_256) == 4 * 2
    assert tiles("ampere_bf16_s16816gemm_bf16_64x64_ldg8_f2f_stages_64x5_tn") == 4 * 8
    assert tiles("gemm") == 2 * 4


def test_the_least_bytes_of_what_reads_and_writes_each_element():
    assert moved_bytes(ADD, called((8, 4), (8, 4))) == 3 * 64
    assert moved_bytes(ADD, called((8, 4), (4,))) == 2 * 64 + 8
    assert moved_bytes("aten::add_", called((8, 4), (8, 4))) == 3 * 64
    assert moved_bytes("aten::copy_", called((8, 4), (8, 4))) == 2 * 64
    assert moved_bytes("aten::fill_", called((8, 4))) == 64
    assert moved_bytes("aten::sum", called((8, 4))) == 64
    assert moved_bytes("aten::index", called((8, 4))) is None
    assert moved_bytes("own::add", called((8, 4))) is None
    assert moved_bytes(ADD, called((8, 4), kind="something new")) is None


def test_experts_count_by_the_tokens_that_meet_them():
    call = called((512, 16), (4, 64, 16), (4, 16, 32), (512, 2))
    work = work_of(MOE, call)
    assert work.flops == 2 * 512 * 2 * (64 * 16 + 16 * 32)
    # 1,024 choices reach all four experts
    assert work.moved_bytes == 2 * (4 * (64 * 16 + 16 * 32) + 2 * 512 * 16)
    few = work_of(MOE, called((1, 16), (4, 64, 16), (4, 16, 32), (1, 1)))
    assert few.moved_bytes == 2 * (64 * 16 + 16 * 32 + 2 * 16)
    assert work_of(MOE, called((512, 16), (4, 64, 17), (4, 16, 32), (512, 2))) is None
    assert work_of(MOE, called((512, 16), (4, 64, 16), (4, 16, 32))) is None


def test_arguments_in_parentheses_are_lists():
    values = ["", "", "", "(2,2)", "(3,3)", "(1,1)", "False", "(0,0)", "1"]
    call = called((1, 3, 8, 8), (4, 3, 7, 7), (), (), (), (), (), (), (), values=values)
    assert work_of("aten::convolution", call).flops == 2 * 4 * 4 * 4 * 3 * 49


@pytest.mark.parametrize(
    ("device", "memory", "units", "half"),
    [
        ("NVIDIA A100-SXM4-80GB", 2039, 108, 312.0),
        ("NVIDIA A100-SXM4-40GB", 1555, 108, 312.0),
        ("NVIDIA H200", 4800, 132, 989.4),
        ("NVIDIA H100 80GB HBM3", 3352, 132, 989.4),
        ("AMD Instinct MI300X", 5300, 304, 1307.4),
        ("AMD Instinct MI250X/MI250", 1638, 104, 383.0 / 2),
    ],
)
def test_roofs(device, memory, units, half):
    roof = roof_of(device)
    assert (roof.memory_gb_per_s, roof.units) == (memory, units)
    assert roof.flop_per_s(roof.peaks.half) == pytest.approx(half * 1e12)
    low = lowest_roof()
    assert low.peaks.half <= half
    assert low.memory_gb_per_s <= memory
    assert low.units <= units
    assert lowest_ridge(True) <= half * 1e3 / memory


def test_a_device_without_roof_and_the_device_of_a_kernel():
    assert roof_of(None) is None
    assert roof_of("NVIDIA Unheard-of 1") is None
    assert device_of_code(TILE_256) == "MI300X"
    assert device_of_code("ampere_sgemm_128x64_tn") is None

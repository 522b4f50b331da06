from __future__ import annotations

import pytest
from tests.ncu_launches import A100, ELAPSED, measured, of

from alltrace.readers.ncu.read import read_report
from alltrace.recipes.analysis.device_peaks import peaks_of
from alltrace.recipes.ncu import roofline
from alltrace.recipes.ncu.ceilings import ceilings
from alltrace.recipes.ncu.tables import Profiled

F, D = (f"smsp__sass_thread_inst_executed_op_{letter}" for letter in "fd")
FP32 = {f"{F}{op}_pred_on.sum": n for op, n in (("add", 1e6), ("mul", 2e6), ("fma", 3e6))}
TRAFFIC = {"gpu__time_duration.sum": 1000.0, "dram__bytes_read.sum": 3e6, "dram__bytes_write.sum": 1e6}


def test_ceilings_are_from_the_device_where_the_report_has_no_peaks():
    found = ceilings(measured(A100))
    assert {n: c.value for n, c in found.items()} == pytest.approx(
        {
            "FP64": 108 * 32 * 2 * 1.41e9,
            "FP32": 108 * 64 * 2 * 1.41e9,  # 19.5 TFLOP/s, as the data sheet says
            "FP16/BF16 tensor": 108 * 2048 * 1.41e9,  # 312 TFLOP/s
            "FP64 tensor": 108 * 128 * 1.41e9,
            "TF32 tensor": 108 * 1024 * 1.41e9,
            "INT8 tensor": 108 * 4096 * 1.41e9,
            "L1": 108 * 128 * 1.41e9,
            "DRAM": 1.5552e12,
        }
    )
    assert {c.source for c in found.values()} == {"device attributes"}


def test_ceilings_are_at_the_clock_of_the_launch():
    clocks = {
        "sm__cycles_elapsed.avg.per_second": 1e9,
        "dram__cycles_elapsed.avg.per_second": 1e9,
        "dram__bytes.sum.peak_sustained": 1000,
    }
    found = ceilings(measured(A100 | clocks))
    assert (found["FP32"].value, found["FP32"].greatest) == pytest.approx((13824e9, 13824 * 1.41e9))
    assert (found["DRAM"].value, found["DRAM"].greatest, found["DRAM"].source) == pytest.approx(
        (1e12, 1.215e12, "metric")
    )


def test_l2_is_what_was_moved_by_its_share_of_the_peak():
    sectors = {
        "lts__t_sectors_srcunit_tex.sum.per_second": 1e9,
        "lts__t_sectors_srcunit_tex.avg.pct_of_peak_sustained_elapsed": 25.0,
    }
    assert ceilings(measured(sectors))["L2"].value == 32 * 1e9 * 4


def test_a_point_is_work_over_bytes_under_the_lower_ceiling():
    answer = roofline.answer(of(measured(A100 | FP32 | TRAFFIC)), ())
    rows = {r["level"]: r for r in answer.table.to_pylist()}
    dram = rows["DRAM"]
    assert (dram["precision"], dram["work_flop_per_s"], dram["moved_bytes_per_s"]) == ("FP32", 9e12, 4e12)
    assert dram["intensity_flop_per_byte"] == 2.25
    assert (dram["peak_flop_per_s"], dram["peak_bytes_per_s"]) == pytest.approx((108 * 64 * 2 * 1.41e9, 1.5552e12))
    assert dram["roof_flop_per_s"] == pytest.approx(2.25 * 1.5552e12)
    assert (dram["under"], dram["basis"]) == ("memory", "instructions")
    assert dram["roof_percent"] == pytest.approx(100 * 9e12 / (2.25 * 1.5552e12))
    assert (rows["L1"]["intensity_flop_per_byte"], rows["L2"]["roof_flop_per_s"]) == (None, None)
    assert {c["name"] for c in answer.extra["ceilings"]} == {
        "FP64", "FP32", "FP64 tensor", "TF32 tensor", "FP16/BF16 tensor", "INT8 tensor", "L1", "DRAM"
    }  # fmt: skip


def test_instructions_per_cycle_count_as_well():
    per_cycle = {f"{D}{op}_pred_on.sum.per_cycle_elapsed": n for op, n in (("add", 1.0), ("mul", 0.0), ("fma", 2.0))}
    assert roofline.operations(measured(per_cycle | {"smsp__cycles_elapsed.avg.per_second": 1e9})) == {
        "FP64": (5e9, "instructions")
    }


@pytest.mark.parametrize(
    ("metrics", "found"),
    [
        ({"sm__ops_path_tensor_src_fp16_dst_fp32.sum.per_second": 3e12,
          "sm__ops_path_tensor_src_bf16_dst_fp32.sum.per_second": 1e12,
          "sm__ops_path_tensor_src_fp16_dst_fp32_sparsity_off.sum.per_second": 3e12,
          "sm__ops_path_tensor_src_int8.sum.per_second": 9e12},
         (4e12, "operations")),
        (A100 | {f"sm__pipe_tensor_op_hmma_cycles_active{ELAPSED}": 50.0},
            (0.5 * 108 * 2048 * 1.41e9, "pipe activity")),
        (A100 | {f"sm__pipe_tensor_cycles_active{ELAPSED}": 50.0}, None),  # other types may be in it
        (A100 | {f"sm__pipe_tensor_cycles_active{ELAPSED}": 0.0}, (0.0, "pipe activity")),
        (A100, None),
    ],
)  # fmt: skip
def test_tensor_operations_are_counted_or_follow_from_the_pipe(metrics, found):
    assert roofline.operations(measured(metrics)).get("FP16/BF16 tensor") == (
        pytest.approx(found) if found is None else (pytest.approx(found[0]), found[1])
    )


SRC = "sm__ops_path_tensor_src_"


def test_each_precision_of_tensor_cores_has_its_operations():
    counts = {
        f"{SRC}fp64.sum.per_second": 1e12,
        f"{SRC}tf32_dst_fp32.sum.per_second": 2e12,
        f"{SRC}fp8_dst_fp16.sum": 1e6,
        f"{SRC}fp8_dst_fp32.sum": 2e6,
        f"{SRC}fp4_fp6_fp8_dst_fp32.sum": 4e6,  # runs as FP8 does
        f"{SRC}fp4_dst_fp32.sum.per_cycle_elapsed": 5.0,
        f"{SRC}int8_sparsity_on.sum.per_second": 1e12,
        f"{SRC}int8_sparsity_off.sum.per_second": 6e12,
        f"{SRC}int4.sum.per_second": 9e12,
        "sm__ops_path_tensor_op_hmma_src_bf16_dst_fp32.sum.per_second": 8e12,
        "gpu__time_duration.sum": 1000.0,
        "sm__cycles_elapsed.avg.per_second": 1e9,
    }
    assert roofline.operations(measured(counts)) == {
        "FP64 tensor": (1e12, "operations"), "TF32 tensor": (2e12, "operations"),
        "FP16/BF16 tensor": (8e12, "operations"), "FP8 tensor": (pytest.approx(7e12), "operations"),
        "FP4 tensor": (5e9, "operations"), "INT8 tensor": (7e12, "operations"),
    }  # fmt: skip


def test_work_in_fp64_follows_from_its_pipe():
    pipe = {f"sm__pipe_tensor_op_dmma_cycles_active{ELAPSED}": 25.0}
    assert roofline.operations(measured(A100 | pipe)) == {
        "FP64 tensor": (pytest.approx(0.25 * 108 * 128 * 1.41e9), "pipe activity")
    }


def test_peaks_of_the_report_come_before_the_device():
    peaks = {
        f"{SRC}fp8_dst_fp32_sparsity_off.sum.peak_sustained": 1000,
        f"{SRC}fp8_dst_fp32_sparsity_on.sum.peak_sustained": 2000,
        f"{SRC}fp8_dst_fp32.sum.peak_sustained": 2000,
        f"{SRC}int8.sum.peak_sustained": 500,
    }
    found = ceilings(measured(A100 | peaks))
    assert (found["FP8 tensor"].value, found["FP8 tensor"].source) == (1000 * 1.41e9, "metric")
    assert (found["INT8 tensor"].value, found["INT8 tensor"].source) == (500 * 1.41e9, "metric")


def test_a_data_sheet_gives_the_roofs_that_nothing_else_does():
    device = {"device__attribute_display_name": "NVIDIA L40S", "device__attribute_max_gpu_frequency_khz": 2_000_000}
    found = ceilings(measured(device | {"sm__cycles_elapsed.avg.per_second": 1e9}))
    assert {name: (c.value, c.greatest, c.source) for name, c in found.items()} == {
        "FP32": (45.8e12, 91.6e12, "data sheet"), "TF32 tensor": (91.5e12, 183e12, "data sheet"),
        "FP16/BF16 tensor": (181e12, 362e12, "data sheet"), "FP8 tensor": (366.5e12, 733e12, "data sheet"),
        "INT8 tensor": (366.5e12, 733e12, "data sheet"),
    }  # fmt: skip


@pytest.mark.parametrize(
    ("name", "capability", "count", "ghz"),
    [("Tesla T4", (7, 5), 40, 1.59), ("A100-SXM4-40GB", (8, 0), 108, 1.41), ("H100 80GB HBM3", (9, 0), 132, 1.83),
     ("GeForce RTX 4090", (8, 9), 128, 2.52), ("B200", (10, 0), 148, 1.85), ("GeForce RTX 5090", (12, 0), 170, 2.407)],
)  # fmt: skip
def test_rates_per_cycle_are_those_of_data_sheets(name, capability, count, ghz):
    device = {
        "device__attribute_compute_capability_major": capability[0],
        "device__attribute_compute_capability_minor": capability[1],
        "device__attribute_multiprocessor_count": count,
        "device__attribute_max_gpu_frequency_khz": ghz * 1e6,
    }
    sheet = peaks_of(name)
    own = {n: c.value / 1e12 for n, c in ceilings(measured(device)).items() if n.endswith("tensor")}
    # sums in FP16 are twice as fast on GeForce cards, whose sheet rate of halves is that of sums in FP32
    half = sheet.half * (2 if "GeForce" in name else 1)
    theirs = {"TF32 tensor": sheet.tf32, "FP16/BF16 tensor": half, "FP8 tensor": sheet.fp8, "INT8 tensor": sheet.int8,
              "FP4 tensor": sheet.fp4}  # fmt: skip
    for precision in own.keys() & theirs.keys():
        assert own[precision] == pytest.approx(theirs[precision], rel=0.03), precision


def test_an_empty_roofline_says_why():
    still = {f"{F}{op}_pred_on.sum": 0 for op in ("add", "mul", "fma")}
    answer = roofline.answer(of(measured(still | {"gpu__time_duration.sum": 1000.0})), ())
    assert [note.partition(" launches ")[2].partition(":")[0] for note in answer.notes] == [
        "did no operation that their report counts, so they have no point",
        "have no bytes moved in their report; `ncu --set roofline` collects them",
        "have no roof of compute",
    ]
    assert roofline.answer(of(measured(A100 | FP32 | TRAFFIC)), ()).notes == ()


def test_without_counts_there_is_no_point_but_a_note():
    answer = roofline.answer(of(measured(TRAFFIC | {f"{F}add_pred_on.sum": float("nan")})), ("given",))
    assert [(r["precision"], r["work_flop_per_s"]) for r in answer.table.to_pylist()] == [(None, None)] * 3
    assert answer.notes[0] == "given"
    assert "1 of 1 launches have no count of floating-point operations" in answer.notes[1]


def test_ceilings_of_several_devices_say_whose_they_are():
    other = A100 | {"device__attribute_display_name": "B"}
    shown = roofline.answer(of(measured(A100), measured(other)), ()).extra["ceilings"]
    assert {c["name"] for c in shown if c["kind"] == "memory"} == {"L1, A100", "DRAM, A100", "L1, B", "DRAM, B"}


@pytest.mark.corpus
def test_work_of_a_real_product_is_that_of_its_size(corpus):
    (launch,) = read_report(corpus / "ncu" / "gemm_badtile.ncu-rep").launches
    rate, basis = roofline.operations(launch)["FP16/BF16 tensor"]
    # 80 tiles of 128 x 256; the 3.3554 GB read are 20,480 rows of 81,920 halves
    work = 2 * 80 * 128 * 256 * 81_920
    assert basis == "pipe activity"
    assert rate * launch.metrics["gpu__time_duration.sum"] / 1e9 == pytest.approx(work, rel=1e-4)
    rows = roofline.answer([Profiled("x", launch)], ()).table.to_pylist()
    assert next(r["roof_percent"] for r in rows if r["point"] == "FP16/BF16 tensor, DRAM") == pytest.approx(
        86.96, abs=0.01
    )

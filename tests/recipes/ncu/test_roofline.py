from __future__ import annotations

import pytest
from tests.ncu_launches import A100, ELAPSED, measured, of

from alltrace.readers.ncu.read import read_report
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
    assert (found["DRAM"].value, found["DRAM"].greatest, found["DRAM"].source) == pytest.approx((1e12, 1.215e12, "metric"))


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
    assert {c["name"] for c in answer.extra["ceilings"]} == {"FP64", "FP32", "FP16/BF16 tensor", "L1", "DRAM"}


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
        (A100 | {f"sm__pipe_tensor_op_hmma_cycles_active{ELAPSED}": 50.0}, (0.5 * 108 * 2048 * 1.41e9, "pipe activity")),
        (A100 | {f"sm__pipe_tensor_cycles_active{ELAPSED}": 50.0}, None),  # other types may be in it
        (A100 | {f"sm__pipe_tensor_cycles_active{ELAPSED}": 0.0}, (0.0, "pipe activity")),
        (A100, None),
    ],
)  # fmt: skip
def test_tensor_operations_are_counted_or_follow_from_the_pipe(metrics, found):
    assert roofline.operations(measured(metrics)).get("FP16/BF16 tensor") == (
        pytest.approx(found) if found is None else (pytest.approx(found[0]), found[1])
    )


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
    assert next(r["roof_percent"] for r in rows if r["point"] == "FP16/BF16 tensor, DRAM") == pytest.approx(86.96, abs=0.01)

"""Occupancy with other block sizes, by hand and against the curves that Nsight Compute stored in reports."""

from __future__ import annotations

import pytest
from tests.ncu_launches import measured, of

from alltrace.readers.ncu.read import read_report
from alltrace.recipes.ncu import occupancy

DEVICE = {
    "device__attribute_max_warps_per_multiprocessor": 64,
    "device__attribute_max_blocks_per_multiprocessor": 32,
    "device__attribute_max_registers_per_multiprocessor": 65536,
}
LAUNCH = DEVICE | {
    "launch__registers_per_thread": 40,
    "launch__shared_mem_per_block": 5120,
    "launch__shared_mem_config_size": 102400,
    "launch__block_size": 200,
}


def rows(*launches, **chosen):
    return {r["block_size"]: r for r in occupancy.answer(of(*launches), (), chosen).table.to_pylist()}


def test_blocks_fit_as_their_limits_let_them():
    found = rows(measured(LAUNCH))
    # 40 registers are 1,280 a warp: 12 in a scheduler's 16,384, so 48; shared memory lets 20 blocks on
    expected = {32: (20, 20, "shared memory"), 96: (16, 48, "registers"), 128: (12, 48, "registers"),
                200: (6, 42, "registers"), 1024: (1, 32, "registers")}  # fmt: skip
    assert {n: (found[n]["blocks"], found[n]["warps"], found[n]["limiter"]) for n in expected} == expected
    assert found[128]["occupancy_percent"] == 75.0
    assert [n for n, row in found.items() if row["own"]] == [200]
    assert (found[32]["registers"], found[32]["shared_memory_bytes"]) == (40, 5120)


def test_other_registers_and_shared_memory():
    assert (rows(measured(LAUNCH), registers=32)[128]["warps"], rows(measured(LAUNCH), registers=33)[128]["warps"]) == (
        64,
        48,
    )
    fewer = rows(measured(LAUNCH), registers=16, shared_memory=51200)[256]
    assert (fewer["blocks"], fewer["limiter"]) == (2, "shared memory")
    assert rows(measured(LAUNCH), registers=255)[1024]["blocks"] == 0
    equal = rows(measured(LAUNCH | {"launch__occupancy_limit_barriers": 4}), registers=16, shared_memory=0)[512]
    assert (equal["blocks"], equal["limiter"]) == (4, "warps, barriers")


def test_without_device_attributes_there_is_a_note():
    answer = occupancy.answer(of(measured({"launch__registers_per_thread": 40})), ())
    assert answer.table.num_rows == 0
    assert "1 of 1 launches have no device attributes" in answer.notes[0]


@pytest.mark.corpus
@pytest.mark.parametrize("name", ["cuda_tutorial", "gemm_badtile", "hpc_a3", "mojo_rtx", "power_model"])
def test_curves_are_those_that_nsight_compute_stored(corpus, name):
    compared = 0
    for launch in read_report(corpus / "ncu" / f"{name}.ncu-rep", detail=True).launches:
        limits = occupancy.limits_of(launch)
        own = [
            launch.number_of(f"launch__{n}")
            for n in ("block_size", "registers_per_thread", "shared_mem_per_block_allocated")
        ]
        block, registers, shared = (int(n) for n in own)
        assert occupancy.fits(limits, block, registers, shared)[0] == min(
            launch.number_of(f"launch__occupancy_limit_{n}") for n in ("blocks", "registers", "shared_mem", "warps")
        )
        for size, warps in launch.instances["launch__occupancy_per_block_size"]:
            found = occupancy.fits(limits, size, registers, shared)[0] * -(-size // 32)
            assert found == warps, (size, found, warps)
            compared += 1
        for count, warps in launch.instances["launch__occupancy_per_register_count"]:
            assert occupancy.fits(limits, block, count, shared)[0] * -(-block // 32) == warps, count
            compared += 1
    assert compared > 300

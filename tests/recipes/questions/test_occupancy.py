from __future__ import annotations

import pytest
from tests.making import kernel, make_run

from alltrace.recipes.execution.ask import ask
from alltrace.recipes.questions.occupancy import Fit, Limits, blocks_at_once, occupancy

HOPPER = Limits(64, 32, 65536, 233472, 9)
AMPERE = Limits(64, 32, 65536, 167936, 8)
GAMING = Limits(48, 16, 65536, 102400, 8)
VOLTA = Limits(64, 32, 65536, 98304, 7)


@pytest.mark.parametrize(
    ("launch", "has", "blocks", "share", "limit"),
    [
        ((256, 64, 0), HOPPER, 4, 0.5, "registers"),
        ((256, 64, 49152), HOPPER, 4, 0.5, "registers"),
        ((128, 255, 0), HOPPER, 2, 0.125, "registers"),
        ((384, 168, 231424), HOPPER, 1, 0.1875, "registers"),
        ((1024, 32, 0), AMPERE, 2, 1.0, "warps"),
        ((96, 40, 0), AMPERE, 16, 0.75, "registers"),
        ((256, 32, 0), GAMING, 6, 1.0, "warps"),
        ((32, 16, 0), HOPPER, 32, 0.5, "blocks"),
        ((64, 16, 65536), HOPPER, 3, 0.09375, "shared memory"),
        # 1 KiB of each block is the system's, so that no second block fits
        ((64, 16, 233472 // 2), HOPPER, 1, 0.03125, "shared memory"),
        # before 8.0 nothing is, and units are of 256 bytes
        ((64, 16, 49152), VOLTA, 2, 0.0625, "shared memory"),
        ((64, 16, 32768 + 1), VOLTA, 2, 0.0625, "shared memory"),
        ((1025, 64, 0), HOPPER, 0, 0.0, "registers"),
    ],
)
def test_what_fits_on_a_multiprocessor(launch, has, blocks, share, limit):
    assert occupancy(*launch, has) == Fit(blocks, share, limit)


DEVICE = {
    "device": 0, "ordinal": 0, "uuid": "GPU-0", "sm_count": 100, "compute_major": 9, "max_warps_per_sm": 64,
    "max_blocks_per_sm": 32, "max_registers_per_sm": 65536, "max_shared_memory_per_sm": 233472,
}  # fmt: skip


def launch(start, end, name="gemm", grid=400, threads=256, registers=64, **others):
    shape = {
        "grid_x": grid,
        "grid_y": 1,
        "grid_z": 1,
        "block_x": threads,
        "block_y": 1,
        "block_z": 1,
        "registers": registers,
    }
    return kernel(start, end, name, **shape, **others)


def test_launches_of_all_ranks_by_configuration(tmp_path):
    ranks = {
        0: {"kernels": [launch(0, 10), launch(10, 40, grid=800), launch(40, 50, grid=100)], "devices": [DEVICE]},
        1: {"kernels": [launch(0, 50), launch(50, 60, "copy", 50, static_shared_memory=100)], "devices": [DEVICE]},
    }
    answer = ask(make_run(tmp_path / "run", ranks), "occupancy")
    assert answer.table.to_pylist() == [
        {
            "name": "gemm", "threads": 256, "registers": 64, "shared_bytes": 0, "launches": 4, "duration_ns": 100,
            "blocks_per_sm": 4, "occupancy_percent": 50.0, "limit": "registers",
            # 1 wave for 10 ns and 50 ns, 2 for 30 ns, a quarter for 10 ns
            "waves_mean": pytest.approx(1.225), "below_wave_percent": 10.0,
        },
        {
            "name": "copy", "threads": 256, "registers": 64, "shared_bytes": 100, "launches": 1, "duration_ns": 10,
            "blocks_per_sm": 4, "occupancy_percent": 50.0, "limit": "registers", "waves_mean": 0.125,
            "below_wave_percent": 100.0,
        },
    ]  # fmt: skip
    assert answer.notes == ()


def test_what_is_not_known_is_null_and_said(tmp_path):
    kernels = [launch(0, 30), kernel(30, 40, "plain", device=1), launch(40, 60, "clustered", cluster_x=2)]
    tables = {"kernels": kernels, "devices": [DEVICE, {"device": 1, "ordinal": 1}]}
    run = make_run(tmp_path / "run", {0: tables})
    answer = ask(run, "occupancy")
    assert [(r["name"], r["occupancy_percent"]) for r in answer.table.to_pylist()] == [
        ("gemm", 50.0), ("clustered", 50.0), ("plain", None),
    ]  # fmt: skip
    assert answer.notes == (
        "the configuration or the device of 1 of 3 launches is not known",
        "1 launch uses thread block clusters, which can lower their occupancy further",
    )
    answer = ask(run, "occupancy", {"top": 1})
    assert answer.table.num_rows == 1
    assert answer.notes[-1] == "the 1 rows with most time of 3"


def test_traces_of_the_pytorch_profiler_are_answered(tmp_path):
    """They have shared memory as one sum, and of the device all but the most blocks, which its compute capability
    tells."""
    device = {**DEVICE, "compute_minor": 0, "max_blocks_per_sm": None}
    rows = [
        launch(0, 10, threads=64, registers=16, shared_memory=65536),
        launch(10, 30, "small", threads=32, registers=16),
    ]
    rows.append(launch(30, 31, "parts", threads=64, registers=16, static_shared_memory=1024, shared_memory=65536))
    run = make_run(tmp_path / "run", {0: {"kernels": rows, "devices": [device]}})
    found = {
        r["name"]: (r["shared_bytes"], r["blocks_per_sm"], r["limit"]) for r in ask(run, "occupancy").table.to_pylist()
    }
    assert found == {"gemm": (65536, 3, "shared memory"), "small": (0, 32, "blocks"), "parts": (1024, 32, "warps")}


@pytest.mark.parametrize(
    ("capability", "blocks"),
    [
        ((7, 0), 32),
        ((7, 5), 16),
        ((8, 0), 32),
        ((8, 6), 16),
        ((8, 9), 24),
        ((9, 0), 32),
        ((10, 3), 32),
        ((12, 0), 24),
        ((99, 0), None),
    ],
)
def test_the_most_blocks_by_compute_capability(capability, blocks):
    assert blocks_at_once(*capability) == blocks
    assert blocks_at_once(None, None) is None

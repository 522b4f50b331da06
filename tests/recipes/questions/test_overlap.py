from __future__ import annotations

import pytest
from tests.making import collective, copy, kernel, make_run

TIMES = (
    "compute_ns",
    "communication_ns",
    "overlapped_ns",
    "exposed_ns",
    "copy_ns",
    "copy_overlapped_ns",
    "copy_exposed_ns",
)


def test_exposed_is_what_no_compute_kernel_covers(tmp_path):
    kernels = [kernel(0, 40), kernel(35, 50, stream=8), collective(30, 70), collective(60, 90, stream=21)]
    run = make_run(tmp_path, {0: {"kernels": kernels, "copies": [copy(80, 100), copy(95, 120, stream=31)]}})
    (row,) = run.recipe("overlap").to_pylist()
    assert [row[c] for c in TIMES] == [50, 60, 20, 40, 40, 10, 30]
    assert row["overlap_percent"] == pytest.approx(100 * 20 / 60)
    assert row["copy_overlap_percent"] == 25.0


def test_without_communication_and_copies_there_is_no_share(tmp_path):
    (row,) = make_run(tmp_path, {3: {"kernels": [kernel(0, 40)]}}).recipe("overlap").to_pylist()
    assert [row[c] for c in TIMES] == [40, 0, 0, 0, 0, 0, 0]
    assert (row["rank"], row["overlap_percent"], row["copy_overlap_percent"]) == (3, None, None)


def test_peer_to_peer_kernels_communicate(tmp_path):
    run = make_run(
        tmp_path,
        {0: {"kernels": [kernel(0, 10), kernel(5, 25, "ncclDevKernel_SendRecv(ncclDevKernelArgs)", stream=9)]}},
    )
    (row,) = run.recipe("overlap").to_pylist()
    assert [row[c] for c in TIMES[:4]] == [10, 20, 5, 15]


def test_a_rank_without_gpu_work_is_named(tmp_path):
    run = make_run(
        tmp_path, {0: {"kernels": [kernel(0, 10)]}, 1: {"api": [{"start": 0, "end": 5, "name": "cudaFree"}]}, 2: {}}
    )
    answer = run.recipe("overlap")
    assert [r["rank"] for r in answer.to_pylist()] == [0]
    assert any(n.startswith("ranks 1-2 have no `kernels`, `copies` or `graphs`: ") for n in answer.notes)

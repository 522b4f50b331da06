from __future__ import annotations

from tests.making import kernel, make_run


def launch(start, end, name="gemm(int)", grid=4, block=128):
    shape = {"grid_x": grid, "grid_y": 2, "grid_z": 1, "block_x": block, "block_y": 1, "block_z": 1}
    return kernel(start, end, name, **shape)


def test_launches_of_all_ranks_by_name_grid_and_block(tmp_path):
    ranks = {
        0: {"kernels": [launch(0, 10), launch(10, 40), launch(40, 45, grid=8)]},
        1: {"kernels": [launch(0, 20), launch(20, 30, block=64), launch(30, 32, None)]},
    }
    answer = make_run(tmp_path, ranks).recipe("launch-configurations")
    found = [(r["name"], r["grid_x"], r["block_x"], r["ranks"], r["count"], r["total_ns"]) for r in answer.to_pylist()]
    assert found == [
        ("gemm(int)", 4, 128, 2, 3, 60),
        ("gemm(int)", 4, 64, 1, 1, 10),
        ("gemm(int)", 8, 128, 1, 1, 5),
        (None, 4, 128, 1, 1, 2),
    ]
    first = answer.to_pylist()[0]
    assert (first["short_name"], first["grid_y"], first["block_z"], first["min_ns"], first["max_ns"]) == (
        "gemm",
        2,
        1,
        10,
        30,
    )
    assert first["time_percent"] == 100 * (60 / 77)


def test_a_kernel_without_an_end_counts_for_its_configuration_alone(tmp_path):
    run = make_run(
        tmp_path,
        {0: {"kernels": [launch(0, 10), launch(20, 30) | {"end": None}, launch(40, 41, grid=1) | {"end": None}]}},
    )
    found = run.recipe("launch-configurations").to_pylist()
    assert [(r["grid_x"], r["ranks"], r["count"], r["total_ns"], r["time_percent"]) for r in found] == [
        (4, 1, 1, 10, 100.0),
        (1, 1, 0, None, None),
    ]

"""Reports of Nsight Compute with a run, in the page's data."""

import pytest
from tests.making import kernel, make_run
from tests.ncu_launches import A100, ELAPSED, measured, of
from tests.ui.conftest import client_of

from alltrace.ui.kernels import KernelReports

F = "smsp__sass_thread_inst_executed_op_f"
POINT = {f"{F}{op}_pred_on.sum": n for op, n in (("add", 1e6), ("mul", 2e6), ("fma", 3e6))} | {
    "gpu__time_duration.sum": 1000.0,
    "dram__bytes_read.sum": 3e6,
    "dram__bytes_write.sum": 1e6,
    f"sm__throughput{ELAPSED}": 20.0,
    f"gpu__compute_memory_throughput{ELAPSED}": 75.0,
}
GEMM = "void gemm<float>(float *)"


def sized(start, end, name, grid):
    return kernel(start, end, name) | {
        "grid_x": grid,
        "grid_y": 1,
        "grid_z": 1,
        "block_x": 256,
        "block_y": 1,
        "block_z": 1,
    }


@pytest.fixture
def client(tmp_path):
    """Two ranks that launch the first of three measured launches, which stand in two reports."""
    rows = [{"kernels": [sized(0, 300 + 100 * r, GEMM, 80), sized(500, 800, "other()", 1)]} for r in range(2)]
    make_run(tmp_path / "run", dict(enumerate(rows)))
    launches = [
        *of(measured(A100 | POINT, 0, GEMM), measured(A100, 1, "copy(char *)")),
        *of(measured(POINT, 0, GEMM, grid=(40, 1, 1)), report="b.ncu-rep"),
    ]
    return client_of(
        [tmp_path / "run"], tmp_path / "scratch", kernels=KernelReports(launches, ["a.ncu-rep: it is cut short"])
    )


def named(answer):
    return [dict(zip((c["name"] for c in answer["columns"]), row, strict=True)) for row in answer["rows"]]


def test_points_and_weights_of_launches_are_those_of_the_views(client):
    assert client.get("/api/run").json()["kernel_reports"] == ["a.ncu-rep", "b.ncu-rep"]
    found = client.get("/api/roofline").json()
    assert [(r["report"], r["launch"], r["device"]) for r in named(found["launches"])] == [
        ("a.ncu-rep", 0, "A100"),
        ("a.ncu-rep", 1, "A100"),
        ("b.ncu-rep", 0, None),
    ]
    (point,) = [p for p in named(found["points"]) if p["intensity_flop_per_byte"] and p["report"] == "a.ncu-rep"]
    assert (point["level"], point["intensity_flop_per_byte"], point["work_flop_per_s"]) == ("DRAM", 2.25, 9e12)
    assert point["under"] == "memory"
    assert {c["name"]: c["value"] for c in found["ceilings"]}["DRAM"] == pytest.approx(1.5552e12)
    assert "memory-bound" in {a["rule"] for a in named(found["advice"])}
    assert found["notes"][0] == "a.ncu-rep: it is cut short"
    found = client.get("/api/weighed").json()
    assert found["of"] == [0, None, None], "another grid is another kernel"
    (row,) = named(found)
    assert (row["count"], row["ranks"], row["total_ns"]) == (2, 2, 700)
    assert row["share_percent"] == pytest.approx(100 * 700 / 1300)
    assert any("2 profiled launches are not in the run" in n for n in found["notes"])


def test_without_reports_the_page_is_told_how(tmp_path):
    make_run(tmp_path / "run", {0: {"kernels": [kernel(0, 10)]}})
    client = client_of([tmp_path / "run"], tmp_path / "scratch")
    assert client.get("/api/run").json()["kernel_reports"] == []
    for path in ("roofline", "weighed"):
        answer = client.get(f"/api/{path}")
        assert (answer.status_code, "--ncu REPORT" in answer.json()["error"]) == (400, True)

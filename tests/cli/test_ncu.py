"""The verb `ncu` on real reports."""

import json

import pytest
from tests.making import kernel, make_run
from tests.readers.ncu.test_detail import REPORT

from alltrace.cli.main import main

DEVICE = {
    "device__attribute_compute_capability_major": 8,
    "device__attribute_compute_capability_minor": 0,
    "device__attribute_multiprocessor_count": 108,
    "device__attribute_max_gpu_frequency_khz": 1410000,
    "device__attribute_max_mem_frequency_khz": 1215000,
    "device__attribute_global_memory_bus_width": 5120,
}


@pytest.mark.corpus
def test_a_row_per_launch(corpus, capsys):
    reports = [str(corpus / "ncu" / f"{name}.ncu-rep") for name in ("gemm_badtile", "hpc_a3")]
    assert main(["ncu", *reports, "--format", "json"]) == 0
    answer = json.loads(capsys.readouterr().out)
    rows = answer["rows"]
    assert [(r["report"], r["launch"]) for r in rows] == [
        ("gemm_badtile.ncu-rep", 0), *(("hpc_a3.ncu-rep", n) for n in range(4))
    ]  # fmt: skip
    first = rows[1]
    assert (first["grid"], first["block"], first["registers"], first["shared_memory_bytes"]) == (
        "8x1x1",
        "128x1x1",
        16,
        1024,
    )
    assert (first["theoretical_occupancy_percent"], first["occupancy_limiter"]) == (100.0, "warps")
    assert all(r["duration_ns"] > 0 and 0 < r["sm_percent"] <= 100 for r in rows)


@pytest.mark.corpus
def test_launches_are_drawn(corpus, tmp_path, capsys):
    assert main(["ncu", str(corpus / "ncu" / "hpc_a3.ncu-rep"), "--picture", str(tmp_path / "p.svg")]) == 0
    assert "Speed of light of" in (tmp_path / "p.svg").read_text(encoding="utf-8")


@pytest.mark.corpus
def test_raw_has_every_metric(corpus, capsys):
    assert main(["ncu", str(corpus / "ncu" / "hpc_a3.ncu-rep"), "--raw", "--format", "json"]) == 0
    rows = json.loads(capsys.readouterr().out)["rows"]
    values = {r["metric"]: r["value"] for r in rows if r["launch"] == 0}
    assert len(values) > 870
    assert values["launch__waves_per_multiprocessor"] == 0.0043859649122807015


@pytest.mark.parametrize(
    ("content", "found"),
    [
        (b"text", "it has no kernel launch; expected a report of Nsight Compute (.ncu-rep), or the output"),
        (b"a,b\n1,2\n", "its columns are 'a,b'"),
        (b"NVR\x00\x05", "it is damaged or cut short"),
        (b"SQLite format 3\x00", "it does not start like one"),
    ],
)
def test_what_is_no_report_is_refused_in_one_sentence(tmp_path, capsys, content, found):
    path = tmp_path / "x.ncu-rep"
    path.write_bytes(content)
    assert main(["ncu", str(path)]) == 3
    said = capsys.readouterr().err
    assert f"x.ncu-rep: {found}" in said
    assert said.count("\n") == 1


def page(folder, name, *rows):
    columns = ("ID", "Kernel Name", "Grid Size", "Block Size", "gpu__time_duration.sum",
               "sm__throughput.avg.pct_of_peak_sustained_elapsed",
               "gpu__compute_memory_throughput.avg.pct_of_peak_sustained_elapsed")  # fmt: skip
    path = folder / name
    path.write_text("\n".join(",".join(f'"{c}"' for c in row) for row in (columns, *rows)) + "\n")
    return str(path)


def answered(capsys, *arguments):
    assert main(["ncu", *arguments, "--format", "json"]) == 0
    return json.loads(capsys.readouterr().out)


def test_every_view_answers_of_a_printed_page(tmp_path, capsys):
    one = page(tmp_path, "a.csv", ("0", "f(int)", "(8, 1, 1)", "(64, 1, 1)", "1000", "20", "80"))
    counts = {
        v: len(answered(capsys, one, "--view", v)["rows"])
        for v in ("launches", "metrics", "stalls", "roofline", "advice")
    }
    assert counts == {"launches": 1, "metrics": 3, "stalls": 0, "roofline": 3, "advice": 1}
    assert answered(capsys, one)["run"] == {"reports": 1, "launches": 1}


@pytest.fixture
def report(tmp_path):
    path = tmp_path / "x.ncu-rep"
    path.write_bytes(REPORT)
    return str(path)


def test_a_view_may_stand_before_the_reports(report, tmp_path, capsys):
    rows = answered(capsys, "source", "--lines", "sass", report)["rows"]
    assert [r["executed"] for r in rows] == [32, 64, None, None, 5, None]
    assert [r["text"] for r in answered(capsys, "source", report)["rows"]] == ["three", None, None, None]
    (tmp_path / "deep" / "src").mkdir(parents=True)
    (tmp_path / "a.cu").write_text("x\n" * 9)
    (tmp_path / "deep" / "src" / "b.h").write_text("1\n2\nheader\n")
    (tmp_path / "b.h").write_text("wrong\n" * 9)
    texts = [r["text"] for r in answered(capsys, "source", "--sources", str(tmp_path), report)["rows"]]
    assert texts == ["three", None, "header", None]
    assert [r["rule"] for r in answered(capsys, "rules", report)["rows"]] == []
    assert {r["instance"] for r in answered(capsys, "metrics", "--instances", report, "--metric", "op*")["rows"]} == {
        "MOV",
        "BRA",
    }
    assert [r["state"] for r in answered(capsys, "source", report, "--table", "stalls")["rows"]] == ["wait"]


@pytest.mark.parametrize(
    ("arguments", "found"),
    [
        (["source"], "ncu source needs a report"),
        (["source", "x", "--raw"], "the view source was given together with --view, --raw, --compare or --run"),
        (["x", "--instances"], "--instances is for the view metrics, not launches"),
        (["x", "--metric", "a"], "--metric is for the view metrics and --compare, not launches"),
        (["x", "--lines", "ptx"], "--lines is for the view source, not launches"),
        (["x", "--sass"], "--sass is for the view source, not launches"),
        (["x", "--match", "order"], "--match needs --compare, which was not given"),
        (["x", "--shared-memory", "1"], "--shared-memory is for the view occupancy, not launches"),
        (["source", "x", "--nvdisasm", "y"], "--nvdisasm needs --sass, which was not given"),
        (["source", "x", "--sources", "/nowhere/at/all"], "--sources /nowhere/at/all is not a folder"),
        (["source", "x", "--sass", "--nvdisasm", "/nowhere/nvdisasm"], "/nowhere/nvdisasm was not found; `pip install"),
    ],
)
def test_options_of_another_view_are_refused(capsys, arguments, found):
    assert main(["ncu", *arguments]) == 2
    assert found in capsys.readouterr().err


def test_a_file_that_is_called_like_a_view_is_a_report(report, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "source").write_bytes(REPORT)
    assert [r["report"] for r in answered(capsys, "source")["rows"]] == ["source"]


def test_two_reports_are_compared(tmp_path, capsys):
    one, two = (
        page(tmp_path, n, ("0", "f(int)", "(8, 1, 1)", "(64, 1, 1)", t, "20", "80"))
        for n, t in (("a", "1000"), ("b", "900"))
    )
    rows = answered(capsys, "--compare", one, two)["rows"]
    assert (rows[0]["metric"], rows[0]["change"], rows[0]["change_percent"]) == ("duration_ns", -100.0, -10.0)
    assert answered(capsys, "--compare", one, two, "--table", "unmatched")["rows"] == []
    assert main(["ncu", "--compare", one]) == 2
    assert "--compare needs two reports or more, and 1 was given" in capsys.readouterr().err
    assert main(["ncu", one, "--table", "unmatched"]) == 2


def test_launches_of_other_grids_are_compared_by_name(tmp_path, capsys):
    one, two = (
        page(tmp_path, n, ("0", "f(int)", f"({x}, 1, 1)", "(64, 1, 1)", t, "20", "80"))
        for n, x, t in (("a", 8, "1000"), ("b", 16, "900"))
    )
    assert answered(capsys, "--compare", one, two)["rows"] == []
    rows = answered(capsys, "--compare", one, two, "--match", "name")["rows"]
    assert (rows[0]["metric"], rows[0]["change"]) == ("duration_ns", -100.0)


def test_occupancy_with_other_registers(tmp_path, capsys):
    columns = ["ID", "Kernel Name", "launch__registers_per_thread", "launch__shared_mem_per_block",
               "launch__block_size", *(f"device__attribute_max_{n}_per_multiprocessor" for n in ("warps", "blocks",
                   "registers"))]  # fmt: skip
    path = tmp_path / "a.csv"
    path.write_text(
        "\n".join(",".join(f'"{c}"' for c in row) for row in (columns, ("0", "f", 32, 0, 64, 64, 32, 65536))) + "\n"
    )
    own = {r["block_size"]: r["occupancy_percent"] for r in answered(capsys, "occupancy", str(path))["rows"]}
    more = {
        r["block_size"]: r["occupancy_percent"]
        for r in answered(capsys, "occupancy", str(path), "--registers", "64")["rows"]
    }
    assert (own[256], more[256], own[32]) == (100.0, 50.0, 50.0)


def test_reports_of_one_name_are_told_apart_by_their_folders(tmp_path, capsys):
    paths = []
    for folder in ("a", "b"):
        (tmp_path / folder).mkdir()
        paths.append(page(tmp_path / folder, "gemm.csv", ("0", "f(int)", "(8, 1, 1)", "(64, 1, 1)", "900", "20", "80")))
    assert [row["report"] for row in answered(capsys, *paths)["rows"]] == paths


def test_a_report_is_weighed_by_a_run(tmp_path, capsys):
    sizes = {"grid_x": 8, "grid_y": 1, "grid_z": 1, "block_x": 64, "block_y": 1, "block_z": 1}
    make_run(tmp_path / "run", {rank: {"kernels": [{**kernel(0, 100 + rank, "f(int)"), **sizes}]} for rank in range(2)})
    one = page(tmp_path, "a.csv", ("0", "f(int)", "(8, 1, 1)", "(64, 1, 1)", "1000", "20", "80"))
    (row,) = answered(capsys, one, "--run", str(tmp_path / "run"))["rows"]
    assert (row["count"], row["ranks"], row["total_ns"], row["share_percent"]) == (2, 2, 201, 100.0)
    assert (row["rule"], row["gain_ns"]) == ("memory-bound", 40)


def test_a_picture_of_the_roofline(tmp_path, capsys):
    pytest.importorskip("matplotlib")
    names = [f"smsp__sass_thread_inst_executed_op_f{op}_pred_on.sum" for op in ("add", "mul", "fma")]
    head = ",".join(
        f'"{c}"' for c in ("ID", "Kernel Name", "gpu__time_duration.sum", "dram__bytes.sum", *names, *DEVICE)
    )
    report, picture = tmp_path / "a.csv", tmp_path / "a.svg"
    report.write_text(
        head + "\n" + ",".join(f'"{c}"' for c in (0, "f", 1000, 4000, 0, 0, 8000, *DEVICE.values())) + "\n"
    )
    assert main(["ncu", str(report), "--view", "roofline", "--picture", str(picture), "--format", "csv"]) == 0
    assert "FP32, DRAM" in capsys.readouterr().out
    drawn = picture.read_text()
    assert "<svg" in drawn
    assert "FP32, FP64 tensor 19.5 TFLOP/s" in drawn
    assert main(["ncu", str(report), "--raw", "--picture", str(picture)]) == 2

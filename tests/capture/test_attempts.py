"""Only what a node refuses is lost: it is left out, reported once, and written next to the report."""

import json

import pytest

WORLD = {"OMPI_COMM_WORLD_RANK": 0, "OMPI_COMM_WORLD_LOCAL_RANK": 0, "OMPI_COMM_WORLD_SIZE": 2}
METRICS = ["exec", "--job", "j", "--gpu-metrics", "--nic-metrics"]
REFUSED = "Illegal --gpu-metrics-device arguments. None of the GPUs are supported."


def side_file(tmp_path):
    (path,) = (tmp_path / "reports").glob("*.nsys-rep.capture.json")
    return json.loads(path.read_text())


def test_a_refused_metric_is_left_out_and_the_rest_is_recorded(capture, fake_nsys, tmp_path):
    done = capture(*METRICS, "--nsys", fake_nsys, "--", "sh", "-c", "exit 5", FAKE="picky", **WORLD)
    assert done.returncode == 5
    assert done.stderr.endswith(f": --gpu-metrics left out: nsys says: {REFUSED}; the rest is recorded\n")
    assert done.stderr.count("\n") == 1
    assert (tmp_path / "starts").read_text().splitlines() == ["started"]
    told = side_file(tmp_path)
    assert told["left_out"] == [{"option": "--gpu-metrics", "reason": f"nsys says: {REFUSED}"}]
    assert told["rank"] == 0
    assert len(list((tmp_path / "reports").glob("*.nsys-rep"))) == 1


def test_where_the_profiler_names_none_all_that_can_be_left_out_is(capture, fake_nsys, tmp_path):
    switch = "--python-sampling=true"
    done = capture(
        *METRICS, f"--profiler-arg={switch}", "--nsys", fake_nsys, "--", "sh", "-c", "exit 5", FAKE="mute", **WORLD
    )
    assert done.returncode == 5
    assert [one["option"] for one in side_file(tmp_path)["left_out"]] == ["--gpu-metrics", "--nic-metrics", switch]
    assert "left out: nsys ended before the program started; the rest is recorded" in done.stderr


def test_the_trace_of_nccl_is_asked_for_and_left_out_where_nsys_refuses_it(capture, fake_nsys, tmp_path):
    words = ["exec", "--job", "j", "--nsys", fake_nsys, "--", "sh", "-c", "exit 5"]
    assert (
        "--trace=cuda,nvtx,nccl"
        in capture(*words[:3], "--dry-run", *words[3:], FAKE_NCCL=1, NCCL_VERSION="2.28.3", **WORLD).stdout
    )
    done = capture(*words, FAKE="picky", FAKE_NCCL=1, NCCL_VERSION="2.28.3", **WORLD)
    assert done.returncode == 5
    assert "--trace=nccl left out: nsys says: Illegal --trace argument: nccl.; the rest is recorded" in done.stderr
    assert [one["option"] for one in side_file(tmp_path)["left_out"]] == ["--trace=nccl"]
    assert len(list((tmp_path / "reports").glob("*.nsys-rep"))) == 1


def test_what_the_installed_version_cannot_is_left_out(capture, fake_nsys, tmp_path):
    done = capture("exec", "--efa", "--nsys", fake_nsys, "--", "sh", "-c", "exit 5", **WORLD)
    assert done.returncode == 5
    assert "--efa left out: nsys 2023.4.4 cannot record EFA adapters" in done.stderr
    assert [one["option"] for one in side_file(tmp_path)["left_out"]] == ["--efa"]


@pytest.mark.parametrize(("how", "code", "ran"), [("stop", 1, ""), ("run", 5, "ran\n")])
def test_it_stops_or_runs_plainly_where_that_was_asked_for(capture, fake_nsys, tmp_path, how, code, ran):
    done = capture(
        *METRICS, "--on-error", how, "--nsys", fake_nsys, "--", "sh", "-c", "echo ran; exit 5", FAKE="picky", **WORLD
    )
    assert done.returncode == code
    assert done.stdout.partition("usage: nsys\n")[2] == ran  # the second time it is seen what the profiler says
    assert REFUSED in done.stderr
    assert not list((tmp_path / "reports").iterdir())


def test_an_error_that_all_ranks_of_a_node_have_is_said_once(capture, fake_nsys):
    ranks = [{"OMPI_COMM_WORLD_RANK": n, "OMPI_COMM_WORLD_LOCAL_RANK": n, "OMPI_COMM_WORLD_SIZE": 3} for n in range(3)]
    options = ["exec", "--nsys", "/no/such", "--", "true"]
    started = [capture(*options, wait=False, **rank) for rank in ranks]
    said = [one.communicate(timeout=60)[1] for one in started]
    assert [one.returncode for one in started] == [2, 2, 2]
    assert sorted(map(len, said))[:2] == [0, 0]
    assert "--nsys is /no/such, which cannot be run" in "".join(said)
    assert capture(*options).stderr != ""  # a program without a launcher always says it


@pytest.mark.oracle
def test_the_real_nsys_without_a_gpu_leaves_out_its_metrics(capture, nsys, tmp_path):
    done = capture(
        "exec", "--trace", "nvtx", "--gpu-metrics", "--efa", "--nsys", nsys, "--", "sh", "-c", "exit 5", **WORLD
    )
    assert done.returncode == 5
    left_out = [one["option"] for one in side_file(tmp_path)["left_out"]]
    assert "--efa" in left_out
    assert len(list((tmp_path / "reports").glob("*.nsys-rep"))) == 1
    assert "%" not in done.stdout  # nsys' progress is not shown

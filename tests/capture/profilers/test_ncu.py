import os
import re
from pathlib import Path

import pytest
from tests.together import together

from alltrace.capture.profilers.ncu import NcuOptions, base_name, check_filter, filter_of, ncu_command
from alltrace.capture.profilers.tool import Tool
from alltrace.trace.errors import UsageError

OLD = Tool(Path("/opt/ncu"), (2024, 1, 1), frozenset({"--set"}), "")
NEW = Tool(
    Path("/opt/ncu"),
    (2026, 1, 1),
    frozenset(
        {"--communicator", "--communicator-tcp-num-peers", "--communicator-tcp-hostname", "--lockstep-kernel-launch"}
    ),
    "",
)
WORLD = {"OMPI_COMM_WORLD_SIZE": "4", "OMPI_COMM_WORLD_LOCAL_SIZE": "2"}
# what ncu asks of its arguments, as a stand-in: a report, and the program's exit code
NCU = """#!/bin/sh
case "$1" in --version) echo "Version 2024.1.1.0"; exit ;; --help) echo "--set --kernel-name"; exit ;; esac
all=$*
while [ "$1" != --export ]; do shift; done
out=$2
shift 2
"$@"
code=$?
printf 'NVR %s' "$all" > "$out"
exit $code
"""


@pytest.fixture
def ncu(tmp_path):
    path = tmp_path / "ncu"
    path.write_text(NCU)
    path.chmod(0o755)
    return path


def rank(number):
    return {**WORLD, "OMPI_COMM_WORLD_RANK": str(number), "OMPI_COMM_WORLD_LOCAL_RANK": str(number % 2)}


@together(
    "kernels", ["", None, ".*", "nccl", "Reduce", "ncclDevKernel_AllReduce_Sum_f32_RING_LL", "(?i)NVSHMEM", "k.*l"]
)
def test_a_filter_that_could_hang_the_job_is_refused(kernels):
    with pytest.raises(UsageError, match="hang"):
        check_filter(kernels)


def test_a_filter_that_is_safe_is_taken_and_one_that_is_none_is_not():
    assert check_filter("^(gemm|relu)") == "^(gemm|relu)"
    with pytest.raises(UsageError, match="--top is '\\(', which is not a valid regular expression"):
        check_filter("(", "--top")


@together(
    ("name", "base"),
    [
        ("gemm", "gemm"),
        ("void at::native::(anonymous namespace)::relu<float, 4>(float*, int)", "relu"),
        ("void cutlass::Kernel<cutlass::gemm::Gemm<a::b<(int)3>, c>>(T1::Params)", "Kernel"),
        ("ns::f(std::pair<int, int>)", "f"),
        ("void <unnamed>::g<1>(int)", "g"),
        ("triton_poi_fused_0d1d", "triton_poi_fused_0d1d"),
    ],
)
def test_names_are_those_that_ncu_compares(name, base):
    assert base_name(name) == base


def test_the_filter_of_a_run_and_the_command_around_it():
    names = ["void a::b<1>(int)", "void a::b<2>(int)", "ncclKernel_X", "nvshmem_wait", "c.d$", "e"]
    assert filter_of(names, 2) == r"^(b|c\.d\$)$"
    assert filter_of(names, 9) == r"^(b|c\.d\$|e)$"
    pattern = re.compile(filter_of(names, 9))
    assert [bool(pattern.search(n)) for n in ("b", "c.d$", "e", "ab", "cxd$", "ncclKernel_X")] == [True] * 3 + [
        False
    ] * 3
    assert check_filter(filter_of(names, 9))
    with pytest.raises(UsageError, match="no compute kernel"):
        filter_of(["ncclKernel_X"], 5)
    options = NcuOptions("gemm", "full", 5, 3, ("--clock-control=none",))
    assert ncu_command(OLD, Path("/r/50%.ncu-rep"), options, force=True)[1:] == [
        *("--set", "full", "--kernel-name", "regex:gemm", "--launch-skip", "5", "--launch-count", "3"),
        *("--target-processes", "all", "--export", "/r/50%%.ncu-rep", "--force-overwrite", "--clock-control=none"),
    ]


def test_ranks_replay_together_where_the_installed_ncu_can():
    options = NcuOptions("gemm", lockstep="node7")
    command = ncu_command(NEW, Path("r.ncu-rep"), options, force=False, peers=4)
    at = command.index("--communicator")
    assert command[at : at + 7] == [
        *("--communicator", "tcp", "--communicator-tcp-num-peers", "4", "--communicator-tcp-hostname", "node7"),
        "--lockstep-kernel-launch",
    ]
    with pytest.raises(UsageError, match=r"ncu 2024\.1\.1 cannot replay the kernels of several ranks together"):
        ncu_command(OLD, Path("r.ncu-rep"), options, force=False, peers=4)
    for peers in (None, 1):
        with pytest.raises(UsageError, match="--lockstep needs two or more ranks"):
            ncu_command(NEW, Path("r.ncu-rep"), options, force=False, peers=peers)


def test_one_rank_is_measured_and_all_wait_long_enough(capture, ncu, tmp_path):
    options = ["--profiler", "ncu", "--ncu", ncu, "--kernels", "gemm", "--job", "j"]
    for number in range(4):
        program = ["sh", "-c", "echo $TORCH_NCCL_HEARTBEAT_TIMEOUT_SEC $TORCH_NCCL_ASYNC_ERROR_HANDLING; exit 5"]
        done = capture("exec", *options, "--", *program, **rank(number))
        assert (done.returncode, done.stdout) == (5, "7200 0\n"), done.stderr
    (report,) = (tmp_path / "reports").iterdir()
    assert report.name.startswith("j_rank0_on_")
    assert "--kernel-name regex:gemm --launch-skip 0 --launch-count 10" in report.read_text()


def test_several_ranks_are_measured_only_where_they_are_named_and_that_is_said(capture, ncu, tmp_path):
    options = ["--profiler", "ncu", "--ncu", ncu, "--kernels", "gemm", "--ranks", "0,2"]
    done = capture("exec", *options, "--", "true", **rank(0))
    assert "several ranks replay kernels independently" in done.stderr
    assert capture("exec", *options, "--", "true", **rank(1)).stderr == ""
    capture("exec", *options, "--", "true", **rank(2))
    assert sorted(p.name.partition("_on_")[0] for p in (tmp_path / "reports").iterdir())[1][-5:] == "rank2"


def test_a_rank_that_cannot_be_measured_waits_as_long_as_the_others(capture, ncu, tmp_path):
    failing = tmp_path / "failing"
    failing.write_text(f'#!/bin/sh\ncase "$1" in --*) [ "$#" -gt 1 ] || exec "{ncu}" "$1" ;; esac\nexit 1\n')
    failing.chmod(0o755)
    options = ["--profiler", "ncu", "--ncu", failing, "--kernels", "gemm", "--on-error", "run"]
    done = capture("exec", *options, "--", "sh", "-c", 'echo "$TORCH_NCCL_HEARTBEAT_TIMEOUT_SEC"', **rank(0))
    assert "which now runs unprofiled" in done.stderr
    assert done.stdout == "7200\n"


@pytest.mark.parametrize("window", [["--steps", "3:5"], ["--capture-range", "cuda"]])
def test_launches_count_only_in_the_window(capture, ncu, window):
    options = ["--profiler", "ncu", "--ncu", ncu, "--kernels", "gemm", *window]
    assert "--profile-from-start off --export" in capture("exec", *options, "--dry-run", "--", "x", **rank(0)).stdout
    assert "--profile-from-start off" in capture("exec", *options, "--emit-sh").stdout


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["--profiler", "ncu", "--kernels", "a", "--delay", "3"], "--delay works with nsys, and --profiler is ncu"),
        (
            ["--profiler", "ncu", "--kernels", "a", "--gpu-metrics"],
            "--gpu-metrics works with nsys, and --profiler is ncu",
        ),
        (
            ["--profiler", "ncu", "--kernels", "a", "--capture-range", "nvtx:x"],
            "ncu supports only --capture-range cuda",
        ),
        (
            ["--profiler", "torch", "--capture-range", "cuda"],
            "--capture-range works with nsys and ncu, and --profiler is torch",
        ),
        (["--kernels", "gemm"], "--kernels works with ncu, and --profiler is nsys"),
        (["--lockstep", "h"], "--lockstep works with ncu"),
        (["--set", "full"], "--set works with ncu, and --profiler is nsys"),
        (["--launch-count", "3"], "--launch-count works with ncu, and --profiler is nsys"),
        (["--profiler", "torch", "--trace", "mpi"], "--trace works with nsys, and --profiler is torch"),
        (["--profiler", "ncu", "--kernels", "a", "--steps", "3:5", "--steps-by", "nvtx"], "--steps-by works with nsys"),
    ],
)
def test_options_of_another_profiler_are_refused(capture, options, said):
    done = capture("exec", *options, "--", "echo", "ran", **rank(1))
    assert (done.returncode, done.stdout) == (2, "")
    assert said in done.stderr


def test_without_a_filter_no_rank_runs(capture, ncu):
    for number in (0, 3):
        done = capture("exec", "--profiler", "ncu", "--ncu", ncu, "--", "echo", "ran", **rank(number))
        assert (done.returncode, done.stdout) == (2, "")
        assert "ncu needs --kernels REGEX" in done.stderr


def test_the_filter_comes_from_a_run_on_the_rank_that_is_measured(capture, ncu, tmp_path):
    made = capture("exec", "--help")
    assert "--top N RUN" in made.stdout
    from alltrace.cli.main import main

    assert main(["synth", "--ideal", "tiny", "-o", str(tmp_path / "a run")]) == 0
    options = ["--profiler", "ncu", "--ncu", ncu, "--top", "3", "a run"]
    done = capture("exec", *options, "--dry-run", "--", "x", **rank(0))
    (found,) = re.findall(r"regex:\^\((.*?)\)\$", done.stdout)
    assert len(found.split("|")) == 3
    assert "nccl" not in found
    # the others do not look at it
    assert capture("exec", *options[:-1], "no such run", "--dry-run", "--", "x", **rank(1)).stdout == "x\n"
    gone = capture("exec", *options[:-1], "no such run", "--", "echo", "ran", **rank(0))
    assert (gone.returncode, gone.stdout) == (3, "")
    assert "no such run" in gone.stderr
    both = capture("exec", *options, "--kernels", "gemm", "--", "x", **rank(0))
    assert "--top and --kernels both select" in both.stderr


@pytest.mark.oracle
def test_the_real_ncu_takes_the_command(capture, tmp_path):
    real = Path(os.environ.get("ALLTRACE_NSIGHT", "/nowhere")) / "ncu" / "ncu"
    if not real.is_file():
        pytest.skip("no Nsight Compute on this machine")
    options = [
        "--profiler",
        "ncu",
        "--ncu",
        real,
        "--kernels",
        r"^(gemm|a\.b)$",
        *"--set roofline --launch-skip 3".split(),
    ]
    done = capture("exec", *options, "--", "true")
    assert "unrecognised option" not in done.stdout + done.stderr
    # it finds a GPU and measures nothing, or says that there is no driver: its arguments are read before
    assert re.search("No kernels were profiled|connect to the CUDA driver|NVRM", done.stdout + done.stderr)
    refused = capture("exec", *options, "--profiler-arg=--no-such-switch", "--", "true")
    assert "unrecognised option '--no-such-switch'" in refused.stdout + refused.stderr
    lock = capture(
        "exec",
        *options,
        "--ranks",
        "0-1",
        "--lockstep",
        "h",
        "--dry-run",
        "--",
        "true",
        OMPI_COMM_WORLD_RANK=0,
        OMPI_COMM_WORLD_SIZE=2,
    )
    assert (
        "cannot replay the kernels of several ranks together" in lock.stderr
        or "--lockstep-kernel-launch" in lock.stdout
    )

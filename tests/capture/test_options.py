"""What the options of `capture exec` ask for."""

import argparse

import pytest
from tests.together import together

from alltrace.capture.options import BY_NAME, OPTIONS, check_command, make_request
from alltrace.capture.plan import Request, Then
from alltrace.capture.profilers.ncu import NcuOptions
from alltrace.capture.profilers.nsys import NsysOptions
from alltrace.capture.selection import Selection
from alltrace.trace.errors import UsageError


def values(*words):
    parser = argparse.ArgumentParser()
    for option in OPTIONS:
        option.add_to(parser)
    return vars(parser.parse_args(words))


def test_options_of_nsys_and_their_defaults():
    assert make_request(values()) == Request()
    words = "--ranks 0-3,9 --per-node 2 --cutoff 64 -o out --name n --job j --tmp /t --force --nsys /n --trace cuda"
    words += " --mpi-impl mpich --sample --gpu-metrics --nic-metrics --efa --delay 1.5 --duration 50 --gpu-log"
    words += " --flight-recorder --memory-snapshot --nccl-log --profiler-arg=-x --profiler-arg=--y=z --on-error stop"
    words += " --strict --grace 7 --end-after 3 --verbose"
    assert make_request(values(*words.split())) == Request(
        output="out",
        name="n",
        job="j",
        selection=Selection(((0, 3), (9, 9)), False, 2, 64),
        tool="/n",
        nsys=NsysOptions("cuda", "mpich", True, True, True, True, 1.5, 50.0, extra=("-x", "--y=z")),
        ncu=NcuOptions(extra=("-x", "--y=z")),
        tmp="/t",
        force=True,
        on_error="stop",
        strict=True,
        verbose=True,
        grace_s=7.0,
        end_after_s=3.0,
        gpu_log=True,
        flight_recorder=True,
        memory_snapshot=True,
        nccl_log=True,
    )
    steps = make_request(values("--steps", "70:75", "--steps-by", "nvtx")).nsys
    assert steps == NsysOptions(steps=(70, 75), steps_by="nvtx")
    ranges = make_request(values("--capture-range", "nvtx:a@b", "--repeat", "3")).nsys
    assert ranges == NsysOptions(capture_range="nvtx:a@b", repeat=3)


@pytest.mark.parametrize(
    ("window", "from_start"), [([], True), (["--steps", "3:5"], False), (["--capture-range", "cuda"], False)]
)
def test_options_of_ncu(window, from_start):
    words = "--profiler ncu --ncu /c --kernels gemm --set full --launch-skip 7 --launch-count 3".split()
    request = make_request(values(*words, "--lockstep", "h", *window))
    assert request.ncu == NcuOptions("gemm", "full", 7, 3, (), from_start, "h")
    assert (request.profiler, request.tool) == ("ncu", "/c")
    assert request.selection == Selection(((0, 0),))  # the others wait while its kernels are replayed
    assert make_request(values(*words, "--cutoff", "4")).selection == Selection(None, False, None, 4)


def test_what_is_done_with_reports():
    words = "--then import --then diagnose --then upload file:///tmp/x --run r --scrub --max-writers 4 --wait 9"
    assert make_request(values(*words.split())).then == Then(True, True, "file:///tmp/x", True, "r", 4, 9.0)
    assert make_request(values("--import")).then == Then(imports=True)


@together(
    ("words", "said"),
    [
        ("--steps 3:5 --capture-range cuda", "--steps and --capture-range both set when to record"),
        ("--capture-range cuda --duration 3", "--capture-range and --duration both set when to record"),
        ("--repeat 3", "--repeat counts ranges, so it needs --capture-range"),
        ("--profiler torch --sample", "--sample works with nsys, and --profiler is torch; leave it out"),
        ("--profiler torch --profiler-arg=-x", "--profiler-arg works with nsys and ncu, and --profiler is torch"),
        ("--set basic", "--set works with ncu, and --profiler is nsys"),
        ("--profiler ncu --capture-range nvtx:a", "ncu supports only --capture-range cuda"),
        ("--profiler ncu", "ncu needs --kernels REGEX"),
        ("--profiler ncu --kernels a --top 3 run", "--top and --kernels both select"),
    ],
)
def test_what_cannot_be_together(words, said):
    with pytest.raises(UsageError) as caught:
        check_command(values(*words.split()))
    assert said in str(caught.value)


def test_every_option_has_a_help_and_a_group():
    assert all(o.command_help and o.group for o in OPTIONS)
    assert len(BY_NAME) == len(OPTIONS) == len({o.flag for o in OPTIONS})

import argparse

import pytest
from tests.capture.scripts.rendering import NEEDED
from tests.together import together

from alltrace.capture.scripts.parts import capture_words, check, request_of, variables, wrapper_text
from alltrace.capture.scripts.registry import render
from alltrace.capture.scripts.settings import Job
from alltrace.cli.capturing.exec_ import configure, request_from
from alltrace.trace.errors import UsageError


@together(
    "changes",
    [
        {},
        {"profiler.ranks": "0-3,9", "profiler.per_node": 2, "profiler.steps": "70:75", "profiler.tmp": "/local disk"},
        {
            "profiler.delay": "330",
            "profiler.duration": "50.5",
            "profiler.gpu_metrics": True,
            "profiler.nic_metrics": True,
        },
        {
            "profiler.efa": True,
            "profiler.sample": True,
            "profiler.trace": "cuda,nvtx,mpi",
            "profiler.arguments": ["--x=a b", "-y"],
        },
        {"profiler.capture_range": "nvtx:a b@c", "profiler.path": "/opt/nsys"},
        {"workload.kind": "megatron", "profiler.steps": "70:75"},
        {"profiler.steps": "70:75", "nccl.log": True, "nccl.window": True},
        {"profiler.kind": "ncu", "profiler.kernels": "^(a|b)$", "profiler.set": "roofline", "profiler.launch_skip": 7},
        {"profiler.kind": "torch", "profiler.steps": "3:5", "profiler.ranks": "first-local"},
    ],
)
def test_the_options_of_the_wrapper_and_its_shell_form_ask_for_the_same(changes):
    job = Job({**NEEDED, **changes})
    words = ["reports" if word == '"$reports"' else word for word in capture_words(job, "profiled")]
    parser = argparse.ArgumentParser()
    configure(parser)
    parsed = request_from(parser.parse_args(words[3:-1]))
    wanted = request_of(job, "reports")
    assert (words[:3], words[-1]) == (["alltrace", "capture", "exec"], "--")
    assert parsed._replace(ncu=wanted.ncu, nsys=wanted.nsys) == wanted
    if wanted.profiler == "ncu":
        assert parsed.ncu == wanted.ncu
    elif wanted.profiler == "nsys":
        assert parsed.nsys == wanted.nsys
    else:
        assert parsed.nsys.steps == wanted.nsys.steps == (3, 5)


def test_windows_of_programs_and_where_inspector_writes():
    changes = {"workload.kind": "megatron", "profiler.steps": "70:75", "profiler.wrapper": "shell"}
    by_kind = {kind: wrapper_text(Job({**NEEDED, **changes, "profiler.kind": kind})) for kind in ("nsys", "torch")}
    assert "--capture-range=cudaProfilerApi" in by_kind["nsys"]
    assert "--capture-range=" not in by_kind["torch"]
    job = Job({"nccl.inspector": "/opt/a b/libnccl-profiler-inspector.so", "nccl.inspector_interval_us": 2000})
    assert variables(job, "/reports") == {
        "NCCL_PROFILER_PLUGIN": "/opt/a b/libnccl-profiler-inspector.so",
        "NCCL_INSPECTOR_ENABLE": "1",
        "NCCL_INSPECTOR_DUMP_DIR": "/reports/inspector",
        "NCCL_INSPECTOR_DUMP_THREAD_INTERVAL_MICROSECONDS": "2000",
    }
    lines = render("slurm", job).splitlines()
    assert 'export NCCL_INSPECTOR_DUMP_DIR="$reports/inspector"' in lines
    at = lines.index("export NCCL_PROFILER_PLUGIN='/opt/a b/libnccl-profiler-inspector.so'")
    assert "alltrace logs inspector" in lines[at - 1]


def test_the_log_of_nccl_has_the_ranks_and_times_that_are_read_back(tmp_path):
    found = variables(Job({"nccl.log": True, "environment": {"NCCL_DEBUG": "WARN"}}), "/reports")
    assert found["NCCL_DEBUG"] == "WARN"  # the user's own comes last
    assert found["NCCL_DEBUG_FILE"] == "/reports/nccl.%h.%p.log"
    assert {"INIT", "COLL"} <= set(found["NCCL_DEBUG_SUBSYS"].split(","))
    assert variables(Job(), "/reports") == {}  # it is much, and only written where it is asked for
    stamp = (
        found["NCCL_DEBUG_TIMESTAMP_FORMAT"]
        .replace("%F", "2026-05-05")
        .replace("%T", "06:16:47")
        .replace("%6f", "250000")
    )
    line = (
        f"{stamp}h:1:1 [0] NCCL INFO AllReduce: opCount 0 sendbuff 0x1 recvbuff 0x2 count 10 datatype 7 op 0 root 0"
        " comm 0x5 "
    )
    log = tmp_path / "nccl.h.1.log"
    log.write_text(f"{line}[nranks=2] stream 0x9\n{line.replace('47.25', '48.50')}[nranks=2] stream 0x9\n")
    target = tmp_path / "calls.csv"
    from alltrace.cli.main import main

    assert main(["logs", "nccl", str(log), "--view", "calls", "--format", "csv", "-o", str(target)]) == 0
    head, *rows = [row.split(",") for row in target.read_text().splitlines()]
    first, second = (int(row[head.index("time_ns")]) for row in rows)
    assert second - first == 1_250_000_000


WINDOW = {"nccl.log": True, "nccl.window": True, "profiler.steps": "70:75"}


def test_a_log_of_the_window_is_asked_for_by_the_wrapper_of_ranks_that_are_profiled():
    found = variables(Job({**NEEDED, **WINDOW}), "$reports")
    assert [name for name in found if name.startswith("NCCL_DEBUG")] == ["NCCL_DEBUG_SUBSYS"]
    assert '"$reports"/*_nccl.*.log' in render("slurm", Job({**NEEDED, **WINDOW}))


@together(
    ("changes", "lacking"),
    [
        ({"nccl.log": False}, "nccl.log = true"),
        ({"nccl.debug": "TRACE"}, "nccl.debug = "),
        ({"profiler.steps": ""}, "profiler.steps"),
        ({"workload.kind": "megatron"}, "profiler.steps"),
        ({"profiler.wrapper": "shell"}, "profiler.wrapper = "),
        ({"kubernetes.inject": "operator"}, "kubernetes.inject = "),
    ],
)
def test_a_log_of_the_window_needs_one_and_the_wrapper(changes, lacking):
    with pytest.raises(UsageError, match=f"nccl.window needs {lacking}"):
        check(Job({**NEEDED, **WINDOW, **changes}))

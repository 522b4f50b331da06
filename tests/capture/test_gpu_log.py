"""The log of the GPUs' clocks next to the reports: recorded once per node, ended with the job, found by `import`."""

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from alltrace.capture.gpu_log import recording
from alltrace.readers.gpu_log.read import read_gpu_log
from alltrace.run.gpu_logs import logs_beside
from alltrace.trace.gpu_log_words import LOG_ENDING, OFFSET_SUFFIX, QUERY

# prints what nvidia-smi prints of two GPUs, until it is ended
NVIDIA_SMI = """#!{python}
import signal, sys, time
query = next(a for a in sys.argv if a.startswith("--query-gpu="))[12:]
assert query == {query!r} and "--format=csv" in sys.argv and "--loop=1" in sys.argv
print("timestamp, uuid, clocks.current.sm [MHz], clocks.current.memory [MHz], power.draw [W], temperature.gpu, "
      "clocks_event_reasons.active", flush=True)
while True:
    now = time.time()
    at = time.strftime("%Y/%m/%d %H:%M:%S", time.localtime(now)) + f".{{int(now * 1000) % 1000:03d}}"
    for n in range(2):
        print(f"{{at}}, GPU-{{n:08x}}-1111-2222-3333-444444444444, 1980 MHz, 2619 MHz, 699.81 W, 50, 0x04", flush=True)
    time.sleep(0.1)
"""
WORLD = {"OMPI_COMM_WORLD_RANK": 0, "OMPI_COMM_WORLD_LOCAL_RANK": 0, "OMPI_COMM_WORLD_SIZE": 2}


@pytest.fixture
def smi(tmp_path):
    """A folder with a stand-in for nvidia-smi, to go first on PATH."""
    folder = tmp_path / "smi"
    folder.mkdir()
    (folder / "nvidia-smi").write_text(NVIDIA_SMI.format(python=sys.executable, query=QUERY))
    (folder / "nvidia-smi").chmod(0o755)
    return folder


def test_the_log_of_a_node_is_ended_with_the_job_and_can_be_read(capture, fake_nsys, tmp_path, smi):
    path = f"{smi}:{os.environ['PATH']}"
    # the program runs until there are two times and a head in the log, for 20 s at most
    lines = f"cat {tmp_path}/reports/*{LOG_ENDING} 2>/dev/null | wc -l"
    program = f"i=0; while [ $({lines}) -lt 5 ] && [ $i -lt 200 ]; do sleep 0.1; i=$((i + 1)); done; exit 5"
    options = ["exec", "--gpu-log", "--job", "j", "--nsys", fake_nsys, "--", "sh", "-c", program]
    done = capture(*options, PATH=path, TZ="XYZ-05:30", **WORLD)
    assert (done.returncode, done.stderr) == (5, "")
    (log,) = (tmp_path / "reports").glob(f"j_on_*{LOG_ENDING}")
    assert Path(f"{log}{OFFSET_SUFFIX}").read_text() == "+0530\n"
    assert len(read_gpu_log(str(log)).time_ns) >= 4
    assert logs_beside([str(tmp_path / "reports"), "s3://bucket/x", str(tmp_path / "none")]) == [str(log)]
    left = subprocess.run(["ps", "ax"], capture_output=True, text=True, check=True).stdout
    assert str(smi) not in left
    other = capture(*options, PATH=path, **{**WORLD, "OMPI_COMM_WORLD_RANK": 1, "OMPI_COMM_WORLD_LOCAL_RANK": 1})
    assert other.returncode == 5
    assert len(list((tmp_path / "reports").glob(f"*{LOG_ENDING}"))) == 1


def test_a_node_without_nvidia_smi_has_no_log_and_says_so(capture, fake_nsys, tmp_path):
    done = capture("exec", "--gpu-log", "--nsys", fake_nsys, "--", "sh", "-c", "exit 5", PATH="/usr/bin:/bin", **WORLD)
    assert done.returncode == 5
    assert "--gpu-log left out: nvidia-smi is not on PATH; the rest is recorded" in done.stderr
    stops = capture(
        "exec",
        "--gpu-log",
        "--force",
        "--on-error",
        "stop",
        "--nsys",
        fake_nsys,
        "--",
        "true",
        PATH="/usr/bin:/bin",
        **WORLD,
    )
    assert stops.returncode == 2


def test_a_log_whose_program_has_ended_before_is_no_error(tmp_path):
    with recording(["/bin/echo", "x"], tmp_path / "log"):
        time.sleep(0.5)
    assert (tmp_path / "log").read_text() == "x\n"


def test_the_log_is_there_with_the_profiler_of_pytorch_too(capture, smi, tmp_path):
    options = ["exec", "--profiler", "torch", "--gpu-log", "--job", "j"]
    program = ["sh", "-c", 'sleep 0.7; echo "$ALLTRACE_TRACES"; exit 4']
    done = capture(*options, "--", *program, **WORLD, PATH=f"{smi}{os.pathsep}{os.environ['PATH']}")
    assert (done.returncode, done.stdout) == (4, f"{tmp_path}/reports\n")
    (log,) = (tmp_path / "reports").glob(f"j_on_*{LOG_ENDING}")
    assert "699.81 W" in log.read_text()
    assert list((tmp_path / "tmp").iterdir()) == []
    without = capture(*options, "--", *program, **WORLD, PATH="/usr/bin:/bin")
    assert without.returncode == 4
    assert "--gpu-log left out: nvidia-smi is not on PATH; the rest is recorded" in without.stderr

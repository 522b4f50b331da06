import os
import signal
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

import pytest

from alltrace.capture.launchers import JOB_VARIABLES, LAUNCHERS

SOURCE = Path(__file__).resolve().parents[2] / "src"
FAKE_NSYS = r"""#!/bin/sh
case "$1" in
  --version) echo "NVIDIA Nsight Systems version 2023.4.4.54-0"; exit 0 ;;
  stop) kill -QUIT "${2#--session=profile-}"; kill -URG "${2#--session=profile-}"; exit 0 ;;
esac
if [ "$2" = --help ]; then
  [ -z "${FAKE_NCCL-}" ] || echo "-t, --trace= 'cuda', 'nccl'"
  echo "--trace= --output= --force-overwrite= --sample= --cpuctxsw= --kill= --duration= --delay= --mpi-impl=
  --capture-range= --capture-range-end= --python-sampling= --nic-metrics= --gpu-metrics-device= -p, --nvtx-capture= -e, --env-var="
  exit 0
fi
shift
case "${FAKE-} $*" in
  "picky "*--gpu-metrics*)
    printf 'Illegal --gpu-metrics-device arguments.\nNone of the GPUs are supported.\n\nusage: nsys\n'
    exit 1 ;;
  "picky "*--trace=*,nccl*) printf 'Illegal --trace argument: nccl.\n\nusage: nsys\n'; exit 1 ;;
  "mute "*--python-sampling* | "mute "*--nic-metrics*) exit 1 ;;
esac
out=
while :; do
  case "$1" in --output=*) out="${1#--output=}" ;; --*) ;; *) break ;; esac
  shift
done
echo started >> "$TMPDIR/../../starts"
case "${FAKE-}" in
  leaves) "$@" & sleep 0.3; exit 0 ;;
  fails) exit 1 ;;
  once) [ -e "$TMPDIR/../../once" ] || { : > "$TMPDIR/../../once"; exit 1; } ;;
  late) [ -e "$TMPDIR/../../once" ] || { : > "$TMPDIR/../../once"; (sleep 1.5; "$@") & exit 1; } ;;
  quits) "$@" & child=$!; trap 'kill -KILL $child' QUIT; wait $child; wait $child ;;
  recorded) "$@" & child=$!; trap 'printf "NVIDIA Tegra Profiler Report 2023 body [END]" > "$out"' QUIT URG
    wait $child; wait $child; wait $child; exit ;;
  slow) "$@"; code=$?; trap 'exit 99' QUIT; echo writing > "$TMPDIR/../../writing"; sleep 1.5 ;;
  session) setsid -w "$@"; printf 'NVIDIA Tegra Profiler Report 2023 body [END]' > "$out"; exit 0 ;;
esac
[ "${FAKE-}" != quits ] || { printf 'NVIDIA Tegra Profiler Report 2023 body [END]' > "$out"; exit 0; }
[ "${FAKE-}" = slow ] || { "$@"; code=$?; }
[ -z "${PRINTS-}" ] || printf 'the table\n[1/8] [0%%   ] a\r[1/8] [=100%%] a\n'
case "${FAKE:-whole}" in
  whole | once | late | slow | picky | mute) printf 'NVIDIA Tegra Profiler Report 2023 body [END]' > "$out" ;;
  cut) printf 'NVIDIA Tegra Profiler Report 2023 bo' > "$out" ;;
  windows)
    n=0
    for x in $(sed 's/x/x /g' "$TMPDIR/opened"); do
      n=$((n + 1))
      printf 'NVIDIA Tegra Profiler Report 2023 body [END]' > "${out%.nsys-rep}.$n.nsys-rep"
    done ;;
  raw) echo raw > "$TMPDIR/nsys-report-1.qdstrm" ;;
  lies) exit 0 ;;
esac
exit $code
"""  # noqa: E501


@pytest.fixture
def bare_environment(monkeypatch, tmp_path):
    """No launcher's variables, and a cache of its own."""
    names = {
        n for la in LAUNCHERS for n in (*la.rank, *la.local_rank, *la.world_size, *la.local_size, *la.node, *la.needs)
    }
    for name in [*names, *JOB_VARIABLES, "SLURMD_NODENAME", "SLURM_STEP_ID", "ALLTRACE_NSYS", "ALLTRACE_NCU"]:
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("ALLTRACE_CACHE_DIR", str(tmp_path / "cache"))
    (tmp_path / "tmp").mkdir()
    monkeypatch.setenv("TMPDIR", str(tmp_path / "tmp"))
    monkeypatch.setenv("PYTHONPATH", str(SOURCE))
    yield
    for pid in agents(tmp_path):  # a wrapper that was killed ends none
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)


def agents(folder):
    """The agents of nsys that work in this folder, by their process ids."""
    mark, found = f"TMPDIR={folder}/".encode(), []
    for entry in Path("/proc").iterdir():
        with suppress(OSError):
            if entry.name.isdecimal() and b"--start-agent" in (entry / "cmdline").read_bytes().split(b"\0"):
                found += [int(entry.name)] if mark in (entry / "environ").read_bytes() else []
    return found


@pytest.fixture
def fake_nsys(tmp_path):
    """A program that answers as nsys does and writes what FAKE says."""
    folder = tmp_path / "tools of mine"
    folder.mkdir()
    path = folder / "nsys"
    path.write_text(FAKE_NSYS)
    path.chmod(0o755)
    return path


@pytest.fixture
def capture(bare_environment, tmp_path):
    """Runs `alltrace capture` as a process of its own, in an empty folder."""

    def call(*arguments, wait=True, **variables):
        command = [sys.executable, "-m", "alltrace.cli.main", "capture", *map(str, arguments)]
        environment = {**os.environ, **{k: str(v) for k, v in variables.items()}}
        pipes = {
            "stdout": subprocess.PIPE,
            "stderr": subprocess.PIPE,
            "text": True,
            "cwd": tmp_path,
            "env": environment,
        }
        started = subprocess.Popen(command, **pipes)
        if not wait:
            return started
        try:
            out, err = started.communicate(timeout=120)
        except subprocess.TimeoutExpired:
            started.kill()  # else it is another test that is told of a process and pipes that nobody closed
            started.communicate()
            raise
        return subprocess.CompletedProcess(command, started.returncode, out, err)

    return call

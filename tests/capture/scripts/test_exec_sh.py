import os
import shutil
import signal
import subprocess
import time

import pytest

WORLD = {"OMPI_COMM_WORLD_RANK": "1", "OMPI_COMM_WORLD_LOCAL_RANK": "1", "OMPI_COMM_WORLD_SIZE": "2"}
ARGUMENTS = ["a b", 'say "hi"', "it's", "$HOME", "*", ""]
SHELLS = [s for s in ("dash", "bash", "busybox") if shutil.which(s)]


@pytest.fixture(params=SHELLS)
def script(request, capture, fake_nsys, tmp_path):
    """Starts the script that these options give, under a shell, with these variables."""

    def start(*options, program, own_group=False, **variables):
        emitted = capture("exec", "--emit-sh", *options)
        assert emitted.returncode == 0, emitted.stderr
        path = tmp_path / "profiled run.sh"
        path.write_text(emitted.stdout)
        shell = [request.param, "sh"] if request.param == "busybox" else [request.param]
        environment = {**os.environ, "ALLTRACE_NSYS": str(fake_nsys), **WORLD, **variables}
        pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
        return subprocess.Popen(
            [*shell, str(path), *program],
            cwd=tmp_path,
            env=environment,
            process_group=0 if own_group else None,
            **pipes,
        )

    return start


def finish(started):
    out, err = started.communicate(timeout=60)
    return started.returncode, out, err


def test_a_report_the_arguments_and_the_exit_code(script, tmp_path):
    done = finish(script("--job", "j k", program=["sh", "-c", 'printf "[%s]" "$@"; exit 3', "sh", *ARGUMENTS]))
    assert done == (3, "".join(f"[{a}]" for a in ARGUMENTS), "")
    assert [p.name[:10] for p in (tmp_path / "reports").iterdir()] == ["j-k_rank1_"]
    assert list((tmp_path / "tmp").iterdir()) == []


def test_ranks_that_are_not_chosen_run_plainly(script, tmp_path):
    for options in (["--ranks", "0"], ["--ranks", "first-local"], ["--cutoff", "1"], ["--per-node", "1"]):
        assert finish(script(*options, program=["sh", "-c", "exit 5"])) == (5, "", "")
    assert not (tmp_path / "reports").exists()


def test_slurm_comes_last(script, tmp_path):
    done = finish(script(program=["true"], SLURM_PROCID="0", SLURM_JOB_ID="77"))
    assert done == (0, "", "")
    assert [p.name[:9] for p in (tmp_path / "reports").iterdir()] == ["77_rank1_"]


@pytest.mark.parametrize("size", [{"SLURM_NPROCS": "4"}, {"SLURM_NTASKS": "4", "SLURM_NPROCS": "9"}])
def test_the_script_knows_the_variables_that_the_python_form_knows(script, size):
    """Each launcher's are in one table; the first that is set counts."""
    others = dict.fromkeys(WORLD, "")
    done = finish(script("--ranks", "7", program=["true"], SLURM_PROCID="0", SLURM_LOCALID="0", **size, **others))
    assert done[0] == 2
    assert "--ranks names none of the ranks 0-3" in done[2]


def test_what_is_started_again_and_steps_of_a_job_have_reports_of_their_own(script, tmp_path):
    again = {"TORCHELASTIC_RESTART_COUNT": "1", "SLURM_RESTART_COUNT": "0"}
    step = {"SLURM_JOB_ID": "77", "SLURM_STEP_ID": "2", "SLURM_STEP_NUM_TASKS": "2"}
    for options, variables in ((["--job", "j"], {}), (["--job", "j"], again), ([], step), ([], {**step, **again})):
        assert finish(script(*options, program=["true"], **variables)) == (0, "", "")
    found = sorted(p.name.partition("_on_")[0] for p in (tmp_path / "reports").iterdir())
    assert found == ["77-step2-restart1_rank1", "77-step2_rank1", "j-restart1_rank1", "j_rank1"]


def test_a_missing_or_cut_report_is_said(script):
    code, _, err = finish(script("--strict", program=["true"], FAKE="cut"))
    assert code == 4
    assert "is cut off" in err
    assert "no complete report reports/job_rank1_on_" in err
    assert finish(script("--force", program=["sh", "-c", "kill -9 $$"], FAKE="none"))[0] == 137


RAN = 'echo ran >> ran; sleep "$0"; exit 5'


def test_a_profiler_that_fails_before_the_program_starts_is_started_once_more(script, tmp_path):
    assert finish(script("--job", "j", program=["sh", "-c", RAN, "0"], FAKE="once")) == (5, "", "")
    assert (tmp_path / "ran").read_text() == "ran\n"
    assert [p.name[:7] for p in (tmp_path / "reports").iterdir()] == ["j_rank1"]
    assert list((tmp_path / "tmp").iterdir()) == []


def test_it_is_started_twice_at_most_and_the_program_never(script, tmp_path):
    code, _, err = finish(script(program=["sh", "-c", RAN, "0"], FAKE="fails"))
    assert code == 1
    assert "no complete report" in err
    assert (tmp_path / "starts").read_text() == "started\n" * 2
    assert not (tmp_path / "ran").exists()


def test_the_program_is_not_started_again_by_what_a_failed_profiler_left(script, tmp_path):
    assert finish(script(program=["sh", "-c", RAN, "1"], FAKE="late"))[0] == 5
    time.sleep(1)
    assert (tmp_path / "ran").read_text() == "ran\n"


def test_a_signal_reaches_the_program(script, tmp_path):
    loop = 'trap "echo saved; exit 7" TERM; echo ready; i=0; while [ $i -lt 200 ]; do sleep 0.05; i=$((i+1)); done'
    started = script(program=["sh", "-c", loop])
    assert started.stdout.readline() == "ready\n"
    started.send_signal(signal.SIGTERM)
    assert finish(started) == (7, "saved\n", "")
    assert len(list((tmp_path / "reports").iterdir())) == 1


LASTS = (
    'trap "echo asked >>asked" TERM; echo ready; i=0; while [ ! -e over ] && [ $((i += 1)) -lt 900 ]; do sleep 0.05;'
    " done; exit 6"
)


@pytest.mark.parametrize(("options", "signals"), [(["--end-after", "60"], 2), (["--end-after", "1"], 1)])
def test_the_recording_of_a_program_that_does_not_end_is_ended(script, tmp_path, options, signals):
    """By a second signal, or a while after the first one; the program runs on."""
    started = script(*options, program=["sh", "-c", LASTS], FAKE="recorded")
    assert started.stdout.readline() == "ready\n"
    for number in range(signals):
        started.send_signal(signal.SIGTERM)
        until = time.monotonic() + 20
        while not (tmp_path / "asked").exists() or (tmp_path / "asked").read_text().count("asked") <= number:
            assert time.monotonic() < until
            time.sleep(0.05)
    until = time.monotonic() + 20
    while not list((tmp_path / "reports").glob("*.nsys-rep")):
        assert time.monotonic() < until
        time.sleep(0.05)
    (tmp_path / "over").write_text("")
    assert finish(started) == (6, "", "")


STUBBORN = 'trap "echo asked >>asked" TERM; echo ready; i=0; while [ $((i += 1)) -lt 900 ]; do sleep 0.05; done'


@pytest.mark.parametrize("program", [STUBBORN, "echo ready; exec sleep 60"])
def test_where_the_launcher_kills_it_the_program_is_ended_and_the_report_written(script, tmp_path, program):
    """And its process group, as Open MPI does, where there is a setsid."""
    started = script(program=["sh", "-c", program], own_group=True)
    assert started.stdout.readline() == "ready\n"
    time.sleep(0.2)  # until the profiler is noted
    (os.killpg if shutil.which("setsid") else os.kill)(started.pid, signal.SIGKILL)
    until = time.monotonic() + 20
    while not list((tmp_path / "reports").glob("*.nsys-rep")) or list((tmp_path / "tmp").iterdir()):
        assert time.monotonic() < until, list((tmp_path / "tmp").glob("*/*"))
        time.sleep(0.05)
    assert finish(started)[0] == -signal.SIGKILL  # and the pipes' other ends are closed, so nothing is left
    assert (tmp_path / "asked").exists() == (program == STUBBORN)


@pytest.mark.oracle
def test_a_real_nsys_writes_its_report_where_the_launcher_kills_the_shell(capture, nsys, tmp_path):
    (tmp_path / "run.sh").write_text(capture("exec", "--emit-sh", "--trace", "nvtx").stdout)
    environment = {**os.environ, "ALLTRACE_NSYS": str(nsys), **WORLD}
    command = ["sh", "run.sh", "sh", "-c", STUBBORN]
    with subprocess.Popen(
        command, cwd=tmp_path, env=environment, process_group=0, stdout=subprocess.PIPE, text=True
    ) as started:
        assert started.stdout.readline() == "ready\n"
        time.sleep(0.5)
        (os.killpg if shutil.which("setsid") else os.kill)(started.pid, signal.SIGKILL)
        started.stdout.read()  # until nothing is left that could write there
    (report,) = (tmp_path / "reports").iterdir()
    assert report.read_bytes().endswith(b"[END]")
    until = time.monotonic() + 10
    while list((tmp_path / "tmp").iterdir()):
        assert time.monotonic() < until
        time.sleep(0.05)


def test_the_exit_code_is_waited_for_where_the_shell_around_the_program_is_slow_to_write_it(script):
    program = "sleep 1; kill -STOP $PPID; (sleep 1; kill -CONT $PPID) & exit 9"
    code, _, err = finish(script(program=["sh", "-c", program], FAKE="leaves"))
    assert code == 9
    assert err.count("no complete report") == 1


def test_bad_input_stops_before_the_program(script, tmp_path):
    assert finish(script("--ranks", "7", program=["echo", "ran"]))[:2] == (2, "")
    assert finish(script(program=["echo", "ran"], ALLTRACE_NSYS="/no/such"))[:2] == (2, "")
    assert finish(script(program=["no-such-program"]))[:2] == (127, "")
    (tmp_path / "file").write_text("")
    assert finish(script("-o", "file/x", program=["echo", "ran"]))[:2] == (3, "")


def test_what_it_does_not_know_is_refused(capture):
    refused = capture("exec", "--emit-sh", "--on-error", "run", "--name", "x", "--verbose")
    assert refused.returncode == 2
    assert "--emit-sh does not know --name, --verbose, --on-error run;" in refused.stderr
    assert "--emit-sh does not know --role;" in capture("exec", "--emit-sh", "--role", "rollout").stderr
    assert "--emit-sh does not know capture arm;" in capture("arm", "--emit-sh").stderr
    assert "cannot write the switch" in capture("exec", "--emit-sh", "--profiler-arg=--x=$(id)").stderr


def test_shellcheck_finds_nothing(capture, shellcheck):
    emitted = capture("exec", "--emit-sh", "--ranks", "0-3", "--steps", "3:5", "--gpu-metrics", "-o", "it's here")
    checked = subprocess.run(
        [shellcheck, "-s", "sh", "-"], input=emitted.stdout, capture_output=True, text=True, check=False
    )
    assert checked.stdout == ""


RECORDING = """#!/bin/sh
case "$1" in --version) echo "NVIDIA Nsight Systems version $RELEASE.3.4-x"; exit ;; esac
[ "$2" != --help ] || exit 0
printf '%s\\n' "$@" > "$RECORD"
while [ "${1#--output=}" = "$1" ]; do shift; done
printf 'NVIDIA Tegra Profiler Report [END]' > "${1#--output=}"
"""


@pytest.mark.parametrize(
    ("release", "switch"),
    [("2025.1", "efa_metrics"), ("2024.4", "nic_sampler,-mode:counters,-struct:true,-efa:true"), ("2023.4", None)],
)
def test_the_plug_in_for_efa_is_that_of_the_version_once_a_node(script, tmp_path, release, switch):
    (tmp_path / "nsys").write_text(RECORDING)
    (tmp_path / "nsys").chmod(0o755)
    first = {"OMPI_COMM_WORLD_RANK": "0", "OMPI_COMM_WORLD_LOCAL_RANK": "0"}
    variables = {"ALLTRACE_NSYS": str(tmp_path / "nsys"), "RELEASE": release, "RECORD": str(tmp_path / "record")}
    code, _, err = finish(script("--efa", "--force", program=["true"], **variables, **first))
    if switch is None:
        assert code == 0
        assert "--efa left out: this nsys has no plug-in for EFA" in err
        assert "--enable" not in (tmp_path / "record").read_text()
    else:
        assert f"--enable={switch}" in (tmp_path / "record").read_text().splitlines()
    finish(script("--efa", "--force", program=["true"], **variables))
    assert "--enable" not in (tmp_path / "record").read_text()
    if switch is not None:  # the first rank of the node that is profiled
        finish(script("--efa", "--force", "--ranks", "1", program=["true"], **variables))
        assert f"--enable={switch}" in (tmp_path / "record").read_text().splitlines()


def test_the_profiler_is_the_one_that_was_named(capture, fake_nsys, tmp_path):
    emitted = capture("exec", "--emit-sh", "--nsys", fake_nsys, "--job", "j")
    environment = {**{k: v for k, v in os.environ.items() if k != "ALLTRACE_NSYS"}, **WORLD, "PATH": "/usr/bin:/bin"}
    done = subprocess.run(
        ["sh", "-c", emitted.stdout, "sh", "true"], cwd=tmp_path, env=environment, capture_output=True, check=False
    )
    assert (done.returncode, done.stderr) == (0, b"")
    assert len(list((tmp_path / "reports").iterdir())) == 1


def test_older_reports_of_several_ranges_are_in_the_way_or_are_removed(script, tmp_path):
    older = tmp_path / "reports" / f"j_rank1_on_{os.uname().nodename.split('.')[0]}.2.nsys-rep"
    older.parent.mkdir()
    older.write_text("NVIDIA Tegra Profiler Report [END]")
    options = ["--job", "j", "--capture-range", "cuda", "--repeat", "2"]
    code, out, err = finish(script(*options, program=["echo", "ran"]))
    assert (code, out) == (3, "")
    assert f"reports/{older.name} already exists" in err
    code, _, err = finish(script(*options, "--force", "--strict", program=["true"], FAKE="none"))
    assert code == 4
    assert "no complete report" in err
    assert not older.exists()

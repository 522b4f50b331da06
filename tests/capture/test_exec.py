import contextlib
import os
import signal
import sys
import time
from pathlib import Path

import pytest
from tests.capture.conftest import agents

from alltrace.capture.processes import children

WORLD = {"OMPI_COMM_WORLD_RANK": 1, "OMPI_COMM_WORLD_LOCAL_RANK": 1, "OMPI_COMM_WORLD_SIZE": 2}
ARGUMENTS = ["a b", 'say "hi"', "it's", "$HOME", "--", "*", ""]
PRINTS = "import sys; print(sys.argv[1:]); sys.exit(3)"


def left(tmp_path):
    return sorted(p.name for p in (tmp_path / "tmp").iterdir())


def test_a_chosen_rank_leaves_a_report_and_keeps_arguments_and_exit_code(capture, fake_nsys, tmp_path):
    done = capture(
        "exec", "--nsys", fake_nsys, "--job", "j", "--verbose", "--", sys.executable, "-c", PRINTS, *ARGUMENTS, **WORLD
    )
    assert done.returncode == 3
    assert done.stdout == f"{ARGUMENTS}\n"
    (report,) = (tmp_path / "reports").iterdir()
    assert report.name.startswith("j_rank1_on_")
    assert report.name.endswith(".nsys-rep")
    assert done.stderr == f"alltrace capture: rank 1: report {report}, 44 bytes\n"
    assert left(tmp_path) == []


def test_a_rank_that_is_not_chosen_runs_plainly_with_the_same_process(capture, fake_nsys, tmp_path):
    raw = [
        *"exec --ranks 0 --nsys".split(),
        fake_nsys,
        "--",
        "sh",
        "-c",
        "trap; echo $$ $TMPDIR $ALLTRACE_CAPTURE; exit 5",
    ]
    started = capture(*raw, wait=False, **WORLD)
    out, err = started.communicate(timeout=60)
    assert started.returncode == 5
    assert out.split() == [str(started.pid), str(tmp_path / "tmp")]
    assert err == ""
    assert not (tmp_path / "reports").exists()


@pytest.mark.parametrize(
    ("fake", "said"),
    [
        ("cut", "it is cut off after 36 bytes"),
        ("none", "no complete report"),
        ("raw", "a raw capture was left at"),
        ("lies", "no complete report"),
    ],
)
def test_a_report_that_is_missing_or_cut_is_said_whatever_the_exit_code(capture, fake_nsys, tmp_path, fake, said):
    done = capture("exec", "--nsys", fake_nsys, "--", "true", FAKE=fake, **WORLD)
    assert done.returncode == 0
    assert done.stderr.startswith("alltrace capture: rank 1: no complete report ")
    assert said in done.stderr
    assert done.stderr.count("\n") == 1
    assert len(left(tmp_path)) == (fake == "raw")
    strict = capture("exec", "--strict", "--force", "--nsys", fake_nsys, "--", "true", FAKE=fake, **WORLD)
    assert strict.returncode == 4


def test_a_raw_capture_in_place_of_the_report_is_named_with_a_command_that_can_be_copied(capture, fake_nsys, tmp_path):
    folder = tmp_path / "my reports"
    command = [
        "exec",
        "--nsys",
        fake_nsys,
        "-o",
        folder,
        *"--name r -- sh -c".split(),
        f"mkdir -p '{folder}'; : >'{folder}/r.qdstrm'",
    ]
    done = capture(*command, FAKE="none", **WORLD)
    assert (
        f"a raw capture was left at {folder}/r.qdstrm; `alltrace capture recover '{folder}'` may save it" in done.stderr
    )
    assert left(tmp_path) == []


def test_what_a_users_own_arguments_print_is_shown(capture, fake_nsys):
    done = capture("exec", "--nsys", fake_nsys, "--profiler-arg=--stats=true", "--", "true", **WORLD, PRINTS="1")
    assert "alltrace capture: rank 1: the table" in done.stderr
    assert "[1/8] [0%" not in done.stderr
    assert "the table" not in capture("exec", "--force", "--nsys", fake_nsys, "--", "true", **WORLD, PRINTS="1").stderr


def test_a_dry_run_tells_what_would_be_left_out(capture, fake_nsys):
    done = capture(
        "exec", "--nsys", fake_nsys, "--efa", "--dry-run", "--", "true", RANK="0", WORLD_SIZE="1", LOCAL_RANK="0"
    )
    assert "rank 0: --efa would be left out: nsys 2023.4.4" in done.stderr
    assert "--enable" not in done.stdout


def test_a_folder_that_the_profiler_removes_meanwhile_changes_no_exit_code(capture, fake_nsys):
    text = '(for i in 1 2 3 4 5 6; do rm -rf "$TMPDIR/nvidia"; mkdir -p "$TMPDIR/nvidia/a"; done) & exit 3'
    done = capture("exec", "--nsys", fake_nsys, "--", "sh", "-c", text, FAKE="none", **WORLD)
    assert done.returncode == 3
    assert "no complete report" in done.stderr


@pytest.mark.parametrize(("ranks", "said"), [("1", "{0}/reports j 3:5"), ("0", "  ")])
def test_the_profiler_of_torch_is_told_where_and_what_on_the_chosen_ranks(capture, tmp_path, ranks, said):
    shows = 'echo "$ALLTRACE_TRACES $ALLTRACE_JOB $ALLTRACE_STEPS"; exit 5'
    options = ["--profiler", "torch", "--ranks", ranks, "--steps", "3:5", "--job", "j"]
    done = capture("exec", *options, "--", "sh", "-c", shows, **WORLD)
    assert (done.returncode, done.stdout, done.stderr) == (5, said.format(tmp_path) + "\n", "")


def test_ranks_that_the_world_has_not_are_named_also_where_rank_0_is_not_chosen(capture):
    done = capture(
        "exec", "--ranks", "1,9", "--", "true", **{**WORLD, "OMPI_COMM_WORLD_RANK": 0, "OMPI_COMM_WORLD_LOCAL_RANK": 0}
    )
    assert done.stderr == "alltrace capture: rank 0: --ranks names 9, which a world of 2 does not have\n"


def test_a_range_that_never_began_is_named(capture, fake_nsys):
    done = capture("exec", "--steps", "70:75", "--nsys", fake_nsys, "--", "true", FAKE="none", **WORLD)
    assert (
        "the recording never started, because the program did not reach step 70 of `alltrace.instrument.steps`"
        in done.stderr
    )


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGUSR1, signal.SIGHUP])
def test_signals_go_to_the_program_which_may_save_its_work(capture, fake_nsys, tmp_path, number):
    name = number.name[3:]
    program = (
        f'trap "echo saved; exit 7" {name}; echo ready; i=0; while [ $i -lt 200 ]; do sleep 0.05; i=$((i+1)); done'
    )
    started = capture("exec", "--nsys", fake_nsys, "--", "sh", "-c", program, wait=False, **WORLD)
    assert started.stdout.readline() == "ready\n"
    started.send_signal(number)
    out, err = started.communicate(timeout=60)
    assert (started.returncode, out, err) == (7, "saved\n", "")
    assert len(list((tmp_path / "reports").iterdir())) == 1


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGSEGV, signal.SIGTERM])
def test_it_ends_by_the_signal_that_ended_the_program(capture, fake_nsys, number):
    done = capture("exec", "--nsys", fake_nsys, "--", "sh", "-c", f"kill -{number:d} $$", **WORLD)
    assert done.returncode == -number


def test_the_exit_code_is_known_whoever_was_killed_or_is_slow(capture, fake_nsys):
    program = "read -r _ _ _ front _ < /proc/$PPID/stat; kill -KILL $front; sleep 0.5; exit 9"
    done = capture("exec", "--nsys", fake_nsys, "--", "sh", "-c", program, **WORLD)
    assert done.returncode == 9
    assert "the profiler was ended by SIGKILL" in done.stderr
    assert "no complete report" in done.stderr
    program = "sleep 1; kill -STOP $PPID; (sleep 1; kill -CONT $PPID) & exit 9"
    done = capture("exec", "--nsys", fake_nsys, "--", "sh", "-c", program, FAKE="leaves", **WORLD)
    assert done.returncode == 9
    assert done.stderr.count("no complete report") == 1
    program = "sleep 1; kill -KILL $PPID; sleep 0.5; exit 9"
    done = capture("exec", "--nsys", fake_nsys, "--", "sh", "-c", program, FAKE="leaves", **WORLD)
    assert done.returncode == 9
    assert "exit code is not known" not in done.stderr


def test_what_cannot_be_profiled_stops_before_the_program_or_runs_plainly(capture, fake_nsys, tmp_path):
    (tmp_path / "file").write_text("")
    stops = capture("exec", "-o", "file/x", "--nsys", fake_nsys, "--", "echo", "ran", **WORLD)
    assert (stops.returncode, stops.stdout) == (3, "")
    assert "no report can be written there (Not a directory); give another --output" in stops.stderr
    runs = capture("exec", "-o", "file/x", "--on-error", "run", "--nsys", fake_nsys, "--", "echo", "ran", **WORLD)
    assert (runs.returncode, runs.stdout) == (0, "ran\n")
    assert runs.stderr.endswith("the program runs unprofiled\n")


@pytest.mark.parametrize(
    ("options", "code", "said"),
    [
        (["--name", "%q{NO_SUCH}"], 2, "NO_SUCH is not set for rank 1"),
        (["--ranks", "5-9"], 2, "--ranks names only 5-9, but the world has the ranks 0-1"),
        (["--ranks", "x"], 2, "expected numbers and spans"),
        (["--nsys", "/no/such"], 2, "--nsys is /no/such, which cannot be run"),
        (["--efa", "--on-error", "stop"], 2, "nsys 2023.4.4 cannot record EFA adapters"),
        (["--steps", "5:5"], 2, "expected steps such as 10:50"),
        (["--steps", "5:"], 2, "expected the first step and the one after the last"),
        (["--steps", "5:6", "--delay", "3"], 2, "--steps and --delay both set when"),
        (["--repeat", "2"], 2, "so it needs --capture-range"),
        (["--delay", "nan"], 2, "expected a number of seconds greater than 0"),
        (["--tmp", "/no/such"], 3, "no temporary folder can be created there"),
        (["--profiler", "ncu"], 2, "ncu"),
    ],
)
def test_bad_options_stop_before_the_program(capture, fake_nsys, options, code, said):
    # the first of a node records what is the node's
    world = {**WORLD, "OMPI_COMM_WORLD_LOCAL_RANK": 0}
    done = capture("exec", "--nsys", fake_nsys, *options, "--", "echo", "ran", **world)
    assert (done.returncode, done.stdout) == (code, "")
    assert said in done.stderr
    assert "Traceback" not in done.stderr


def test_an_existing_report_is_replaced_only_when_told(capture, fake_nsys):
    first = ["exec", "--nsys", fake_nsys, "--job", "j", "--", "true"]
    assert capture(*first, **WORLD).returncode == 0
    again = capture(*first, **WORLD)
    assert again.returncode == 3
    assert "the report already exists; give another --output or --job, or --force to replace it" in again.stderr
    assert capture("exec", "--force", *first[1:], **WORLD).returncode == 0
    none = capture("exec", "--force", "--strict", *first[1:], FAKE="none", **WORLD)
    assert none.returncode == 4  # the older one is not taken for it
    assert "no complete report" in none.stderr


def test_a_program_that_is_not_there(capture, fake_nsys, tmp_path):
    done = capture("exec", "--nsys", fake_nsys, "--", "no-such-program", **WORLD)
    assert (done.returncode, done.stderr) == (
        127,
        "alltrace capture: no-such-program: there is no such program; nothing was run\n",
    )
    (tmp_path / "plain").write_text("")
    assert capture("exec", "--nsys", fake_nsys, "--", "./plain", **WORLD).returncode == 126
    assert capture("exec", "--nsys", fake_nsys, **WORLD).returncode == 2


def test_names_and_switches_are_filled_in(capture, fake_nsys, tmp_path):
    words = ["--name", "r%q{OMPI_COMM_WORLD_RANK}_%h_%p", "--profiler-arg=--x=%q{OMPI_COMM_WORLD_SIZE}-%d"]
    done = capture("exec", *words, "--nsys", fake_nsys, "--dry-run", "--", "true", **WORLD)
    assert " --x=2-%d true\n" in done.stdout
    done = capture("exec", *words, "--nsys", fake_nsys, "--", "true", **WORLD)
    (report,) = (tmp_path / "reports").glob("r1_*.nsys-rep")
    assert report.stem.rsplit("_", 1)[1].isdecimal()
    done = capture("exec", "--profiler-arg=--x=%q{NO_SUCH}", "--nsys", fake_nsys, "--", "true", **WORLD)
    assert done.returncode == 2
    assert "--profiler-arg '--x=%q{NO_SUCH}' uses %q{NO_SUCH}, and NO_SUCH is not set for rank 1" in done.stderr


def test_the_flight_recorder_of_pytorch_writes_beside_the_reports(capture, fake_nsys, tmp_path):
    shows = 'echo "$TORCH_FR_BUFFER_SIZE $TORCH_NCCL_DUMP_ON_TIMEOUT $TORCH_FR_DUMP_TEMP_FILE"'
    options = ["exec", "--flight-recorder", "--job", "j", "--nsys", fake_nsys]
    done = capture(*options, "--", "sh", "-c", shows, TORCH_FR_BUFFER_SIZE=9, **WORLD)
    assert done.stdout == f"9 1 {tmp_path}/reports/j_flight_rank\n"
    torch = capture(*options[:4], "--profiler", "torch", "--", "sh", "-c", shows, **WORLD)
    assert torch.stdout == f"2000 1 {tmp_path}/reports/j_flight_rank\n"


def test_the_program_is_told_where_snapshots_of_memory_go(capture, fake_nsys, tmp_path):
    shows = ["--job", "j", "--memory-snapshot", "--", "sh", "-c", 'echo "$ALLTRACE_MEMORY_SNAPSHOT"']
    for profiler in (["--nsys", fake_nsys], ["--profiler", "torch"]):
        assert capture("exec", *profiler, *shows, **WORLD).stdout == f"{tmp_path}/reports/j_rank1_memory\n"


def test_nccl_tests_have_no_steps(capture, fake_nsys, tmp_path):
    (tmp_path / "all_reduce_perf").write_text("#!/bin/sh\necho ran\n")
    (tmp_path / "all_reduce_perf").chmod(0o755)
    done = capture("exec", "--steps", "5:9", "--nsys", fake_nsys, "--", "./all_reduce_perf", **WORLD)
    assert (done.returncode, done.stdout) == (2, "")
    assert "give --delay and --duration" in done.stderr


def test_rank_0_says_which_source_won(capture, fake_nsys):
    both = {"PMI_RANK": 0, "PMI_SIZE": 4, "SLURM_PROCID": 0, "SLURM_NTASKS": 1}
    done = capture("exec", "--nsys", fake_nsys, "--", "true", **both)
    assert done.stderr == "alltrace capture: rank 0: Hydra says rank 0 of 4 and Slurm says rank 0 of 1; Hydra is used\n"


def test_what_the_program_puts_into_its_temporary_folder_stays(capture, fake_nsys, tmp_path):
    done = capture("exec", "--nsys", fake_nsys, "--", "sh", "-c", 'echo mine > "$TMPDIR/mine"', **WORLD)
    assert done.returncode == 0
    (private,) = (tmp_path / "tmp").iterdir()
    assert [p.name for p in private.iterdir()] == ["mine"]
    assert private.stat().st_mode & 0o077 == 0


def test_a_dry_run_shows_the_command(capture, fake_nsys, tmp_path):
    done = capture(
        "exec", "--dry-run", "--duration", 5, "--mpi-impl", "mpich", "--nsys", fake_nsys, "--", "echo", "a b", **WORLD
    )
    assert "--duration=5 --kill=none echo 'a b'\n" in done.stdout
    assert "--mpi-impl=mpich" in done.stdout
    assert left(tmp_path) == []


@pytest.mark.oracle
def test_the_real_nsys_around_a_program_that_exits_with_3(capture, nsys, tmp_path):
    done = capture(
        "exec", "--nsys", nsys, "--trace", "nvtx", "--job", "j", "--", sys.executable, "-c", PRINTS, *ARGUMENTS, **WORLD
    )
    assert done.returncode == 3
    assert f"{ARGUMENTS}\n" in done.stdout
    assert len(list((tmp_path / "reports").glob("j_rank1_on_*.nsys-rep"))) == 1
    assert left(tmp_path) == []


@pytest.mark.oracle
@pytest.mark.parametrize(
    ("who", "codes", "report", "said"),
    [
        ("program", (-9,), True, ""),
        ("front end", (6,), True, "the profiler was ended by SIGKILL"),
        ("agent", (6,), False, "no complete report"),
        ("launcher", (6,), None, "a part of the profiler was ended before the program"),
    ],
)
def test_the_real_nsys_with_a_part_of_it_killed(capture, nsys, tmp_path, who, codes, report, said):
    program = "import os, time; print(os.getppid(), os.getpid(), flush=True); time.sleep(2); os._exit(6)"
    started = capture(
        "exec",
        "--nsys",
        nsys,
        "--trace",
        "nvtx",
        "--grace",
        3,
        "--",
        sys.executable,
        "-c",
        program,
        wait=False,
        **WORLD,
    )
    shell, own = map(int, started.stdout.readline().split())
    time.sleep(0.5)
    launcher = int(Path(f"/proc/{shell}/stat").read_text().rpartition(")")[2].split()[1])
    victims = {"program": own, "launcher": launcher}
    (supervisor,) = children(started.pid)
    for pid in children(supervisor):
        victims["agent" if b"--start-agent" in Path(f"/proc/{pid}/cmdline").read_bytes() else "front end"] = pid
    os.kill(victims[who], signal.SIGKILL)
    try:
        _, err = started.communicate(timeout=30)
    finally:
        if started.poll() is None:
            for pid in [*victims.values(), started.pid]:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
            started.communicate()
    assert agents(tmp_path) == []  # nothing of it stays
    assert said in err
    assert started.returncode in codes
    reports = list((tmp_path / "reports").glob("*.nsys-rep"))
    if report is not None:
        assert len(reports) == report
    assert ("no complete report" in err) == (not reports)

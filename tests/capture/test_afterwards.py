"""What happens to reports once they are written: a run and a verdict in the job's log, copies, and no rank that
hangs."""

import gzip
import json
import os
import shlex
import signal
import subprocess
import sys
import threading
import time

import pytest
from tests.capture.conftest import SOURCE
from tests.capture.launching import find_mpirun, launch
from tests.capture.put_server import putting
from tests.slurm_cluster import two_nodes, why_no_slurm

from alltrace.capture import afterwards
from alltrace.capture.afterwards import JobFolder, writer_slot
from alltrace.capture.processes import descendants, started_at
from alltrace.run.importer import import_reports
from alltrace.run.manifest import read_manifest
from alltrace.synth import write_run
from alltrace.trace.errors import InputError

RANKS = 2


def world(rank, nodes=1):
    size = RANKS // nodes
    return {
        "OMPI_COMM_WORLD_RANK": rank,
        "OMPI_COMM_WORLD_SIZE": RANKS,
        "OMPI_COMM_WORLD_LOCAL_RANK": rank % size,
        "OMPI_COMM_WORLD_LOCAL_SIZE": size,
    }


@pytest.fixture(scope="module")
def traces(tmp_path_factory):
    """Traces of PyTorch's profiler of two ranks, the second of which is slow."""
    folder = tmp_path_factory.mktemp("traces")
    write_run("healthy", folder, "kineto", ranks=RANKS, steps=4, faults=["slow-rank:ranks=1:factor=1.5"], ideal=True)
    found = {}
    for path in folder.glob("*.pt.trace.json"):
        packed = path.with_suffix(".json.gz")
        packed.write_bytes(gzip.compress(path.read_bytes(), 1))
        found[json.loads(path.read_text())["distributedInfo"]["rank"]] = packed
    return found


@pytest.fixture
def job(capture, traces):
    """Starts both ranks, each of which writes its trace, and gives what they have said."""

    def call(*options, nodes=1, program="", ranks=range(RANKS), **variables):
        started = []
        for rank in ranks:
            target = f"reports/j_rank{rank}-of-{RANKS}_cycle0.pt.trace.json.gz"
            writes = f"mkdir -p reports; cp {shlex.quote(str(traces[rank]))} {target}; {program}"
            words = ("exec", "--profiler", "torch", "--job", "j", *options, "--", "sh", "-c", writes)
            started.append(capture(*words, wait=False, **world(rank, nodes), **variables))
        return [(*one.communicate(timeout=120), one.returncode) for one in started]

    return call


def test_the_job_ends_with_a_run_of_all_ranks_and_a_verdict_in_its_log(job, tmp_path):
    done = job("--then", "diagnose", nodes=2)
    assert [code for _, _, code in done] == [0, 0]
    (verdict,) = [out for out, _, _ in done if out]
    assert "straggler" in verdict
    run = tmp_path / "reports" / "j.run"
    whole = import_reports([str(tmp_path / "reports")], tmp_path / "whole", jobs=1)
    found = read_manifest(run)
    assert found.complete
    assert found.ranks == whole.ranks
    assert not list((tmp_path / "reports").glob(".*.job"))
    assert any(f"{run}: 2 ranks on " in err for _, err, _ in done)


def test_a_rank_that_never_comes_is_named_and_the_run_is_of_the_others(job, tmp_path):
    JobFolder(tmp_path / ".r.job", 1).begin(first=False)  # it has begun, and nobody hears of it again
    ((_, err, code),) = job("--import", "--run", "r", "--wait", "0.5", ranks=[0])
    assert code == 0
    assert "the run lacks ranks that did not finish within 0.5 s after the others: 1" in err
    assert [r.rank for r in read_manifest(tmp_path / "r").ranks] == [0]


def test_a_node_that_does_not_see_the_run_keeps_all_from_starting(tmp_path):
    """Both ranks find out: none of them starts a program that would wait for the other for ever."""
    for rank in range(2):
        alone = JobFolder(tmp_path / f"disk of node {rank}" / ".j.run.job", rank, 2)
        alone.begin(first=rank == 0)
        with pytest.raises(
            InputError, match=r"only 1 of 2 ranks see it after 0\.3 s; expected a folder that all nodes"
        ):
            alone.meet(lambda s: time.sleep(s) or False, 0.3)


@pytest.mark.parametrize(
    ("there", "said"),
    [
        (None, "/r: a file; expected a new folder for the run; give another --run"),
        ("mine", "/r: it already contains mine; expected a new folder for the run; give another --run"),
        ("ranks/rank=0", "/r: the run already exists; give another --run or --job, or --force to replace it"),
    ],
)
def test_a_run_that_cannot_be_made_is_said_before_the_program(capture, tmp_path, there, said):
    if there is None:
        (tmp_path / "r").write_text("")
    else:
        (tmp_path / "r" / there).mkdir(parents=True)
    done = capture("exec", "--profiler", "torch", "--import", "--run", "r", "--", "echo", "ran", **world(0))
    assert (done.returncode, done.stdout) == (3, "")
    assert said in done.stderr


def test_a_run_of_before_is_replaced_where_that_is_asked_for(job, tmp_path):
    (tmp_path / "r" / "ranks" / "rank=7").mkdir(parents=True)
    assert [code for _, _, code in job("--import", "--run", "r", "--force")] == [0, 0]
    assert [r.rank for r in read_manifest(tmp_path / "r").ranks] == [0, 1]
    assert sorted(p.name for p in (tmp_path / "r" / "ranks").iterdir()) == ["rank=0", "rank=1"]


def test_a_report_that_cannot_be_imported_is_said_in_a_sentence_and_the_exit_code_is_the_programs(capture, tmp_path):
    writes = "mkdir -p reports; echo no trace > reports/j_rank0-of-1_cycle0.pt.trace.json.gz; exit 5"
    done = capture(
        "exec",
        "--profiler",
        "torch",
        "--job",
        "j",
        "--import",
        "--",
        "sh",
        "-c",
        writes,
        **{**world(0), "OMPI_COMM_WORLD_SIZE": 1},
    )
    assert done.returncode == 5
    lines = done.stderr.splitlines()
    assert lines[0].startswith("alltrace capture: rank 0: its report was not imported: ")
    assert "Traceback" not in done.stderr
    assert (tmp_path / "reports" / "j_rank0-of-1_cycle0.pt.trace.json.gz").exists()


def test_each_rank_copies_its_report_and_a_server_that_fails_ends_nothing(job, tmp_path):
    with putting() as server:
        done = job("--then", "upload", f"http://127.0.0.1:{server.port}/p?sig=s3cret")
        assert [(err, code) for _, err, code in done] == [("", 0), ("", 0)]
        assert sorted(server.files) == [f"/p/j_rank{rank}-of-2_cycle0.pt.trace.json.gz" for rank in range(RANKS)]
    with putting(fails=507) as server:
        ((_, err, code),) = job("--then", "upload", f"http://127.0.0.1:{server.port}/p?sig=s3cret", ranks=[1])
    assert code == 0
    assert err.startswith("alltrace capture: rank 1: its report was not all copied: ")
    assert "507" in err
    assert "s3cret" not in err
    assert len(err.splitlines()) == 1
    assert (tmp_path / "reports" / "j_rank1-of-2_cycle0.pt.trace.json.gz").exists()


def test_a_job_that_is_ended_meanwhile_leaves_no_process_and_says_what_to_type(capture, tmp_path, traces):
    """The server never answers, so the copy never ends."""
    silent = threading.Event()
    with putting() as server:
        server.answers = silent
        writes = f"mkdir -p reports; cp {shlex.quote(str(traces[0]))} reports/j_rank0-of-2_cycle0.pt.trace.json.gz"
        url = f"http://127.0.0.1:{server.port}/p"
        started = capture(
            "exec",
            "--profiler",
            "torch",
            "--job",
            "j",
            "--then",
            "upload",
            url,
            "--",
            "sh",
            "-c",
            writes,
            wait=False,
            **world(0),
        )
        until = time.monotonic() + 60
        while not server.asked and time.monotonic() < until:
            time.sleep(0.05)
        below = descendants(started.pid)
        assert len(below) >= 2
        started.send_signal(signal.SIGTERM)
        _, err = started.communicate(timeout=20)
        silent.set()
    assert "the job ended before all reports were processed (--then); `alltrace capture upload DIR " in err
    assert [pid for pid in below if started_at(pid) is not None] == []


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["--then", "publish"], "--then is 'publish'; expected import, diagnose, or upload URL"),
        (["--then", "upload"], "--then is 'upload'; expected"),
        (["--then", "upload", "bucket/x"], "'bucket/x' is not a URL"),
        (
            ["--then", "upload", "file:///a", "--then", "upload", "file:///b"],
            "--then upload names file:///a and file:///b",
        ),
        (["--scrub"], "--scrub needs --then upload URL, which was not given"),
        (["--run", "r"], "--run needs --then import, which was not given"),
        (["--max-writers", "2"], "--max-writers needs --then, which was not given"),
        (["--profiler", "torch", "--then", "upload", "file:///a", "--scrub"], "--scrub works with nsys"),
        (["--import", "--emit-sh"], "--emit-sh does not know --import"),
    ],
)
def test_options_that_say_nothing(capture, fake_nsys, options, said):
    done = (
        capture("exec", "--nsys", fake_nsys, *options, "--", "echo", "ran")
        if "torch" not in options
        else capture("exec", *options, "--", "x")
    )
    assert done.returncode == 2
    assert said in done.stderr


def stops(seconds):
    time.sleep(seconds)
    return False


def test_no_more_write_at_once_than_may(tmp_path):
    now, most, lock = 0, 0, threading.Lock()

    def write(number):
        nonlocal now, most
        with writer_slot(tmp_path, 2, number, stops):
            with lock:
                now += 1
                most = max(most, now)
            time.sleep(0.05)
            with lock:
                now -= 1

    writers = [threading.Thread(target=write, args=(n,)) for n in range(7)]
    for one in writers:
        one.start()
    for one in writers:
        one.join()
    assert most == 2
    assert list(tmp_path.iterdir()) == []


def test_a_holder_that_died_keeps_nobody_from_writing(tmp_path, monkeypatch):
    here = os.uname().nodename
    (tmp_path / "writer.0").write_text(f"{here} {os.getpid()} 1\n")  # a number that was used before
    with writer_slot(tmp_path, 1, 0, lambda _: pytest.fail("it waits")):
        assert (tmp_path / "writer.0").read_text() == f"{here} {os.getpid()} {started_at(os.getpid())}\n"
    (tmp_path / "writer.0").write_text("another-node 7 7\n")
    waited = []
    with writer_slot(tmp_path, 1, 0, lambda s: waited.append(s) or len(waited) > 3):
        assert len(waited) == 4  # it may be alive: the place is waited for
    os.utime(tmp_path / "writer.0", (time.time() - 500, time.time() - 500))
    with writer_slot(tmp_path, 1, 0, lambda _: pytest.fail("it waits")) as keep:
        monkeypatch.setattr(afterwards, "TOUCHED_EVERY_S", -1.0)
        os.utime(tmp_path / "writer.0", (0, 0))
        keep()
        assert (tmp_path / "writer.0").stat().st_mtime > 1
    assert list(tmp_path.iterdir()) == []


def test_a_place_that_was_taken_meanwhile_stays_with_its_holder(tmp_path):
    place = tmp_path / "writer.0"
    place.write_text("new 1 1\n")
    assert not afterwards._remove(place, "old 1 1\n")
    assert place.read_text() == "new 1 1\n"
    assert [p.name for p in tmp_path.iterdir()] == ["writer.0"]


def test_where_no_file_can_be_written_nothing_is_limited(tmp_path):
    (tmp_path / "file").write_text("")
    with writer_slot(tmp_path / "file" / "x", 1, 0, lambda _: pytest.fail("it waits")):
        pass


def test_only_one_rank_finishes(tmp_path):
    ranks = [JobFolder(tmp_path / "job", n, 3) for n in range(3)]
    ranks[1].begin(first=False)
    ranks[1].done()
    assert ranks[1].missing() == ["2 that did not begin"]
    ranks[0].begin(first=True)
    ranks[2].begin(first=False)
    assert ranks[0].missing() == ["0", "2"]
    ranks[0].done()
    ranks[2].done("no report")
    assert ranks[0].missing() == []
    assert [rank.may_finish() for rank in ranks] == [True, False, False]
    ranks[0].begin(first=True)  # of the next job of that name
    assert ranks[1].missing() == ["0"]
    assert ranks[0].may_finish()


NVTX = "import nvtx, time\nfor n in range(5):\n    with nvtx.annotate(f'step {n}'): time.sleep(0.01)\n"


def with_nsys(launcher, nsys, tmp_path, variables):
    (tmp_path / "train.py").write_text(NVTX)
    words = [
        sys.executable,
        *"-m alltrace.cli.main capture exec --nsys".split(),
        str(nsys),
        *"--trace nvtx --job j".split(),
    ]
    words += ["--then", "import", "--then", "upload", f"file://{tmp_path}/copies", "--scrub", "--max-writers", "1"]
    command = launch(launcher, 4, [*words, "--", sys.executable, "train.py"], tmp_path)
    environment = {**os.environ, **variables, "PYTHONPATH": str(SOURCE), "TMPDIR": str(tmp_path / "tmp")}
    done = subprocess.run(
        command, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=240, check=False
    )
    assert done.returncode == 0, done.stderr
    found = read_manifest(tmp_path / "reports" / "j.run")
    assert [r.rank for r in found.ranks] == [0, 1, 2, 3], done.stderr
    assert all(r.rows["ranges"] == 5 for r in found.ranks)
    assert len(list((tmp_path / "copies").glob("j_rank?_on_*.sqlite"))) == 4
    assert "not" not in done.stderr.replace("note:", ""), done.stderr


@pytest.mark.oracle
@pytest.mark.slow
@pytest.mark.skipif(find_mpirun() is None, reason="no Open MPI")
def test_reports_of_nsys_under_open_mpi_become_a_run(bare_environment, nsys, tmp_path):
    variables = {"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"}
    with_nsys("openmpi", nsys, tmp_path, variables)


@pytest.mark.oracle
@pytest.mark.slow
@pytest.mark.skipif(why_no_slurm() is not None, reason=str(why_no_slurm()))
def test_reports_of_nsys_under_slurm_become_a_run(bare_environment, nsys, tmp_path, tmp_path_factory):
    with two_nodes(tmp_path_factory.mktemp("slurm")) as variables:
        with_nsys("srun", nsys, tmp_path, variables)


def test_the_first_rank_does_not_wait_for_a_folder_that_the_last_one_removed(tmp_path):
    first, last = (JobFolder(tmp_path / "job", rank, 2) for rank in range(2))
    first.begin(first=True)
    last.begin(first=False)
    stops = []

    def stop(seconds):
        """The other rank leaves, finishes the run and removes the folder between two looks of this one."""
        stops.append(seconds)
        last.remove()
        return False

    began = time.monotonic()
    assert first.missing() == ["0", "1"]
    first.wait(60.0, stop)
    assert time.monotonic() - began < 30
    assert len(stops) == 1
    assert not first.may_finish()


def test_the_first_rank_waits_for_one_that_is_not_done(tmp_path):
    first = JobFolder(tmp_path / "job", 0, 2)
    first.begin(first=True)
    assert first.wait(0.2, threading.Event().wait) == ["0", "1 that did not begin"]
    assert first.may_finish()

"""What logs, stacks and kernel logs of a hanging job say, in the forms in which tools write them."""

import json
import os
import pickle

import pytest
from tests.hang_writing import HangFault, Job, Layout, write_job
from tests.step_pages import page_of, write_pages
from tests.together import together

import alltrace
from alltrace.hang.files import gather, read_stacks
from alltrace.hang.verdict import judged, verdict_of
from alltrace.trace.errors import InputError
from alltrace.trace.step_records import AT_NOW, NOW, Step

ELASTIC = """
W1129 21:39:49.811000 21103 torch/distributed/elastic/multiprocessing/api.py:1028] Sending process 21121 closing signal SIGTERM
============================================================
train.py FAILED
------------------------------------------------------------
Failures:
[1]:
  time      : 2026-11-29_21:39:49
  host      : node1
  rank      : 0 (local_rank: 0)
  exitcode  : -15 (pid: 21121)  (SIGTERM)
  error_file: <N/A>
  traceback : Signal 15 (SIGTERM) received by PID 21121
------------------------------------------------------------
Root Cause (first observed failure):
[0]:
  time      : 2026-11-29_21:39:48
  host      : node1
  rank      : 5 (local_rank: 5)
  exitcode  : {code} (pid: 21127)
  error_file: <N/A>
============================================================
"""  # noqa: E501
PY_SPY = """Process 4711: python train.py
Python v3.11.7 (/usr/bin/python3.11)

Thread 4711 ({state}): "MainThread"
{frames}
    train (train.py:40)
    <module> (train.py:60)
Thread 4720 (idle): "QueueFeederThread"
    wait (threading.py:327)
"""


def written(folder, **files):
    for name, text in files.items():
        (folder / name.replace("__", ".")).write_text(text)
    return folder


@together(
    ("code", "how", "confidence"),
    [
        (-9, "signal 9 (SIGKILL)", 0.9),
        (-11, "signal 11 (SIGSEGV)", 0.9),
        (137, "signal 9 (SIGKILL)", 0.9),
        (1, "exit code 1", 0.5),
    ],
)
def test_the_table_of_torchrun_names_the_first_that_died(tmp_path_factory, code, how, confidence):
    folder = written(tmp_path_factory.mktemp("elastic"), job__log=ELASTIC.format(code=code))
    answer = verdict_of(folder)
    row = answer.table.to_pylist()[0]
    assert (row["kind"], row["ranks"], row["hosts"], row["confidence"]) == ("dead-rank", [5], ["node1"], confidence)
    assert how in answer.verdict


def test_a_rank_that_a_watchdog_aborted_is_not_the_cause(tmp_path):
    write_job(tmp_path, Job(Layout(), HangFault("stuck", (3,), 4, 1)))
    written(tmp_path, elastic__log=ELASTIC.format(code=-6))
    assert verdict_of(tmp_path).table.to_pylist()[0]["ranks"] == [3]


SLURM = [
    ("srun: error: node3: task 12: Killed", [12], "node3"),
    ("srun: error: node3: tasks 4-5: Segmentation fault (core dumped)", [4, 5], "node3"),
    ("srun: error: node3: task 7: Out Of Memory", [7], "node3"),
    ("mpirun noticed that process rank 3 with PID 0 on node n4 exited on signal 11 (Segmentation fault).", [3], "n4"),
    (
        "[rank6]: Traceback (most recent call last):\n[rank6]:   File \"t.py\", line 3, in f\n[rank6]: KeyError: 'x'",
        [6],
        None,
    ),
    (
        (
            ' 9: Traceback (most recent call last):\n 9:   File "t.py", line 3, in f\n 9: torch.OutOfMemoryError: CUDA'
            " out of memory."
        ),
        [9],
        None,
    ),
]


@together(("line", "ranks", "host"), SLURM)
def test_lines_of_launchers_and_exceptions(tmp_path_factory, line, ranks, host):
    row = verdict_of(written(tmp_path_factory.mktemp("log"), job__log=line + "\n")).table.to_pylist()[0]
    assert (row["kind"], row["ranks"], row["hosts"]) == ("dead-rank", ranks, [host] if host else [])


def test_ranks_that_lost_peers_or_were_killed_with_all_are_no_cause(tmp_path):
    log = "".join(
        f'[rank{r}]: Traceback (most recent call last):\n[rank{r}]:   File "t.py", line 3, in f\n[rank{r}]: {said}\n'
        for r, said in ((0, "RuntimeError: Connection closed by peer [10.0.0.2]:1234"), (1, "ValueError: bad batch"))
    )
    row = verdict_of(written(tmp_path, job__log=log)).table.to_pylist()[0]
    assert (row["ranks"], row["evidence"]["details"]) == ([1], "rank 1: ValueError: bad batch")
    write_job(tmp_path / "2", Job(Layout(), HangFault("stuck", (3, 9), 4, 1)))
    lost = "RuntimeError: Read error [10.0.0.2]:1: Connection reset by peer"
    written(
        tmp_path / "2",
        err__log=(
            f'[rank9]: Traceback (most recent call last):\n[rank9]:   File "t.py", line 3, in f\n[rank9]: {lost}\n'
        ),
    )
    assert verdict_of(tmp_path / "2").table.to_pylist()[0]["ranks"] == [3]
    write_job(tmp_path / "3", Job(Layout(), HangFault("stuck", (3,), 4, 1)))
    written(
        tmp_path / "3", slurm__log="srun: error: node0: tasks 0-7: Killed\nsrun: error: node1: tasks 8-15: Killed\n"
    )
    assert verdict_of(tmp_path / "3").table.to_pylist()[0]["ranks"] == [3]


def watchdog(rank, sequence, issued):
    return (
        f"[rank{rank}]:[E1129 21:39:49 ProcessGroupNCCL.cpp:629] [Rank {rank}] Watchdog caught collective operation"
        f" timeout: WorkNCCL(SeqNum={sequence}, OpType=ALLREDUCE, NumelIn=64, NumelOut=64, Timeout(ms)=600000) ran for"
        f" 600029 milliseconds before timing out.\n[rank{rank}]:[E1129] [PG ID 0 PG GUID 0(default_pg) Rank {rank}]"
        f" failure detected by watchdog at work sequence id: {sequence} PG status: last enqueued work: {issued}, last"
        f" completed work: {sequence - 1}\n"
    )


def test_watchdogs_of_the_others_name_the_rank_without_one(tmp_path):
    log = "world_size: 4\n" + "".join(watchdog(r, 12, 13) for r in (0, 1, 3))
    answer = verdict_of(written(tmp_path, job__log=log))
    row = answer.table.to_pylist()[0]
    assert (row["ranks"], row["kind"]) == ([2], "dead-rank")
    assert "all-reduce #12 of the default group" in answer.verdict


def test_a_watchdog_that_is_behind_is_named(tmp_path):
    log = "".join(watchdog(r, 12, 13) for r in (0, 1, 3)) + watchdog(2, 11, 11)
    row = verdict_of(written(tmp_path, job__log=log)).table.to_pylist()[0]
    assert row["ranks"] == [2]


RAS = """
Warnings
========

#0-0 (27a079b828ff1a75) MISMATCH
  Communicator ranks have different collective operation counts
  26 ranks have launched up to operation 6650
  2 ranks have launched up to operation 6649
  Rank 4 -- GPU 4 managed by process 483076 on node 172.16.64.210
  Rank 5 -- GPU 5 managed by process 483077 on node 172.16.64.210
"""


def test_ras_and_xids_are_evidence(tmp_path):
    answer = verdict_of(written(tmp_path, ras__txt=RAS))
    row = answer.table.to_pylist()[0]
    assert (row["kind"], row["ranks"]) == ("missing-call", [4, 5])
    assert "up to operation 6649, most up to 6650" in answer.verdict
    one = "  7 ranks have launched up to operation 64\n"
    one += "  Rank 7 has launched up to operation 60 -- GPU 3 managed by process 16 on node n1"
    (tmp_path / "ras.txt").write_text(one)
    row = verdict_of(tmp_path).table.to_pylist()[0]
    assert (row["ranks"], row["hosts"]) == ([7], ["n1"])
    write_job(tmp_path / "2", Job(Layout(), HangFault("gpu", (9,), 4, 1)))
    kernel = "Nov 29 12:04:03 node1 kernel: NVRM: Xid (PCI:0000:3b:00): 79, pid=4711, GPU has fallen off the bus.\n"
    written(tmp_path / "2", dmesg__log=kernel)
    answer = verdict_of(tmp_path / "2")
    row = answer.table.to_pylist()[0]
    assert (row["ranks"], row["evidence"]["xid"]) == ([9], 79.0)
    assert "the kernel log of node1 has Xid 79" in answer.verdict


STACKS = [
    ("idle", "    all_reduce (torch/distributed/distributed_c10d.py:3252)", "communicates"),
    ("active", "    matmul_step (train.py:31)", "computes"),
    ("idle", "    _try_get_data (torch/utils/data/dataloader.py:1133)", "data"),
    ("idle", "    acquire (filelock/_api.py:219)", "lock"),
    ("idle", "    read_shard (train.py:12)\n    open (pathlib.py:1044)", "storage"),
    ("idle", "    wait_a_bit (train.py:12)", "sleeps"),
]


@together(("state", "frames", "doing"), STACKS)
def test_what_a_main_thread_does_by_py_spy(state, frames, doing):
    stack = read_stacks(PY_SPY.format(state=state, frames=frames), 3, "s")
    assert stack.doing == doing
    assert stack.exact


def test_what_a_main_thread_does_by_faulthandler_and_cuda_gdb():
    fault = (
        'Thread 0x00007f278ffff6c0 (most recent call first):\n  File "/usr/lib/python3.11/threading.py", line 327 in'
        ' wait\n\nCurrent thread 0x00007f27c5212b80 (most recent call first):\n  File "/usr/lib/python3.11/queue.py",'
        ' line 171 in get\n  File "/home/x/train.py", line 51 in next_batch\n  File "/home/x/train.py", line 80 in'
        " <module>\n"
    )
    stack = read_stacks(fault, 0, "s")
    assert (stack.doing, stack.frame, stack.exact) == ("data", "/home/x/train.py:51 next_batch", False)
    gdb = (
        "[Switching to thread 1 (Thread 0x7ffff7d8a740 (LWP 4711))]\n"
        "#0  0x00007ffff7e9b46e in __GI___pthread_mutex_lock (m=0x1) at lock.c:4\n"
        "#1  0x0000555555555171 in main (argc=1) at train.cc:12\n"
    )
    assert read_stacks(gdb, 0, "s").doing == "lock"


def test_a_stack_tells_what_the_missing_rank_does(tmp_path):
    write_job(tmp_path, Job(Layout(), HangFault("stuck", (3,), 4, 1)))
    for rank in range(16):
        frames = "    next_batch (train.py:9)\n    get (queue.py:171)" if rank == 3 else STACKS[0][1]
        (tmp_path / f"stack_rank{rank}.txt").write_text(PY_SPY.format(state="idle", frames=frames))
    answer = verdict_of(tmp_path)
    row = answer.table.to_pylist()[0]
    assert (row["kind"], row["ranks"], row["where"]) == ("rank-waits", [3], "train.py:9 next_batch")
    assert answer.verdict.startswith("Rank 3 waits for data in train.py:9 next_batch and never entered")


def inspector(rank, last):
    return "".join(
        json.dumps(
            {
                "header": {"id": "0xabc", "rank": rank, "n_ranks": 4, "nnodes": 1},
                "metadata": {"inspector_output_format_version": "v4.0", "hostname": "n", "pid": 10 + rank},
                "coll_perf": {
                    "coll": "AllReduce",
                    "coll_sn": n,
                    "coll_msg_size_bytes": 8,
                    "coll_exec_time_us": 3,
                    "coll_timing_source": "k",
                },
            }
        )
        + "\n"
        for n in range(1, last + 1)
    )


def test_inspector_names_the_rank_that_completed_less(tmp_path):
    written(tmp_path, **{f"n-pid{10 + r}__log": inspector(r, 4 if r == 2 else 5) for r in range(4)})
    row = verdict_of(tmp_path).table.to_pylist()[0]
    assert row["ranks"] == [2]


def test_other_files_and_dumps_of_noise_are_counted(tmp_path):
    write_job(tmp_path, Job(Layout(), HangFault("stuck", (3,), 4, 1)))
    (tmp_path / "model.safetensors").write_bytes(b"\x00\x01" * 5000)
    (tmp_path / "README.md").write_text("# how to start it\n")
    answer = verdict_of(tmp_path)
    assert answer.table.to_pylist()[0]["ranks"] == [3]
    assert [n for n in answer.notes if n.startswith("skipped")] == [
        "skipped 3 files without a word of a hang: README.md, model.safetensors, truth.json"
    ]
    write_job(tmp_path / "2", Job(Layout(), HangFault("stuck", (2,), 4, 1)))
    dump = next(p for p in (tmp_path / "2").iterdir() if p.name == "nccl_trace_rank_3.json")
    dump.unlink()
    (tmp_path / "2" / "nccl_trace_rank_3").write_bytes(bytes(range(256)))
    answer = verdict_of(tmp_path / "2")
    assert answer.table.column("ranks").to_pylist()[0] == [2]
    assert any("nccl_trace_rank_3: neither a pickle nor JSON" in note for note in answer.notes)


def dumps_of_four(folder, damaged):
    """Dumps of four ranks, of which rank 2 never enters the last all-reduce; `damaged`: what becomes of a rank's
    bytes."""
    for rank in range(4):
        entries = [
            {
                "record_id": n,
                "process_group": ("0", "default_pg"),
                "collective_seq_id": n,
                "profiling_name": "nccl:all_reduce",
                "time_created_ns": 17 * 10**17 + n * 10**6,
                "input_sizes": [[1024]],
                "input_dtypes": ["Float"],
                "output_sizes": [[1024]],
                "output_dtypes": ["Float"],
                "state": "completed" if n < 10 else "scheduled",
                "retired": n < 10,
                "is_p2p": False,
            }
            for n in range(1, 10 if rank == 2 else 11)
        ]
        groups = {"0": {"name": "0", "desc": "default_pg", "ranks": "[0, 1, 2, 3]"}}
        data = pickle.dumps({"version": "2.4", "pg_config": groups, "entries": entries})
        (folder / f"nccl_trace_rank_{rank}").write_bytes(damaged.get(rank, bytes)(data))


@together(
    ("damaged", "note"),
    [
        (lambda data: data[: len(data) // 2] + bytes(len(data) // 2), "dumps of rank 1 are damaged or end early"),
        (lambda _data: b"", "nccl_trace_rank_1: it is empty"),
        (lambda _data: b" \n", "nccl_trace_rank_1: it is empty"),
        (lambda data: bytes(len(data)), "nccl_trace_rank_1: it begins with zeros"),
        (
            lambda data: data[:30],
            "nccl_trace_rank_1: it is damaged or ends early after byte 29, before its first operation",
        ),
        (lambda data: data[:30] + b"\xff" + data[31:], "nccl_trace_rank_1: "),
    ],
)
def test_one_damaged_dump_of_four_is_named_and_the_others_answer(tmp_path_factory, damaged, note):
    folder = tmp_path_factory.mktemp("four")
    dumps_of_four(folder, {1: damaged})
    answer = verdict_of(folder)
    row = answer.table.to_pylist()[0]
    assert (row["kind"], row["ranks"]) == ("missing-call", [2])
    assert "Whether rank 1, which left no whole dump, is to blame as well cannot be known" in answer.verdict
    assert any(note in text for text in answer.notes), answer.notes


def test_a_missing_rank_whose_dump_ends_early_may_have_lost_its_wait(tmp_path):
    dumps_of_four(tmp_path, {2: lambda data: data[:-40]})
    answer = verdict_of(tmp_path)
    assert answer.table.to_pylist()[0]["ranks"] == [2]
    assert "Whether only its dump is lost, and it waits for another rank, cannot be known" in answer.verdict


@together(
    ("cut", "words"),
    [(lambda data: data[: len(data) // 2], "no dump is whole"), (lambda _data: b"", "no dump can be read")],
)
def test_operations_that_completed_before_the_end_of_every_dump_was_lost_prove_nothing(tmp_path_factory, cut, words):
    folder = tmp_path_factory.mktemp("all")
    dumps_of_four(folder, dict.fromkeys(range(4), cut))
    answer = verdict_of(folder)
    assert answer.table.column("kind").to_pylist() == ["unknown"]
    assert answer.verdict.startswith(f"It cannot be known whether the job hangs: {words}")


def test_a_folder_without_anything_is_an_error(tmp_path):
    (tmp_path / "README.md").write_text("nothing\n")
    with pytest.raises(InputError, match="no file in it says how a job ended"):
        gather(tmp_path)
    with pytest.raises(InputError, match="there is no such folder"):
        gather(tmp_path / "gone")


def test_a_shared_answer_has_no_hosts_and_no_paths(tmp_path):
    from alltrace.share.words import Words

    write_job(tmp_path, Job(Layout(), HangFault("killed", (7,), 4, 1)))
    stack = PY_SPY.format(state="active", frames="    step (/home/someone/secret-project/train.py:31)")
    (tmp_path / "stack_rank7.txt").write_text(stack)
    evidence = gather(tmp_path)
    words = Words()
    words.hosts(evidence.hosts.values())
    words.number()
    answer = judged(evidence, words=words)
    said = answer.verdict + json.dumps(answer.table.to_pylist()) + str(answer.notes)
    assert "node0" not in said
    assert "secret" not in said
    assert "host1" in said


_BEGIN = "Thread 0x1 (most recent call first):\n"
_END = '  File "/app/train.py", line 140 in <module>\n'
_IN_OWN_CODE = f'{_BEGIN}  File "/app/train.py", line 55 in evaluate\n{_END}'
_IN_COMMUNICATION = (
    f'{_BEGIN}  File "/venv/lib/python3.11/site-packages/torch/distributed/distributed_c10d.py", line 2 in wait\n{_END}'
)


def test_stacks_alone_name_the_rank_that_is_not_in_communication_and_prove_nothing_where_all_are(tmp_path):
    for rank in range(4):
        (tmp_path / f"stacks_rank{rank}.txt").write_text(_IN_OWN_CODE if rank == 3 else _IN_COMMUNICATION)
    answer = verdict_of(tmp_path)
    assert (answer.table["kind"][0].as_py(), answer.table["ranks"][0].as_py()) == ("rank-computes", [3])
    assert (
        answer.verdict
        == "Rank 3: computes or waits in its own code in /app/train.py:55 evaluate; 3 others are in communication."
    )
    (tmp_path / "stacks_rank2.txt").write_text(_IN_OWN_CODE)  # two of four
    assert (
        verdict_of(tmp_path).verdict
        == "It cannot be known whether the job hangs: ranks 2 and 3 are in the program's own code and ranks 0 and 1 are"
        " in communication, and no file says who waits for whom."
    )
    for rank in (2, 3):
        (tmp_path / f"stacks_rank{rank}.txt").write_text(_IN_COMMUNICATION)
    answer = verdict_of(tmp_path)
    assert answer.table["kind"][0].as_py() == "unknown"
    assert "ranks 0-3 are in communication, and no file says who" in answer.verdict


def test_errors_of_the_network_alone_are_a_cause_without_a_rank(tmp_path):
    line = (
        "n1:10:20 [0] NCCL WARN NET/IB : Got completion from peer 10.0.0.3<41> with status=12 opcode=0 vendor err 129"
        " (Recv)\n"
    )
    (tmp_path / "nccl.log").write_text(line * 5)
    answer = verdict_of(tmp_path)
    assert (answer.table["kind"][0].as_py(), answer.table["ranks"][0].as_py()) == ("network", [])
    assert "nccl.log: 5 network errors" in answer.verdict
    (tmp_path / "job.log").write_text("JobState=COMPLETED Reason=None\n")
    assert verdict_of(tmp_path).table["kind"][0].as_py() == "no-hang"


def test_a_job_that_its_batch_system_ended_is_not_told_to_be_healthy(tmp_path):
    ends = {
        "slurmstepd: error: *** JOB 4242 ON n1 CANCELLED AT 2026-11-01T10:00:00 DUE TO TIME LIMIT ***": (
            "at its time limit"
        ),
        "   JobState=TIMEOUT Reason=TimeLimit Dependency=(null)": "at its time limit",
        "slurmstepd: error: *** STEP 4242.0 ON n1 CANCELLED AT 2026-11-01T10:00:00 ***": "because it was cancelled",
    }
    for line, how in ends.items():
        (tmp_path / "job.log").write_text(f"{line}\n")
        answer = verdict_of(tmp_path)
        assert answer.table["kind"][0].as_py() == "unknown", line
        assert (
            answer.verdict
            == f"It cannot be known whether the job hung: the job ended {how}, and no file says whether a rank waited."
        )


def test_the_later_of_two_dumps_of_a_rank_is_used_and_the_other_is_named(tmp_path):
    write_job(tmp_path, Job(Layout(), HangFault("none")))
    earlier = tmp_path / "before" / "nccl_trace_rank_3.json"
    earlier.parent.mkdir()
    earlier.write_bytes((tmp_path / "nccl_trace_rank_3.json").read_bytes())
    os.utime(earlier, ns=(1, 1))
    notes = verdict_of(tmp_path).notes
    assert "before/nccl_trace_rank_3.json: not used, because a dump of the same rank was written later" in notes


BEGIN_NS = 1_796_000_000_000_000_000
SECOND_NS = 10**9


def write(folder, phases, *, since_s=0.0, beats=None, host="n1", steps=20, page_only=False):
    """A file with ranks that ended `steps` steps of 1 s, and are in these phases since then."""
    end_ns = BEGIN_NS + steps * SECOND_NS
    ended = [Step(n, BEGIN_NS + n * SECOND_NS, 1_000_000, (1000, 2000, 3000)) for n in range(steps)]
    pages = [
        page_of(
            rank,
            len(phases),
            ended,
            phase=phase,
            since_ns=end_ns + SECOND_NS // 10,
            written_ns=end_ns + beat * SECOND_NS,
            host=host,
        )
        for rank, (phase, beat) in enumerate(zip(phases, beats or [since_s] * len(phases), strict=True))
    ]
    write_pages(folder / ("page_rank0.steps" if page_only else f"job_on_{host}.steps"), pages)


def first(folder):
    answer = verdict_of(folder)
    row = answer.table.to_pylist()[0]
    return row["kind"], row["ranks"], answer.verdict


def test_a_rank_that_is_in_another_phase_than_those_that_wait_is_named(tmp_path):
    write(tmp_path, ["wait", "wait", "forward", "wait"], since_s=60)
    kind, ranks, sentence = first(tmp_path)
    assert (kind, ranks) == ("rank-computes", [2])
    assert sentence == "Rank 2: computes in phase forward of step 20 since 00:53:40 UTC; 3 others are in communication."
    write(tmp_path, ["wait", "data", "wait", "wait"], since_s=60)
    assert first(tmp_path)[:2] == ("rank-waits", [1])
    result = alltrace.hang_verdict(tmp_path)
    assert result.answer.verdict == first(tmp_path)[2]
    assert result.to_pylist()[0]["hosts"] == ["n1"]


def test_a_process_that_no_longer_writes_while_others_do_died(tmp_path):
    write(tmp_path, ["wait", "forward", "wait"], beats=[60, 3, 58])
    kind, ranks, sentence = first(tmp_path)
    assert (kind, ranks) == ("dead-rank", [1])
    assert "its process no longer runs since 00:53:43 UTC, in forward of step 20" in sentence


def test_a_job_whose_steps_go_on_or_that_ended_does_not_hang(tmp_path):
    write(tmp_path, ["wait", "forward", "wait"], since_s=2.5)
    assert first(tmp_path)[0] == "no-hang"
    write(tmp_path, ["wait", "forward", "wait"], since_s=4.9)
    assert first(tmp_path)[0] == "no-hang"


def test_a_page_alone_says_where_its_rank_is_and_damage_is_no_evidence(tmp_path):
    write(tmp_path, ["wait"] * 4, since_s=60)
    write(tmp_path, ["forward"], since_s=1, page_only=True)
    path = tmp_path / "page_rank0.steps"
    data = bytearray(path.read_bytes())
    NOW.pack_into(data, AT_NOW, 20, BEGIN_NS + 21 * SECOND_NS, 2)  # later than in the file of the host
    path.write_bytes(data)
    assert first(tmp_path)[:2] == ("rank-computes", [0])
    data[:8] = b"ALTSTEP9"
    path.write_bytes(data)
    assert first(tmp_path)[:2] != ("rank-computes", [0])
    data[:8], data[8:12] = b"ALTSTEP1", b"\xff\xff\xff\xff"
    path.write_bytes(data)
    assert first(tmp_path)[:2] != ("rank-computes", [0])

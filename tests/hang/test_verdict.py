"""Who is to blame for a job that hangs: simulated hangs with known culprits, whole and damaged dumps, healthy jobs."""

import os

import pytest
from tests.hang_writing import KINDS, HangFault, Job, Layout, damage, drawn, write_job, write_pickles
from tests.together import together

from alltrace.hang.verdict import verdict_of
from benchmarks.hangs import TRUTHS, hang


def first_row(folder, **more):
    answer = verdict_of(folder, **more)
    return answer, answer.table.to_pylist()[0]


PLANTED = {
    "skip": (
        HangFault("skip", (3,), 4, 1),
        "missing-call",
        "Rank 3 never entered reduce-scatter #34 of TENSOR_MODEL_PARALLEL_GROUP (2)",
    ),
    "stuck": (
        HangFault("stuck", (9, 14), 4, 2),
        "missing-call",
        "Ranks 9 and 14 never entered all-reduce #5 of DATA_PARALLEL_GROUP (12, 11); the other 14 wait for them",
    ),
    "gpu": (
        HangFault("gpu", (9, 14), 4, 1),
        "dead-rank",
        "The GPUs or processes of ranks 9 and 14 stopped: all-gather #33",
    ),
    "size": (
        HangFault("size", (5,), 4, 1),
        "mismatch",
        (
            "Rank 5 entered reduce-scatter #34 of TENSOR_MODEL_PARALLEL_GROUP (3) as reduce-scatter of [[8208]] to"
            " [[4104]] instead of"
        ),
    ),
    "operation": (HangFault("operation", (5,), 4, 0), "mismatch", "as broadcast instead of all-gather"),
    "no-send": (HangFault("no-send", (6,), 4), "missing-peer", "Rank 6 never issued the send for recv #18 of rank 14"),
    "no-receive": (
        HangFault("no-receive", (12,), 4),
        "missing-peer",
        "Rank 12 never issued the receive for send #18 of rank 4",
    ),
    "killed": (HangFault("killed", (7,), 4, 3), "dead-rank", "Rank 7 died (signal 9 (SIGKILL))"),
    "exception": (HangFault("exception", (7,), 4, 3), "dead-rank", "Rank 7 died (ValueError: the loss is not finite)"),
    "host": (HangFault("host", tuple(range(8, 16)), 4, 1), "dead-rank", "Ranks 8-15 died (host node1 failed)"),
}


@together("name", PLANTED)
def test_the_planted_ranks_are_in_the_first_sentence_and_nobody_else(tmp_path_factory, name):
    fault, kind, words = PLANTED[name]
    folder = tmp_path_factory.mktemp(name)
    write_job(folder, Job(Layout(), fault))
    answer, row = first_row(folder)
    assert (row["kind"], row["ranks"]) == (kind, list(fault.ranks))
    assert words in answer.verdict
    assert answer.table.num_rows == 1, "what only follows is no row"
    assert row["evidence"]["waiting_ranks"] == 16 - len(fault.ranks)


def test_another_order_of_calls_and_a_link_that_stands(tmp_path):
    write_job(tmp_path, Job(Layout(tensor=1, stages=1, ahead=4, steps=12), HangFault("order", (3,), 10, 0)))
    answer, row = first_row(tmp_path)
    assert (row["kind"], row["ranks"]) == ("mismatch", [3])
    assert "out of order" in answer.verdict
    write_job(tmp_path / "2", Job(Layout(ranks=4, tensor=4, stages=1), HangFault("network", (2,), 4, 1)))
    answer, row = first_row(tmp_path / "2")
    assert row["kind"] == "network"
    assert "Ranks 0-3 all entered all-gather #33" in answer.verdict or "reduce-scatter" in answer.verdict


def lost_connections(folder, said):
    """The log of a job of four ranks, of which some lost a connection, with what each says of it."""
    lines = [f"rank {rank} host node{rank}" for rank in range(4)]
    for rank, text in said.items():
        error = (
            f"RuntimeError: [pair.cc:537] Read error [10.0.0.{rank}]:23691: {text}. Check the logs of the remote"
            " worker."
        )
        lines += [
            f"[rank{rank}]: {line}"
            for line in ("Traceback (most recent call last):", '  File "train.py", line 7', error)
        ]
    (folder / "job.log").write_text("\n".join(lines) + "\n")
    answer, row = first_row(folder)
    return row, answer.verdict


def test_a_host_that_closed_its_own_connections_is_cut_off_and_those_that_lost_them_are_not(tmp_path):
    reset = "Connection reset by peer"
    row, sentence = lost_connections(tmp_path, {1: reset, 2: "Software caused connection abort", 3: reset})
    assert (row["kind"], row["ranks"], row["hosts"]) == ("network", [2], ["node2"])
    assert sentence == "Rank 2 lost its own network (Software caused connection abort)."


def test_as_many_own_ends_as_others_name_no_rank(tmp_path):
    row, _ = lost_connections(tmp_path, dict.fromkeys(range(2), "Software caused connection abort"))
    assert row["ranks"] == []


def test_recorders_without_operations_and_of_two_formats(tmp_path):
    # a rank whose Python stands has completed all that it issued, so a dump of open operations is empty
    job = Job(Layout(), HangFault("stuck", (9, 14), 4, 1))
    write_pickles(tmp_path, job, active=True)
    assert not job.dump_of(9, active=True)["entries"]
    answer, row = first_row(tmp_path)
    assert (row["kind"], row["ranks"]) == ("missing-call", [9, 14])
    assert "the recorder of ranks 9 and 14 has no open operation" in answer.verdict
    job = Job(Layout(), HangFault("no-send", (6,), 4))
    write_pickles(tmp_path / "2" / "pickles", job)
    write_job(tmp_path / "2" / "json", job)
    assert verdict_of(tmp_path / "2" / "pickles").verdict == verdict_of(tmp_path / "2" / "json").verdict


def test_messages_in_batches_and_groups_without_a_description(tmp_path):
    write_job(tmp_path, Job(Layout(batched=True), HangFault("no-send", (6,), 4)))
    answer, row = first_row(tmp_path)
    assert (row["kind"], row["ranks"]) == ("missing-peer", [6])
    assert "send for recv" in answer.verdict
    write_job(tmp_path / "2", Job(Layout(described=False, ahead=1), HangFault("stuck", (3,), 4, 1)))
    assert first_row(tmp_path / "2")[1]["ranks"] == [3]


@pytest.mark.sampled(8)
@pytest.mark.parametrize("seed", range(96))
def test_culprits_of_drawn_hangs(tmp_path, seed):
    job, active, per_host = drawn(seed)
    truth = write_job(tmp_path, job, active=active, per_host=per_host)
    answer, row = first_row(tmp_path)
    assert row["kind"] != "no-hang", answer.verdict
    if truth["fault"] == "network":
        assert row["kind"] == "network" or row["confidence"] < 0.9
    elif truth["fault"] == "host":
        assert set(truth["ranks"]) <= set(row["ranks"])
    elif len(truth["ranks"]) == 1:
        assert row["ranks"] == truth["ranks"], answer.verdict
    else:
        assert set(row["ranks"]) <= set(truth["ranks"]), answer.verdict


@pytest.mark.sampled(8)
@pytest.mark.parametrize("seed", range(200, 264))
def test_a_third_of_the_dumps_lost_changes_no_culprit_or_is_said(tmp_path, seed):
    """Ranks of which something is known are right; a single job whose only lost dump is not the culprit's cannot be
    told."""
    job, active, per_host = drawn(seed, KINDS[seed % 3])
    truth = write_job(tmp_path, job, active=active, per_host=per_host)
    lost = damage(tmp_path, seed)
    answer, row = first_row(tmp_path)
    if row["kind"] == "unknown":
        assert "cannot be known" in answer.verdict
        assert row["confidence"] <= 0.3
    elif len(lost) != 1:
        assert set(row["ranks"]) & set(truth["ranks"]), answer.verdict


def healthy(seed):
    """A job without a hang: it goes on, is slow, or ended; the fault, how old its dumps are, and how it is laid out."""
    layout = Layout(
        ranks=(4, 8, 16)[seed % 3],
        tensor=(1, 2)[seed % 2],
        stages=(1, 2)[seed // 2 % 2],
        batched=seed % 4 == 0,
        ahead=(1, 8)[seed % 2],
    )
    return layout, (HangFault("ended") if seed % 5 == 0 else HangFault("none")), (0.001, 0.5, 2.0, 4.0)[seed % 4]


@together("seed", range(20))
def test_jobs_that_are_healthy_slow_or_ended_well_accuse_nobody(tmp_path_factory, seed):
    folder = tmp_path_factory.mktemp("healthy")
    layout, fault, age_s = healthy(seed)
    kind = (
        "stuck" if fault.kind == "none" and seed % 2 else fault.kind
    )  # caught within a step, while a rank still computes
    job = Job(layout, HangFault(kind, (1,) if kind == "stuck" else (), 5, 1))
    write_job(folder, job, age_s=1e6 if fault.kind == "ended" else age_s)
    answer, row = first_row(folder)
    assert (row["kind"], row["ranks"]) == ("no-hang", []), answer.verdict
    assert answer.verdict.startswith("No hang")


def test_the_time_of_the_dumps_and_parts_of_batches(tmp_path):
    job = Job(Layout(), HangFault("stuck", (3,), 4, 1))
    write_job(tmp_path, job, age_s=600)
    assert first_row(tmp_path)[1]["kind"] == "missing-call"
    answer, row = first_row(tmp_path, at_ns=job.last_ns + 2_000_000_000)
    assert row["kind"] == "no-hang"
    assert "2.0 s before the dumps were written" in answer.verdict
    job = Job(Layout(batched=True), HangFault())
    write_job(tmp_path / "2", job, age_s=1e6)
    entries = [e for r in range(16) for e in job.dump_of(r)["entries"]]
    assert any(e["state"] == "scheduled" for e in entries)
    assert first_row(tmp_path / "2")[1]["kind"] == "no-hang"


def test_one_lost_dump_is_named_and_no_proof_where_another_rank_is_proven(tmp_path):
    write_job(tmp_path, Job(Layout(), HangFault("stuck", (3,), 4, 1)))
    (tmp_path / "nccl_trace_rank_9.json").unlink()
    assert first_row(tmp_path)[1]["ranks"] == [3]
    (tmp_path / "nccl_trace_rank_3.json").unlink()
    row = first_row(tmp_path)[1]
    assert row["kind"] == "unknown"
    assert 3 in row["ranks"]
    write_job(tmp_path, Job(Layout(), HangFault("stuck", (3,), 4, 1)))
    (tmp_path / "nccl_trace_rank_3.json").unlink()
    answer, row = first_row(tmp_path)
    assert (row["kind"], row["ranks"], row["confidence"]) == ("dead-rank", [3], 0.6)
    assert "left nothing" in answer.verdict


def test_lost_dumps_of_a_host_or_next_to_a_proven_rank(tmp_path):
    write_job(tmp_path, Job(Layout(), HangFault("host", tuple(range(8, 16)), 4, 1)))
    (tmp_path / "job.log").unlink()
    answer, row = first_row(tmp_path)
    assert (row["kind"], row["ranks"]) == ("dead-rank", list(range(8, 16)))
    assert "all ranks of a host" in answer.verdict
    job, active, per_host = drawn(914209)
    assert write_job(tmp_path / "2", job, active=active, per_host=per_host)["ranks"] == [4, 13]
    for rank in (2, 4, 6):
        (tmp_path / "2" / f"nccl_trace_rank_{rank}.json").write_bytes(b"")
    answer, row = first_row(tmp_path / "2")
    assert row["ranks"] == [13]
    assert answer.verdict.endswith(
        "Whether ranks 2, 4, 6, which left no whole dumps, are to blame as well cannot be known."
    )


def test_empty_dumps_and_devices_that_stop_at_once(tmp_path):
    for rank in range(4):
        (tmp_path / f"nccl_trace_rank_{rank}").write_bytes(b"")
    answer, row = first_row(tmp_path)
    assert (row["kind"], row["ranks"]) == ("unknown", [])
    assert answer.verdict == "It cannot be known whether the job hangs: no dump can be read."
    job = Job(Layout(8, 1, 1), HangFault("gpu", (0, 1, 2, 3), 3, 0))
    write_job(tmp_path / "2", job)
    answer, row = first_row(tmp_path / "2")
    assert (row["kind"], row["ranks"]) == ("network", [0, 1, 2, 3]), answer.verdict
    assert "or others like it that some of their peers completed" in answer.verdict


def test_the_last_operations_of_a_long_dump_say_the_same(tmp_path, monkeypatch):
    from alltrace.hang import files

    job = Job(Layout(8, 2, 2, steps=12), HangFault("skip", (5,), 9, 3))
    write_job(tmp_path, job)
    whole = first_row(tmp_path)[0].verdict
    monkeypatch.setattr(files, "_LAST_OPERATIONS", 60)
    assert first_row(tmp_path)[0].verdict == whole
    assert all(len(r.entries) < 90 for r in files.gather(tmp_path).recordings.values())


@pytest.mark.slow
@pytest.mark.nightly
@pytest.mark.parametrize("cause", ["skipped-call", "other-order", "killed", "stopped"])
def test_the_cause_and_the_rank_of_a_real_hang(tmp_path, cause):
    if not os.environ.get("ALLTRACE_TORCH_PYTHON"):
        pytest.skip("no PyTorch: set ALLTRACE_TORCH_PYTHON")
    hang(cause, tmp_path, 5, 12, 6.0)
    answer = verdict_of(tmp_path)
    row = answer.table.to_pylist()[0]
    assert row["ranks"] == [5], answer.verdict
    assert row["kind"] in TRUTHS[cause]

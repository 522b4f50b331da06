"""The sums of stragglers for each rank equal a search over all members for that rank."""

from __future__ import annotations

import random
from types import SimpleNamespace

import numpy as np
import pyarrow as pa
import pytest
from tests.making import collective, copy, kernel, make_run
from tests.recipes.questions.diagnose.test_compute import run_of

from alltrace.recipes.analysis.lateness import Lateness
from alltrace.recipes.questions import stragglers
from alltrace.trace.errors import UsageError
from alltrace.trace.intervals import difference, merge

RANKS = (0, 1, 2, 4, 5, 7)  # rank 7 takes part in nothing


def question(seed):
    """Some ranks of random instances, with steps of some of them."""
    draw = np.random.default_rng(seed)
    rows = []
    for instance in range(30):
        ranks = np.sort(draw.choice(7, int(draw.integers(2, 6)), replace=False))
        arrival = instance * 100 + draw.integers(0, 60, len(ranks))
        last = ranks[arrival.argmax()]
        rows += [
            {
                "instance": instance,
                "rank": r,
                "row": instance,
                "awaited_rank": last,
                "wait_ns": arrival.max() - a,
                "wait_start_ns": a,
                "awaited_ns": arrival.max(),
            }
            for r, a in zip(ranks.tolist(), arrival.tolist(), strict=True)
        ]
    members = pa.table({c: [int(r[c]) for r in rows] for c in rows[0]})
    members = members.append_column("communicator", pa.array(members.column("instance").to_numpy() % 3))
    members = members.append_column("confidence", pa.array(draw.random(len(rows))))
    members = members.append_column("fact", pa.array(draw.random(len(rows)) < 0.8))
    stepping = draw.permutation([(r, s) for r in (0, 2, 5, 6) for s in range(8)])
    start = stepping[:, 1] * 400 + draw.integers(0, 50, len(stepping))
    device = pa.array(start + 20, mask=draw.random(len(start)) < 0.3)
    steps = pa.table({"rank": stepping[:, 0], "step": stepping[:, 1], "start": start, "device_start": device})
    parts = []
    for rank in RANKS:
        known = draw.permutation(30)[:25]
        compute = merge(np.arange(40) * 75, np.arange(40) * 75 + 30)
        parts.append(SimpleNamespace(rank=rank, table=(None, Lateness(known, draw.integers(0, 9, (25, 4)), compute))))
    run = SimpleNamespace(ranks=[SimpleNamespace(rank=r, host=f"h{r % 2}") for r in range(8)])
    return stragglers._Question(parts, members, steps, run), {p.rank: p.table[1] for p in parts}, steps


@pytest.mark.parametrize("seed", range(4))
def test_every_rank_has_what_its_own_members_tell(monkeypatch, seed):
    asked, late, steps = question(seed)
    monkeypatch.setattr(stragglers, "replay_of", lambda *_: None)
    monkeypatch.setattr(stragglers, "peers_in", lambda *_: None)
    monkeypatch.setattr(stragglers, "replay_notes", lambda *_: [])
    monkeypatch.setattr(stragglers, "other_culprit", lambda *_: [])
    monkeypatch.setattr(stragglers, "blame_ns", lambda *_: ({}, 0.0))
    monkeypatch.setattr(stragglers, "own_excess", lambda *_: {})
    monkeypatch.setattr(stragglers, "stages", lambda _: [])
    monkeypatch.setattr(stragglers._Question, "_name_ranges", lambda *_: None)
    monkeypatch.setattr(stragglers._Question, "_roots", lambda *_: ({}, {}))
    rows, _ = asked.answer()
    w = asked._w
    blamed = np.isin(w.instance, w.instance[w.counts])
    assert sorted(r["rank"] for r in rows) == list(RANKS)
    for row in rows:
        own, mine = w.rank == row["rank"], blamed & (w.last == row["rank"])
        counted = own & w.counts
        waits = merge(w.arrival[counted], (w.arrival + w.wait_ns)[counted])
        assert row["waited_ns"] == w.wait_ns[counted].sum()
        assert row["caused_ns"] == w.wait_ns[w.counts & (w.last == row["rank"])].sum()
        assert row["exposed_wait_ns"] == difference(waits, late[row["rank"]].compute).total_ns
        assert row["operations"] == own.sum()
        assert row["last_percent"] == (100 * len(set(w.instance[mine])) / own.sum() if own.any() else 0)
        assert row["confidence"] == (w.confidence[mine].mean() if mine.any() else None)
    before, step = asked._before(), asked._step_of()
    listed = steps.to_pylist()
    for n, (rank, row, arrival) in enumerate(zip(w.rank.tolist(), w.row.tolist(), w.arrival.tolist(), strict=True)):
        at = np.flatnonzero(late[rank].row == row)
        assert before[n].tolist() == (late[rank].before_ns[at[0]].tolist() if len(at) else [0] * 4)
        begins = [
            (s["start"] if s["device_start"] is None else s["device_start"], s["step"])
            for s in listed
            if s["rank"] == rank
        ]
        assert step[n] == max([b for b in begins if b[0] <= arrival], default=(0, -1))[1]


def test_causes_of_one_late_rank(tmp_path):
    """Four operations, 10 ms apart; rank 2 comes 1 ms after the others, having computed, talked and copied as they have
    not."""
    us, ms = 1000, 1_000_000

    def rows(rank):
        return [
            {
                "start": 10 * ms * n + (2 * ms if rank == 2 else ms), "end": 10 * ms * n + 3 * ms, "communicator": "c0",
                "op": "AllReduce", "sequence": n, "bytes": 1 << 20, "group_rank": rank, "group_size": 3,
                "datatype": "float32", "evidence": "trace",
            }
            for n in range(4)
        ]  # fmt: skip

    work = {
        "kernels": [
            event
            for at in range(0, 40 * ms, 10 * ms)
            for event in (kernel(at, at + 600 * us), collective(at + 600 * us, at + 700 * us))
        ],
        "copies": [copy(at + 700 * us, at + 900 * us) for at in range(0, 40 * ms, 10 * ms)],
    }
    behind = {"kernels": [kernel(39 * ms, 39 * ms + us)]}
    run = make_run(
        tmp_path / "run", {rank: {"collectives": rows(rank), **(work if rank == 2 else behind)} for rank in range(3)}
    )
    late, *others = run.recipe("stragglers").to_pylist()
    assert (late["rank"], late["caused_ns"], late["waited_ns"], late["last_percent"]) == (2, 4 * 2 * ms, 0, 100.0)
    # its device idles 1.1 ms before the first operation, and 0.9 ms less than the others' before each of the other
    # three
    assert (late["compute_excess_ns"], late["communication_excess_ns"], late["copy_excess_ns"]) == (
        2_400 * us,
        400 * us,
        800 * us,
    )
    assert late["host_excess_ns"] == 1_100 * us - 3 * 900 * us
    assert (late["cause"], late["cause_percent"]) == ("mixed", pytest.approx(100 * 2_400 / 3_600))
    assert [(r["cause"], r["cause_percent"], r["copy_excess_ns"]) for r in others] == [(None, None, None)] * 2


def test_by_time_says_when_a_rank_is_slower(tmp_path):
    noise = random.Random(3)
    run = run_of(tmp_path, 4, 14, lambda r, s, _: (1.4 if r == 2 and s >= 9 else 1) * noise.gauss(1, 0.005))
    rows = run.recipe("stragglers", by_time=True).to_pylist()
    assert [row["rank"] for row in rows] == [2, 0, 1, 3]
    first = rows[0]
    assert (first["when"], first["since_step"], first["slow_steps"], first["steps"]) == (
        "from a step on",
        9,
        "9-13",
        14,
    )
    assert first["slowdown"] == pytest.approx(1.4, abs=0.06)
    # 40 % of the kernels' 1.05 ms in five steps
    assert first["excess_ns"] == pytest.approx(5 * 0.42e6, rel=0.05)
    # without what they wait for it the others take as long as before
    assert [row["own_ns"] for row in rows[1:]] == pytest.approx([rows[1]["own_ns"]] * 3, rel=0.02)
    assert [row["when"] for row in rows[1:]] == [None] * 3


def test_by_time_needs_steps(tmp_path):
    run = make_run(
        tmp_path, {r: {"kernels": [kernel(0, 10, "a")], "collectives": [collective(10, 20)]} for r in (0, 1)}
    )
    answer = run.recipe("stragglers", by_time=True)
    assert any("no steps were found in the run" in note for note in answer.notes)
    with pytest.raises(UsageError, match=r"^by_time needs the steps of the trace"):
        run.recipe("stragglers", by_time=True, source="inspector")

"""Roles that take turns, in programs of known truth."""

from __future__ import annotations

import pytest
from tests.role_programs import MS, Phase, write_program

RANKS = {"rollout": (0, 1), "trainer": (2, 3)}


def found(run):
    answer = run.recipe("diagnose")
    return {row["kind"]: row for row in answer.to_pylist()}


@pytest.mark.parametrize(
    ("phases", "ranks", "where", "culprits"),
    [
        ([Phase({"rollout": 120}, 20), Phase({"trainer": 60}, 20)], RANKS, "rollout, trainer", [0, 1]),
        ([Phase({"rollout": 50}), Phase({"trainer": 110})], RANKS, "rollout, trainer", [2, 3]),
        (
            [Phase({"rollout": 100}, 10), Phase({"reference": 30}), Phase({"actor": 50, "critic": 40}, 10)],
            {"rollout": (0, 1), "reference": (2,), "actor": (3, 4), "critic": (5,)},
            "rollout, reference, actor and critic",
            [0, 1],
        ),
    ],
)
def test_roles_that_take_turns_are_found_with_what_they_would_save(tmp_path, phases, ranks, where, culprits):
    run, lost, span = write_program(tmp_path, 4, phases, ranks)
    row = found(run)["hand-over"]
    assert (row["where"], row["ranks"]) == (where, culprits)
    assert row["lost_ns"] == pytest.approx(lost, rel=0.02)
    assert row["lost_share"] == pytest.approx(lost / span, rel=0.05)
    evidence = row["evidence"]
    assert evidence["basis"] == "ceiling"
    assert evidence["hand_overs"] == 4 * len(phases) - 1
    assert (
        evidence["between_ns"] == pytest.approx(max(p.behind_ms for p in phases) * MS, abs=2 * MS)
        or not evidence["between_ns"]
    )


def test_it_comes_first_and_waiting_for_a_role_is_no_fault_of_the_host(tmp_path):
    run, _lost, _span = write_program(tmp_path, 4, [Phase({"rollout": 120}, 5), Phase({"trainer": 60}, 5)], RANKS)
    rows = run.recipe("diagnose").to_pylist()
    assert rows[0]["kind"] == "hand-over"
    assert rows[0]["severity"] == "high"
    assert "imbalance" not in {row["kind"] for row in rows}  # roles have work of their own
    others = sum(row["lost_ns"] or 0 for row in rows[1:])
    assert others < 0.1 * rows[0]["lost_ns"]


@pytest.mark.parametrize(
    "phases",
    [
        [Phase({"rollout": 100, "trainer": 90})],  # side by side
        [Phase({"rollout": 100})],  # the trainers have no device work
        [Phase({"rollout": 100, "trainer": 60}), Phase({"rollout": 40})],  # trainers have less to do
        [Phase({"rollout": 100, "trainer": 40}), Phase({"trainer": 60})],  # side by side for a quarter of the time
    ],
)
def test_roles_that_work_side_by_side_take_no_turns(tmp_path, phases):
    run, _lost, _span = write_program(tmp_path, 4, phases, RANKS)
    assert "hand-over" not in found(run)


def test_one_turn_is_a_start_up_and_no_pattern(tmp_path):
    run, _lost, _span = write_program(tmp_path, 1, [Phase({"rollout": 100}), Phase({"trainer": 60})], RANKS)
    assert "hand-over" not in found(run)


def test_roles_that_share_their_devices_cannot_work_at_once(tmp_path):
    phases = [Phase({"rollout": 120}), Phase({"trainer": 60})]
    run, _lost, _span = write_program(tmp_path, 4, phases, RANKS, one_device=True)
    assert "hand-over" not in found(run)


def test_ranks_without_roles_take_no_turns(tmp_path):
    run, _lost, _span = write_program(tmp_path, 4, [Phase({"all": 100}, 20)], {"all": (0, 1)})
    assert "hand-over" not in found(run)


def test_the_card_says_who_works_longest(tmp_path):
    run, _lost, _span = write_program(tmp_path, 4, [Phase({"rollout": 120}, 20), Phase({"trainer": 60}, 20)], RANKS)
    card = next(c for c in run.diagnosis().cards if c.kind == "hand-over")
    assert card.what == "The roles rollout, trainer take turns: one works while the others stand still"
    assert "7 times another role began to work" in card.evidence
    assert card.proof.command() == "alltrace recipe breakdown RUN --by role"

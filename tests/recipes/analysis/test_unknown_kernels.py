"""Kernels without a rule in which all ranks of a host meet are not compute; those that only compute are."""

from __future__ import annotations

import random

import pytest
from tests.making import kernel, make_run

from alltrace.recipes.execution.ask import ask

NAME = "void mylib::token_swap<8, float>(int4*, float const*)"
STEP = 1_000_000


def run_of(folder, begin, end, *, ranks=4, name=NAME, number=30, hosts=None, without=()):
    """Each rank computes for 200 us in each step, and has a kernel from `begin(rank, step)` to `end(rank, step)` of it, ns."""
    rows = {}
    for rank in range(ranks):
        its = [kernel(STEP * n, STEP * n + 200_000) for n in range(number)]
        if rank not in without:
            its += [
                {"start": STEP * n + begin(rank, n), "end": STEP * n + end(rank, n), "name": name, "kind": "unclassified"}
                for n in range(number)
            ]
        rows[rank] = {"kernels": its}
    return make_run(folder, rows, hosts=hosts)


def meeting(folder, **others):
    """Rank r begins r * 50 us late in each step, and all end at 700 us."""
    return run_of(folder, lambda rank, _n: 300_000 + 50_000 * rank, lambda _rank, _n: 700_000, **others)


def test_kernels_in_which_ranks_meet_do_not_count_as_compute(tmp_path):
    answer = ask(meeting(tmp_path / "run"), "breakdown")
    for row in answer.table.to_pylist():
        assert row["compute_ns"] == 30 * 200_000
        assert row["unclassified_ns"] == 30 * (400_000 - 50_000 * row["rank"])
        classes = ("compute_ns", "exposed_communication_ns", "unclassified_ns", "exposed_copy_ns", "idle_ns")
        assert sum(row[c] for c in classes) == row["span_ns"]
        assert row["unclassified_percent"] == pytest.approx(100 * row["unclassified_ns"] / row["span_ns"])
    (note,) = [n for n in answer.notes if "token_swap" in n]
    assert "ends on all ranks together in 30 of the 30 compared instances that begin apart" in note
    assert note.endswith("says so: collective mylib::token_swap")
    assert any("of the kernel time is in kernels that no rule names; it does not count as compute" in n for n in answer.notes)


def test_overlap_leaves_them_out_too(tmp_path):
    run = meeting(tmp_path / "run")
    assert {r["compute_ns"] for r in ask(run, "overlap").table.to_pylist()} == {30 * 200_000}
    assert any("token_swap" in n for n in ask(run, "overlap").notes)


def test_activity_says_that_they_count_as_compute(tmp_path):
    answer = ask(meeting(tmp_path / "run"), "activity")
    assert any("count as compute here, and `breakdown` lists them as unclassified" in n for n in answer.notes)
    computing = run_of(tmp_path / "other", lambda r, _n: 300_000 + 50_000 * r, lambda r, _n: 600_000 + 50_000 * r)
    assert not any("unclassified" in n for n in ask(computing, "activity").notes)


def test_the_line_of_the_note_is_a_rule_that_names_them(tmp_path):
    from alltrace.trace.kernel_rules import read_rules

    (note,) = [n for n in ask(meeting(tmp_path / "run"), "breakdown").notes if "token_swap" in n]
    (tmp_path / "rules").write_text(note.partition("says so: ")[2])
    assert read_rules(tmp_path / "rules").kind(NAME) == "collective"


def test_ranks_that_compute_the_same_as_late_as_they_began_do(tmp_path):
    late = {r: 50_000 * r for r in range(4)}
    run = run_of(tmp_path / "run", lambda r, _n: 300_000 + late[r], lambda r, _n: 600_000 + late[r])
    answer = ask(run, "breakdown")
    assert {r["unclassified_ns"] for r in answer.table.to_pylist()} == {0}
    assert {r["compute_ns"] for r in answer.table.to_pylist()} == {30 * 500_000}
    assert any("it counts as compute" in n for n in answer.notes)
    assert not any("token_swap" in n for n in answer.notes)


@pytest.mark.parametrize(
    "others",
    [
        {"number": 4},  # too few
        {"hosts": {r: f"h{r}" for r in range(4)}},  # clocks that are not one
        {"without": (2,)},  # one rank takes no part
        {"ranks": 1},
    ],
)
def test_what_cannot_be_told_is_not_said(tmp_path, others):
    answer = ask(meeting(tmp_path / "run", **others), "breakdown")
    assert {r["unclassified_ns"] for r in answer.table.to_pylist()} == {0}


def test_kernels_of_random_lengths_are_no_meeting(tmp_path):
    draw = random.Random(7)
    begins = {(r, n): 300_000 + draw.randrange(0, 100_000) for r in range(4) for n in range(30)}
    ends = {key: begin + draw.randrange(100_000, 300_000) for key, begin in begins.items()}
    run = run_of(tmp_path / "run", lambda r, n: begins[r, n], lambda r, n: ends[r, n])
    assert {r["unclassified_ns"] for r in ask(run, "breakdown").table.to_pylist()} == {0}

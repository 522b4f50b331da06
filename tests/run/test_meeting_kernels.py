"""Kernels without a rule in which all ranks of a host meet are compute in no answer; those that only compute are."""

from __future__ import annotations

import random
from dataclasses import replace

import pyarrow as pa
import pytest
from tests.making import kernel, make_run

from alltrace.recipes.execution.ask import ask, resolve_options
from alltrace.recipes.registry import find, names
from alltrace.trace.errors import UsageError

NAME = "void mylib::token_swap<8, float>(int4*, float const*)"
STEP = 1_000_000


def run_of(folder, begin, end, *, ranks=4, name=NAME, number=30, hosts=None, without=()):
    """Each rank computes for 200 us in each step, and has a kernel from `begin(rank, step)` to `end(rank, step)` of it,
    ns."""
    rows = {}
    for rank in range(ranks):
        its = [kernel(STEP * n, STEP * n + 200_000) for n in range(number)]
        if rank not in without:
            its += [
                {
                    "start": STEP * n + begin(rank, n),
                    "end": STEP * n + end(rank, n),
                    "name": name,
                    "kind": "unclassified",
                }
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
    assert any(
        "in kernels that no rule names and that all ranks end together; it does not count" in n for n in answer.notes
    )


def test_overlap_leaves_them_out_too(tmp_path):
    run = meeting(tmp_path / "run")
    assert {r["compute_ns"] for r in ask(run, "overlap").table.to_pylist()} == {30 * 200_000}
    assert any("token_swap" in n for n in ask(run, "overlap").notes)


def test_activity_counts_them_as_communication(tmp_path):
    run = meeting(tmp_path / "run")
    answer = ask(run, "activity")
    for rank in range(4):
        rows = [r for r in answer.table.to_pylist() if r["rank"] == rank]
        assert sum(r["compute_ns"] for r in rows) == 30 * 200_000
        assert sum(r["communication_ns"] for r in rows) == 30 * (400_000 - 50_000 * rank)
    assert any("token_swap" in n for n in answer.notes)


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


BESIDE = "void otherlib::smooth<4>(float*)"


@pytest.fixture(scope="module")
def twins(tmp_path_factory):
    """A run with steps in which ranks meet in a kernel without a rule, and the same run with a rule for that kernel.

    Each step has another kernel without a rule in which nobody waits.
    """
    runs = []
    for kind in ("unclassified", "collective"):
        rows = {}
        for rank in range(4):
            kernels, ranges, api = [], [], []
            for n in range(30):
                at = STEP * n
                begin, number = at + 300_000 + 50_000 * rank, 3 * n
                kernels += [
                    kernel(at + 20_000, at + 200_000, correlation=number),
                    kernel(at + 200_000, at + 250_000 + 10_000 * rank, BESIDE, correlation=number + 1),
                    {"start": begin, "end": at + 700_000, "name": NAME, "kind": kind, "correlation": number + 2},
                ]
                launches = [at + 5_000, at + 8_000, at + 11_000]
                api += [
                    {
                        "start": t,
                        "end": t + 2_000,
                        "name": "cudaLaunchKernel",
                        "kind": "runtime",
                        "correlation": number + i,
                    }
                    for i, t in enumerate(launches)
                ]
                ranges.append({"start": at, "end": at + 800_000, "name": f"step {n}", "kind": "pushpop"})
            rows[rank] = {"kernels": kernels, "ranges": ranges, "api": api}
        runs.append(make_run(tmp_path_factory.mktemp("twins") / kind, rows))
    return runs


def test_only_the_kernels_in_which_ranks_meet_are_left_out(twins):
    run = twins[0]
    (found,) = run.manifest.meeting
    assert run.texts(pa.array([found.name])).to_pylist() == [NAME]
    for row in ask(run, "breakdown").table.to_pylist():
        assert row["compute_ns"] == 30 * (230_000 + 10_000 * row["rank"])
        assert row["unclassified_ns"] == 30 * (400_000 - 50_000 * row["rank"])


def test_every_reader_sees_the_same_kind(twins):
    run = twins[0]
    want = {NAME: "meeting", BESIDE: "unclassified"}
    rank = run.rank(1)
    whole = rank.table("kernels", ["start", "kind", "name"])
    assert whole.column_names == ["start", "kind", "name"]
    pieces = [rank.file_piece("kernels", p.group, ["kind", "name"]) for p in rank.pieces("kernels")]
    for table in (whole, *pieces, *rank.batches("kernels", ["kind", "name"])):
        kinds = dict(zip(run.texts(table.column("name")).to_pylist(), table.column("kind").to_pylist(), strict=True))
        assert {name: kinds[name] for name in want} == want
    assert (
        dict(run.connect(["kernels"]).execute("SELECT DISTINCT name, kind FROM kernels").fetchall()).items()
        >= want.items()
    )
    assert rank.table("kernels", ["kind"]).column_names == ["kind"]
    assert {r["kind"] for r in ask(run, "kernels").table.to_pylist() if r["name"] == NAME} == {"meeting"}


# columns that hold time in compute, by recipe
COMPUTE_COLUMNS = {
    "breakdown": ("compute_ns",),
    "overlap": ("compute_ns",),
    "activity": ("compute_ns",),
    "step-time": ("kernel_ns",),
    "efficiency": ("useful_ns",),
}


@pytest.mark.parametrize("recipe", COMPUTE_COLUMNS)
def test_no_answer_counts_their_time_as_compute(twins, recipe):
    """With a rule and without one, the time in compute is the same."""
    found, ruled = (ask(run, recipe) for run in twins)
    names = COMPUTE_COLUMNS[recipe]
    values, expected = ([[row[c] for c in names] for row in answer.table.to_pylist()] for answer in (found, ruled))
    assert values == expected
    assert any(v for row in values for v in row)
    assert any("token_swap" in n for n in found.notes)
    assert not any("token_swap" in n for n in ruled.notes)


def test_every_recipe_that_reads_kinds_of_kernels_says_so(twins):
    for recipe in map(find, names()):
        try:
            options = resolve_options(recipe, {})
        except UsageError:
            continue
        if "kind" in recipe.reads(options).get("kernels", ()):
            notes = ask(twins[0], recipe).notes
            assert any("token_swap" in n for n in notes), recipe.name


def test_no_finding_of_diagnose_is_about_their_time(twins):
    def compute(run):
        work = run.rank(0)
        return work.table("kernels", ["kind"]).column("kind").to_pylist().count("compute")

    kinds = [[(r["kind"], r["ranks"]) for r in ask(run, "diagnose").table.to_pylist()] for run in twins]
    assert compute(twins[0]) == compute(twins[1])
    assert not [
        k for k in kinds[0] if k[0] in ("straggler", "slow-host", "imbalance", "slow-kernel") and k not in kinds[1]
    ]


def test_the_page_shows_them_as_communication(twins):
    from alltrace.tiles.tracks import COMMUNICATION_CODE, SOURCES, codes_of

    rows = twins[0].rank(0).table("kernels", ["start", "kind", "name"])
    mine = [name == NAME for name in twins[0].texts(rows.column("name")).to_pylist()]
    assert [code == COMMUNICATION_CODE for code in codes_of(SOURCES["kernels"], rows).tolist()] == mine


def test_a_replay_keeps_their_length(twins):
    """Faster compute does not make ranks wait less in them, as the replay does not know whom they wait for; compute it
    does."""
    import numpy as np

    from alltrace.replay.work import COMPUTE, OTHER, read

    work, _ = read(twins[0].rank(1), np.empty(0, np.int64))
    kinds = dict(zip(twins[0].texts(pa.array(work.name)).to_pylist(), work.kind.tolist(), strict=True))
    assert (kinds[NAME], kinds[BESIDE]) == (OTHER, COMPUTE)


def test_a_rank_that_is_added_changes_the_decision(tmp_path):
    """What is kept of a rank alone depends on it too."""
    from alltrace.run.overlay import rank_signature

    run = meeting(tmp_path / "run")
    record = run.ranks[0]
    assert rank_signature(run.manifest, record) != rank_signature(replace(run.manifest, meeting=()), record)

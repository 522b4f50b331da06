"""Questions that compare ranks, asked of processes with several devices: as of as many processes, in words of both."""

from __future__ import annotations

import pytest
from tests.making import kernel, make_run
from tests.several_devices import SLOW, STEPS, apart, rows_of, together

from alltrace.recipes.execution.ask import answer_of, ask, checked, kept_answer
from alltrace.recipes.execution.ask_all import ask_all
from alltrace.recipes.questions.diagnose.cards import told
from alltrace.recipes.registry import find
from alltrace.run.store import Run
from alltrace.trace.errors import UsageError

LAYOUTS = {4: (1, 1), 8: (4, 2)}
"""By the number of devices the processes and hosts: one process with four, and two hosts with two processes of two
each."""


@pytest.fixture(scope="module", params=LAYOUTS)
def runs(request, tmp_path_factory):
    """One program: a process for each device, and the devices of few processes; and the devices of each of those."""
    folder, count = tmp_path_factory.mktemp("runs"), request.param
    processes, hosts = LAYOUTS[count]
    rows = rows_of(count)
    return (
        apart(folder / "apart", rows, hosts),
        together(folder / "together", rows, processes, hosts),
        count // processes,
    )


@pytest.fixture
def four(tmp_path):
    return together(tmp_path / "run", rows_of(4))


def numbers(devices, each):
    """The devices of a row as ranks of the program with a process for each."""
    return [d["rank"] * each + d["device"] for d in devices]


def test_findings_are_those_of_separate_processes(runs):
    alone, several, each = runs
    expected, found = (run.recipe("diagnose").to_pylist() for run in (alone, several))
    assert [(row["kind"], row["ranks"]) for row in expected] == [
        (row["kind"], numbers(row["devices"], each)) for row in found
    ]
    assert (found[0]["kind"], found[0]["severity"]) == ("straggler", "high")
    for one, other in zip(expected, found, strict=True):
        assert one["devices"] is None
        assert other["ranks"] == sorted({rank // each for rank in one["ranks"]})
        assert other["hosts"] == one["hosts"]
        assert other["lost_share"] == pytest.approx(one["lost_share"], abs=0.001)
        assert other["evidence"]["basis"] == one["evidence"]["basis"]
    [culprit] = found[0]["devices"]
    place = SLOW % each
    assert culprit == {"rank": SLOW // each, "device": place, "gpu": place, "host": several.ranks[SLOW // each].host}


def test_stragglers_and_their_roots_are_devices(runs):
    alone, several, each = runs
    expected, found = (run.recipe("stragglers").to_pylist() for run in (alone, several))
    assert len(found) == len(expected)
    assert {row["device"] for row in expected} == {None}
    first = found[0]
    assert (first["rank"], first["device"], first["root_rank"], first["root_device"]) == (*divmod(SLOW, each),) * 2
    by_rank = {row["rank"]: row for row in expected}
    for row in found:
        other = by_rank[row["rank"] * each + row["device"]]
        assert row["operations"] == other["operations"] == STEPS
        assert row["caused_ns"] == pytest.approx(other["caused_ns"], abs=20_000)
        assert row["waited_ns"] == pytest.approx(other["waited_ns"], abs=20_000)


def test_collectives_name_ranks_and_devices(runs):
    alone, several, each = runs
    [expected], [found] = (run.recipe("collectives").to_pylist() for run in (alone, several))
    assert (expected["devices"], expected["instances"]) == (None, STEPS)
    count = len(alone.ranks)
    assert numbers(found["devices"], each) == list(range(count))
    assert found["ranks"] == ("0" if count == each else f"0-{count // each - 1}")
    assert (found["instances"], found["group_size"]) == (STEPS, count)
    listed = several.recipe("collectives", instances=True).to_pylist()
    assert {(row["last_rank"], row["last_device"]) for row in listed} == {divmod(SLOW, each)}


def test_a_replay_changes_one_device_or_all_of_a_process(runs):
    alone, several, each = runs
    expected, found = (run.recipe("whatif").to_pylist() for run in (alone, several))
    assert (found[0]["what"], found[0]["rank"], found[0]["device"]) == ("rank", *divmod(SLOW, each))
    assert found[0]["saved_ns"] == pytest.approx(expected[0]["saved_ns"], rel=0.01)
    extra = several.recipe("whatif").answer.extra["slowdown"]
    assert f"rank {SLOW // each}, GPU {SLOW % each}" in {row["what"] for row in extra}
    [row] = several.recipe("whatif", rank=str(SLOW // each)).to_pylist()
    assert row["what"] == f"rank {SLOW // each}, GPUs 0-{each - 1}"
    assert row["saved_ns"] == pytest.approx(found[0]["saved_ns"], rel=0.1)
    with pytest.raises(UsageError, match="rank 7 is not among those replayed"):
        several.recipe("whatif", rank="7")
    path = several.recipe("critical-path").to_pylist()
    assert (path[0]["rank"], path[0]["device"], path[0]["class"]) == (*divmod(SLOW, each), "compute")


def test_where_one_thread_launches_to_all_a_wait_for_one_device_holds_back_the_others(tmp_path):
    run = together(tmp_path / "run", rows_of(4, shared_thread=True), shared_thread=True)
    rows = run.recipe("diagnose").to_pylist()
    [slow] = [row for row in rows if row["kind"] == "straggler"]
    assert [d["device"] for d in slow["devices"]] == [SLOW]
    assert slow["evidence"]["basis"] == "replay"
    # its kernels take 40 % longer, and the next step is launched when the last device is done
    first = run.recipe("whatif").to_pylist()[0]
    assert first["device"] == SLOW
    assert first["saved_percent"] > 20
    assert "replay error is 0.0" in " ".join(run.recipe("critical-path").answer.notes)


def test_sentences_say_which_gpu(four):
    answer = four.recipe("diagnose").answer
    diagnosis = told(answer, {0: "host0"})
    assert diagnosis.verdict.startswith(
        "Rank 0, GPU 2 computes 40 % slower than its peers; the others wait for it, which costs"
    )
    card = diagnosis.cards[0]
    assert card.who == "rank 0, GPU 2 on host0"
    assert card.ranks == (0,)
    assert "on rank 0, GPU 2 than elsewhere" in card.advice
    assert diagnosis.cards[1].who == "rank 0, GPUs 0-3 on host0"


def test_chosen_ranks_are_processes(tmp_path):
    run = together(tmp_path / "run", rows_of(8), 4, 2)
    rows = run.recipe("stragglers", ranks=[1, 2]).to_pylist()
    assert {(row["rank"], row["device"]) for row in rows} == {(1, 0), (1, 1), (2, 0), (2, 1)}
    with pytest.raises(UsageError, match="rank 6 is not in the run"):
        run.recipe("stragglers", ranks=[6])


def test_steps_can_be_chosen(four):
    answer = four.recipe("stragglers", steps="2:5").answer
    assert [row["operations"] for row in answer.table.to_pylist()] == [3] * 4
    assert any(note.startswith("only steps 2-4 of 0-7 are counted, on 4 of 4 ranks") for note in answer.notes)


def test_many_questions_at_once_are_answered_as_one_by_one(four):
    names = ("kernels", "diagnose", "breakdown", "stragglers")
    run = Run(four.path)
    replies = ask_all(run, [(find(name), {}) for name in names], jobs=1)
    for name, reply in zip(names, replies, strict=True):
        alone = ask(Run(four.path), name)
        assert reply.recipe.name == name
        assert reply.answer.table.equals(alone.table)
        assert reply.answer.notes == alone.notes


def test_what_is_kept_is_said_in_the_same_words(four):
    question = checked("diagnose")
    run = Run(four.path)
    first = answer_of(run, question)
    again = answer_of(Run(four.path), question)
    assert again.table.equals(first.table)
    assert again.notes == first.notes
    assert kept_answer(run, question).table.equals(first.table)
    assert kept_answer(Run(four.path), question) is None  # nothing is aligned yet


def test_ranks_of_logs_stay_ranks(four):
    for name in ("stragglers", "collectives"):
        four.recipe(name, source="inspector")
    assert not (four.path / "devices").exists()


def test_processes_with_one_device_are_asked_as_they_are(tmp_path):
    run = make_run(tmp_path / "run", {n: {"kernels": [kernel(100, 200)]} for n in range(2)})
    run.recipe("diagnose")
    assert not (tmp_path / "run/devices").exists()

"""Steps of NCCL's calls by the times of a training log: every call's step is known to the test, and compared."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from random import Random

import pytest
from tests.recipes.logs.test_nccl_views import coll, init, step

from alltrace.run.step_times import read_step_times
from alltrace.trace.errors import InputError, UsageError
from alltrace.trace.spans import Span

BEGIN = datetime(2026, 3, 4, 5, 6, 7, tzinfo=UTC)


def stamp(at_ms, digits=3, zone=""):
    """`[2026-03-04 05:06:07.123] `, cut to so many digits as a clock cuts it."""
    text = (BEGIN + timedelta(milliseconds=at_ms)).strftime("%Y-%m-%d %H:%M:%S.%f")
    return f"[{text[: 20 + digits] if digits else text[:19]}{zone}] "


def trained(at_ms, number, **how):
    return (
        f" {stamp(at_ms, **how)}iteration {number:8}/     99 | elapsed time per iteration (ms): 44.3 | lm loss:"
        " 1.0E+01 |\n"
    )


def job(draw, steps=8, digits=3, host="node-0", zone=""):
    """A training log, NCCL logs of two ranks without lines of steps, and each call's step by rank and count, which is
    told once."""
    training, texts, truth = "", [init(rank) for rank in range(2)], [{}, {}]
    texts = ["[rank0]: hello\n" + text for text in texts]
    at = 0
    for number in range(1, steps + 1):
        for _ in range(draw.randrange(1, 6)):
            at += draw.randrange(1, 900)
            for rank in range(2):
                count = len(truth[rank]) + 1
                truth[rank][count] = number, at
                texts[rank] += stamp(at, digits, zone) + coll(
                    rank, count=count, k=count, host=host if rank else "node-0"
                )
        at += draw.randrange(1, 900)
        training += trained(at, number, zone=zone)
    for rank in range(2):  # behind the last line
        texts[rank] += stamp(at + 5, digits, zone) + coll(rank, count=1000)
        truth[rank][1000] = None, at + 5
    return training, texts, truth


def steps_of(calls):
    found = [{}, {}]
    for call in calls:
        found[call["pid"] - 10][call["count"]] = call["step"]
    return found


@pytest.mark.parametrize("zone", ["", "Z", "+02:00"])
@pytest.mark.parametrize("seed", range(3))
def test_each_call_has_the_step_whose_line_is_written_next(ask, seed, zone):
    training, texts, truth = job(Random(seed), zone=zone)
    calls, answer = ask("calls", *texts, training=training)
    assert steps_of(calls) == [{count: its for count, (its, _) in rank.items()} for rank in truth]
    assert any("2 logs of 2 with calls: the steps are by the times of" in note for note in answer.notes)
    rows, _answer = ask("ops", *texts, training=training, steps=Span(3, 6))
    assert sum(r["calls"] for r in rows) == sum(its in (3, 4, 5) for rank in truth for its, _ in rank.values())


def test_a_training_log_among_the_files_is_found(ask):
    training, texts, truth = job(Random(5))
    rows, answer = ask("ops", *texts, training, "other words\n", steps=Span(3, 6))
    assert sum(r["calls"] for r in rows) == sum(its in (3, 4, 5) for rank in truth for its, _ in rank.values())
    assert not any("none of their calls" in note for note in answer.notes)
    with pytest.raises(UsageError, match="both have step lines with times; choose one"):
        ask("ops", *texts, training, training, steps=Span(3, 6))


@pytest.mark.parametrize("seed", range(3))
def test_a_stamp_of_whole_seconds_gives_no_call_to_a_wrong_step(ask, seed):
    training, texts, truth = job(Random(seed), digits=0)
    calls, answer = ask("calls", *texts, training=training)
    left_out = 0
    for found, its in zip(steps_of(calls), truth, strict=True):
        for count, at in found.items():
            assert at in (None, its[count][0])
            left_out += at != its[count][0]
    assert left_out
    note = next(n for n in answer.notes if "left out" in n)
    assert int(note.split()[0]) >= left_out  # some behind the last line are told by no time either
    rows, answer = ask("ops", *texts, training=training, steps=Span(2, 8))
    wanted = sum(2 <= (its or 0) < 8 for rank in truth for its, _ in rank.values())
    counted = sum(r["calls"] for r in rows)
    edges = int(next(n for n in answer.notes if "whether they are of these steps" in n).split()[0])
    assert wanted - edges <= counted <= wanted  # inside of the steps none is missing
    assert counted > 0


def test_steps_within_one_second_of_the_stamps_are_refused(ask):
    """The calls of a second may be of the wanted steps or of others before and behind them."""
    training = "".join(trained(40 * number + 3, number) for number in range(1, 61))
    text = init(0) + "".join(stamp(40 * number - 7, digits=0) + coll(0, count=number) for number in range(1, 61))
    with pytest.raises(UsageError, match="times as coarse as these do not show the step of any call"):
        ask("ops", text, training=training, steps=Span(10, 20))
    rows, answer = ask("ops", text, training=training, steps=Span(1, 61))
    assert (
        sum(r["calls"] for r in rows) == 50
    )  # but for those of the last second, of which some may be behind the last line
    assert any("10 calls left out" in note for note in answer.notes)


def test_calls_without_a_time_are_noted(ask):
    training, texts, truth = job(Random(4))
    rows, answer = ask("ops", texts[0] + coll(0) * 3, texts[1], training=training, steps=Span(3, 6))
    assert sum(r["calls"] for r in rows) == sum(its in (3, 4, 5) for rank in truth for its, _ in rank.values())
    assert any(note.startswith("3 calls left out") for note in answer.notes)


def test_steps_that_go_back_are_those_of_their_time(ask):
    training = "".join(trained(1000 * n + 137, number) for n, number in enumerate((1, 2, 3, 2, 3, 4), 1))
    text = init(0) + "".join(stamp(1000 * n - 411) + coll(0, count=n) for n in range(1, 7))
    calls, _answer = ask("calls", text, training=training)
    assert [c["step"] for c in calls] == [1, 2, 3, 2, 3, 4]


@pytest.mark.parametrize(
    ("change", "why"),
    [
        (lambda training, texts: (training, [texts[0], texts[1].replace("node-0", "node-1")]),
            "2 hosts, whose clocks may differ"),
        (lambda training, texts: (training, [t.replace("[2026-03-04 ", "[") for t in texts]),
            "NCCL_DEBUG_TIMESTAMP_LEVELS=ALL"),
        (lambda training, texts: (training, [t.replace("2026-03-04", "2026-03-05") for t in texts]),
            "no call of NCCL was written"),
        (lambda training, texts: (training, [t.replace("2026-03-04", "2026-03-03") for t in texts]),
            "no call of NCCL was written"),
        (
            lambda training, texts: (training.replace("] iteration", "Z] iteration"), texts),
            "with a time zone, and those of NCCL's lines without one",
        ),
        (
            lambda training, texts: (training, [t.replace("] node", "+00:00] node") for t in texts]),
            "without a time zone, and those of NCCL's lines with one",
        ),
        (lambda training, texts: (training, [t + stamp(-90_000) + coll(0) for t in texts]),
            "go back by more than 60 s"),
    ],
)  # fmt: skip
def test_what_times_do_not_tell_is_refused_and_noted(ask, change, why):
    training, texts, _truth = job(Random(2))
    training, texts = change(training, texts)
    with pytest.raises(UsageError, match=why):
        ask("ops", *texts, training=training, steps=Span(3, 6))
    calls, answer = ask("calls", *texts, training=training)
    assert {c["step"] for c in calls} == {None}
    assert any(why in note for note in answer.notes)


def test_a_log_with_lines_of_steps_keeps_them(ask):
    training, texts, truth = job(Random(3))
    other = (
        init(0, 1, comm=0x700, ident="0x77").replace(":10:10", ":30:30")
        + stamp(1)
        + coll(0, comm=0x700, count=7, nranks=1)
        + step(4)
    )
    calls, _answer = ask("calls", *texts, other, training=training)
    assert next(c["step"] for c in calls if c["log"].endswith("log2.txt")) == 4
    assert steps_of(c for c in calls if not c["log"].endswith("log2.txt")) == [
        {n: s for n, (s, _) in r.items()} for r in truth
    ]


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("iteration 1/ 9 | lm loss: 1.0 |\n", "1 step in 1 line, none of them with a time"),
        (trained(0, 1) + trained(-5000, 2), "step lines go backwards"),
        (trained(0, 1, zone="Z") + trained(5000, 2, zone="+01:00"), "2 time zones"),
    ],
)
def test_a_training_log_without_sound_times_is_refused(tmp_path, text, why):
    (tmp_path / "train.log").write_text(text)
    with pytest.raises(InputError, match=why):
        read_step_times(tmp_path / "train.log")

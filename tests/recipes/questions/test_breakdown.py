from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.making import collective, copy, kernel, make_run

from alltrace.trace.errors import UsageError

TIMES = ("compute_ns", "exposed_communication_ns", "exposed_copy_ns", "idle_ns")
SHARES = ("compute_percent", "exposed_communication_percent", "exposed_copy_percent", "idle_percent")
HAND_MADE = {
    # compute 0-40 and 60-70, communication 30-60 (20 of it exposed), copies 65-90 (20 exposed), nothing 90-100
    0: {"kernels": [kernel(0, 40), kernel(60, 70), collective(30, 60), kernel(100, 110)], "copies": [copy(65, 90)]},
    1: {"kernels": [collective(200, 260)], "copies": [copy(240, 280, "memset")]},
}


def rows(run, **options):
    return run.recipe("breakdown", **options).to_pylist()


def test_each_moment_is_in_the_first_class_that_applies(tmp_path):
    first, second = rows(make_run(tmp_path, HAND_MADE))
    assert [first[c] for c in ("rank", "host", "gpu", "span_ns")] == [0, "host0", "GPU-0", 110]
    assert [first[c] for c in TIMES] == [60, 20, 20, 10]
    assert [first[c] for c in SHARES] == pytest.approx([6000 / 110, 2000 / 110, 2000 / 110, 1000 / 110])
    assert [second[c] for c in (*TIMES, "span_ns")] == [0, 60, 20, 0, 80]


def test_the_runs_span_adds_idle_time_alone(tmp_path):
    run = make_run(tmp_path, HAND_MADE)
    first, second = rows(run, span="run")
    assert [first["span_ns"], second["span_ns"]] == [280, 280]
    assert [first[c] for c in TIMES] == [60, 20, 20, 180]
    assert [second[c] for c in TIMES] == [0, 60, 20, 200]


def test_the_runs_span_is_that_of_one_clock_whatever_was_asked_before(tmp_path):
    """The clock of the other host is 5 ms ahead, as their collectives say."""

    def ahead(by):
        return {
            "kernels": [
                kernel(by, by + 10_000),
                *(collective(by + n, by + n + 20_000) for n in range(30_000, 2_000_000, 100_000)),
            ]
        }

    run = make_run(tmp_path, {0: ahead(0), 1: ahead(5_000_000)}, hosts={0: "a", 1: "b"})
    assert [r["span_ns"] for r in rows(run, span="run")] == [1_950_000] * 2
    run.recipe("steps")
    assert [r["span_ns"] for r in rows(run, span="run")] == [1_950_000] * 2


def test_a_graph_traced_as_a_whole_is_compute_and_said_to_be(tmp_path):
    run = make_run(
        tmp_path, {0: {"graphs": [{"start": 0, "end": 2_000_000}], "kernels": [collective(1_000_000, 3_000_000)]}}
    )
    answer = run.recipe("breakdown")
    assert [answer.to_pylist()[0][c] for c in TIMES] == [2_000_000, 1_000_000, 0, 0]
    assert any(n.startswith("2.0 ms are CUDA graphs traced as a whole") for n in answer.notes)


def test_the_share_of_kernels_that_no_rule_names_is_noted(tmp_path):
    run = make_run(tmp_path, {0: {"kernels": [kernel(0, 30), kernel(40, 50, "zzz")]}})
    answer = run.recipe("breakdown")
    assert answer.to_pylist()[0]["compute_ns"] == 40
    assert [n for n in answer.notes if n.startswith("25.0 % of the kernel time is in kernels that no rule names")]


def test_a_share_too_small_to_show_is_not_noted(tmp_path):
    run = make_run(tmp_path, {0: {"kernels": [kernel(0, 2_000_000), kernel(2_000_000, 2_000_100, "zzz")]}})
    assert not [n for n in run.recipe("breakdown").notes if "no rule names" in n]


def test_two_devices_of_a_rank_are_two_rows(tmp_path):
    devices = [{"device": d, "ordinal": d, "uuid": None, "bus_id": b} for d, b in ((0, "0000:01:00.0"), (1, None))]
    run = make_run(tmp_path, {0: {"kernels": [kernel(0, 10), kernel(5, 30, device=1)], "devices": devices}})
    assert [(r["gpu"], r["compute_ns"]) for r in rows(run)] == [("0000:01:00.0", 10), ("ordinal 1", 25)]


def test_work_without_length_has_a_span_of_nothing_and_no_shares(tmp_path):
    (row,) = rows(make_run(tmp_path, {0: {"kernels": [kernel(5, 5)]}}))
    assert [row[c] for c in ("span_ns", *TIMES)] == [0] * 5
    assert [row[c] for c in SHARES] == [None] * 4


def test_a_span_that_is_no_choice_is_refused(tmp_path):
    run = make_run(tmp_path, HAND_MADE)
    with pytest.raises(UsageError, match=r"^span of breakdown is 'job'; expected one of device, run"):
        run.recipe("breakdown", span="job")


_interval = st.tuples(st.integers(0, 40), st.integers(0, 12)).map(lambda p: (p[0], p[0] + p[1]))
_intervals = st.lists(_interval, max_size=6)


@settings(max_examples=60, deadline=None)
@given(compute=_intervals, talk=_intervals, copies=_intervals, graphs=_intervals)
def test_breakdown_and_overlap_equal_counting_every_nanosecond(compute, talk, copies, graphs, tmp_path_factory):
    tables = {
        "kernels": [kernel(*i, stream=n) for n, i in enumerate(compute)]
        + [collective(*i, stream=50 + n) for n, i in enumerate(talk)],
        "copies": [copy(*i, stream=n) for n, i in enumerate(copies)],
        "graphs": [{"start": s, "end": e} for s, e in graphs],
    }
    run = make_run(tmp_path_factory.mktemp("grid") / "run", {0: tables})
    every = [*compute, *talk, *copies, *graphs]
    found = rows(run)
    if not every:
        assert found == []
        return
    (row,) = found
    first, last = min(s for s, _ in every), max(e for _, e in every)
    counted = {"compute": 0, "talk": 0, "copy": 0, "idle": 0, "under": 0, "covered": 0, "all_talk": 0, "all_copy": 0}
    for t in range(first, last):
        works, talks, moves = (any(s <= t < e for s, e in some) for some in ([*compute, *graphs], talk, copies))
        counted["compute" if works else "talk" if talks else "copy" if moves else "idle"] += 1
        counted["under"] += works and talks
        counted["covered"] += moves and (works or talks)
        counted["all_talk"] += talks
        counted["all_copy"] += moves
    assert [row[c] for c in TIMES] == [counted[c] for c in ("compute", "talk", "copy", "idle")]
    assert sum(row[c] for c in TIMES) == row["span_ns"] == last - first
    (lap,) = run.recipe("overlap").to_pylist()
    assert [lap[c] for c in ("compute_ns", "communication_ns", "overlapped_ns", "copy_ns", "copy_overlapped_ns")] == [
        counted[c] for c in ("compute", "all_talk", "under", "all_copy", "covered")
    ]
    assert [lap["exposed_ns"], lap["copy_exposed_ns"]] == [row["exposed_communication_ns"], row["exposed_copy_ns"]]


@pytest.mark.parametrize(
    ("session_ns", "note"),
    [
        (
            119_443_348_968,
            ["ranks 0-1: 119 s captured, 1.1e-07 to 2.6e-07 s of GPU work; the percentages are of the latter"],
        ),
        (521, ["ranks 0-1: 5.21e-07 s captured, 1.1e-07 to 2.6e-07 s of GPU work; the percentages are of the latter"]),
        (300, ["rank 0: 3e-07 s captured, 1.1e-07 s of GPU work; the percentages are of the latter"]),
        (
            {0: 300, 1: 700},
            [
                "ranks 0-1: 3e-07 to 7e-07 s captured, 1.1e-07 to 2.6e-07 s of GPU work; the percentages "
                "are of the latter"
            ],
        ),
        (220, []),
        (None, []),
    ],
)
def test_a_session_that_is_much_longer_than_the_work_is_said(tmp_path, session_ns, note):
    run = make_run(
        tmp_path, {0: {"kernels": [kernel(0, 110)]}, 1: {"kernels": [kernel(40, 300)]}}, session_ns=session_ns
    )
    assert [n for n in run.recipe("breakdown").notes if "captured" in n] == note

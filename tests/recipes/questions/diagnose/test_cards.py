from __future__ import annotations

import re
from typing import Any

import pyarrow as pa
import pytest
from tests.together import together

from alltrace.recipes.base import Answer
from alltrace.recipes.questions.diagnose import COLUMNS, _schema, cards, evidence_sentences, headlines
from alltrace.recipes.questions.diagnose.evidence_sentences import evidence_sentence
from alltrace.recipes.questions.diagnose.finding import EVIDENCE
from alltrace.recipes.registry import find
from alltrace.recipes.terms import KIND_MEANINGS
from alltrace.trace.columns import table_of

HOSTS = {rank: f"node{rank // 8}" for rank in range(16)}


MS = 1_000_000
OPPORTUNITIES = ("precision", "attention", "fusion", "shapes", "small-kernels", "slow-operator")


def row(kind, ranks=(11,), **given) -> dict[str, Any]:
    """A row of `diagnose` with a loss of 46 ms; `given` are other values, and numbers of the evidence."""
    numbers = {name: given.pop(name) for name in tuple(given) if name in EVIDENCE}
    made = {
        "kind": kind,
        "severity": "high",
        "lost_ns": 46_218_664,
        "lost_ns_per_step": 6_602_666,
        "lost_share": 0.1737,
        "opportunity_share": None,
        "ranks": list(ranks),
        "hosts": [],
        "where": "gemm",
        "launched_by": None,
        "evidence": {"basis": "replay", **numbers},
        "advice": "Do this.",
        "confidence": 0.976,
        "loss_note": None,
        "classes": ["compute"],
        "needed_at_once": False,
        "shown_steps": None,
        "step_times_ns": None,
    }
    return made | given


def told(*rows, notes=(), hosts=HOSTS):
    return cards.told(Answer(table_of(rows, COLUMNS, _schema()), COLUMNS, tuple(notes)), hosts)


def test_the_verdict_is_a_sentence_on_the_cause_that_costs_most():
    second = row("data-stall", range(16), lost_share=0.05, lost_ns=13_000_000, severity="medium")
    found = told(
        row("straggler", slowdown=1.25),
        second,
        row("capture-fault", severity="low", lost_ns=0, classes=[], where="no ranges"),
    )
    assert (
        found.verdict
        == "Rank 11 computes 25 % slower than its peers; the other 15 wait for it, which costs 17.4 % of the time (46.2"
        " ms). 1 further finding costs 5.0 %."
    )
    assert [c.what for c in found.cards] == [
        "Rank 11 computes 25 % slower than its peers",
        "All 16 ranks wait for the next batch",
        "No ranges were captured on rank 11",
    ]
    assert found.cards[0].who == "rank 11 on node1"
    assert found.cards[0].cost == "46.2 ms, 17.4 % of the analyzed time; 6.60 ms a step"
    assert found.cards[2].cost == "no time by itself"


def test_an_opportunity_that_is_far_larger_than_all_faults_comes_first():
    fault = row("sync", (0, 3), lost_ns=8 * MS, lost_share=0.008, where="cudaDeviceSynchronize")
    chance = row("precision", range(16), lost_ns=None, lost_share=None, opportunity_share=0.31, severity="low")
    verdict = told(fault, chance).verdict
    assert verdict.startswith("No fault costs much. Matrix products run in fp32 or TF32")
    assert verdict.endswith("and the device runs dry, which costs 0.8 % of the time (8.00 ms).")
    assert told({**fault, "lost_share": 0.04}, chance).verdict.startswith("The host of ranks 0, 3 waits")
    assert told({**fault, "lost_ns": None, "lost_share": None}, chance).verdict.startswith(
        "The host of ranks 0, 3 waits"
    )


@pytest.mark.parametrize(
    ("rows", "notes", "verdict"),
    [
        (
            (),
            ("nothing ran on any device, so nothing could be judged",),
            "Nothing ran on any device, so nothing could be judged.",
        ),
        ((), (), "Nothing could be judged."),
        ((), ("rank 0 has no `kernels`",), "Nothing could be judged."),
        (
            (row("precision", range(16), lost_ns=None, lost_share=None, opportunity_share=0.31, severity="low"),),
            ("7 steps are judged",),
            (
                "No fault was found. Matrix products run in fp32 or TF32, although the device is faster in fp16 or"
                " bf16: up to 31.0 % of the time can be saved."
            ),
        ),
        (
            (row("capture-fault", (5,), where="cut short", lost_ns=0, lost_share=0.0, severity="medium", classes=[]),),
            ("7 steps are judged", "nothing that costs much time was found"),
            (
                "Nothing that costs much time was found. The reports are incomplete: the report of rank 5 ends before"
                " the run did."
            ),
        ),
        (
            (
                row(
                    "sync",
                    (0, 3),
                    lost_ns=None,
                    lost_share=None,
                    loss_note="clocks are not known",
                    where="cudaDeviceSynchronize",
                ),
            ),
            (),
            (
                "The host of ranks 0, 3 waits for the device in cudaDeviceSynchronize, and the device runs dry. "
                "No loss is given: clocks are not known."
            ),
        ),
    ],
)
def test_the_verdict_where_there_is_no_loss(rows, notes, verdict):
    found = told(*rows, notes=notes)
    assert found.verdict == verdict
    assert all(note.lower() not in verdict.lower() for note in found.notes), "what the verdict says is not a note"


def test_further_findings_without_a_loss_are_not_summed():
    unknown = row("sync", lost_ns=None, lost_share=None, severity="medium")
    assert "further" not in told(row("straggler", slowdown=1.25), unknown).verdict


def test_a_loss_that_is_not_known_says_why():
    assert (
        told(row("sync", lost_ns=None, lost_share=None, loss_note="clocks are not known")).cards[0].cost
        == "not known (clocks are not known)"
    )
    opportunity = row("fusion", lost_ns=None, lost_share=None, opportunity_share=0.2)
    assert told(opportunity).cards[0].cost == "up to 20.0 % of the analyzed time can be saved"


@together("kind", KIND_MEANINGS)
@together("ranks", [(), (11,), (3, 5), tuple(range(16))])
def test_every_kind_has_a_sentence_a_measure_and_a_table(kind, ranks):
    found = told(row(kind, ranks, opportunity_share=0.3 if kind in cards._OPPORTUNITIES else None)).cards[0]
    assert found.what[0].isupper()
    assert not found.what.startswith(f"{kind}:")
    assert re.search(r"None|  |\{|ranks -|rank rank|\.$", found.what) is None
    assert kind in headlines._HEADLINES
    assert kind == "capture-fault" or kind in cards._SHOWN_BY
    recipe = find(found.proof.recipe)
    assert set(found.proof.options) <= {o.name for o in recipe.options}


@pytest.mark.parametrize("ranks", [(5,), (3, 5)])
@pytest.mark.parametrize("where", sorted(headlines._FAULTS))
def test_every_fault_of_a_capture_has_a_sentence(where, ranks):
    said = told(row("capture-fault", ranks, where=where)).cards[0].what
    assert "rank" in said
    assert "not whole" not in said


@pytest.mark.parametrize(
    ("given", "said"),
    [
        (row("straggler", (3, 7), slowdown=1.4), "Ranks 3, 7 compute 40 % slower than their peers"),
        (row("straggler", last_share=0.8), "Rank 11 arrives last at 80 % of the collectives with waits"),
        (
            row("slow-host", range(8), hosts=["node0"], slowdown=1.2),
            "All ranks of node0 compute 20 % slower than those of other hosts",
        ),
        (row("imbalance", (3,), work_ratio=1.5), "Rank 3 has 50 % more work than the others"),
        (
            row("imbalance", range(16), work_ratio=1.5),
            "Another rank has the most work in each step, by 50 % on average",
        ),
        (row("imbalance", (3,), slowdown=1.3, breadth=0.2), "Some kernels take 30 % longer on rank 3 than elsewhere"),
        (row("imbalance", (3, 4), slowdown=1.3), "Another rank is slowest in each step, by 30 % in the middle"),
        (
            row("slow-communicator", slowdown=3.0, where="dp 2"),
            "Transfers of dp 2 take 3.0 times as long as those of similar communicators",
        ),
        (
            row("low-bandwidth", (3,), gb_per_s=2.1, peers_gb_per_s=21.0, where="HtoD copies"),
            "HtoD copies of rank 3 run at 2.10 GB/s, those of its peers at 21.0 GB/s",
        ),
        (
            row("low-bandwidth", (3,), busbw_gb_per_s=2.1),
            "Communicators of rank 3 are slow, and those without it are not",
        ),
        (
            row("exposed-communication", needed_at_once=True, where="AllReduce"),
            "Devices wait for AllReduce, which the next kernel needs immediately",
        ),
        (row("missing-rank", (5,)), "The others wait for rank 5, for which there is no report"),
        (row("missing-rank", ()), "Ranks wait for ranks without a report"),
        (
            row("unexplained", compute_share=0.4),
            "Devices compute for only 40 % of the time, and no finding explains the rest",
        ),
        (
            row("unexplained", compute_share=0.004),
            "Devices compute for less than 1 % of the time, and no finding explains the rest",
        ),
        (
            row("unexplained", (0, 3), where="communication"),
            "The devices of ranks 0, 3 wait for communication, and it is unknown for which ranks",
        ),
    ],
)
def test_a_sentence_names_who_and_how_much(given, said):
    assert told(given).cards[0].what == said


def test_ranks_are_named_briefly():
    assert headlines.named_ranks([3], 16) == "rank 3"
    assert headlines.named_ranks([0, 1, 2, 9], 16) == "ranks 0-2, 9"
    assert headlines.named_ranks(list(range(16)), 16) == "all 16 ranks"
    assert headlines.named_ranks([0, 1], 2) == "both ranks"
    assert headlines.named_ranks(list(range(0, 1024, 2)), 1024) == "ranks 0, 2, 4, 6 and 508 more"
    assert headlines.who({"ranks": [0, 8], "devices": None}, HOSTS) == "ranks 0, 8 on node0, node1"
    assert headlines.who({"ranks": [], "devices": None}, HOSTS) == ""
    assert (
        headlines.who({"ranks": list(range(7)), "devices": None}, {rank: f"n{rank}" for rank in range(8)})
        == "ranks 0-6 on n0, n1, n2, n3 and 3 more hosts"
    )


@together("name", EVIDENCE)
def test_every_number_of_the_evidence_is_said(name):
    said = evidence_sentence({"basis": "replay", "calls": None, name: 0.25}, 0.9, about_time=True)
    assert "confidence 90 %" in said
    assert re.search(r"25|0\.25", said) or name.endswith(("_ns", "_ns_per_step", "bytes_per_step"))
    assert len(said) > len(evidence_sentence({"basis": "replay"}, 0.9, about_time=True))


def test_numbers_have_units_and_stand_together():
    numbers = {
        "gb_per_s": 3.0,
        "link_gb_per_s": 63.0,
        "link_share": 0.048,
        "bytes_per_step": 8388608.0,
        "replay_error": 0.012,
    }
    assert (
        evidence_sentence({**numbers, "basis": "replay"}, 0.957, about_time=True)
        == "8.39 MB per step and rank; 3.00 GB/s, which is 4.8 % of the link's 63.0 GB/s. "
        "The cost is from a replay that reproduces the measured run within 1.2 %; confidence 96 %."
    )
    assert (
        evidence_sentence({"basis": "ceiling"}, 1.0, about_time=True) == "The cost is an upper bound; confidence 100 %."
    )
    assert (
        evidence_sentence({"basis": "ceiling", "missing": 2}, 1.0, about_time=False)
        == "Missing ranks: 2. Confidence 100 %."
    )
    assert {name for names in evidence_sentences._NAMES.values() for name in names} | {"replay_error"} == set(EVIDENCE)


def test_a_row_of_nulls_is_told(tmp_path):
    schema = _schema()
    empty = {f.name: [] if pa.types.is_list(f.type) else None for f in schema}
    given = empty | {"kind": "sync", "severity": "low", "evidence": {}, "confidence": 0.5, "advice": ""}
    assert told(given).cards[0].who == ""


def test_devices_of_processes_with_several_are_named():
    devices = [{"rank": r, "device": d, "gpu": d, "host": f"node{r}"} for r in range(2) for d in range(4)]
    row = {"ranks": [1], "devices": devices[5:6]}
    assert headlines.who(row, {0: "node0", 1: "node1"}) == "rank 1, GPU 1 on node1"
    row = {"ranks": [0, 1], "devices": devices}
    assert headlines.named_culprits(row, 2) == "ranks 0-1, GPUs 0-3"
    many = [{"rank": r, "device": d, "gpu": d, "host": "n"} for r in range(40) for d in range(4) if r % 3 or d]
    assert headlines.named_culprits({"ranks": list(range(40)), "devices": many}, 40) == "146 GPUs of all 40 ranks"


def test_a_device_of_the_only_process_has_more_work_than_its_others():
    uneven = row("imbalance", (0,), work_ratio=1.5, devices=[{"rank": 0, "device": 1, "gpu": 1, "host": "node0"}])
    assert headlines.headline(uneven, 1) == "Rank 0, GPU 1 has 50 % more work than the others"


def test_two_that_hide_each_other_are_said_with_what_both_cost():
    both = {"together_ns": 50 * MS, "together_share": 0.189}
    found = told(
        row("imbalance", (0, 2), lost_ns=None, lost_share=None, **both),
        row("host-pause", (6,), lost_share=0.02, **both),
    )
    assert (
        "`imbalance` of ranks 0, 2 and `host-pause` of rank 6 hide each other: together 18.9 %, alone unknown and"
        " 2.0 %." in (found.verdict)
    )
    assert "50.0 ms together with `imbalance` of ranks 0, 2, as each hides the other" in found.cards[1].cost


def test_a_change_in_time_has_a_picture_of_its_steps():
    times_ns = [30 * MS, 31 * MS, 30 * MS, 40 * MS, 41 * MS]
    found = told(
        row("throttling", slowdown=1.3, since_step=7, shown_steps=[4, 5, 6, 7, 8], step_times_ns=times_ns), row("sync")
    )
    picture = found.cards[0].step_times
    assert picture == ((4, 5, 6, 7, 8), tuple(times_ns), 3, "step 7; 30.0 ms to 41.0 ms a step")
    assert found.cards[1].step_times is None
    # of groups of steps that with the step
    groups = told(row("throttling", since_step=7, shown_steps=[4, 6, 8], step_times_ns=times_ns[:3])).cards[0]
    assert groups.step_times.marked == 1


@pytest.mark.parametrize("ranks", [(3,), (3, 5), tuple(range(16))])
def test_every_kind_is_said_of_one_rank_and_of_several(ranks):
    verbs = "has|takes|computes|waits|pauses|allocates|launches|is"
    for kind in KIND_MEANINGS:
        for known in ({}, dict.fromkeys(EVIDENCE, 2.0)):
            (card,) = told(row(kind, ranks, opportunity_share=0.1 if kind in OPPORTUNITIES else None, **known)).cards
            for text in (card.what, card.cost, card.evidence):
                assert re.search(r"  |\{|\}|\b1 (ranks|steps|findings)\b|\d{7}|nan|None", text) is None, text
            plural = card.what.startswith("Ranks")
            wrong = (
                rf"^Ranks [\d, -]+ ({verbs})\b"
                if plural
                else r"^Rank \d+ (have|take|compute|wait|pause|allocate|launch|are)\b"
            )
            assert re.search(wrong, card.what) is None, card.what


@pytest.mark.parametrize(
    ("where", "adapters", "hosts", "what"),
    [
        ("adapter mlx5_2", 1, ["n1"], "Adapter mlx5_2 of n1 sends at 12.0 GB/s, the other adapters at 24.0 GB/s"),
        (
            "adapters mlx5_2, mlx5_3",
            2,
            ["n1", "n2"],
            "Adapters mlx5_2, mlx5_3 of n1, n2 send at 12.0 GB/s, the other adapters at 24.0 GB/s",
        ),
    ],
)
def test_slow_adapters_are_said_with_their_hosts(where, adapters, hosts, what):
    (card,) = told(
        row("low-bandwidth", (4, 5), where=where, hosts=hosts, gb_per_s=12.0, peers_gb_per_s=24.0, adapters=adapters)
    ).cards
    assert card.what.rstrip(".") == what

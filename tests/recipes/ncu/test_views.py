"""Sections, rules, metrics and instances, from launches made by hand."""

from __future__ import annotations

from dataclasses import replace

import pytest
from tests.ncu_launches import ACTIVE, ELAPSED, measured, of

from alltrace.recipes.ncu import views
from alltrace.trace.launches import Rule, RuleMessage, Section, SectionMetric

METRICS = {
    "gpu__time_duration.sum": 2000,
    "launch__func_cache_config": "PreferNone",
    "dram__bytes.sum": 4096,
    "breakdown:x": "dram__bytes.sum,absent",
    "newer": 5,
}


def shown(name, label="", part="header", others=()):
    return SectionMetric(name, label, part, others)


SECTIONS = (
    Section(
        "A",
        "First",
        1,
        (
            shown("gpu__time_duration.sum", "Duration"),
            shown("absent", "Absent"),
            shown("older", "New", others=("newer",)),
        ),
    ),
    Section(
        "B",
        "Second",
        2,
        (shown("launch__func_cache_config"), shown("breakdown:x", "{X}", "body"), shown("breakdown:y", "", "body")),
    ),
)
RULES = (
    Rule("Late", "Late", "B", (RuleMessage("warning", "", "two"),)),
    Rule(
        "Early",
        "Early",
        "A",
        (RuleMessage("optimization", "T", "one", 25.0, "global"), RuleMessage("ok", "", "more", 50.0, "local")),
    ),
    Rule("Silent", "Silent", "A", ()),
)
LAUNCH = replace(
    measured(METRICS),
    sections=SECTIONS,
    rules=RULES,
    instances={
        "dram__bytes.sum": [(0, 1000), (1, 3096)],
        "opcodes": [("MOV", 7), (None, "x"), ("BRA", None)],
        "at": [(1 << 40, 2.5)],
    },
)


def test_sections_show_what_the_launch_has():
    rows = views.DETAILS.answer(of(LAUNCH), ()).table.to_pylist()
    assert [(r["section"], r["part"], r["label"], r["metric"], r["unit"], r["value"], r["text"]) for r in rows] == [
        ("First", "header", "Duration", "gpu__time_duration.sum", "ns", 2000.0, None),
        ("First", "header", "New", "newer", None, 5.0, None),
        ("Second", "header", None, "launch__func_cache_config", None, None, "PreferNone"),
        ("Second", "body", None, "dram__bytes.sum", "byte", 4096.0, None),
    ]


def test_rules_say_what_they_said_in_the_order_of_their_sections():
    rows = views.RULES.answer(of(LAUNCH), ()).table.to_pylist()
    assert [(r["section"], r["rule"], r["kind"], r["title"], r["message"]) for r in rows] == [
        ("A", "Early", "optimization", "T", "one"), ("A", "Early", "ok", None, "more"),
        ("B", "Late", "warning", None, "two")
    ]  # fmt: skip
    # only what is of the whole launch is a share of its time
    assert [(r["speedup_percent"], r["speedup_of"], r["gain_ns"]) for r in rows] == [
        (25.0, "global", 500), (50.0, "local", None), (None, None, None)
    ]  # fmt: skip


def test_metrics_have_units_and_can_be_chosen():
    rows = views.METRICS.answer(of(LAUNCH), (), ["*__*", "newer"]).table.to_pylist()
    assert [(r["metric"], r["unit"], r["value"], r["text"]) for r in rows] == [
        ("dram__bytes.sum", "byte", 4096.0, None),
        ("gpu__time_duration.sum", "ns", 2000.0, None),
        ("launch__func_cache_config", None, None, "PreferNone"),
        ("newer", None, 5.0, None),
    ]
    assert views.METRICS.answer(of(LAUNCH), ()).table.num_rows == len(METRICS)


def test_instances_have_a_row_each():
    rows = views.INSTANCES.answer(of(LAUNCH), ()).table.to_pylist()
    assert [(r["metric"], r["instance"], r["unit"], r["value"], r["text"]) for r in rows] == [
        ("at", "0x10000000000", None, 2.5, None),
        ("dram__bytes.sum", "0", "byte", 1000.0, None),
        ("dram__bytes.sum", "1", "byte", 3096.0, None),
        ("opcodes", "MOV", None, 7.0, None),
        ("opcodes", None, None, None, "x"),
    ]
    assert views.INSTANCES.answer(of(LAUNCH), (), ["dram*"]).table.num_rows == 2


def test_what_a_report_lacks_is_said():
    lacks = [
        view.answer(of(LAUNCH, measured(METRICS)), ("note",)).notes
        for view in (views.DETAILS, views.RULES, views.INSTANCES)
    ]
    assert [notes[0] for notes in lacks] == ["note"] * 3
    lacking = ("sections", "results of rules", "values of instances")
    assert [notes[1].partition(" in their")[0] for notes in lacks] == [
        f"1 of 2 launches have no {what}" for what in lacking
    ]


def test_main_metrics_under_any_of_their_names():
    metrics = {
        "gpu__time_duration.sum": 1499.6,
        "launch__shared_mem_per_block_static": 100,
        "launch__shared_mem_per_block_dynamic": 20,
        "launch__shared_mem_per_block_driver": 1024,
        f"dram__throughput{ELAPSED}": 12.5,
        f"smsp__inst_issued{ACTIVE}": 33.0,
        f"sm__throughput{ELAPSED}": float("nan"),
        "launch__occupancy_limit_registers": 2,
        "launch__occupancy_limit_warps": 2,
        "launch__occupancy_limit_blocks": 32,
    }
    (row,) = views.LAUNCHES.answer(of(measured(metrics, grid=(2, 3, 4))), ()).table.to_pylist()
    assert (row["duration_ns"], row["shared_memory_bytes"], row["dram_percent"], row["issue_percent"]) == (
        1500,
        1144,
        12.5,
        33.0,
    )
    assert (row["grid"], row["occupancy_limiter"]) == ("2x3x4", "registers, warps")
    assert (row["sm_percent"], row["registers"], row["top_stall"], row["device"]) == (None, None, None, None)


def test_shares_of_what_the_gpu_can_do():
    metrics = {
        f"sm__warps_active{ACTIVE}": 41.0,
        f"gpu__compute_memory_throughput{ELAPSED}": 42.0,
        f"lts__throughput{ELAPSED}": 43.0,
        f"l1tex__throughput{ACTIVE}": 44.0,
        f"sm__inst_executed_pipe_tensor{ELAPSED}": 45.0,
        "launch__waves_per_multiprocessor": 1.5,
    }
    (row,) = views.LAUNCHES.answer(of(measured(metrics)), ()).table.to_pylist()
    assert (row["achieved_occupancy_percent"], row["memory_percent"], row["l2_percent"]) == (41.0, 42.0, 43.0)
    assert (row["l1_percent"], row["tensor_percent"], row["waves"]) == (44.0, 45.0, 1.5)


def test_a_configuration_that_is_not_known_is_null():
    (row,) = views.LAUNCHES.answer(of(measured(grid=None, block=None)), ()).table.to_pylist()
    assert (row["grid"], row["block"]) == (None, None)


def test_raw_has_numbers_and_texts_by_name():
    rows = views.METRICS.answer(of(measured({"b": 2, "a": "text"})), ()).table.to_pylist()
    assert [(r["metric"], r["value"], r["text"]) for r in rows] == [("a", None, "text"), ("b", 2.0, None)]


def test_states_of_warps_by_cycles_else_by_samples():
    cycles = "smsp__average_warps_issue_stalled_%s_per_issue_active.ratio"
    samples = "smsp__pcsamp_warps_issue_stalled_%s"
    both = measured(
        {cycles % "wait": 3.0, cycles % "selected": 1.0, samples % "wait": 70, samples % "wait_not_issued": 60}
    )
    sampled = measured({samples % "no_instructions": 25, samples % "selected": 75})
    answer = views.STALLS.answer(of(both, sampled, measured()), ())
    assert [(r["state"], r["warps_per_issue"], r["share_percent"], r["samples"]) for r in answer.table.to_pylist()] == [
        ("wait", 3.0, 75.0, 70),
        ("selected", 1.0, 25.0, None),
        ("selected", None, 75.0, 75),
        ("no_instruction", None, 25.0, 25),
    ]
    assert [r["meaning"] for r in answer.table.to_pylist()[:2]] == [
        "a fixed latency of the previous instruction",
        "nothing: the warp issued",
    ]
    assert answer.notes[0].startswith("1 of 3 launches have no states of warps")
    old = measured({"smsp__average_warp_latency_issue_stalled_barrier.ratio": 2.0})
    assert views.STALLS.answer(of(old), ()).table.to_pylist()[0]["share_percent"] == pytest.approx(100.0)

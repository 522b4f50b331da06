"""Sections, rules, metrics and instances, from launches made by hand."""

from __future__ import annotations

from dataclasses import replace

from tests.ncu_launches import measured, of

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
        (shown("gpu__time_duration.sum", "Duration"), shown("absent", "Absent"), shown("older", "New", others=("newer",))),
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
        ("A", "Early", "optimization", "T", "one"), ("A", "Early", "ok", None, "more"), ("B", "Late", "warning", None, "two")
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
    lacks = [view.answer(of(LAUNCH, measured(METRICS)), ("note",)).notes for view in (views.DETAILS, views.RULES, views.INSTANCES)]
    assert [notes[0] for notes in lacks] == ["note"] * 3
    lacking = ("sections", "results of rules", "values of instances")
    assert [notes[1].partition(" in their")[0] for notes in lacks] == [f"1 of 2 launches have no {what}" for what in lacking]

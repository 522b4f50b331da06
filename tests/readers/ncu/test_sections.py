"""Sections and results of rules of reports made by hand."""

from __future__ import annotations

from tests.readers.ncu.building import double, inner, whole

from alltrace.readers.ncu.read import plain_text, rule_of, section_of


def shown(name, label="", *others):
    return inner(1, name) + (inner(2, label) if label else b"") + b"".join(inner(7, inner(1, o)) for o in others)


def section(*body):
    header = inner(4, whole(1, 2) + inner(2, shown("a", "A")) + inner(2, shown("b", "B", "b", "c")) + inner(2, shown("")))
    return memoryview(inner(1, "Id") + inner(2, "Name") + whole(3, 70) + header + inner(5, b"".join(inner(1, i) for i in body)))


def body_of(*items):
    return [m.name for m in section_of(section(*items)).metrics if m.part == "body"]


def test_a_section_has_what_its_table_shows():
    found = section_of(section())
    assert (found.identifier, found.name, found.order) == ("Id", "Name", 70)
    assert [(m.name, m.label, m.part, m.others) for m in found.metrics] == [("a", "A", "header", ()), ("b", "B", "header", ("c",))]


def test_charts_and_tables_of_a_section_name_metrics():
    table, bars, histogram = inner(1, inner(5, shown("t"))), inner(2, inner(5, shown("bar"))), inner(3, inner(4, shown("h")))
    line = inner(4, inner(4, shown("l")) + inner(5, inner(1, shown("own"))))
    row = inner(5, inner(1, bars) + inner(1, inner(7, inner(3, shown("s")))))
    assert body_of(table, bars, histogram, line, row) == ["t", "bar", "h", "l", "own", "bar", "s"]
    suffixes = inner(2, inner(1, inner(1, ".avg")) + inner(1, inner(1, ".max")))
    assert body_of(inner(8, suffixes + inner(3, inner(1, shown("x"))))) == ["x.avg", "x.max"]
    assert body_of(inner(101, b""), inner(104, b"")) == ["group:memory__shared_table", "group:memory__dram_table"]


def test_a_roofline_names_the_metrics_of_its_roofs_and_points():
    product = inner(3, inner(1, shown("per cycle")) + inner(1, shown("more")) + inner(2, shown("clock")))
    roof = inner(4, inner(1, product) + inner(2, inner(2, shown("bandwidth"))))
    point = inner(5, inner(1, product))
    work = ["per cycle", "more", "clock"]
    assert body_of(inner(6, roof + point)) == [*work, "bandwidth", *work]


def test_rows_in_rows_without_end_are_left_alone():
    item = inner(2, inner(5, shown("deep")))
    for _ in range(50):
        item = inner(5, inner(1, item))
    assert body_of(item) == []


def test_a_rule_has_its_messages_with_what_they_promise():
    said = (
        inner(1, "@section:Occupancy:the section@ and @url:a page:https://x/y#z@") + whole(2, 4) + whole(3, 1) + inner(4, "Title")
    )
    first = inner(1, inner(1, said) + inner(10, whole(1, 2) + double(2, 12.5)))
    second = inner(1, inner(1, inner(1, "plain") + whole(2, 2)))
    table = inner(1, inner(2, b""))
    rule = rule_of(memoryview(inner(1, "R") + inner(2, "A rule") + inner(3, first + second + table) + inner(4, "Sec")))
    assert (rule.identifier, rule.name, rule.section) == ("R", "A rule", "Sec")
    one, two = rule.messages
    assert (one.kind, one.title, one.text) == ("optimization", "Title", "the section and a page (https://x/y#z)")
    assert (one.speedup_percent, one.speedup_of) == (12.5, "global")
    assert (two.kind, two.title, two.text, two.speedup_percent, two.speedup_of) == ("warning", "", "plain", None, None)
    assert rule_of(memoryview(inner(1, "R"))).messages == ()


def test_text_with_at_signs_stays():
    assert plain_text("mail a@b.c at 3:4 @ 5") == "mail a@b.c at 3:4 @ 5"

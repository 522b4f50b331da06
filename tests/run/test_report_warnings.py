"""Warnings of reports and of the rows of ranks: each is reported once, with the affected ranks and the number."""

from __future__ import annotations

from alltrace.readers.base import ReportWarning
from alltrace.run.manifest import Manifest, RankRecord, ReportRecord, warnings_of, warnings_of_report

OPENED = ReportWarning("cut short", ("kernels",))
READ = ReportWarning("events left out", ("kernels", "api"), 5)


def rows(number):
    return ReportWarning("rows that end before they start", ("kernels",), number)


def rank(number, *reports, **warned):
    return RankRecord(number, number, "host", (), (), "RANK", reports, **warned)


def manifest():
    """Two ranks of one report, and a third of two."""
    ranks = (
        rank(0, 0, warnings={"0": (READ,)}, row_warnings={"0": (rows(2),)}),
        rank(1, 0, warnings={"0": (READ,)}, row_warnings={"0": (rows(3),)}),
        rank(2, 1, 2, warnings={"2": (READ,)}, row_warnings={"1": (rows(7),), "2": (rows(1),)}),
    )
    reports = tuple(ReportRecord(f"{n}.sqlite", 1, str(n), warnings=(OPENED,) if n == 0 else ()) for n in range(4))
    return Manifest(reports=reports, ranks=ranks)


def test_what_is_true_of_a_report_counts_once_and_what_is_true_of_rows_for_each_rank():
    found = [(str(w.warning), w.ranks) for w in warnings_of(manifest(), manifest().ranks)]
    assert found == [
        ("cut short", (0, 1)),
        ("events left out: 10", (0, 1, 2)),
        ("rows that end before they start: 13", (0, 1, 2)),
    ]


def test_only_the_ranks_asked_count():
    found = [(str(w.warning), w.ranks) for w in warnings_of(manifest(), manifest().ranks[1:2])]
    assert found == [("cut short", (1,)), ("events left out: 5", (1,)), ("rows that end before they start: 3", (1,))]


def test_a_report_has_its_own_and_those_of_its_rows():
    told = [[str(w) for w in warnings_of_report(manifest(), report)] for report in range(4)]
    assert told == [
        ["cut short", "events left out: 5", "rows that end before they start: 5"],
        ["rows that end before they start: 7"],
        ["events left out: 5", "rows that end before they start: 1"],
        [],
    ]


def test_large_numbers_are_readable():
    assert str(rows(1_234_567)) == "rows that end before they start: 1,234,567"

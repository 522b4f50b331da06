"""The command that scores matching by planted truth."""

from __future__ import annotations

import json
import sys
from collections import Counter
from dataclasses import replace
from types import SimpleNamespace

import pytest

from alltrace.align.store import aligned
from alltrace.run.importer import import_reports
from alltrace.run.store import Run
from benchmarks.matching import (
    SAMPLE,
    Scored,
    arguments,
    is_right,
    main,
    median_and_largest,
    settings,
    summary,
    write_program,
)
from benchmarks.programs import matched
from benchmarks.programs.layouts import IDS, LAYOUTS, SCATTERS, Setting, draw_for_matching, setting_of
from benchmarks.programs.matched import Match, MatchingScore, score_clocks, score_matches
from benchmarks.programs.model import Cause
from benchmarks.programs.planted import Planted
from benchmarks.programs.worlds import as_ideal

A, B, C, D = (0, 0, 0), (1, 0, 0), (2, 0, 0), (3, 0, 0)


def scored(monkeypatch, instances, matches):
    monkeypatch.setattr(matched, "matches_of", lambda *_: matches)
    truth = Planted({(0, n): frozenset(i) for n, i in enumerate(instances)}, {}, {})
    return score_matches(SimpleNamespace(groups=()), truth)


@pytest.mark.parametrize(
    ("matches", "right", "wrong", "incomplete"),
    [
        ([({A, B, C, D}, True)], 1, 0, 0),
        ([({A, B, C}, False)], 0, 0, 1),  # which says itself that one lacks
        ([({A, B, C}, True)], 0, 1, 0),
        ([({A, B}, False), ({C, D}, False)], 0, 1, 0),  # one communicator split in two
        ([({A, B, C, D, (4, 0, 0)}, True)], 0, 1, 0),
        ([], 0, 0, 0),
    ],
)
def test_a_match_is_right_wrong_incomplete_or_withheld(monkeypatch, matches, right, wrong, incomplete):
    found = scored(monkeypatch, [{A, B, C, D}], [Match(frozenset(m), c, 1.0) for m, c in matches])
    assert (found.right, found.wrong, found.incomplete) == (right, wrong, incomplete)
    assert found.withheld == 1 - right - wrong
    assert found.sure_wrong == wrong


def test_two_operations_that_are_mixed_up_are_both_wrong(monkeypatch):
    matches = [Match(frozenset({A, D}), True, 0.5), Match(frozenset({C, B}), True, 0.95)]
    found = scored(monkeypatch, [{A, B}, {C, D}], matches)
    assert (found.right, found.wrong, found.sure_wrong) == (0, 2, 2)
    assert found.examples[0] == {"planted": [A, B], "matched": [[A, D], [B, C]]} or len(found.examples) == 2


@pytest.mark.sampled(2)
@pytest.mark.parametrize("layout", ["tp-dp", "fsdp"])
def test_the_kind_world_is_matched_as_planted_and_its_clocks_are_exact(layout, tmp_path):
    program = as_ideal(draw_for_matching(5, Setting(layout, "ids", 1.0), 8))
    truth, reports, times = write_program(program, tmp_path / "reports")
    import_reports([str(tmp_path / "reports")], tmp_path / "run", jobs=1)
    alignment = aligned(Run(tmp_path / "run"), jobs=1)
    score = score_matches(alignment, truth)
    operations = {len(i) for i in truth.instances.values()}
    assert operations >= {program.grid.ranks} if layout == "fsdp" else operations == {program.grid.tp, program.grid.dp}
    assert (score.right, score.wrong) == (score.planted, 0)
    clocks = score_clocks(alignment, reports, times)
    assert [c.host for c in clocks] == list(range(1, program.grid.hosts))
    assert all(c.connected and c.worst_ns < 100_000 for c in clocks)


def test_settings_hold_every_combination():
    found = [setting_of(index) for index in range(324)]
    assert {(s.ids, s.scatter, s.layout) for s in found} == {
        (i, x, lay) for i in IDS for x in SCATTERS for lay in LAYOUTS
    }
    assert len({(s.ids, s.scatter) for s in found[:SAMPLE]}) == SAMPLE
    for layout in LAYOUTS:
        several = Counter(s.processes for s in found[:54] if s.layout == layout)
        assert several == {"one device": 7, "4 devices": 1, "4 x 8 devices": 1}


def settings_of(monkeypatch, *options):
    monkeypatch.setattr(sys, "argv", ["matching", *options])
    return settings(arguments())


def test_each_of_the_given_ids_and_scatters_has_the_same_programs_of_all_layouts(monkeypatch):
    wanted = settings_of(monkeypatch, "--programs", "12", "--ids", "ids", "none", "--scatter", "1", "3")
    assert Counter((s.ids, s.scatter) for _, s in wanted) == {(i, x): 12 for i in ("ids", "none") for x in (1.0, 3.0)}
    programs = [[(n, s.layout, s.processes) for n, s in wanted[at : at + 12]] for at in range(0, 48, 12)]
    assert programs == programs[:1] * 4
    assert Counter(layout for _, layout, _ in programs[0]) == dict.fromkeys(LAYOUTS, 2)


def test_given_layouts_and_processes_take_turns(monkeypatch):
    wanted = settings_of(monkeypatch, "--programs", "4", "--layout", "ep", "pp", "--processes", "4 devices")
    assert [(s.layout, s.processes) for _, s in wanted] == [("ep", "4 devices"), ("pp", "4 devices")] * 2
    assert [s.ids for _, s in wanted] == [setting_of(n).ids for n in range(4)]


def test_intervals_are_given_by_their_median_and_the_largest():
    assert median_and_largest([9_000.0, 1_000.0, 2_500.0]) == "2.5 us | 9.0 us"
    assert median_and_largest([]) == " | "


def test_a_first_finding_is_judged_by_what_costs_most_with_scatter():
    scatters = draw_for_matching(7, Setting("tp-dp", "ids", 10.0, "4 devices"))
    scatters = replace(scatters, causes=(Cause("straggler", "", (2,), 1.25, frozenset(range(6))),))
    common = {"severity": "high", "lost_share": 0.2, "ranks": [0], "confidence": 1.0}
    late = {**common, "kind": "straggler", "devices": [{"rank": 0, "device": 2}]}
    other = {**late, "devices": [{"rank": 0, "device": 1}]}
    exposed = {**common, "kind": "exposed-communication", "devices": None}
    fault = {**common, "kind": "capture-fault", "devices": None}
    assert [is_right(scatters, [fault, f]) for f in (late, other, exposed)] == [False, False, True]
    assert [is_right(replace(scatters, scatter=0.0), [fault, f]) for f in (late, other, exposed)] == [
        True,
        False,
        False,
    ]


def test_first_findings_that_differ_are_listed_where_they_are_wrong():
    setting = Setting("dp", "ids", 3.0)
    of = {"setting": setting, "ranks": 8, "hosts": 2, "matching": MatchingScore(), "clocks": [], "diagnosed": True}
    late, exposed = ("straggler", (3,)), ("exposed-communication", (0, 1, 2, 3))
    same = Scored(1, **of, first=late, ideal=late)
    text = summary(
        [same, Scored(2, **of, first=exposed, ideal=late, right=True), Scored(3, **of, ideal=late, right=False)]
    )
    assert text.count("| 33.33 % | 66.67 % |") == 4  # in each table
    assert "* seed 3 (dp, ids, x 3, one device): nothing first; ideally straggler 3" in text
    assert "seed 2" not in text


def test_a_program_is_scored_and_kept(monkeypatch, capsys, tmp_path):
    command = [
        *"matching --programs 1 --layout dp --most-ranks 8 --keep".split(),
        tmp_path / "kept",
        "--json",
        tmp_path / "j",
    ]
    monkeypatch.setattr(sys, "argv", [*map(str, command)])
    main()
    assert "| ids, x 1 | 1 |" in capsys.readouterr().out
    [score] = json.loads((tmp_path / "j").read_text())
    assert score["error"] is None
    assert score["matching"]["planted"] >= score["matching"]["right"]
    assert score["diagnosed"]
    assert [p.name for p in (tmp_path / "kept").iterdir()] == ["dev-1-ids-1"]


def test_a_number_of_programs_that_makes_no_sense_is_refused(monkeypatch, capsys):
    monkeypatch.setattr(sys, "argv", ["matching", "--programs", "0"])
    with pytest.raises(SystemExit):
        main()
    assert "--programs must be at least 1" in capsys.readouterr().err

"""Devices of one process against separate processes: what the comparison counts as equal, and one program of it."""

from __future__ import annotations

import json
import sys
from dataclasses import replace
from itertools import islice

import pytest

from benchmarks import devices as module
from benchmarks.devices import Compared, Found, Written, compare, main, programs, summary
from benchmarks.programs.draw import draw
from benchmarks.programs.matched import MatchingScore
from benchmarks.programs.score import culprits_of

SLOW = Found("straggler", (2,), "high", 0.2)


def test_a_program_of_four_devices_in_one_process(tmp_path):
    program = draw(22, "straggler")
    program = replace(program, view=replace(program.view, devices=4))
    compared = compare(22, program, tmp_path)
    assert compared.error is None
    assert (compared.ranks, compared.devices) == (4, 4)
    assert compared.together.matching.right == compared.together.matching.planted == compared.apart.matching.right > 0
    assert compared.first_equal
    assert compared.different == ([], [])
    assert compared.together.findings[0].ranks == program.causes[0].ranks


@pytest.mark.parametrize(
    ("other", "equal"),
    [
        (SLOW, True),
        (replace(SLOW, loss=0.209), True),
        (replace(SLOW, severity="medium"), True),
        (replace(SLOW, loss=0.211), False),
        (replace(SLOW, loss=None), False),
        (replace(SLOW, ranks=(2, 3)), False),
        (replace(SLOW, kind="imbalance"), False),
    ],
)
def test_findings_are_equal_by_kind_culprits_and_loss(other, equal):
    compared = Compared(1, "a program", 2, 4, Written(findings=[SLOW]), Written(findings=[other]))
    assert compared.first_equal is equal
    assert compared.different == (([], []) if equal else ([SLOW], [other]))


def test_what_differs_is_printed():
    matching = MatchingScore(planted=10, right=9, wrong=1)
    same = Compared(1, "one", 2, 4, Written(matching, [SLOW], 1.0), Written(matching, [SLOW], 2.0))
    less = Compared(2, "two", 4, 8, Written(matching, [SLOW]), Written(matching))
    failed = Compared(3, "three", 4, 8, error="ValueError: no")
    text = summary([same, less, failed])
    assert "| together | 20 | 18 | 2 | 1 | 2 |" in text
    assert "first finding equal (kind, culprits, loss within 1 point): 1 of 3" in text
    assert "all findings equal: 1 of 3" in text
    assert "* seed 2 (8 ranks, 4 a process): apart straggler [2] high 0.2; together nothing" in text
    assert "* seed 3: ValueError: no" in text


def test_programs_have_as_many_devices_as_their_hosts_can_divide(monkeypatch):
    drawn = iter([draw(22, "straggler"), replace(draw(22, "straggler"), mpi=True)])
    grid = next(drawn).grid
    views = {"mpi": next(drawn)}
    small = draw(7, "straggler")
    monkeypatch.setattr(module, "draw", lambda _: views.pop("mpi", small))
    (seed, program), (again, _) = islice(programs("dev", 3, 8), 2)
    assert seed != again
    assert (
        (program.grid.ranks, program.grid.hosts)
        == (small.grid.ranks, small.grid.hosts)
        == (grid.ranks, grid.hosts)
        == (4, 1)
    )
    assert program.view.devices in (2, 4)


def test_culprits_are_devices_or_whole_processes():
    devices = [{"rank": 1, "device": 3}, {"rank": 0, "device": 0}]
    assert culprits_of({"ranks": [0, 1], "devices": devices}, 4) == {7, 0}
    assert culprits_of({"ranks": [1], "devices": None}, 2) == {2, 3}
    assert culprits_of({"ranks": None, "devices": None}, 2) == set()


def test_the_command_compares_so_many(monkeypatch, tmp_path, capsys):
    monkeypatch.setattr(module, "programs", lambda *_: ((n, None) for n in range(9)))
    monkeypatch.setattr(
        module, "compare", lambda seed, *_: Compared(seed, "p", 2, 4, Written(findings=[SLOW]), Written())
    )
    monkeypatch.setattr(sys, "argv", ["devices", "--programs", "3", "--json", str(tmp_path / "all.json")])
    main()
    assert "all findings equal: 0 of 3" in capsys.readouterr().out
    assert [len(c["apart"]["findings"]) for c in json.loads((tmp_path / "all.json").read_text())] == [1, 1, 1]

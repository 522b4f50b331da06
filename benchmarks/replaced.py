"""Whether the first lines of `diff` tell what replaced what: `python -m benchmarks.replaced [--pairs 9] [--seed N]`.

Each pair is a program and its twin, of which a part of every layer runs other kernels: of another library, or three
kernels in place of one. Which of both is the change is drawn. A pair is right if the first three lines of the table, at
100 columns, have the range, a kernel that left, one that came, and two times.
"""

from __future__ import annotations

import argparse
import random
import re
import tempfile
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import alltrace
from alltrace.charts.text_table import TableForm, to_text
from benchmarks.programs import names
from benchmarks.programs.changing import OTHER_KERNEL
from benchmarks.programs.draw import draw
from benchmarks.programs.model import Cause
from benchmarks.programs.nsys_file import write_reports
from benchmarks.programs.training import Lowered

if TYPE_CHECKING:
    from benchmarks.programs.model import Program

_PARTS = ("gemm", "attention", "unfused attention")
_MOST_RANKS = 8
_LINES = 3
_SHOWN = 8  # characters of the beginning of a name


def main(arguments: list[str] | None = None) -> None:
    """Score as many pairs as asked for."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--pairs", type=int, default=9)
    parser.add_argument("--seed", type=int, default=1)
    given = parser.parse_args(arguments)
    right = 0
    for number in range(given.pairs):
        with tempfile.TemporaryDirectory() as folder:
            told, missing = scored(given.seed + 1000 * number, _PARTS[number % len(_PARTS)], Path(folder))
        right += not missing
        print(f"{number + 1}. {'right' if not missing else 'missing: ' + ', '.join(missing)}", *told, sep="\n    ")
    print(f"{right} of {given.pairs}")


def scored(seed: int, part: str, folder: Path) -> tuple[list[str], list[str]]:
    """The first lines of a pair, and what they lack."""
    chance = random.Random(seed)
    program = _program(chance, part)
    every = tuple(range(program.grid.ranks))
    cause = Cause(
        "imbalance", f"{OTHER_KERNEL}, {part}", every, chance.uniform(0.4, 2.5), frozenset(range(program.steps))
    )
    twins = [program, replace(program, causes=(cause,))]
    chance.shuffle(twins)
    runs = []
    for side, twin in zip("ab", twins, strict=True):
        (folder / side).mkdir()
        lowered = Lowered(twin)
        write_reports(twin, lowered, lowered.execute(record=True), folder / side)
        runs.append(alltrace.open(folder / side, cache_dir=folder / "cache"))
    answer = alltrace.diff(*runs).answer
    told = to_text(answer, answer.table.slice(0, 0), 0, TableForm(100, units=True)).splitlines()[:_LINES]
    return told, lacking(" ".join(told), part, program.style)


def lacking(told: str, part: str, style: str) -> list[str]:
    """What the text does not have of: the range, a kernel of either side, two times of what replaced what."""
    usual = names.layer_of(style)
    others = [names.other_kernels(layer, part, 1.0) for layer in usual]
    sides = []
    for one, other in ((usual, others), (others, usual)):
        kernels = {k.name for layer in one for _, k, _ in layer} - {k.name for layer in other for _, k, _ in layer}
        sides.append(any(name.removeprefix("void ")[:_SHOWN] in told for name in kernels))
    sentence = told.partition(" In ")[2]
    has = {
        "range": "layer" in sentence,
        "what the program runs": sides[0],
        "what the twin runs": sides[1],
        "both times": len(re.findall(r"\d (?:s|ms|µs|ns)\b", sentence)) >= 2,
    }
    return [what for what, there in has.items() if not there]


def _program(chance: random.Random, part: str) -> Program:
    """A small program with ranges of layers, whose layers have that part."""
    while True:
        program = draw(chance.randrange(1 << 31))
        wanted = program.style != "vision" and program.grid.ranks <= _MOST_RANKS and program.view.graphs == "none"
        if wanted and not program.tokens and program.view.devices == 1 and (part == "gemm" or program.grid.cp == 1):
            return replace(program, view=replace(program.view, operators=True), causes=())


if __name__ == "__main__":
    main()

"""What ranks take for their work, and their peers for the same, against a plain look at each."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.thorough import cases

from alltrace.replay import pace
from alltrace.replay.pace import over_peers, pace_of, work_factors


@pytest.mark.parametrize("seed", range(5))
def test_ranks_are_of_the_first_class_whose_first_rank_runs_as_much(seed):
    draw = np.random.default_rng(seed)
    kinds = draw.integers(0, 300, (4, 6))
    count = (kinds[draw.integers(0, 4, 40)] + draw.integers(0, 12, (40, 6))).astype(float)
    heads, wanted = [], []
    for row in count:
        near = [n for n, h in enumerate(heads) if np.abs(row - h).sum() <= pace._ALIKE * max(row.sum(), h.sum())]
        wanted.append(near[0] if near else len(heads))
        if not near:
            heads.append(row)
    assert len(heads) > 4
    assert pace.alike_ranks(count).tolist() == wanted
    assert pace.alike_ranks(np.zeros((3, 0))).tolist() == [0, 0, 0]


@st.composite
def runs(draw):
    """A replay of which only the cells matter, and its cells: rank, step, name, time, count."""
    random = np.random.default_rng(draw(st.integers(0, 2**32)))
    ranks = draw(st.permutations(range(draw(st.integers(1, 6)))))
    kinds = random.integers(1, 4, (2, 3))  # ranks are of two classes, or alone
    cells, parts, step = [], [], [-1]
    for rank in ranks:
        count = kinds[random.integers(0, 2)] if random.random() < 0.8 else random.integers(10, 20, 3)
        rows = [
            (s, n, float(random.integers(50, 150)) * int(count[n]), int(count[n])) for s in range(3) for n in range(3)
        ]
        cells += [(rank, *row) for row in rows]
        nodes = np.arange(len(rows))
        fields = {
            "cell_node": nodes,
            "cell_name": np.array([r[1] for r in rows]),
            "names": np.arange(3) * 7,
            "when": nodes,
        }
        fields |= {"cell_ns": np.array([r[2] for r in rows]), "cell_count": np.array([r[3] for r in rows])}
        parts.append(SimpleNamespace(rank=rank, **fields))
        step += [r[0] for r in rows]
    base = 1 + 9 * np.arange(len(parts))
    steps = np.array(step)
    replay = SimpleNamespace(
        parts=parts, base=base, step=steps, rank=np.zeros(len(step)), by_step=(np.unique(steps),),
        names=(np.arange(3) * 7, tuple(np.arange(3) for _ in parts)),
    )  # fmt: skip
    return replay, cells


def wanted(cells, changed):
    """What the peers take of each cell over what it takes: by rank, step and name, for the ranks of `changed`."""
    ranks = sorted({c[0] for c in cells})
    names = {r: tuple(sum(c[4] for c in cells if c[:1] == (r,) and c[2] == n) for n in range(3)) for r in ranks}
    alike = {r: next(q for q in ranks if sum(abs(a - b) for a, b in zip(names[r], names[q], strict=True))
             <= 0.02 * max(sum(names[r]), sum(names[q]))) for r in ranks}  # fmt: skip
    every = len(changed) < 2 or set(changed) == set(ranks)
    found = {}
    for rank, step, name, spent, count in cells:
        if rank not in changed:
            found[rank, step, name] = 1.0
            continue
        mates = [r for r in ranks if alike[r] == alike[rank]]
        others = [r for r in mates if r != rank] if every else [r for r in mates if r not in changed]
        by_mean = bool(others)
        if not others:
            others = [r for r in ranks if r != rank] if every else [r for r in ranks if r not in changed]
        values = [c[3] / c[4] if by_mean else c[3] for c in cells if c[0] in others and c[1:3] == (step, name)]
        own = spent / count if by_mean else spent
        if len(values) == 1:
            values = [min(values[0], own)]
        found[rank, step, name] = float(np.median(values)) / own if values else 1.0
    return found


@settings(deadline=None, max_examples=cases(66, 200))
@given(runs(), st.data())
def test_peers_are_compared_step_by_step(run, data):
    replay, cells = run
    ranks = sorted({c[0] for c in cells})
    changed = data.draw(st.sets(st.sampled_from(ranks), min_size=1))
    found = pace_of(replay)
    factors = found.of_unchanged(changed)
    expected = wanted(cells, changed)
    for part, rows in zip(replay.parts, found.cells, strict=True):
        mine = [c for c in cells if c[0] == part.rank]
        assert factors[rows].tolist() == pytest.approx([expected[c[:3]] for c in mine])
    nodes = work_factors(replay, found, factors)
    assert nodes[1:].tolist() == pytest.approx([expected[c[:3]] for c in cells])


def test_a_run_without_work_has_no_pace():
    replay = SimpleNamespace(
        parts=[], names=(np.empty(0, np.int64), ()), by_step=(np.empty(0, np.int64),), base=np.empty(0, np.int64)
    )
    found = pace_of(replay)
    assert (len(found.ranks), len(found.of_peers), found.cells) == (0, 0, ())


def test_the_others_median_is_put_over_the_own_value():
    spent = np.array([2.0, 4.0, 8.0, 16.0])
    assert over_peers(np.zeros(4, np.int64), np.arange(4), np.zeros(4, np.int64), spent).tolist() == [
        4.0,
        2.0,
        0.5,
        0.25,
    ]
    # of two the faster; who has no like, in its class or at its key, is compared with all others, or with nobody
    some = np.array([0, 0, 1, 2])
    assert over_peers(some, np.arange(4), np.zeros(4, np.int64), spent).tolist() == [1.0, 0.5, 0.5, 0.25]
    assert over_peers(some, np.arange(4), np.array([0, 0, 1, 0]), spent).tolist() == [1.0, 0.5, 1.0, 3.0 / 16.0]
    assert over_peers(np.zeros(1, np.int64), np.arange(1), np.zeros(1, np.int64), spent[:1]).tolist() == [1.0]
    # ranks that are alike by the mean of each piece, and one alone by all of its time
    count = np.array([1.0, 4.0, 8.0, 8.0])
    assert over_peers(some, np.arange(4), np.zeros(4, np.int64), spent, count).tolist() == [0.5, 1.0, 0.5, 0.25]

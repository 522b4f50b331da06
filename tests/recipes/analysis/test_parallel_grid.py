"""The grid that communicators form."""

from __future__ import annotations

import pytest

from alltrace.align.schema import Group
from alltrace.recipes.analysis.parallel_grid import grid_of


def groups_of(*families, messages=(), experts=()):
    """A communicator for each of these groups of ranks; families in `messages` send and receive, those in `experts`
    exchange."""
    return [
        Group(n, f"c{n}", tuple(ranks), len(ranks), score=1.0 - f / 10, messages=f in messages, all_to_all=f in experts)
        for n, (f, ranks) in enumerate((f, ranks) for f, family in enumerate(families) for ranks in family)
    ]


def strided(count, size, stride):
    return [tuple(range(f, f + size * stride, stride)) for f in range(count) if f // stride % size == 0]


@pytest.mark.parametrize("pipeline", ["whole", "pairs"])
def test_tensor_data_and_pipeline_groups_are_the_three_dimensions(pipeline):
    pairs = [(r, r + 8) for r in range(24)] if pipeline == "pairs" else strided(32, 4, 8)
    groups = groups_of(strided(32, 2, 1), strided(32, 4, 2), pairs, [tuple(range(32))], messages={2})
    grid = grid_of(groups, range(32))
    assert grid.text == "TP 2 x DP 4 x PP 4"
    assert grid.dimensions == (("TP", 2), ("DP", 4), ("PP", 4))
    assert grid.found_by == "ids"
    assert grid.score == pytest.approx(0.8)


def test_one_communicator_of_all_is_data_parallel():
    assert grid_of(groups_of([tuple(range(6))]), range(6)).text == "DP 6"


def test_groups_beside_the_grid_do_not_hide_it():
    groups = groups_of(strided(16, 4, 1), strided(16, 4, 4), [(0, 15)], strided(16, 16, 1))
    assert grid_of(groups, range(16)).text == "TP 4 x DP 4"


@pytest.mark.parametrize(
    ("groups", "ranks"),
    [
        (groups_of([(0, 1, 2)]), range(4)),
        (groups_of([(0, 1), (2, 3)]), range(4)),
        (groups_of([(0, 2, 3), (1, 4, 5)]), range(6)),
        (groups_of([tuple(range(4))]), [0, 1, 2, 4]),
        ([], range(4)),
        ([], []),
    ],
)
def test_what_divides_the_ranks_in_no_regular_way_is_no_grid(groups, ranks):
    assert grid_of(groups, ranks) is None


@pytest.mark.parametrize("messages", [(), (0,)])
def test_groups_whose_members_all_exchange_are_of_experts(messages):
    groups = groups_of(strided(16, 8, 1), strided(16, 2, 8), [tuple(range(16))], messages=messages, experts=(0,))
    assert grid_of(groups, range(16)).text == "EP 8 x DP 2"


def test_experts_lie_between_tensor_and_data_parallel_groups():
    groups = groups_of(strided(32, 2, 1), strided(32, 4, 2), strided(32, 4, 2), strided(32, 4, 8), experts=(2,))
    assert grid_of(groups, range(32)).text == "TP 2 x EP 4 x DP 4"

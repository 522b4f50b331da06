"""A member that alone names no communicators belongs to those that lack one."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pyarrow as pa
import pytest
from tests.align.collectives import Made, quality, table_of
from tests.align.grids import Grid, execute
from tests.align.tables import match_tables, timelines_of

from alltrace.align.nameless_member import with_names
from alltrace.align.related_clocks import Placing

GRID = Grid(tensor=2, data=4, hosts=2, steps=6, stamp_ms=0.0)


def placing_of(executed):
    hosts = {p.rank: p.host for p in executed.placed}
    shifts = {p.rank: p.shift_ns for p in executed.placed}
    return Placing(shifts, {rank: ("host", host) for rank, host in hosts.items()}, hosts, frozenset(hosts))


def matched_without_names(job, nameless, *, sizes=True, late=0.0, missing=(), ahead_ns=0):
    """The run of which some ranks have kernels alone, and begin late; its matching, and what is planted."""
    executed = execute(job)
    made = executed.made.dropped(0.0, 1, dict.fromkeys(nameless, late)) if late else executed.made
    bare = replace(executed, made=made).anonymous().made
    others = made if sizes else made.without("group_size")
    tables = {r: (bare if r in nameless else others).tables[r] for r in made.tables}
    made = replace(made, tables={r: t for r, t in tables.items() if r not in missing})
    placing = placing_of(executed)
    placing.shifts_ns[nameless[0]] += ahead_ns
    return match_tables(made.tables, made.texts, placing=placing), made


@pytest.mark.parametrize("sizes", [True, False])
@pytest.mark.parametrize("streams", ["one", "each"])
@pytest.mark.parametrize("nameless", [0, 5])
def test_a_member_without_names_belongs_to_the_communicators_that_lack_one(nameless, streams, sizes):
    matching, made = matched_without_names(replace(GRID, streams=streams), (nameless,), sizes=sizes, late=0.3)
    right, wrong = quality(matching, made)
    assert (right, wrong) == (1.0, 1.0)
    assert matching.unmatched[nameless] == 0
    assert f"rank {nameless} names no communicators" in matching.notes[0]


def test_a_member_by_whose_clock_nothing_is_there_at_once_has_no_communicators():
    assert matched_without_names(GRID, (5,))[0].unmatched[5] == 0
    unlike, _ = matched_without_names(GRID, (5,), ahead_ns=300_000)
    assert unlike.unmatched[5] == unlike.matching.timelines.rows[5]


def test_where_a_rank_has_no_report_it_may_be_what_a_communicator_lacks():
    matching, made = matched_without_names(
        Grid(tensor=4, data=2, hosts=2, steps=6, stamp_ms=0.0), (4,), sizes=False, missing=(0, 5)
    )
    assert quality(matching, made)[0] == 1.0
    assert matching.unmatched[4] == matching.matching.timelines.rows[4]


@pytest.mark.parametrize(
    ("nameless", "missing"),
    [
        ((0, 5), ()),  # either may be of either
        ((0,), (1,)),  # a communicator lacks both, and others the rank without a report
        ((0,), (6,)),
    ],
)
def test_members_are_left_without_communicators_where_several_are_possible(nameless, missing):
    matching, _ = matched_without_names(GRID, nameless, missing=missing)
    assert all(matching.unmatched[rank] for rank in nameless)
    assert all(not set(nameless) & set(group.ranks) for group in matching.groups if group.found_by == "ids")


def operations(starts_us, *, name=None, size=3, op="AllReduce", lasting_us=10):
    start = np.array(starts_us, np.int64) * 1000
    many = len(start)
    return table_of(
        start=start,
        end=start + lasting_us * 1000,
        communicator=[name] * many,
        op=[op] * many,
        bytes=[1024] * many,
        group_size=[size if name else None] * many,
        stream=[7] * many,
    )


TIMES = [100, 200, 330, 470, 600, 750, 880, 1000]
BETWEEN = [t + 40 for t in TIMES]


@pytest.mark.parametrize(
    ("more", "joined"),
    [
        ({2: operations(TIMES)}, True),
        ({2: operations(TIMES[3:])}, True),  # it begins late
        ({2: pa.concat_tables([operations(TIMES), operations(BETWEEN, name="d", size=2)])}, True),  # d is its own
        ({2: operations(TIMES), 3: operations(TIMES)}, False),  # either may be of the communicator
        ({2: operations(TIMES[::2])}, False),  # the others call more in its time
        ({2: operations([t + d for t in TIMES for d in (0, 2)])}, False),  # it calls more
        ({2: operations([t - 12 for t in TIMES])}, False),  # each ends before the others start
        ({2: operations(TIMES, op="AllGather")}, False),
        ({2: operations(TIMES), 3: operations([9_000], name="d", size=2)}, False),  # of a clock that nothing relates
        ({2: operations(TIMES), 3: operations([9_000], name="d", size=1)}, True),
        ({2: operations(TIMES), 4: operations([9_000], name="d", size=1)}, False),  # the third rank has no report
        ({2: operations(TIMES[:2])}, False),  # by chance
    ],
)
def test_each_operation_must_be_one_of_communicators_that_lack_the_member(more, joined):
    tables = {0: operations(TIMES, name="c"), 1: operations(TIMES, name="c"), **more}
    placing = Placing(dict.fromkeys(tables, 0), {r: "host" if r < 3 else "other" for r in tables})
    recorded = timelines_of(tables, Made({}, {}, {}, ["c", "d"]).texts)
    named = with_names(recorded, placing)
    assert (named is not recorded) == joined
    assert not (joined and named.kinds.nameless.any())


@pytest.mark.parametrize("joined", [True, False])
def test_a_communicator_of_unknown_size_that_is_like_no_other_lacks_a_member_if_it_has_all_others(joined):
    more = {} if joined else {3: operations([9_000], name="d", size=None)}
    tables = {r: operations(TIMES, name="c", size=None) for r in (0, 1)} | {2: operations(TIMES)} | more
    placing = Placing(dict.fromkeys(tables, 0), dict.fromkeys(tables, "host"))
    recorded = timelines_of(tables, Made({}, {}, {}, ["c", "d"]).texts)
    assert (with_names(recorded, placing) is not recorded) == joined

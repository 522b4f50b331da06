"""Members of one communicator laid along each other by the order of their operations."""

from __future__ import annotations

import numpy as np
import pytest

from alltrace.align.order_matching import (
    Member,
    _ascending,
    _by_number,
    _close,
    _hurried,
    _in_order,
    _lawful,
    _moved,
    _shifts,
    laid_along,
    matched,
    positions,
)


def member(ends, *, op=None, size=None, number=None, length=50_000, meets=True, way=0, clock=0, error_ns=0.0):
    end = np.array(ends, float)
    none = np.full(len(end), -1, np.int64)
    return Member(
        op=np.zeros(len(end), np.int64) if op is None else np.array(op),
        size=none if size is None else np.array(size),
        start=end - length,
        end=end,
        meets=np.full(len(end), meets),
        way=np.full(len(end), way),
        number=none if number is None else np.array(number),
        clock=clock,
        error_ns=error_ns,
    )


STEPS = np.arange(20) * 1e6


def test_equal_sequences_are_one_by_one_however_far_ends_are_apart():
    late = STEPS + np.where(np.arange(20) % 2, 45_000, -45_000)
    assert positions(member(STEPS), member(late)).tolist() == list(range(20))


def test_a_lost_operation_leaves_the_others_where_they_are():
    kept = [i for i in range(20) if i not in (7, 12)]
    assert positions(member(STEPS), member(STEPS[kept] + 9_000)).tolist() == kept
    instances = matched([18, 20, 19], [member(STEPS[kept]), member(STEPS), member(np.delete(STEPS, 3))].__getitem__)
    assert [len(i) for i in instances] == [18, 20, 19]
    assert instances[1].tolist() == list(range(20))
    assert instances[2].tolist() == [i for i in range(20) if i != 3]


def test_a_recording_that_begins_later_is_laid_where_its_operations_ran():
    assert positions(member(STEPS), member(STEPS[5:] + 20_000)).tolist() == list(range(5, 20))


def test_no_member_ends_before_another_has_started():
    shifted = member(STEPS + 5e5)
    assert positions(member(STEPS), shifted).tolist() == [-1] * 20
    assert positions(member(STEPS), member(STEPS + 5e5, meets=False))[0] == 0


def test_clocks_that_are_off_by_more_than_a_transfer_do_not_undo_the_order():
    hasty = member(STEPS, length=[20_000 if i % 7 else 200_000 for i in range(20)])
    assert positions(hasty, member(STEPS + 60_000, length=20_000)).tolist() == list(range(20))


def test_clocks_that_are_off_leave_ends_that_scatter_in_modes_in_their_order():
    # clocks are off by more than a transfer, and one of the members leaves some operations late
    leaves = np.where(np.arange(20) % 7 == 3, 600_000, 0)
    for off_ns in (60_000, -130_000):
        assert positions(member(STEPS), member(STEPS + off_ns + leaves, length=leaves + 50_000)).tolist() == list(
            range(20)
        )
    # from one operation to the next is no error of clocks, and two that overlap nowhere are none
    assert positions(member(STEPS), member(STEPS + 320_000 + leaves, length=leaves + 50_000)).tolist() == [-1] * 20
    apart = STEPS + np.where(np.arange(20) % 2, 60_000, -60_000)
    assert positions(member(STEPS, length=40_000), member(apart + leaves, length=leaves + 40_000)).tolist() == [-1] * 20


def test_other_kinds_are_never_one():
    kinds = [0, 1] * 10
    assert positions(member(STEPS, op=kinds), member(STEPS[1:], op=kinds[1:])).tolist() == list(range(1, 20))
    assert positions(member(STEPS), member(STEPS, op=[1] * 20)).tolist() == [-1] * 20


def test_sequence_numbers_decide_and_begin_again_with_a_communicator_that_was_made_again():
    numbers = [0, 1, 2, 0, 1]
    first = member(STEPS[:5], number=numbers)
    assert positions(first, member(STEPS[:5] + 3e9, number=numbers, clock=1)).tolist() == [0, 1, 2, 3, 4]
    assert positions(first, member(STEPS[1:5], number=numbers[1:])).tolist() == [1, 2, 3, 4]


def test_clocks_that_nothing_relates_match_equal_sequences_alone():
    assert positions(member(STEPS), member(STEPS + 1e6, clock=1)).tolist() == list(range(20))
    assert positions(member(STEPS), member(STEPS[1:], clock=1)).tolist() == [-1] * 19
    assert positions(member(STEPS), member(STEPS + 1e10, clock=1)).tolist() == [-1] * 20


def test_the_law_holds_for_those_that_meet_and_for_messages_one_way():
    at = np.arange(3)
    early, late = member([100.0, 200.0, 300.0], length=40.0), member([150.0, 235.0, 340.0], length=40.0)
    assert _lawful(early, late, at).tolist() == [False, True, True]  # begins at 110, 195 and 300
    assert _lawful(early._replace(error_ns=6.0), late._replace(error_ns=4.0), at).all()
    assert _lawful(early, member([150.0, 235.0, 340.0], length=40.0, meets=False), at).all()
    send, receive = member([100.0], length=40.0, meets=False, way=1), member([50.0], length=10.0, meets=False, way=-1)
    assert not _lawful(send, receive, at[:1])[0]
    assert not _lawful(receive, send, at[:1])[0]
    assert _lawful(send, member([61.0], length=10.0, meets=False, way=-1), at[:1])[0]
    assert _lawful(member([100.0], length=0.0), member([300.0], length=40.0), at[:1])[
        0
    ]  # what takes no time shows nothing


def test_ends_are_close_if_the_next_ones_are_four_times_as_far():
    reference = member([0.0, 100.0, 300.0])
    assert _close(reference, member([24.0, 124.0, 349.0])).tolist() == [True, True, True]
    assert _close(reference, member([25.0, 76.0, 351.0])).tolist() == [False, True, False]


def test_a_clock_is_moved_by_the_least_with_which_all_meet():
    reference = member([1000.0, 2000.0, 3000.0], length=100.0)
    own = member([880.0, 1890.0, 2895.0], length=100.0)
    assert _moved(reference, own).end.tolist() == [900.0, 1910.0, 2915.0]
    late = member([1130.0, 2150.0, 3120.0], length=100.0)
    assert _moved(reference, late).end.tolist() == [1080.0, 2100.0, 3070.0]
    assert _moved(reference, member([600.0, 1600.0, 2600.0], length=100.0)).end.tolist() == [
        600.0,
        1600.0,
        2600.0,
    ]  # too far
    assert (
        _moved(reference, member([880.0, 2120.0, 3000.0], length=100.0)).end[0] == 880.0
    )  # no move is enough for both
    assert _moved(reference, member([880.0, 1890.0, 2895.0], length=100.0, meets=False)).end[0] == 880.0
    rooted = own._replace(meets=np.array([False, True, True]))  # of these it is not known
    assert _moved(reference, rooted).end.tolist() == [890.0, 1900.0, 2905.0]


def test_of_places_that_do_not_ascend_the_dearer_are_left_out():
    assert _ascending(np.array([0, 4, 2, 3, -1, 5]), np.array([0.0, 2.0, 1.0, 1.0, 0.0, 0.0])).tolist() == [
        0,
        -1,
        2,
        3,
        -1,
        5,
    ]
    assert _ascending(np.array([0, 4, 2, 3]), np.array([0.0, 1.0, 1.0, 2.0])).tolist() == [0, 4, -1, -1]
    assert _ascending(np.array([3, 3, 1]), np.array([5.0, 4.0, 3.0])).tolist() == [-1, -1, 1]


def test_shifts_are_those_of_the_nearest_ends_and_at_both_ends():
    ends = np.arange(10) * 100.0
    assert _shifts(member(ends), member(ends[3:8] + 10.0)).tolist() == [0, 2, 3, 4, 5]
    assert _shifts(member(ends[:4]), member(ends)).tolist() == [-7, -6, -5, -4, -3, -2, -1, 0, 1]


def test_what_overlaps_much_less_than_others_of_its_kind_is_hurried():
    reference, ends = member(STEPS, length=50_000.0), STEPS + 100.0
    length = np.full(20, 50_000.0)
    length[3] = 10_000.0
    own = member(ends, length=length)
    at = np.arange(20)[None]
    late = np.abs(reference.end - own.end)[None] / 1_000.0
    assert np.flatnonzero(_hurried(reference, own, at, late)[0]).tolist() == [3]
    assert not _hurried(reference, own._replace(error_ns=20_000.0), at, late).any()
    assert not _hurried(reference, own._replace(meets=np.zeros(20, np.bool_)), at, late).any()
    assert not _hurried(reference, own, at, late + 1.0).any()  # none is sure


def test_order_holds_where_the_nearest_end_is_hardly_nearer():
    assert _in_order(member(STEPS), member(STEPS + 2_000.0))
    shifted = np.append(STEPS[1:], STEPS[-1] + 1e6)
    assert not _in_order(member(STEPS), member(shifted))
    assert _in_order(member(STEPS), member(STEPS + 4e5))  # all are as far from the next


@pytest.mark.parametrize(("behind", "in_order"), [(9, True), (12, False)])
def test_streams_of_which_one_falls_behind_for_a_while_are_in_order(behind, in_order):
    late = STEPS + np.where(np.arange(20) < behind, 1e6, 1_000.0)
    assert _in_order(member(STEPS), member(late)) == in_order


def test_sizes_that_differ_part_operations_unless_most_do():
    ends = STEPS[:12]
    lost = np.delete(ends, 5) + 3_000.0
    size = np.full(12, 64)
    other = np.delete(size, 5)
    other[2] = 128
    place, scatter = laid_along(member(ends, size=size), member(lost, size=other))
    assert place.tolist() == [0, 1, -1, 3, 4, 6, 7, 8, 9, 10, 11]
    assert scatter == 3_000.0
    assert laid_along(member(ends, size=size), member(lost, size=np.full(11, 128)))[0].tolist() == [
        0,
        1,
        2,
        3,
        4,
        6,
        7,
        8,
        9,
        10,
        11,
    ]
    other[3:6] = 128  # four of eleven
    parted = laid_along(member(ends, size=size), member(lost, size=other))[0]
    assert np.flatnonzero(parted < 0).tolist() == [2, 3, 4, 5]
    other[6:8] = 128  # six of eleven
    assert (laid_along(member(ends, size=size), member(lost, size=other))[0] >= 0).all()
    # of what is left over sizes count whatever the others have
    left = laid_along(member(ends, size=size), member(lost, size=np.full(11, 128)), 3_000.0)[0]
    assert left.tolist() == [-1] * 11


def test_one_alone_between_two_that_are_sure_is_what_is_left_there():
    ends = np.delete(STEPS, 12) + 3_000.0
    ends[6] += 30_000.0  # later than the others, but nothing else is near
    assert positions(member(STEPS, length=400_000.0), member(ends, length=400_000.0)).tolist() == [
        n for n in range(20) if n != 12
    ]


def test_members_of_another_run_are_no_partners():
    own = np.sort(np.random.default_rng(3).uniform(0, 20e6, 21))
    assert (laid_along(member(STEPS, length=10.0), member(own, length=10.0))[0] < 0).all()
    assert positions(member(STEPS[:5], clock=1), member(STEPS[:4])).tolist() == [-1] * 4
    assert positions(member(STEPS[:4], clock=1), member(STEPS[:4] + 1.9e9)).tolist() == [0, 1, 2, 3]
    assert positions(member(STEPS[:4], clock=1), member(STEPS[:4] + 2.1e9)).tolist() == [-1] * 4


def test_half_of_the_operations_have_partners_or_none_has():
    halves = [positions(member(STEPS[:8]), member(STEPS[:8] + 1e3, op=[0] * n + [1] * (8 - n))) for n in (4, 3)]
    assert [place.tolist() for place in halves] == [[0, 1, 2, 3, -1, -1, -1, -1], [-1] * 8]


def test_an_operation_whose_number_the_reference_lacks_has_no_place():
    reference, own = member(STEPS[:3], number=[1, 2, 4]), member(STEPS[:4], number=[1, 2, 3, 4])
    assert _by_number(reference, own).tolist() == [0, 1, -1, 2]

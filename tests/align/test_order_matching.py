"""Members of one communicator laid along each other by the order of their operations."""

from __future__ import annotations

import numpy as np

from alltrace.align.order_matching import Member, matched, positions


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
        assert positions(member(STEPS), member(STEPS + off_ns + leaves, length=leaves + 50_000)).tolist() == list(range(20))
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

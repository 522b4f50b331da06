"""Devices of processes by number, and in sentences."""

from __future__ import annotations

import pytest
from tests.together import together

from alltrace.run.members import Member, Members

MEMBERS = Members(
    [
        *(Member(0, device, 4 + device, "node0") for device in range(4)),
        Member(2, 1, None, "node0"),
        *(Member(3, device, device, "node1") for device in (0, 2)),
        Member(9),
    ]
)
"""Rank 0 with GPUs 4 to 7, rank 2 with one device, rank 3 with GPUs 0 and 2, and rank 9 without a report."""


@together(
    "numbers, words",
    (
        ([3], "rank 0, GPU 7"),
        ([4], "rank 2"),
        ([0, 1, 3], "rank 0, GPUs 4-5, 7"),
        ([6, 4], "rank 2 and rank 3, GPU 2"),
        ([0, 1, 2, 3, 4, 5], "rank 0, GPUs 4-7, rank 2 and rank 3, GPU 0"),
        ([4, 7], "ranks 2, 9"),
    ),
)
def test_devices_are_named_with_their_process(numbers, words):
    assert MEMBERS.words(numbers) == words


def test_ranks_with_the_same_gpus_are_named_together():
    members = Members([Member(rank, gpu, gpu, "node0") for rank in range(3) for gpu in range(2)])
    assert members.words(range(4)) == "ranks 0-1, GPUs 0-1"
    assert members.words([1, 3, 4]) == "ranks 0-1, GPU 1 and rank 2, GPU 0"


@together(
    "sentence, said",
    (
        ("rank 3 is late", "rank 0, GPU 7 is late"),
        ("Ranks 0-1, 3 wait for rank 4.", "Rank 0, GPUs 4-5, 7 wait for rank 2."),
        ("ranks 0-3: no payload", "rank 0, GPUs 4-7: no payload"),
        ("rank 5's host", "rank 3, GPU 0's host"),
        ("on 3 of 8 ranks", "on 3 of 8 ranks"),
        ("rank 12 has no report", "rank 12 has no report"),  # it is none of these
        ("rank=3 and rank 3.5", "rank=3 and rank 3.5"),
        ("rank 1 would save 300 ns", "rank 0, GPU 5 would save 300 ns"),
    ),
)
def test_sentences_name_devices_in_place_of_numbers(sentence, said):
    assert MEMBERS.in_words(sentence) == said


def test_processes_and_devices_of_numbers():
    assert MEMBERS.ranks([6, 0, 1]) == [0, 3]
    assert MEMBERS.numbers([3, 0]) == [0, 1, 2, 3, 5, 6]
    assert MEMBERS.devices([6, 4]) == [
        {"rank": 2, "device": 1, "gpu": None, "host": "node0"},
        {"rank": 3, "device": 2, "gpu": 2, "host": "node1"},
    ]
    with pytest.raises(IndexError):
        MEMBERS[8]

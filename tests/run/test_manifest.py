from __future__ import annotations

from dataclasses import replace

import pytest

from alltrace.run.clock import clock_map
from alltrace.run.host_samples import samplers
from alltrace.run.labels import checked_labels, with_defaults
from alltrace.run.manifest import Clock, Labels, Manifest, RankRecord
from alltrace.trace.errors import UsageError


class Counted(tuple):
    """A tuple that counts how often somebody goes through it."""

    times = 0

    def __iter__(self):
        self.times += 1
        return super().__iter__()


def rank(number, host, **facts):
    return RankRecord(number, 0, host, (number,), (), "environment", (0,), **facts)


def test_ranks_and_clocks_by_host():
    ranks = (rank(0, "b"), rank(1, "a"), rank(5, "b"))
    manifest = Manifest(ranks=ranks, clocks=(Clock("b"), Clock("a", offset_ns=7)))
    assert manifest.hosts == ("b", "a")
    assert manifest.ranks_of_host == {"b": (ranks[0], ranks[2]), "a": (ranks[1],)}
    assert {host: clock.offset_ns for host, clock in manifest.clock_of_host.items()} == {"b": 0, "a": 7}
    assert replace(manifest, clocks=(Clock("a", offset_ns=9),)).clock_of_host == {"a": Clock("a", offset_ns=9)}
    assert manifest.ranks_of_report == {0: ranks}
    assert manifest.with_ranks([ranks[2], ranks[1]]).ranks_of_host == {"a": (ranks[1],), "b": (ranks[2],)}


def test_what_is_asked_for_each_rank_does_not_go_through_all():
    ranks = Counted(rank(n, f"node{n // 8}", rows={"gpu_metrics": int(n % 8 == 0)}) for n in range(64))
    clocks = Counted(Clock(f"node{n}", offset_ns=n) for n in range(8))
    manifest = Manifest(ranks=ranks, clocks=clocks)
    assert [clock_map(manifest, ranks[n]).shift_ns for n in range(64)] == [-(n // 8) for n in range(64)]
    assert [[r.rank for r in samplers(manifest, ranks[n])] for n in range(64)] == [[n // 8 * 8] for n in range(64)]
    assert (ranks.times, clocks.times) == (1, 1)


@pytest.mark.parametrize(
    ("given", "environments", "expected"),
    [
        (Labels(), [], Labels()),
        (
            Labels(),
            [{"SLURM_JOB_NAME": "train"}, {"SLURM_JOB_NAME": "train", "GITHUB_SHA": "abc"}, {}],
            Labels("train", "abc"),
        ),
        (Labels(), [{"SLURM_JOB_NAME": "a"}, {"SLURM_JOB_NAME": "b"}], Labels()),  # reports of two jobs have no name
        (
            Labels("mine", "r1", ("t",)),
            [{"SLURM_JOB_NAME": "train", "CI_COMMIT_SHA": "abc"}],
            Labels("mine", "r1", ("t",)),
        ),
        (Labels(), [{"PBS_JOBNAME": "q", "SECRET_JOB": "x"}], Labels("q")),
        (Labels(), [{"SLURM_JOB_NAME": "", "LSB_JOBNAME": "l"}], Labels("l")),
    ],
)
def test_what_is_not_given_comes_from_reports_that_agree(given, environments, expected):
    assert with_defaults(given, environments) == expected


def test_a_tag_counts_once():
    assert checked_labels("j", None, ["a", "b", "a"]) == Labels("j", None, ("a", "b"))


@pytest.mark.parametrize("text", ["", "  ", "a\nb", "\x1b[31m", "x" * 201])
def test_what_cannot_be_a_label_is_told(text):
    for given in ((text, None, ()), (None, text, ()), (None, None, ("a", text))):
        with pytest.raises(UsageError, match="expected 1 to 200 printable characters"):
            checked_labels(*given)

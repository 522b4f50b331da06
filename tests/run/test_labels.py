from __future__ import annotations

import pytest

from alltrace.run.labels import checked_labels, with_defaults
from alltrace.run.manifest import Labels
from alltrace.trace.errors import UsageError


@pytest.mark.parametrize(
    ("given", "environments", "expected"),
    [
        (Labels(), [], Labels()),
        (Labels(), [{"SLURM_JOB_NAME": "train"}, {"SLURM_JOB_NAME": "train", "GITHUB_SHA": "abc"}, {}], Labels("train", "abc")),
        (Labels(), [{"SLURM_JOB_NAME": "a"}, {"SLURM_JOB_NAME": "b"}], Labels()),  # reports of two jobs have no name
        (Labels("mine", "r1", ("t",)), [{"SLURM_JOB_NAME": "train", "CI_COMMIT_SHA": "abc"}], Labels("mine", "r1", ("t",))),
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

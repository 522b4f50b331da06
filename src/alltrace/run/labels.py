"""The name of a run: from its import, else from its reports."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from alltrace.run.manifest import Labels
from alltrace.trace.errors import UsageError, printable

_JOB = ("SLURM_JOB_NAME", "PBS_JOBNAME", "LSB_JOBNAME")
_REVISION = ("GITHUB_SHA", "CI_COMMIT_SHA")
_LONGEST = 200


def checked_labels(job: str | None, revision: str | None, tags: Sequence[str]) -> Labels:
    """The labels that a user gave, each tag once. Raises `UsageError`: one is empty, too long, or cannot be printed."""
    for flag, text in (("--job", job), ("--revision", revision), *(("--tag", tag) for tag in tags)):
        if text is not None and not (text.strip() and len(text) <= _LONGEST and text.isprintable()):
            raise UsageError(f"{flag} is {printable(text)[:_LONGEST]!r}; expected 1 to {_LONGEST} printable characters")
    return Labels(job, revision, tuple(dict.fromkeys(tags)))


def with_defaults(labels: Labels, environments: Sequence[Mapping[str, str]]) -> Labels:
    """The labels; missing ones come from the variables of the reports, if these agree."""

    def agreed(variables: Sequence[str]) -> str | None:
        for variable in variables:
            values = {text for e in environments if (text := e.get(variable))}
            if values:
                return values.pop() if len(values) == 1 else None
        return None

    job = agreed(_JOB) if labels.job is None else labels.job
    return labels._replace(job=job, revision=agreed(_REVISION) if labels.revision is None else labels.revision)

"""The default name of a run: its job, time and place."""

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from pathlib import PurePath

from alltrace.run.manifest import Manifest
from alltrace.trace.errors import path_text

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_LEAST_UTC_NS = 10**18  # 2001: before it a stamp is none


def run_title(manifest: Manifest, inputs: Sequence[str]) -> str:
    """A title for a run, such as `pretrain, job 4711 · 2026-03-01 12:30 UTC · node01 and 3 more`."""
    # `inputs`: the reports or the run directory as a user named them; used as the job's name if no report has one.
    ids = {i for r in manifest.reports if (i := r.environment.get("SLURM_JOB_ID"))}
    jobs = [manifest.labels.job] if manifest.labels.job is not None else []
    jobs += [f"job {i}" for i in ids if len(ids) == 1]  # reports of several jobs have no number
    job = ", ".join(jobs)
    hosts = list(dict.fromkeys(r.host for r in manifest.ranks))
    parts = [job or ", ".join(path_text(PurePath(text).name or text) for text in inputs)]
    if manifest.zero_utc_ns is not None and manifest.zero_utc_ns > _LEAST_UTC_NS:
        when = _EPOCH + timedelta(microseconds=manifest.zero_utc_ns // 1000)
        parts.append(f"{when:%Y-%m-%d %H:%M} UTC")
    if hosts:
        parts.append(hosts[0] if len(hosts) == 1 else f"{hosts[0]} and {len(hosts) - 1} more")
    return " · ".join(parts)

"""Which record is missing if the sizes of communication are not known."""

from alltrace.recipes.base import RunFacts
from alltrace.run.manifest import Manifest

_LACKING = (
    ("Nsight Systems", "no payload of NCCL's ranges gives it", ", or reports with payloads"),
    (
        "PyTorch profiler",
        "no call of a process group has its arguments (`record_param_comms`)",
        ", or traces of a newer PyTorch",
    ),
    ("rocprofv3", "rocprofv3 does not record it", ""),
)
"""By the beginning of the profiler's name why an operation has no size, and which other report has it."""


def why_unsized(manifest: Manifest) -> tuple[str, str]:
    """Why operations have no size, and what to import for it."""
    profilers = {report.profiler for report in manifest.reports}
    reasons = [row for row in _LACKING if any(p.startswith(row[0]) for p in profilers)] or [
        ("", "the reports do not give it", "")
    ]
    instead = reasons[0][2] if len(reasons) == 1 else ""
    return "; ".join(row[1] for row in reasons), f"import the job's NCCL logs with --nccl-log for it{instead}"


def notes_on_sizes(run: RunFacts, unknown: int) -> list[str]:
    """What to say if this many operations have no size; nothing if none, or if a note on the reports says it."""
    rank_warnings = (w for rank in run.manifest.ranks for warnings in rank.warnings.values() for w in warnings)
    if not unknown or any(w.tables == ("collectives",) for w in rank_warnings):
        return []
    return [f"{unknown:,} operations have no size: {'; '.join(why_unsized(run.manifest))}"]

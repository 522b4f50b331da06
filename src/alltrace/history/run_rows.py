"""What history keeps of a run: a row of numbers, a row for each host, and its findings."""

import statistics
from collections.abc import Mapping, Sequence
from hashlib import blake2b
from typing import Any

from alltrace.history.store import RunRows
from alltrace.run.derived import code_version
from alltrace.run.manifest import Manifest
from alltrace.run.store import Run
from alltrace.trace.errors import AlltraceError, DamageError

CLASSES = ("compute", "exposed_communication", "exposed_copy", "idle")
_LEAST_UTC_NS = 10**18  # 2001: before it a stamp is none


def run_id(manifest: Manifest) -> str:
    """The identity of a run, independent of its path: a hash of the contents of its reports."""
    contents = sorted(r.content_hash for r in manifest.reports)
    return blake2b("\n".join(contents).encode(), digest_size=16).hexdigest()


def rows_of(run: Run, *, jobs: int | None = None) -> RunRows:
    """What history stores of `run`; values are null if their tables were not imported."""
    manifest = run.manifest
    steps = [row["duration_ns"] for row in _rows_of(run, "steps", jobs) if row["kind"] == "step"]
    findings = [row for row in _rows_of(run, "diagnose", jobs) if row["opportunity_share"] is None]
    first, last = run.span_ns
    start = manifest.zero_utc_ns
    known = [row["lost_share"] for row in findings if row["lost_share"] is not None]
    facts = {
        "code": code_version(),
        **manifest.labels._asdict(),
        "start_utc_ns": start if start is not None and start > _LEAST_UTC_NS else None,
        "ranks": len(run.ranks),
        "hosts": len(run.hosts),
        "span_ns": last - first,
        "steps": len(steps),
        "step_ns": round(statistics.median(steps)) if steps else None,
        **_shares(_rows_of(run, "breakdown", jobs)),
        "lost_percent": 100 * sum(known) if known else None,
    }
    facts["tags"] = list(facts["tags"])
    return RunRows(
        facts,
        _hosts(run, findings, _rows_of(run, "stragglers", jobs)),
        [_finding(n, f, run) for n, f in enumerate(findings)],
    )


def _rows_of(run: Run, recipe: str, jobs: int | None) -> list[dict[str, Any]]:
    from alltrace.recipes.execution.ask import ask

    try:
        rows: list[dict[str, Any]] = ask(run, recipe, jobs=jobs).table.to_pylist()
    except DamageError:
        raise
    except AlltraceError:  # the run was imported without a table that it needs
        return []
    return rows


def _shares(devices: Sequence[Mapping[str, Any]]) -> dict[str, float | None]:
    """The percentage of all devices' time that each class has; what is unclassified counts as exposed communication."""
    span = sum(row["span_ns"] for row in devices)
    of_class = {c: (f"{c}_ns",) for c in CLASSES} | {
        "exposed_communication": ("exposed_communication_ns", "unclassified_ns")
    }
    return {
        f"{c}_percent": 100 * sum(row[name] for row in devices for name in names) / span if span else None
        for c, names in of_class.items()
    }


def _culprit_hosts(finding: Mapping[str, Any], run: Run) -> list[str]:
    """The hosts of the culprits of a finding, if these are at most half of the run's; otherwise none in particular."""
    ranks = set(finding["ranks"] or ())
    hosts = list(dict.fromkeys(r.host for r in run.ranks if r.rank in ranks))
    return hosts if 2 * len(hosts) <= len(run.hosts) else []


def _finding(place: int, finding: Mapping[str, Any], run: Run) -> dict[str, Any]:
    share = finding["lost_share"]
    facts = {name: finding[name] for name in ("kind", "severity", "lost_ns", "where")}
    return {
        **facts,
        "place": place,
        "lost_percent": None if share is None else 100 * share,
        "hosts": _culprit_hosts(finding, run),
    }


def _hosts(run: Run, findings: Sequence[Mapping[str, Any]], late: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Of each host whether a finding is about it, and for how much of all waits its ranks would have to change."""
    worst: dict[str, Mapping[str, Any]] = {}
    for finding in findings:
        if finding["lost_share"]:
            for host in _culprit_hosts(finding, run):
                if host not in worst or finding["lost_share"] > worst[host]["lost_share"]:
                    worst[host] = finding
    blames: dict[str, list[float]] = {}
    for row in late:
        if row["root_share"] is not None:
            blames.setdefault(row["host"], []).append(row["root_share"])
    rows = []
    for host, ranks in run.manifest.ranks_of_host.items():
        blame = blames.get(host)
        worst_finding = worst.get(host)
        rows.append(
            {
                "host": host,
                "ranks": len(ranks),
                "slow": None if len(run.hosts) < 2 else worst_finding is not None,
                "kind": None if worst_finding is None else worst_finding["kind"],
                "lost_percent": None if worst_finding is None else 100 * worst_finding["lost_share"],
                "blame_percent": None if blame is None else 100 * sum(blame),
            }
        )
    return rows

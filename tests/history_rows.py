"""Rows of a history made by hand, so that many runs cost nothing."""

from __future__ import annotations

from typing import Any

from alltrace.history.store import History, Kept, RunRows

SECOND = 1_000_000_000
FIRST_UTC_NS = 1_772_368_200 * SECOND


def put(
    history: History, number: int, *, hosts: Any = (), findings: Any = (), host_count: int = 2, **facts: Any
) -> str:
    """Add a run that began `number` hours after the first; `hosts` and `findings` are their rows but for what is
    usual."""
    name = f"run{number}"
    run = {
        "code": "1",
        "job": "train",
        "revision": None,
        "tags": [],
        "start_utc_ns": FIRST_UTC_NS + number * 3600 * SECOND,
        "ranks": 4,
        "hosts": host_count,
        "span_ns": SECOND,
        "steps": 10,
        "step_ns": 100_000_000,
        "compute_percent": 80.0,
        "exposed_communication_percent": 15.0,
        "exposed_copy_percent": 1.0,
        "idle_percent": 4.0,
        "lost_percent": 5.0,
    }
    host = {"ranks": 2, "slow": False, "kind": None, "lost_percent": None, "blame_percent": 0.0}
    finding = {"place": 0, "severity": "low", "lost_ns": 1, "lost_percent": 1.0, "hosts": [], "where": ""}
    rows = RunRows({**run, **facts}, [{**host, **h} for h in hosts], [{**finding, **f} for f in findings])
    history.put(rows, Kept(name, f"/runs/{name}", "", ""))
    return name

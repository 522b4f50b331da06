from dataclasses import replace

import pyarrow as pa
import pytest
from tests.making import kernel, make_run

from alltrace.history.run_rows import rows_of, run_id
from alltrace.recipes.base import Answer
from alltrace.trace.errors import DamageError, UsageError


def finding(kind, ranks, share, opportunity=None):
    facts = {"severity": "low", "lost_ns": 1, "lost_share": share, "opportunity_share": opportunity}
    return {"kind": kind, "ranks": ranks, "where": "", **facts}


@pytest.fixture
def run(tmp_path):
    """A run of four hosts with two ranks each."""
    ranks = {r: {"kernels": [kernel(0, 100)]} for r in range(8)}
    return make_run(tmp_path / "run", ranks, hosts={r: f"h{r // 2}" for r in range(8)})


@pytest.fixture
def answers(monkeypatch):
    """What recipes answer, by name; an error is raised."""
    found = {
        "steps": [
            {"kind": k, "duration_ns": ns}
            for k, ns in (("warm-up", 900), ("step", 100), ("step", 140), ("checkpoint", 800))
        ],
        "breakdown": [
            {
                "span_ns": 60,
                "compute_ns": 30,
                "exposed_communication_ns": 10,
                "unclassified_ns": 2,
                "exposed_copy_ns": 6,
                "idle_ns": 12,
            },
            {
                "span_ns": 40,
                "compute_ns": 30,
                "exposed_communication_ns": 8,
                "unclassified_ns": 0,
                "exposed_copy_ns": 0,
                "idle_ns": 2,
            },
        ],
        "stragglers": [{"host": f"h{n // 2}", "root_share": n / 28} for n in range(8)],
        "diagnose": [
            finding("sync", [0, 1], 0.05),
            finding("straggler", [2], 0.2),
            finding("slow-host", [2, 3, 0], 0.1),
            finding("jitter", list(range(6)), 0.3),
            finding("missing-rank", [6], None),
            finding("fusion", [6], 0.0, opportunity=0.4),
        ],
    }

    def ask(_run, recipe, **_options):
        if isinstance(found[recipe], Exception):
            raise found[recipe]
        return Answer(pa.Table.from_pylist(found[recipe]), ())

    monkeypatch.setattr("alltrace.recipes.execution.ask.ask", ask)
    return found


def test_a_run_has_its_steps_devices_losses_and_slow_hosts(run, answers):
    row = rows_of(run).run
    assert (row["steps"], row["step_ns"], row["ranks"], row["hosts"], row["start_utc_ns"]) == (2, 120, 8, 4, None)
    shares = [row[f"{c}_percent"] for c in ("compute", "exposed_communication", "exposed_copy", "idle")]
    assert shares == [60.0, 20.0, 6.0, 14.0]
    assert row["lost_percent"] == pytest.approx(65)
    rows = {h["host"]: h for h in rows_of(run).hosts}
    assert {h: (r["slow"], r["kind"]) for h, r in rows.items()} == {
        "h0": (True, "slow-host"),  # which costs more than the other finding about it
        "h1": (True, "straggler"),
        "h2": (False, None),
        "h3": (False, None),  # what a missing rank costs is not known
    }
    assert [rows[f"h{n}"]["blame_percent"] for n in range(4)] == pytest.approx(
        [100 / 28, 500 / 28, 900 / 28, 1300 / 28]
    )
    findings = rows_of(run).findings
    assert [(f["place"], f["kind"], f["hosts"]) for f in findings][1:] == [
        (1, "straggler", ["h1"]),
        (2, "slow-host", ["h0", "h1"]),
        (3, "jitter", []),
        (4, "missing-rank", ["h3"]),
    ]


def test_on_one_host_no_host_is_slow(tmp_path, answers):
    one = make_run(tmp_path / "one", {r: {"kernels": [kernel(0, 100)]} for r in range(2)})
    assert [h["slow"] for h in rows_of(one).hosts] == [None]


def test_what_cannot_be_asked_is_null_and_damage_is_an_error(run, answers):
    answers.update(steps=UsageError("not imported"), stragglers=UsageError("not imported"), breakdown=[], diagnose=[])
    found = rows_of(run)
    empty = ("step_ns", "compute_percent", "lost_percent")
    assert [found.run[c] for c in empty] == [None] * 3
    assert {h["blame_percent"] for h in found.hosts} == {None}
    answers["steps"] = DamageError("x", found="damaged")
    with pytest.raises(DamageError):
        rows_of(run)


def test_a_run_is_its_reports_in_any_order(run):
    manifest = run.manifest
    assert run_id(manifest) == run_id(replace(manifest, reports=manifest.reports[::-1], notes=("x",)))
    assert run_id(manifest) != run_id(replace(manifest, reports=manifest.reports[1:]))

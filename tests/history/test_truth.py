"""Simulated runs with known faults: what history says of them together, and the gate."""

import json
from dataclasses import replace

import pytest

from alltrace.cli.main import main
from alltrace.run.importer import import_reports
from alltrace.run.manifest import Labels, read_manifest, write_manifest
from alltrace.synth import write_run

pytestmark = pytest.mark.slow

SLOW = "slow-host:hosts=1:factor=1.25"
UTC_NS = 1_772_368_200_000_000_000
HOUR_NS = 3_600_000_000_000


def simulated(folder, number, faults, job):
    """A run of 3 hosts with 2 ranks each that began `number` hours after the first; gives the names of its hosts."""
    truth = write_run(
        "healthy",
        folder / "reports" / str(number),
        ranks=6,
        hosts=3,
        steps=5,
        seed=number,
        nvtx=True,
        faults=faults,
        ideal=True,
    )
    run = folder / "runs" / f"run{number}"
    import_reports([str(folder / "reports" / str(number))], run, jobs=1, labels=Labels(job))
    write_manifest(run, replace(read_manifest(run), zero_utc_ns=UTC_NS + number * HOUR_NS))
    return [h["host"] for h in truth.hosts]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Six runs of two jobs in which the second host is slow, and then one whose ranks are all slower and one like the
    first six."""
    made = tmp_path_factory.mktemp("history")
    for number in range(6):
        hosts = simulated(made, number, (SLOW,), "other" if number == 2 else "train")
    (made / "hosts").write_text(json.dumps(hosts))
    (made / "runs").rename(made / "first")
    (made / "runs").mkdir()
    simulated(made, 6, ("slow-host:hosts=1:factor=1.4",), "train")
    simulated(made, 7, (SLOW,), "train")
    return made


def asked(folder, *arguments, code=0):
    place = folder / "answer.json"
    assert main([*arguments, "--format", "json", "-o", str(place)]) == code
    return json.loads(place.read_text())


def test_the_host_that_is_slow_in_six_runs_is_found(folder, capsys):
    command = ["history", str(folder / "first"), "--history", str(folder / "h.duckdb"), "--by", "host"]
    told = asked(folder, *command)
    assert "6 runs read, 0 unchanged" in capsys.readouterr().err
    assert asked(folder, *command) == told
    assert "0 runs read, 6 unchanged" in capsys.readouterr().err  # although reading has aligned them
    _, slow, _ = json.loads((folder / "hosts").read_text())
    assert told["run"] == {"runs": 6}
    first, *others = told["rows"]
    assert (first["host"], first["runs"], first["slow_runs"], first["kind"], first["slow_jobs"]) == (
        slow,
        6,
        6,
        "slow-host",
        2,
    )
    assert [r["slow_runs"] for r in others] == [0, 0]
    assert first["blame_percent"] > 80
    found = asked(folder, "history", "--history", str(folder / "h.duckdb"), "--by", "finding", "--job", "train")[
        "rows"
    ][0]
    assert (found["kind"], found["runs"], found["hosts"]) == ("slow-host", 5, [slow])


def test_a_run_slower_than_the_spread_breaches(folder, capsys):
    history = str(folder / "h.duckdb")
    assert main(["history", str(folder / "first"), "--history", history]) == 0
    slower, like = (str(folder / "runs" / f"run{n}") for n in (6, 7))
    rows = {r["name"]: r for r in asked(folder, "check", slower, "--against", history, code=1)["rows"]}
    assert rows["step_ns"]["verdict"] == "breached"
    assert 1.05 < rows["step_ns"]["value"] / rows["step_ns"]["baseline"] < 1.2
    assert "step_ns: " in capsys.readouterr().err
    rows = asked(folder, "check", like, "--against", history)["rows"]
    assert {r["verdict"] for r in rows} == {"held"}
    assert rows[0]["check"] == "step_ns <= median + 4 spreads of 5 earlier runs of train on 6 ranks and 3 hosts"
    few = "the history has 1 such run, and the comparison needs 5 or more"
    against = ("check", like, "--against", history, "--job", "other")
    told = asked(folder, *against)
    assert [(row["verdict"], row["why"]) for row in told["rows"]] == [("skipped", few)]
    assert told["notes"] == [f"earlier runs: skipped, for {few}; --require-history makes this a failure"]
    (row,) = asked(folder, *against, "--require-history", code=1)["rows"]
    assert (row["verdict"], row["why"]) == ("unknown", few)
    both = folder / "budget.toml"
    both.write_text("limits = ['compute_percent >= 1']\n")
    rows = asked(folder, "check", like, "--against", history, "--budget", str(both))["rows"]
    assert [r["name"] for r in rows][:2] == ["compute_percent >= 1", "step_ns"]


def test_a_run_is_not_compared_with_itself_or_later_ones(folder):
    history = str(folder / "all.duckdb")
    assert main(["history", str(folder / "first"), str(folder / "runs"), "--history", history]) == 0
    (few,) = asked(folder, "check", str(folder / "first" / "run5"), "--against", history, "--require-history", code=1)[
        "rows"
    ]
    assert few["value"] == 4  # of its job began before it, though the history has six others
    told = asked(folder, "history", "--history", history, "--job", "train")["rows"]
    assert [r["verdict"] for r in told] == [None] * 5 + ["slower", "usual"]

"""Matrices against plain loops over the members of instances."""

from collections import Counter

import pytest
from tests.making import make_run

from alltrace.align.store import aligned
from alltrace.synth import write_run
from alltrace.tiles.matrix import Matrices
from alltrace.trace.errors import UsageError


@pytest.fixture(scope="module", params=["healthy", "pipeline"])
def alignment(request, tmp_path_factory):
    from alltrace.run.importer import import_reports
    from alltrace.run.store import Run

    folder = tmp_path_factory.mktemp(request.param)
    write_run(request.param, folder / "reports", ranks=4, hosts=2, steps=3, ideal=True)
    import_reports([str(folder / "reports")], folder / "run", jobs=1)
    return request.param, aligned(Run(folder / "run"))


def test_a_matrix_is_the_sum_over_instances(alignment):
    scenario, of = alignment
    found = Matrices(of)
    waits, messages, collectives = Counter(), Counter(), Counter()
    by_instance = {}
    for row in of.members.to_pylist():
        by_instance.setdefault(row["instance"], []).append(row)
    for rows in by_instance.values():
        for a in rows:
            waits[a["rank"], a["last_rank"]] += a["wait_ns"] if a["fact"] else 0
            for b in rows:
                if a is b:
                    continue
                if (a["op"], b["op"]) in (("Send", "Recv"), ("SendRecv", "SendRecv")):
                    messages[a["rank"], b["rank"]] += a["bytes"]
                elif a["op"] not in ("Send", "Recv", "SendRecv"):
                    collectives[a["rank"], b["rank"]] += a["bytes"] or 0
    hosts = {r.rank: of.run.hosts.index(r.host) for r in of.run.ranks}
    assert bool(messages) == (scenario == "pipeline")
    for measure, expected in (("wait_ns", waits), ("message_bytes", messages), ("collective_bytes", collectives)):
        matrix = found.of(measure, "rank")
        assert {(a, b): v for (a, b), v in expected.items() if v} == {
            (a, b): int(matrix[a, b]) for a in range(4) for b in range(4) if matrix[a, b]
        }
        by_host = Counter()
        for (a, b), v in expected.items():
            by_host[hosts[a], hosts[b]] += v
        grouped = found.of(measure, "host")
        assert all(grouped[a, b] == by_host[a, b] for a in range(2) for b in range(2))
        told = found.facts(measure, "rank")
        assert told["total"] == matrix.sum()
        assert [p["value"] for p in told["pairs"]] == sorted((v for v in expected.values() if v), reverse=True)


def test_what_cannot_be_told_is_refused(tmp_path, monkeypatch):
    run = make_run(tmp_path / "run", {0: {}, 1: {}})
    found = Matrices(aligned(run))
    assert found.facts("wait_ns", "rank") == {"labels": [0, 1], "total": 0, "most": 0, "pairs": []}
    with pytest.raises(UsageError, match="measure"):
        found.of("x", "rank")
    with pytest.raises(UsageError, match="way to group"):
        found.of("wait_ns", "x")
    monkeypatch.setattr("alltrace.tiles.matrix.MOST_RANKS", 1)
    with pytest.raises(UsageError, match="2 ranks; expected 1 at most"):
        found.of("wait_ns", "rank")
    assert found.of("wait_ns", "host").shape == (1, 1)

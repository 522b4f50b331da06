"""Logs joined with simulated runs with known truth."""

from __future__ import annotations

import gzip
from collections import Counter
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest

from alltrace.align.log_join import finish
from alltrace.align.schema import Group, Joined
from alltrace.align.store import aligned
from alltrace.recipes.execution.ask import ask
from alltrace.run.importer import import_reports
from alltrace.run.manifest import LogMatch, read_manifest
from alltrace.run.overlay import MEMBERS, collectives_file
from alltrace.run.store import Run
from alltrace.synth import write_run
from alltrace.synth.identity import identities
from alltrace.synth.scenarios import scenario_named
from alltrace.synth.simulate import simulate
from alltrace.synth.write_logs import TRAINING_LOG, LogForm, write_logs
from alltrace.trace.names import name_id
from alltrace.trace.schema import TABLES

EXCHANGES = {"Send", "Recv", "SendRecv", "AllToAll", "AlltoAll"}


def joined(folder, name, form=None, *, drop=(), other=None, training=False, **changes):
    """A simulated run imported with its logs: the alignment and the true collectives.

    Args:
        folder: Where to.
        name: The scenario.
        form: How the logs are written.
        drop: Ranks whose logs are left out.
        other: Changes that make the logs another run's.
        training: Whether the training log is given too.
        changes: Changes of the scenario.
    """
    write_run(name, folder / "reports", **changes, ideal=True)
    truth = pq.read_table(folder / "reports" / "truth_collectives.parquet")
    scenario = scenario_named(name).override(**{**changes, **(other or {})}, ideal=True)
    people = identities(scenario)
    paths = write_logs(simulate(scenario), people, folder / "logs", form)
    paths = [str(p) for n, p in enumerate(paths) if n not in drop]
    more = {"training_logs": [str(folder / "logs" / TRAINING_LOG)]} if training else {}
    import_reports([str(folder / "reports")], folder / "run", jobs=1, nccl_logs=paths, **more)
    return aligned(Run(folder / "run")), truth


def judged(alignment, truth):
    """Operations, those with a size, and those whose size is wrong; a rank's kernels stand in the order of their true
    arrivals."""
    rows = filled = wrong = 0
    for record in alignment.run.ranks:
        own = alignment.collectives(record.rank)
        own = own.filter(pc.is_valid(own["start"])).sort_by("start")
        mine = truth.filter(pc.and_(pc.equal(truth["rank"], record.rank), truth["recorded"])).sort_by("arrival_ns")
        by_op = {}
        for side, (table, ops) in enumerate(((own, alignment.run.texts(own["op"])), (mine, mine["op"]))):
            for op, size in zip(ops.to_pylist(), table["bytes"].to_pylist(), strict=True):
                by_op.setdefault("exchange" if op in EXCHANGES else op, ([], []))[side].append(size)
        for op, (found, true) in by_op.items():
            assert len(found) == len(true)
            rows += len(found)
            filled += sum(f is not None for f in found)
            # an exchange among all is told by what it sends to all
            wrong += sum(
                f is not None and (f % t != 0 if op == "exchange" else f != t) for f, t in zip(found, true, strict=True)
            )
    return rows, filled, wrong


def shares(alignment):
    matches = alignment.run.manifest.log_matches
    return [m.matched / max(m.covered, 1) for m in matches if m.reason is None]


@pytest.mark.sampled(5)
@pytest.mark.parametrize(
    ("name", "changes"),
    [
        ("healthy", {"ranks": 4, "steps": 4}),
        ("tensor-data", {"ranks": 8, "steps": 3}),
        ("sharded", {"ranks": 4, "steps": 3}),
        ("pipeline", {"steps": 2}),
        ("experts", {"steps": 1, "layers": 4, "grouped_all_to_all": True}),
    ],
)
def test_reports_of_kernels_alone_get_all_from_logs(tmp_path, name, changes):
    alignment, truth = joined(tmp_path, name, nvtx=False, **changes)
    rows, filled, wrong = judged(alignment, truth)
    assert filled == rows > 0
    assert wrong == 0
    assert shares(alignment) == [1.0] * len(alignment.run.ranks)
    groups = {tuple(sorted(r)) for r in groups_of(truth).values()}
    assert {g.ranks for g in alignment.groups} == groups
    assert all(g.name.startswith("0x") and g.size == len(g.ranks) for g in alignment.groups)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "changes"),
    [
        ("healthy", {"ranks": 4, "steps": 4}),
        ("tensor-data", {"ranks": 8, "steps": 3}),
        ("sharded", {"ranks": 4, "steps": 3}),
        ("pipeline", {"steps": 2}),
        ("experts", {"steps": 1, "layers": 4, "grouped_all_to_all": True}),
    ],
)
def test_opcounts_that_do_not_count_join_as_well(tmp_path, name, changes):
    """All calls of a communicator have one opCount, so that what was launched together does not show."""
    alignment, truth = joined(tmp_path, name, LogForm(counted=False), nvtx=False, **changes)
    rows, filled, wrong = judged(alignment, truth)
    assert wrong == 0
    # launches of several sends to one peer, which pipelines have, cannot be told from several launches
    assert filled >= 0.95 * rows if name == "pipeline" else filled == rows
    assert min(shares(alignment)) > 0.9


def groups_of(truth):
    found = {}
    for name, rank in zip(truth["group"].to_pylist(), truth["rank"].to_pylist(), strict=True):
        found.setdefault(name, set()).add(rank)
    return found


@pytest.mark.slow
def test_peers_of_sends_and_receives_are_filled(tmp_path):
    alignment, _truth = joined(tmp_path, "pipeline", nvtx=False, steps=2)
    table = alignment.collectives(0)
    ops = alignment.run.texts(table["op"]).to_pylist()
    found = Counter((o, p) for o, p in zip(ops, table["peer"].to_pylist(), strict=True) if o in ("Send", "Recv"))
    assert set(found) == {("Send", 1), ("Recv", 1)}
    assert set(alignment.run.texts(table["datatype"]).to_pylist()) == {"bfloat16"}
    assert set(table["group_size"].to_pylist()) == {2, 4}


@pytest.mark.slow
@pytest.mark.sampled(3)
@pytest.mark.parametrize(
    ("form", "dropped"),
    [
        (LogForm(together=True, cut_share=0.02, interleaved_share=0.03, zone_hours=2), 0.02),
        (LogForm(stamped=False), 0.05),
        (LogForm(together=True, stamped=False, cut_share=0.05, interleaved_share=0.05), 0.0),
    ],
)
def test_events_and_lines_that_are_missing_make_nothing_wrong(tmp_path, form, dropped):
    alignment, truth = joined(tmp_path, "tensor-data", form, ranks=8, steps=4, nvtx=False, dropped_share=dropped)
    rows, filled, wrong = judged(alignment, truth)
    assert wrong == 0
    assert filled >= 0.6 * rows
    assert min(shares(alignment)) > 0.85


def test_a_log_is_longer_than_the_reports(tmp_path):
    faults = ("cut-short:ranks=0,1,2,3:share=0.5",)
    alignment, truth = joined(tmp_path, "sharded", LogForm(stamped=False), ranks=4, steps=8, nvtx=False, faults=faults)
    rows, filled, wrong = judged(alignment, truth)
    assert (filled, wrong) == (rows, 0)
    match = alignment.run.manifest.log_matches[0]
    assert match.matched == match.operations < 0.6 * match.calls


def test_a_rank_without_a_log_gets_sizes_from_the_others(tmp_path):
    alignment, truth = joined(tmp_path, "sharded", drop=(2,), ranks=4, steps=3, nvtx=False)
    rows, filled, wrong = judged(alignment, truth)
    assert (filled, wrong) == (rows, 0)
    match = alignment.run.manifest.log_matches[2]
    assert match.reason == "it has no log"
    assert match.from_others == match.operations == 36 * 3
    assert any("got their size from the same operation on other ranks" in n for n in alignment.notes)


@pytest.mark.sampled(2)
@pytest.mark.parametrize("stamped", [True, False])
def test_the_log_of_another_run_fills_nothing(tmp_path, stamped):
    form = LogForm(stamped=stamped)
    alignment, truth = joined(tmp_path, "sharded", form, other={"seed": 77, "layers": 4}, ranks=4, steps=3, nvtx=False)
    assert judged(alignment, truth)[1] == 0
    matches = read_manifest(alignment.run.path).log_matches
    assert [m.filled for m in matches] == [0] * 4
    assert all(m.reason for m in matches)
    assert any(n.startswith("NCCL's logs were not joined with ranks 0-3") for n in alignment.notes)


def test_sizes_in_the_trace_win_over_a_log_that_disagrees(tmp_path):
    write_run("sharded", tmp_path / "reports", ranks=4, steps=3, ideal=True)
    scenario = scenario_named("sharded").override(ranks=4, steps=3, ideal=True)
    logs = write_logs(simulate(scenario), identities(scenario), tmp_path / "logs")
    text = logs[1].read_text().splitlines(keepends=True)
    at = [n for n, line in enumerate(text) if "AllGather: opCount" in line][40]
    text[at] = text[at].replace("count 8333333 ", "count 4096 ")
    logs[1].write_text("".join(text))
    import_reports([str(tmp_path / "reports")], tmp_path / "run", jobs=1, nccl_logs=[str(p) for p in logs])
    alignment = aligned(Run(tmp_path / "run"))
    assert [m.disagreeing for m in alignment.run.manifest.log_matches] == [0, 1, 0, 0]
    assert {b for r in range(4) for b in alignment.collectives(r)["bytes"].to_pylist()} == {8333333}


def test_the_match_is_in_the_manifest_and_an_import_without_logs_takes_it_away(tmp_path):
    joined(tmp_path, "healthy", ranks=4, steps=4, nvtx=False)
    manifest = read_manifest(tmp_path / "run")
    assert [(log.kind, log.records) for log in manifest.logs] == [("nccl", 16)] * 4
    assert [(m.rank, m.found_by, m.matched, m.operations) for m in manifest.log_matches] == [
        (r, "process", 16, 16) for r in range(4)
    ]
    import_reports([str(tmp_path / "reports")], tmp_path / "run", jobs=1)
    again = aligned(Run(tmp_path / "run"))
    assert again.run.manifest.logs == again.run.manifest.log_matches == ()
    assert again.collectives(0)["bytes"].null_count == 16


def test_logs_that_break_off_are_told(tmp_path):
    write_run("healthy", tmp_path / "reports", ranks=4, steps=4, ideal=True)
    scenario = scenario_named("healthy").override(ranks=4, steps=4, ideal=True)
    logs = write_logs(simulate(scenario), identities(scenario), tmp_path / "logs")
    for log in logs[1:3]:
        log.write_bytes(gzip.compress(log.read_bytes())[:-20])
    import_reports([str(tmp_path / "reports")], tmp_path / "run", jobs=1, nccl_logs=[str(p) for p in logs])
    assert [n for n in read_manifest(tmp_path / "run").notes if "ends early" in n] == [
        f"{logs[1]}: the gzip data ends early; everything before was read; the same applies to 1 more NCCL logs"
    ]


def test_a_run_of_one_rank_is_joined_too(tmp_path):
    faults = ("missing-rank:ranks=1,2,3",)
    alignment, truth = joined(tmp_path, "healthy", ranks=4, steps=4, nvtx=False, faults=faults)
    assert judged(alignment, truth) == (16, 16, 0)


@pytest.mark.slow
def test_the_questions_use_what_the_logs_tell(tmp_path):
    """Kernels alone have no sizes, so no bandwidth; with logs the slow communicator has the name that NCCL prints."""
    faults = ("slow-communicator:communicators=data 2:factor=3.0",)
    alignment, _truth = joined(tmp_path, "tensor-data", ranks=8, steps=6, nvtx=False, faults=faults)
    rows = ask(alignment.run, "collectives").table.to_pylist()
    assert {(r["op"], r["bytes"], r["group_size"]) for r in rows} == {
        ("AllReduce", 8388608, 4),
        ("AllReduce", 25000000, 2),
    }
    assert all(r["busbw_gb_per_s"] > 1 and r["communicator"].startswith("0x") for r in rows)
    with_logs = [r for r in ask(alignment.run, "diagnose").table.to_pylist() if r["kind"] == "slow-communicator"]
    assert [(r["ranks"], r["where"][:2]) for r in with_logs] == [([2, 6], "0x")]
    import_reports([str(tmp_path / "reports")], tmp_path / "bare", jobs=1)
    bare = Run(tmp_path / "bare")
    assert [r["busbw_gb_per_s"] for r in ask(bare, "collectives").table.to_pylist()] == [None] * 6
    without = [r for r in ask(bare, "diagnose").table.to_pylist() if r["kind"] == "slow-communicator"]
    assert [(r["ranks"], r["where"].split()[0]) for r in without] == [([2, 6], "inferred")]


def finished(folder, sizes, members, groups=(), **columns):
    """What `finish` makes of operations with these sizes, a list for each rank, and members (rank, instance, row,
    communicator)."""
    (folder / "collectives").mkdir(parents=True)
    declared = TABLES["collectives"].arrow_schema()
    for rank, own in enumerate(sizes):
        same = {"op": name_id("AllReduce"), "evidence": "kernel"} | {c: v[rank] for c, v in columns.items()}
        rows = [same | {"bytes": size} for size in own]
        pq.write_table(pa.Table.from_pylist(rows, declared), folder / collectives_file(rank))
    at = [dict(zip(("rank", "instance", "row", "communicator"), m, strict=True)) for m in sorted(members)]
    tables = [
        pa.Table.from_pylist([m for m in at if m["rank"] == r], MEMBERS.arrow_schema()) for r in range(len(sizes))
    ]
    ordinal = np.zeros(max((m["instance"] + 1 for m in at), default=0), np.int64)
    known = Joined({"0xa", "0xb"}, [LogMatch(r, "process", 1, 1) for r in range(len(sizes))])
    found = finish(known, folder, SimpleNamespace(groups=groups, ordinal=ordinal, tables=lambda: tables))
    filled = [pq.read_table(folder / collectives_file(r)).column("bytes").to_pylist() for r in range(len(sizes))]
    return found, filled, [m.from_others for m in known.matches]


def test_only_sizes_on_which_all_others_agree_are_taken(tmp_path):
    sizes = [[8, 8, None, 4], [None, None, None, None], [8, 9, None, 4]]
    members = [(rank, instance, instance, 0) for rank in range(3) for instance in range(3)]
    _, filled, given = finished(tmp_path / "collective", sizes, members)
    assert filled == [[8, 8, None, 4], [8, None, None, None], [8, 9, None, 4]]
    assert given == [0, 1, 0]
    _, filled, given = finished(tmp_path / "message", sizes, members, op=[name_id("Send")] * 3)
    assert (filled, given) == (sizes, [0, 0, 0])
    assert finished(tmp_path / "none", sizes, [])[1:] == (sizes, [0, 0, 0])


def test_a_communicator_that_was_inferred_gets_the_name_on_which_logs_agree(tmp_path):
    members = [(rank, instance, instance, 0) for rank in range(3) for instance in range(2)]
    inferred = Group(0, "inferred 0", (0, 1, 2), 3, "structure")
    agreed = {"communicator": [name_id("0xa")] * 3, "group_size": [4, 5, 4]}
    (groups, _), _, _ = finished(tmp_path / "agreed", [[1, 1]] * 3, members, [inferred], **agreed)
    assert groups == (replace(inferred, name="0xa", size=5, found_by="logs"),)
    split = {"communicator": [name_id("0xa"), name_id("0xb"), name_id("0xa")]}
    assert finished(tmp_path / "split", [[1, 1]] * 3, members, [inferred], **split)[0][0] == (inferred,)
    named = replace(inferred, name="0xd", found_by="ids")
    assert finished(tmp_path / "named", [[1, 1]] * 3, members, [named], **agreed)[0][0] == (named,)
    both = [replace(inferred, number=1, name="0xa"), inferred]
    assert finished(tmp_path / "taken", [[1, 1]] * 3, members, both, **agreed)[0][0] == tuple(both)

"""Real traces: every event that `json` finds is in its table, and a planted straggler is found."""

from __future__ import annotations

from collections import Counter

import pytest

from alltrace.api import open_run
from alltrace.readers.kineto.categories import ROLES
from alltrace.readers.registry import open_report
from alltrace.trace.kernel_families import OTHER, family_in_name
from alltrace.trace.kernel_rules import COMMUNICATION, built_in_rules

from .planted import RANKS, SOURCE, load, plant

pytestmark = pytest.mark.corpus

TABLE_OF_ROLE = {
    1: "kernels",
    2: "copies",
    3: "copies",
    4: "api",
    5: "api",
    6: "syncs",
    7: "ranges",
    8: "ranges",
    10: "overheads",
}
NAMES = f"""
{SOURCE} hta/timeline_analysis__sampled_rank-0.json.gz hta/rank_unavailable__rank_not_found.json.gz
tracelens/b200__eager_trace.json.gz tracelens/h100__Qwen_Qwen1.5-0.5B-Chat__1016005.json.gz
tracelens/inference__vllm_decode_full__graph_execution.json.gz tracelens/mi300__resnet_act_checkpoint.json.gz
""".split()


@pytest.mark.sampled(4)
@pytest.mark.parametrize("name", NAMES)
def test_every_event_is_there(corpus, name):
    path = corpus / "kineto" / name
    events = [e for e in load(path)["traceEvents"] if e.get("ph") == "X"]
    expected = Counter(
        TABLE_OF_ROLE[ROLES[c]] for e in events if (c := e["cat"].lower()) in ROLES and c != "python_function"
    )
    expected["ranges"] += sum(e["name"].startswith("nn.Module: ") for e in events if e["cat"] == "python_function")
    kernels = [e for e in events if e["cat"] == "kernel"]
    reader = open_report(path)
    found = Counter()
    total = streams = 0
    for table, batch in reader.stream(tuple(set(TABLE_OF_ROLE.values()))):
        found[table] += batch.num_rows
        if table == "kernels":
            rows = batch.to_pylist()
            total += sum(r["end"] - r["start"] for r in rows)
            streams += sum(r["stream"] for r in rows)
    assert not reader.report.warnings or "baseTimeNanoseconds" in reader.report.warnings[0].text
    reader.close()
    assert +found == +expected
    assert total == sum(round(e["dur"] * 1000) for e in kernels)
    assert streams == sum(e["args"]["stream"] for e in kernels)


def test_calls_of_process_groups_become_collectives(corpus):
    reader = open_report(corpus / "kineto" / "tracelens/mi300__resnet_act_checkpoint.json.gz")
    rows = [r for _, b in reader.stream(("collectives",)) for r in b.to_pylist()]
    names = reader.dictionaries()["names"]
    reader.close()
    texts = dict(zip(names.column("id").to_pylist(), names.column("value").to_pylist(), strict=True))
    assert {texts[r["communicator"]] for r in rows} == {"pg 0 [0, 1, 2, 3, 4, 5, 6, 7]"}
    assert Counter(texts.get(r["op"]) for r in rows) == {
        "AllReduce": 6,
        "Broadcast": 6,
        None: 5,
    }  # 5 were called before the capture
    assert rows[-1]["bytes"] == 8816192 * 2


@pytest.mark.slow
def test_the_planted_straggler_is_named_whatever_the_clocks(corpus, tmp_path):
    """Ends equal in true time, rank 2 arrives last, the clocks up to 300 microseconds apart."""
    _, offsets_us = plant(corpus / "kineto" / SOURCE, tmp_path, apart_us=300)
    run = open_run(tmp_path, cache_dir=tmp_path / "cache")
    assert [r.rank for r in run.ranks] == list(range(RANKS))
    aligned = run.aligned()
    assert [c.offset_ns for c in aligned.clocks] == [o * 1000 for o in offsets_us]
    members = aligned.members.to_pylist()
    long = [m for m in members if m["last_end_ns"] - m["first_arrival_ns"] > 50_000]
    last = Counter(m["last_rank"] for m in long)
    assert last[2] > 0.95 * last.total()
    waits = Counter()
    for m in members:
        waits[m["rank"]] += m["wait_ns"]
    assert min(waits, key=waits.__getitem__) == 2
    rows = run.recipe("stragglers").to_pylist()
    assert (rows[0]["rank"], rows[0]["pattern"], rows[0]["waited_ns"]) == (2, "recurring", 0)
    assert rows[0]["caused_percent"] > 99
    assert [r["ranks"] for r in run.recipe("diagnose").to_pylist() if r["kind"] == "straggler"] == [[2]]


def test_two_ranks_whose_operations_match_nothing_are_answered(corpus, tmp_path):
    """Two ranks of a job of 128, whose communicators do not meet."""
    names = ("timeline_analysis__sampled_rank-0", "trace_filter__sampled_rank-1")
    run = open_run(*(corpus / "kineto" / "hta" / f"{n}.json.gz" for n in names), cache_dir=tmp_path)
    assert [r.rank for r in run.ranks] == [0, 1]
    assert len(run.recipe("breakdown").to_pylist()) == 2
    assert run.recipe("collectives").notes


AMD = (
    "tracelens/mi300__resnet_act_checkpoint",
    *(
        f"tracelens_evals/{n}"
        for n in (
            "elem_01_add_poor_bw",
            "gemm_01_compute_few_tiles",
            "gemm_03_compute_misaligned",
            "sdpa_01_long_seq_low_eff",
            "sdpa_03_short_seq_overhead",
        )
    ),
)


@pytest.mark.parametrize("name", AMD)
def test_kernels_of_amd_traces_have_a_family_or_communicate(corpus, name):
    """By time, less than a twentieth is of no family, and what counts as communication is RCCL's."""
    lasted = Counter()
    for event in load(corpus / "kineto" / f"{name}.json.gz")["traceEvents"]:
        if event.get("ph") == "X" and event.get("cat") == "kernel":
            lasted[event["name"]] += event["dur"]
    communicates = {n for n in lasted if built_in_rules().kind(n) in COMMUNICATION}
    assert all("nccl" in n.lower() for n in communicates)
    computes = {n: t for n, t in lasted.items() if n not in communicates}
    other = sum(
        t for n, t in computes.items() if family_in_name(n) in (None, OTHER) or built_in_rules().kind(n) != "compute"
    )
    assert other < 0.05 * sum(computes.values())

"""HTA's answers on real traces compared with ours: equal, or different for the reason in docs/hta-differences.md."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path

import pytest
from tests.readers.kineto.planted import LATE, SOURCE, load, plant

from alltrace.api import open_run
from alltrace.recipes.questions.diff import compare

pytestmark = [pytest.mark.corpus, pytest.mark.oracle]

TRACES = ("hta/df_index_resolver__df_index_resolver", "hta/timeline_analysis__sampled_rank-0")
ASKS = Path(__file__).parents[2] / "benchmarks" / "hta_answers.py"


@pytest.fixture(scope="module")
def hta():
    """Asks HTA: what `benchmarks/hta_answers.py` prints."""
    python = os.environ.get("ALLTRACE_HTA")
    if not python:
        pytest.skip("no HTA: set ALLTRACE_HTA to a Python that has HolisticTraceAnalysis")

    def ask(*words):
        command = [python, str(ASKS), *map(str, words)]
        done = subprocess.run(command, stdout=subprocess.PIPE, check=True, env={"PATH": os.environ["PATH"]})
        return json.loads(done.stdout.splitlines()[-1])

    return ask


@pytest.fixture(scope="module", params=TRACES)
def both(request, hta, corpus, tmp_path_factory):
    """HTA's answers and the run of one trace, whose times are whole microseconds."""
    trace = corpus / "kineto" / f"{request.param}.json.gz"
    return hta(trace), open_run(trace, cache_dir=tmp_path_factory.mktemp("cache"))


def us(ns):
    return ns / 1000


def test_the_temporal_breakdown_is_equal_but_for_where_copies_go(both):
    theirs, run = both
    (row,) = run.recipe("breakdown").to_pylist()
    others = row["exposed_communication_ns"] + row["exposed_copy_ns"]
    found = {
        "idle": us(row["idle_ns"]),
        "compute": us(row["compute_ns"]),
        "non_compute": us(others),
        "kernel": us(row["span_ns"]),
    }
    assert found == theirs["temporal"]
    (overlap,) = run.recipe("overlap").to_pylist()
    assert round(overlap["overlap_percent"], 2) == theirs["overlap"]


def test_idle_time_by_stream_and_cause_is_equal(both):
    theirs, run = both
    found = {}
    for row in run.recipe("idle", by="stream").to_pylist():
        assert row["unknown_ns"] == 0
        host = row["host_sync_ns"] + row["host_ns"] + row["launch_ns"]
        for cause, ns in (("host_wait", host), ("kernel_wait", row["kernel_wait_ns"]), ("other", row["dependency_ns"])):
            found[f"{row['stream']} {cause}"] = us(ns)
    assert {k: v for k, v in found.items() if v} == {k: v for k, v in theirs["idle"].items() if v}


def test_launch_statistics_are_equal(both):
    theirs, run = both
    (row,) = run.recipe("launches").to_pylist()
    means = {m: us(row[f"{m}_ns"]) for m in ("call_mean", "gpu_mean", "delay_mean")}
    assert {**{c: row[c] for c in ("launches", "short", "slow", "late")}, **means} == pytest.approx(theirs["launches"])


def test_queues_are_equal_once_hta_weighs_by_time(both):
    theirs, run = both
    found = {str(r["stream"]): r for r in run.recipe("launches", by="stream").to_pylist()}
    assert found.keys() == theirs["queue"].keys()
    for stream, (_, weighted, longest) in theirs["queue"].items():
        row = found[stream]
        assert row["max_length"] == longest
        assert row["mean_length"] == pytest.approx(weighted, rel=1e-3, abs=1e-6)


def test_bandwidth_peaks_are_not_higher_than_htas(both):
    theirs, run = both
    names = {"memset": "Memset"}
    for row in run.recipe("memory-bandwidth").to_pylist():
        _, peak = theirs["bandwidth"][names.get(row["kind"], f"Memcpy {row['kind']}")]
        assert row["busy_gb_per_s"] <= row["peak_gb_per_s"] * (1 + 1e-9)
        assert row["peak_gb_per_s"] <= 2 * peak


def changed(source, path):
    """The trace with kernels that are longer, fewer and called otherwise."""
    content = load(source)
    kernels = [e for e in content["traceEvents"] if e.get("cat") == "kernel"]
    names = sorted({e["name"] for e in kernels}, key=lambda n: -sum(e["dur"] for e in kernels if e["name"] == n))
    longer, fewer, other = names[:3]
    kept, seen = [], 0
    for event in content["traceEvents"]:
        if event.get("cat") == "kernel":
            if event["name"] == longer:
                event["dur"] += event["dur"] // 2
            elif event["name"] == fewer:
                seen += 1
                if seen % 2:
                    continue
            elif event["name"] == other:
                event["name"] = "another_kernel"
        kept.append(event)
    content["traceEvents"] = kept
    path.write_text(json.dumps(content), encoding="utf-8")
    return longer, fewer, other


def test_two_traces_compared(hta, corpus, tmp_path):
    """Of each kernel, copy, range and call the same counts and the same total time in both as by HTA's `TraceDiff`."""
    before, after = corpus / "kineto" / SOURCE, tmp_path / "after.json"
    longer, fewer, other = changed(before, after)
    theirs = hta("diff", before, after)
    runs = [open_run(p, cache_dir=tmp_path / "cache") for p in (before, after)]
    copies = {"memset": "Memset (Device)", "DtoD": "Memcpy DtoD (Device -> Device)"}
    ours = {}
    for row in compare(*runs).table.to_pylist():
        if row["what"] in ("kernel", "copy", "range", "call"):
            name = copies.get(row["name"], row["name"])
            ours[name] = [row["count_a"], row["count_b"], row["total_a_ns"] / 1000, row["total_b_ns"] / 1000]
    assert ours.pop("cudaDeviceSynchronize") == [
        1,
        1,
        24,
        24,
    ]  # the profiler's own, after the last step, which HTA leaves out
    assert ours == theirs
    assert ours[longer][3] > 1.4 * ours[longer][2]
    assert ours[fewer][1] == ours[fewer][0] // 2
    assert ours[other][1] == ours["another_kernel"][0] == 0


@pytest.mark.parametrize("apart_us", [0, 300])
def test_the_planted_straggler_is_named_where_hta_names_another(hta, corpus, tmp_path, apart_us):
    files, _ = plant(corpus / "kineto" / SOURCE, tmp_path, apart_us=apart_us)
    theirs = hta("stragglers", *files)
    assert len(theirs) == 1
    assert LATE not in theirs
    rows = open_run(tmp_path, cache_dir=tmp_path / "cache").recipe("stragglers").to_pylist()
    assert (rows[0]["rank"], rows[0]["waited_ns"]) == (LATE, 0)
    assert rows[0]["caused_percent"] > 99

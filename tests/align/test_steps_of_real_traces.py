"""The steps of real traces against the ranges that name them in the files themselves."""

from __future__ import annotations

import gzip
import json
import re
import sqlite3
from contextlib import closing

import pytest

import alltrace

pytestmark = pytest.mark.corpus
NAMED = re.compile(r"ProfilerStep#(?P<number>\d+)|execute_.*context_\d+.*")


def listed(path, folder):
    rows = alltrace.open(path, cache_dir=folder).recipe("steps").to_pylist()
    assert {r["source"] for r in rows} == {"range"}
    return [(r["step"], r["duration_ns"]) for r in rows]


@pytest.mark.sampled(6)
@pytest.mark.parametrize(
    ("name", "steps"),
    [
        ("hta/df_index_resolver__df_index_resolver", 5),
        ("hta/timeline_analysis__sampled_rank-0", 2),
        ("tracelens/mi300__resnet_act_checkpoint", 3),
        ("tracelens/h100__Qwen_Qwen1.5-0.5B-Chat__1016005", 1),
        ("tracelens/b200__eager_trace", 1),
        ("tracelens/inference__vllm_decode_full__graph_execution", 1),
    ],
)
def test_steps_of_pytorch_and_vllm(corpus, tmp_path, name, steps):
    path = corpus / "kineto" / f"{name}.json.gz"
    events = json.loads(gzip.decompress(path.read_bytes()))["traceEvents"]
    on_host = [e for e in events if "dur" in e and not str(e.get("cat", "")).startswith("gpu")]
    named = [(m["number"], e) for e in on_host if (m := NAMED.fullmatch(e["name"]))]
    wanted = sorted((int(number or 0), e["dur"] * 1000) for number, e in named)
    assert len(wanted) == steps
    assert listed(path, tmp_path) == [(n, pytest.approx(took, abs=2)) for n, took in wanted]


@pytest.mark.parametrize(
    "name", ["nersc_dali_fp32", "nersc_dali_bf16", "a100x4_ddp_baseline_nsys2022.4", "llm_nvtx_nsys2025"]
)
def test_steps_of_nvtx(corpus, tmp_path, name):
    path = corpus / "nsys" / f"{name}.sqlite"
    statement = (
        "SELECT coalesce(n.text, s.value), n.start, n.end FROM NVTX_EVENTS n LEFT JOIN StringIds s ON s.id = n.textId "
        "WHERE n.end IS NOT NULL"
    )
    with closing(sqlite3.connect(f"file:{path}?immutable=1", uri=True)) as database:
        rows = database.execute(statement).fetchall()
    found = [
        (m, end - start)
        for text, start, end in rows
        if (m := re.fullmatch(r"(?:Warm-up )?step (\d+)", text or "", re.IGNORECASE))
    ]
    assert listed(path, tmp_path) == sorted((int(m[1]), took) for m, took in found)
    assert len(found) >= 5

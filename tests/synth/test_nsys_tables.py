from __future__ import annotations

import json

import numpy as np
import pytest

from alltrace.synth import SCENARIOS
from alltrace.synth.identity import identities
from alltrace.synth.nsys_facts import Report
from alltrace.synth.nsys_tables import Table, build_tables
from alltrace.synth.simulate import simulate


def _report(name="tiny", rank=0, **changes):
    scenario = SCENARIOS[name].override(**changes, ideal=True)
    report = Report(simulate(scenario), identities(scenario)[rank], "r.sqlite")
    return report, build_tables(report)


def _texts(tables):
    return tables["StringIds"].columns["value"]


def test_kernels_copies_and_memsets_have_calls_names_and_shapes():
    report, tables = _report()
    calls = tables["CUPTI_ACTIVITY_KIND_RUNTIME"].columns
    texts = _texts(tables)
    name_of = {c: texts[n] for c, n in zip(calls["correlationId"].tolist(), calls["nameId"].tolist(), strict=True)}
    assert len(name_of) == tables["CUPTI_ACTIVITY_KIND_RUNTIME"].rows
    kernels = tables["CUPTI_ACTIVITY_KIND_KERNEL"].columns
    for correlation, stream in zip(kernels["correlationId"].tolist(), kernels["streamId"].tolist(), strict=True):
        assert name_of[correlation] == ("cudaLaunchKernel_v7000" if stream == 7 else "cudaLaunchKernelExC_v11060")
    assert {name_of[c] for c in tables["CUPTI_ACTIVITY_KIND_MEMCPY"].columns["correlationId"].tolist()} == {
        "cudaMemcpyAsync_v3020"
    }
    assert set(calls["globalTid"].tolist()) == set(report.global_tids.tolist())
    assert calls["globalTid"][0] >> 24 == kernels["globalPid"] >> 24
    columns, texts = tables["CUPTI_ACTIVITY_KIND_KERNEL"].columns, _texts(tables)
    nccl = columns["streamId"] == 13
    assert nccl.sum() == 4
    assert {texts[i] for i in columns["shortName"][nccl].tolist()} == {"ncclDevKernel_AllReduce_Sum_bf16_RING_LL"}
    assert all(not texts[i].startswith("nccl") for i in columns["demangledName"][~nccl].tolist())
    assert (columns["end"] - columns["start"]).min() > 0
    assert columns["start"].tolist() == report.identity.stamps(report.timeline.kernels["start"]).tolist()


def test_nccl_ranges_have_their_own_domain_and_a_payload():
    report, tables = _report("tensor-data", rank=4, steps=1)
    columns, texts = tables["NVTX_EVENTS"].columns, _texts(tables)
    types = np.array(columns["eventType"])
    assert (types == 75).sum() == 1
    assert columns["text"][types == 75].tolist() == ["NCCL"]
    assert np.array(columns["start"])[types == 75].item() == min(np.array(columns["start"])[types == 59]) - 1_000
    nccl = (np.array(columns["domainId"]) == report.nccl_domain) & (types == 59)
    names = [texts[i] for i in columns["textId"][nccl]]
    # the communicator of all ranks, of its data group and of its tensor group; 4 buckets and 12 layers shared twice
    assert (names.count("ncclCommInitRank"), names.count("ncclAllReduce")) == (3, 4 + 24)
    payloads = [json.loads(text) for text in columns["jsonText"][nccl]]
    hashes = {group.comm_hash for group in report.run.groups if 4 in group.ranks}
    assert {payload["NCCL communicator ID"] for payload in payloads} == hashes
    assert payloads[-1]["Message size [bytes]"] == 25_000_000
    plain = (np.array(columns["domainId"]) == 0) & (types == 59)
    assert [columns["text"][plain][0], set(columns["textId"][plain])] == ["step 0", {None}]


def test_a_run_without_ranges_and_one_in_disorder():
    _, tables = _report(nvtx=False, osrt=False)
    assert "NVTX_EVENTS" not in tables
    assert "OSRT_API" not in tables
    assert not [text for text in _texts(tables) if text.startswith("ncclAll")]
    _, ordered = _report(unordered=False)
    _, shuffled = _report(unordered=True)
    for name in ("CUPTI_ACTIVITY_KIND_RUNTIME", "NVTX_EVENTS", "CUPTI_ACTIVITY_KIND_KERNEL"):
        rows = [_rows(tables[name]) for tables in (ordered, shuffled)]
        assert rows[0] != rows[1]
        assert sorted(rows[0], key=repr) == sorted(rows[1], key=repr)


def _rows(table: Table):
    columns = [v.tolist() if isinstance(v, np.ndarray) else [v] * table.rows for v in table.columns.values()]
    return list(zip(*columns, strict=True))


def test_waits_streams_and_devices_are_numbered():
    _, tables = _report(steps=1)
    columns = tables["CUPTI_ACTIVITY_KIND_SYNCHRONIZATION"].columns
    assert columns["syncType"].tolist() == [2, 3]
    assert columns["streamId"].tolist() == [7, 7]
    assert _report("healthy", rank=5, steps=1)[1]["CUPTI_ACTIVITY_KIND_KERNEL"].columns["deviceId"] == 5
    hidden = _report("healthy", rank=5, steps=1, visible_devices=True)[1]
    assert hidden["CUPTI_ACTIVITY_KIND_KERNEL"].columns["deviceId"] == 0


def test_gpu_metrics_follow_the_kernels():
    scenario = SCENARIOS["healthy"].override(ranks=4, steps=2, gpu_metrics_hz=20_000, ideal=True)
    run = simulate(scenario)
    report = Report(run, identities(scenario)[0], "r.sqlite")
    tables = build_tables(report)
    names = tables["TARGET_INFO_GPU_METRICS"].columns
    assert sorted({type_id & 0xFF for type_id in names["typeId"]}) == [0, 1]
    number = names["metricId"][names["metricName"].index("GR Active [Throughput %]")]
    columns = tables["GPU_METRICS"].columns
    for rank in (0, 1):
        mine = (columns["metricId"] == number) & (columns["typeId"] & 0xFF == rank)
        line = run.timelines[rank]
        first, last = line.bounds
        from alltrace.synth.timeline import covered_ns

        busy = covered_ns(line.kernels["start"], line.kernels["end"]) / (last - first)
        assert columns["value"][mine].mean() / 100 == pytest.approx(busy, abs=0.01)
        assert np.diff(columns["timestamp"][mine]).tolist() == [50_000] * (mine.sum() - 1)
    second = build_tables(Report(run, identities(scenario)[1], "r.sqlite"))
    assert "GPU_METRICS" not in second
    every = scenario.override(gpu_metrics_per_host=False)
    own = build_tables(Report(simulate(every), identities(every)[1], "r.sqlite"))
    assert set(own["GPU_METRICS"].columns["typeId"] & 0xFF) == {1}

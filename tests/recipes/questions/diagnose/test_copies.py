"""Findings about copies, on hand-made ranks with an obvious loss, and on real reports."""

from __future__ import annotations

import pytest
from tests.making import copy, kernel, make_run

from alltrace.api import OpenRun
from alltrace.recipes.questions.diagnose.links import link_of
from alltrace.run.importer import import_reports

MS = 1_000_000
STEP = 10 * MS


def diagnosed(
    folder, copied_ns, computed_ns, memory="pinned", kind="HtoD", device="NVIDIA H100 80GB HBM3", size=100_000_000
):
    """The findings of four steps, each of which copies and then computes; the launches are long before."""
    kernels, copies, api, ranges = [], [], [], []
    for step in range(4):
        at = step * (copied_ns + computed_ns)
        copies.append(
            copy(
                at, at + copied_ns, kind, bytes=size, src_kind=memory, dst_kind="device", correlation=2 * step, stream=7
            )
        )
        kernels.append(kernel(at + copied_ns, at + copied_ns + computed_ns, correlation=2 * step + 1))
        for n in range(2):
            begin = -100_000 + (2 * step + n) * 1000
            name = "cudaLaunchKernel" if n else "cudaMemcpyAsync"
            api.append(
                {"start": begin, "end": begin + 500, "name": name, "correlation": 2 * step + n, "kind": "runtime"}
            )
    devices = [{"device": 0, "ordinal": 0, "uuid": "GPU-0", "name": device}]
    run = make_run(
        folder, {0: {"kernels": kernels, "copies": copies, "api": api, "ranges": ranges, "devices": devices}}
    )
    return run.recipe("diagnose")


def test_transfers_that_nothing_overlaps_are_a_finding(tmp_path):
    first = diagnosed(tmp_path, 4 * MS, 6 * MS).to_pylist()[0]
    assert (first["kind"], first["severity"], first["where"]) == ("exposed-transfer", "high", "HtoD copies")
    assert first["lost_share"] == pytest.approx(0.4)
    told = first["evidence"]
    assert told["gb_per_s"] == pytest.approx(25)
    assert told["link_gb_per_s"] == 63
    assert told["link_share"] == pytest.approx(25 / 63, abs=1e-3)
    assert told["bytes_per_step"] == 4 * 100_000_000  # the run is one step
    assert told["hideable_ns_per_step"] == told["exposed_ns_per_step"] == 16 * MS
    assert "start them earlier" in first["advice"]


def test_of_transfers_longer_than_compute_the_evidence_says_what_can_be_hidden(tmp_path):
    first = diagnosed(tmp_path, 9 * MS, MS).to_pylist()[0]
    assert (first["kind"], first["evidence"]["hideable_ns_per_step"]) == ("exposed-transfer", 4 * MS)
    assert first["lost_share"] == pytest.approx(0.9)
    assert "keep the data on the device" in first["advice"]


@pytest.mark.parametrize(("kind", "memory"), [("DtoD", "device"), ("memset", None)])
def test_what_stays_within_the_device_is_no_transfer(tmp_path, kind, memory):
    kinds = [row["kind"] for row in diagnosed(tmp_path, 4 * MS, 6 * MS, memory, kind).to_pylist()]
    assert "exposed-transfer" not in kinds


def test_pageable_copies_lose_what_pinned_ones_beside_compute_would_not_take(tmp_path):
    """Compute of 6 ms hides the bytes pinned, so all of the copies is lost; 1 ms hides a part of what the link takes
    for them."""
    first = diagnosed(tmp_path / "hidden", 4 * MS, 6 * MS, "pageable").to_pylist()[0]
    assert (first["kind"], first["severity"]) == ("pageable-copy", "high")
    assert first["lost_share"] == pytest.approx(0.4)
    first = diagnosed(tmp_path / "not", 9 * MS, MS, "pageable", size=200_000_000).to_pylist()[0]
    pinned = 200_000_000 / (0.8 * 63)  # ns: bytes over GB/s
    assert first["evidence"]["pinned_ns_per_step"] == pytest.approx(4 * pinned, abs=1)
    assert first["lost_ns"] <= 4 * (9 * MS - (pinned - MS)) + 1


@pytest.mark.parametrize(
    ("device", "rate"),
    [
        ("NVIDIA H100 80GB HBM3", 63.0),
        ("NVIDIA A100-SXM4-40GB", 31.5),
        ("Tesla V100-SXM2-16GB", 15.75),
        ("NVIDIA GH200 480GB", 450.0),
        ("NVIDIA A100-SXM4-40GB MIG 1g.5gb", None),
        ("AMD Instinct MI300X", None),
        ("", None),
        (None, None),
    ],
)
def test_links_are_those_of_the_data_sheets(device, rate):
    found = link_of(device)
    assert (found and found[0]) == rate


@pytest.mark.corpus
def test_a_real_run_that_does_little_but_copy_says_so(tmp_path, corpus):
    import_reports([str(corpus / "nsys" / "h100x2_torchrun_nsys2026.2.sqlite")], tmp_path / "run", jobs=1)
    first = OpenRun(tmp_path / "run").recipe("diagnose").to_pylist()[0]
    assert (first["kind"], first["severity"], first["where"]) == ("exposed-transfer", "high", "HtoD copies")
    # 25.5 GB in 921 ms, by the rows of the report
    assert first["evidence"]["gb_per_s"] == pytest.approx(27.7, abs=0.1)
    assert 0.9 < first["lost_share"] <= 1
    assert first["evidence"]["hideable_ns_per_step"] < 0.05 * first["lost_ns"]

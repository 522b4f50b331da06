"""Findings about the host on real reports of which the truth was measured."""

from __future__ import annotations

import pytest

from alltrace.api import OpenRun
from alltrace.run.importer import import_reports


@pytest.fixture(scope="module")
def pair(tmp_path_factory, corpus):
    """The same training with no loader worker and with four: the runs."""
    found = {}
    for workers in (0, 4):
        folder = tmp_path_factory.mktemp("loader")
        import_reports(
            [str(corpus / "kineto" / "tb_plugin" / f"resnet50_workers{workers}.pt.trace.json.gz")], folder / "run", jobs=1
        )
        found[workers] = OpenRun(folder / "run")
    return found


@pytest.mark.corpus
def test_a_loader_in_the_launching_thread_is_the_first_finding(pair):
    first = pair[0].recipe("diagnose").to_pylist()[0]
    assert (first["kind"], first["where"]) == ("data-stall", "enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__")
    # of the typical step more workers gave back what is called lost
    steps = {workers: _steps_ns(run) for workers, run in pair.items()}
    median = {workers: sorted(lengths)[len(lengths) // 2] for workers, lengths in steps.items()}
    gain = 1 - median[4] / median[0]
    assert first["lost_share"] == pytest.approx(gain, rel=1 / 3)


@pytest.mark.corpus
def test_a_loader_with_workers_costs_little(pair):
    lost = {row["kind"]: row["lost_share"] for row in pair[4].recipe("diagnose").to_pylist()}
    assert lost.get("data-stall", 0) < 0.01


def _steps_ns(run):
    """The lengths of the profiler's steps on the host."""
    rows = run.rank(0).table("ranges", ("start", "end", "name"))
    names = run.rank(0).texts(rows.column("name")).to_pylist()
    times = zip(rows.column("start").to_pylist(), rows.column("end").to_pylist(), names, strict=True)
    return [end - start for start, end, name in times if name.startswith("ProfilerStep#")]

"""Reports on the disks of single hosts: a real Dask cluster of emulated nodes, each with its own name and disk."""

from __future__ import annotations

import platform
import shutil
from pathlib import Path

import pytest
from tests.dask_nodes import dask_nodes, why_no_nodes
from tests.fuzz.kills import contents

from alltrace.cli.main import main
from alltrace.engine.tasks import remote
from alltrace.run.host_paths import HostPath, host_path, naming_host
from alltrace.run.manifest import read_manifest
from alltrace.synth import write_run
from alltrace.trace.errors import DamageError

pytestmark = pytest.mark.filterwarnings("ignore")
emulated = pytest.mark.skipif(why_no_nodes() is not None, reason=why_no_nodes() or "")


@pytest.fixture(scope="module")
def nodes(tmp_path_factory):
    pytest.importorskip("distributed")
    with dask_nodes(tmp_path_factory.mktemp("nodes")) as found:
        reports = found.local.parent / "reports"
        write_run("straggler", reports, ranks=4, hosts=2, steps=4, ideal=True)
        for report in reports.glob("*.sqlite"):
            node = "n0" if "rank0" in report.name or "rank1" in report.name else "n1"
            (found.disks[node] / "job").mkdir(exist_ok=True)
            shutil.copy2(report, found.disks[node] / "job")
        yield found


def test_a_host_and_a_path_are_told_from_all_else(tmp_path, monkeypatch):
    assert host_path("n0:/scratch/a b.sqlite") == HostPath("n0", Path("/scratch/a b.sqlite"))
    assert host_path("gpu-1.example.org:/r") == HostPath("gpu-1.example.org", Path("/r"))
    for text in ("s3://bucket/x", "n0:relative", "/n0:/x", "a/n0:/x", ":/x", "plain.sqlite"):
        assert host_path(text) == HostPath(None, Path(text))
    monkeypatch.chdir(tmp_path)
    Path("n0:").mkdir()
    Path("n0:/x").touch()
    assert host_path("n0:/x").host is None
    with pytest.raises(DamageError, match=r"^n0:/x: damaged") as caught, naming_host("n0"):
        raise DamageError("/x", found="damaged")
    assert caught.value.path == "n0:/x"


def test_without_a_cluster_only_the_own_host_is_read(tmp_path, capsys):
    write_run("tiny", tmp_path / "reports", ideal=True)
    here = f"{platform.node()}:{tmp_path / 'reports'}"
    assert main(["import", here, "-o", str(tmp_path / "run")]) == 0
    capsys.readouterr()
    assert main(["import", "far:/scratch/job", "-o", str(tmp_path / "other")]) == 2
    told = capsys.readouterr().err
    assert len(told.splitlines()) == 1
    assert "far:/scratch/job: this report is on the host far" in told
    assert not (tmp_path / "other").exists()


@pytest.mark.slow
@emulated
def test_reports_are_read_where_they_are_and_the_run_is_the_same(nodes, tmp_path, capsys):
    local = nodes.local / "job"
    assert not local.exists()  # this process sees neither disk
    named = [f"n0:{local}", f"n1:{local}/*.sqlite"]
    assert main(["import", *named, "-o", str(tmp_path / "run"), "--dask", nodes.address]) == 0
    assert not remote()
    shown = read_manifest(tmp_path / "run")
    assert [r.path.partition(":")[0] for r in shown.reports] == ["n0", "n0", "n1", "n1"]
    assert [r.rank for r in shown.ranks] == [0, 1, 2, 3]
    # the same reports, all in one folder that this process sees
    assert main(["import", str(nodes.local.parent / "reports"), "-o", str(tmp_path / "here")]) == 0
    there, here = contents(tmp_path / "run"), contents(tmp_path / "here")
    assert there.keys() == here.keys()
    assert [k for k in here if here[k] != there[k] and not k.endswith(".json")] == []
    capsys.readouterr()
    answers = []
    for run, place in ((tmp_path / "run", ["--dask", nodes.address]), (tmp_path / "here", [])):
        assert main(["stragglers", str(run), "--format", "csv", *place]) == 0
        answers.append(capsys.readouterr().out)
    assert answers[0] == answers[1]


@emulated
def test_reports_of_a_host_stand_in_the_place_of_a_run(nodes, tmp_path, capsys):
    asked = [
        "kernels",
        f"n1:{nodes.local / 'job'}",
        "--format",
        "csv",
        "--cache-dir",
        str(tmp_path),
        "--dask",
        nodes.address,
    ]
    assert main(asked) == 0
    first = capsys.readouterr().out
    assert first.count("\n") > 1
    assert main(asked) == 0  # from the cache, whose key workers on that host made
    assert capsys.readouterr().out == first
    assert len([p for p in (tmp_path / "runs").iterdir() if p.is_dir()]) == 1


@emulated
def test_what_cannot_be_read_there_is_told_with_its_host(nodes, tmp_path, capsys):
    def told(*inputs):
        code = main(["import", *inputs, "-o", str(tmp_path / "run"), "--dask", nodes.address])
        said = capsys.readouterr().err
        assert len(said.splitlines()) == 1
        assert not (tmp_path / "run").exists()
        return code, said

    code, said = told("n7:/scratch/job")
    assert code == 2
    assert "reports are on n7, where there is no worker (workers are on n0, n1)" in said
    code, said = told(f"n0:{nodes.local}/nothing")
    assert code == 3
    assert f"n0:{nodes.local}/nothing: there is no such file or folder" in said
    (nodes.disks["n1"] / "broken.sqlite").write_bytes(b"SQLite format 3\0 and no more")
    code, said = told(f"n1:{nodes.local}/broken.sqlite")
    assert code == 3
    assert f"n1:{nodes.local}/broken.sqlite" in said


@emulated
def test_a_run_that_not_all_nodes_see_is_refused_before_any_work(nodes, tmp_path, capsys):
    reports = nodes.local.parent / "reports"
    place = nodes.local / "run"  # a folder of this process, and another one on each node
    assert main(["import", str(reports), "-o", str(place), "--dask", nodes.address]) == 2
    said = capsys.readouterr().err
    assert len(said.splitlines()) == 1
    assert "(from n0, n1)" in said
    assert str(nodes.local) in said
    assert list(nodes.local.iterdir()) == []
    assert [sorted(p.name for p in d.iterdir() if "alltrace" in p.name) for d in nodes.disks.values()] == [[], []]
    # reports that only this process sees
    hidden = nodes.local / "hidden"
    shutil.copytree(reports, hidden)
    try:
        assert main(["import", str(hidden), "-o", str(tmp_path / "run"), "--dask", nodes.address]) == 2
        said = capsys.readouterr().err
        assert f"{hidden}/" in said
        assert "HOST:/PATH" in said
        assert not (tmp_path / "run").exists()
    finally:
        shutil.rmtree(hidden)


@emulated
def test_workers_that_were_started_in_another_folder_take_relative_paths(nodes, tmp_path, capsys, monkeypatch):
    monkeypatch.setattr("alltrace.recipes.execution.kept_parts.ROWS_WORTH_KEEPING", 0)
    monkeypatch.chdir(tmp_path)
    shutil.copytree(nodes.local.parent / "reports", "reports")
    place = ["--dask", nodes.address]
    before = set(nodes.local.parent.rglob("*"))
    assert main(["import", "reports", "-o", "run", *place]) == 0
    assert main(["diagnose", "run", "--format", "json", *place]) == 0
    assert main(["export", "perfetto", "run", "-o", "out.pftrace", *place]) == 0
    assert main(["export", "parquet", "run", "-o", "tables", *place]) == 0
    assert sorted(p.name for p in Path("run").iterdir() if p.name in ("align", "findings", "operations", "ranks")) == [
        "align", "findings", "operations", "ranks",
    ]  # fmt: skip
    assert list(Path("run/findings").rglob("rank=3*"))
    assert {p for p in set(nodes.local.parent.rglob("*")) - before if "work-" not in str(p)} == set()
    capsys.readouterr()


@pytest.mark.slow
@emulated
def test_many_reports_of_which_some_are_broken_and_some_are_missing(nodes, tmp_path, capsys):
    reports = tmp_path / "reports"
    write_run("tiny", reports, ranks=12, hosts=3, steps=2, ideal=True)
    for number in (4, 9):
        (reports / f"tiny_rank{number}.sqlite").write_bytes(b"SQLite format 3\0 and no more")
    (reports / "tiny_rank6.sqlite").unlink()
    told, found = [], []
    for name, place in (("there", ["--dask", nodes.address]), ("here", [])):
        assert main(["import", str(reports), "-o", str(tmp_path / name), *place]) == 0
        told.append(capsys.readouterr().err.replace(name, ""))
        found.append(read_manifest(tmp_path / name))
    assert told[0] == told[1]
    assert found[0] == found[1]
    assert {4, 6, 9} & {r.rank for r in found[0].ranks} == set()
    assert "rank 6" in told[0] or "ranks 4, 6, 9" in told[0]
    assert main(["import", str(reports), "-o", str(tmp_path / "strict"), "--strict", "--dask", nodes.address]) == 4

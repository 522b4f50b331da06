"""Ranks that a user states by an expression or a file, and what is wrong with those that cannot be."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

import pytest
from tests.run.test_identity import report

from alltrace.readers.base import Report, ReportProcess
from alltrace.run.identity import plan_ranks
from alltrace.run.importer import import_reports
from alltrace.run.manifest import ReportRecord
from alltrace.run.same_recording import planned as planned_of
from alltrace.run.stated_ranks import StatedRank, stated_ranks, with_stated_rank, with_stated_ranks
from alltrace.synth import write_run
from alltrace.trace.errors import InputError, UsageError


class Probe(NamedTuple):
    """What a first look at a report found."""

    report: Report
    record: ReportRecord


def planned(reports, stated):
    plan = plan_ranks([with_stated_rank(r, stated.get(Path(r.path))) for r in reports])
    return [(r.rank, r.source, r.host, r.local_rank, [s.report for s in r.sources]) for r in plan.ranks]


def test_an_expression_finds_ranks_in_paths_before_all_other_evidence():
    names = ["job/n1/gpu-3/rank0.json", "job/n1/gpu-2/rank0.json"]
    reports = [report(name, pid=n, mpi=n, environment={"RANK": str(n)}) for n, name in enumerate(names)]
    stated, _ = stated_ranks([Path(n) for n in names], r"gpu-(?P<rank>\d+)/")
    assert planned(reports, stated) == [(2, "--rank-from", "node1", 0, [1]), (3, "--rank-from", "node1", 1, [0])]


def test_what_the_expression_does_not_find_has_what_it_says_itself():
    names = ["gpu-3.json", "other.json"]
    stated, _ = stated_ranks([Path(n) for n in names], r"gpu-(?P<rank>\d+)")
    reports = [report(name, pid=n, environment={"RANK": "1"}) for n, name in enumerate(names)]
    assert [(rank, source) for rank, source, *_ in planned(reports, stated)] == [(1, "RANK"), (3, "--rank-from")]


def test_reports_with_one_stated_rank_are_windows_of_one_process(tmp_path):
    reports = [report(f"a{n}.json", pid=7, host="h", utc_ns=n) for n in range(3)]
    stated = {Path(f"a{n}.json"): StatedRank(n // 2, None, None, "ranks.csv") for n in range(3)}
    assert [(rank, sources) for rank, *_, sources in planned(reports, stated)][1] == (1, [2])


@pytest.mark.parametrize(
    ("expression", "text"),
    [
        ("(", "is not a valid regular expression"),
        ("gpu(\\d+)", r"expected a group for the rank, and a name for each group: \(\?P<rank>\\d\+\)"),
        ("card(?P<rank>\\d+)", "matches none of 1 reports, such as gpu3.json"),
        ("(?P<rank>gpu)", "finds 'gpu' as the rank of gpu3.json"),
    ],
)
def test_expressions_that_cannot_be_used(expression, text):
    with pytest.raises(UsageError, match=text):
        stated_ranks([Path("gpu3.json")], expression)


def test_a_file_states_rank_host_and_number_on_the_host(tmp_path):
    (tmp_path / "sub").mkdir()
    paths = [tmp_path / "a.json", tmp_path / "sub" / "b.json", tmp_path / "c.json"]
    (tmp_path / "ranks.csv").write_text("\ufefffile, rank,host,local_rank\na.json,5,n1,1\nsub/b.json,3,,\n")
    stated, _ = stated_ranks(paths, None)
    assert stated == {paths[0]: StatedRank(5, "n1", 1, "ranks.csv"), paths[1]: StatedRank(3, None, None, "ranks.csv")}
    reports = [report(path, pid=n, host=None) for n, path in enumerate(paths)]
    assert [r[:4] for r in planned(reports, stated)] == [
        (0, "order", "host-0", 0),
        (3, "ranks.csv", "host-1", 0),
        (5, "ranks.csv", "n1", 1),
    ]


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("file\na.json\n", r"its first line is 'file'; expected file,rank"),
        ("file,rank,node\na.json,1,x\n", "its first line is 'file,rank,node'"),
        ("file,rank\na.json,one\n", "line 2 is 'a.json,one'; expected a file and numbers"),
        ("file,rank\n,1\n", "line 2 is ',1'"),
        ("file,rank,host,local_rank\na.json,1,h,x\n", "line 2 is 'a.json,1,h,x'"),
        ("file,rank\na.json,1\na.json,2\n", "line 3 gives a.json another rank than a line before"),
        ("", "its first line is ''"),
    ],
)
def test_files_that_cannot_be_used(tmp_path, text, says):
    (tmp_path / "ranks.csv").write_text(text)
    with pytest.raises(InputError, match=rf"ranks.csv: {says}"):
        stated_ranks([tmp_path / "a.json"], None)


def test_bytes_that_are_no_text(tmp_path):
    (tmp_path / "ranks.csv").write_bytes(b"\xff\xfe\x00file")
    with pytest.raises(InputError, match=r"ranks.csv: it cannot be read"):
        stated_ranks([tmp_path / "a.json"], None)


def test_an_import_by_a_file(tmp_path):
    write_run("tiny", tmp_path / "reports", ideal=True)
    reports = sorted((tmp_path / "reports").glob("*.sqlite"))
    lines = [f"{path.name},{10 + n}" for n, path in enumerate(reports)]
    (tmp_path / "reports" / "ranks.csv").write_text("\n".join(["file,rank", *lines]) + "\n")
    manifest = import_reports([str(tmp_path / "reports")], tmp_path / "run", jobs=1)
    assert [(r.rank, r.rank_source) for r in manifest.ranks] == [(10 + n, "ranks.csv") for n in range(len(reports))]
    manifest = import_reports([str(tmp_path / "reports")], tmp_path / "again", jobs=1, rank_from=r"rank(?P<rank>\d+)")
    assert [(r.rank, r.rank_source) for r in manifest.ranks] == [(n, "--rank-from") for n in range(len(reports))]


def stated_of(folder, text, *names):
    (folder / "ranks.csv").write_text(text)
    return stated_ranks([folder / name for name in names], None)


def test_a_row_of_a_file_that_is_not_there_is_said(tmp_path):
    (tmp_path / "other.txt").touch()
    stated, notes = stated_of(
        tmp_path, "file,rank\na.json,0\n./sub/../b.json,1\ngone.json,2\nother.txt,3\n", "a.json", "b.json"
    )
    assert {path.name: s.rank for path, s in stated.items()} == {"a.json": 0, "b.json": 1}
    assert notes == (f"{tmp_path}/ranks.csv: line 4 states rank 2 of gone.json, which is not there",)
    lines = "".join(f"x{n}.json,{n}\n" for n in range(1, 30))
    _, notes = stated_of(tmp_path, f"file,rank\na.json,0\n{lines}", "a.json")
    assert (len(notes), notes[-1]) == (21, "and 9 more rows name files that are not there")


@pytest.mark.parametrize(
    ("named", "is_there"), [("a.json", "a.json.gz"), ("a.nsys-rep", "a.sqlite"), ("a.sqlite", "a_pqtdir")]
)
def test_a_row_holds_for_a_report_that_was_packed_or_exported_since(tmp_path, named, is_there):
    stated, notes = stated_of(tmp_path, f"file,rank\n{named},7\n", is_there)
    assert ([s.rank for s in stated.values()], notes) == ([7], ())
    # a row of its own goes before
    stated, _ = stated_of(tmp_path, f"file,rank\n{is_there},8\n{named},7\n", is_there)
    assert [s.rank for s in stated.values()] == [8]


def test_a_rank_cannot_be_stated_of_a_report_of_several_processes(tmp_path):
    (tmp_path / "ranks.csv").write_text("file,rank\na.json,7\n")
    two = report("a.json", processes=(ReportProcess(0, 1), ReportProcess(1, 2)))
    reports, notes = with_stated_ranks([two], [tmp_path / "a.json"], None)
    assert (reports, notes) == ([two], ("a.json: it has 2 processes, so no rank can be stated for it",))


def windows(*spans, pids):
    """Reports of rank 0 by hand, from when to when each was recorded."""
    return [
        report(f"{n}.json", pid=pid, host="h", utc_ns=10)._replace(start_ns=first, last_ns=last)
        for n, ((first, last), pid) in enumerate(zip(spans, pids, strict=True))
    ]


def test_one_rank_of_two_processes_that_ran_at_once_is_refused(tmp_path):
    (tmp_path / "ranks.csv").write_text("file,rank\n0.json,3\n1.json,3\n")

    def ranks(reports):
        probes = [Probe(r, ReportRecord(r.path, n, "")) for n, r in enumerate(reports)]
        return [
            (r.rank, len(r.sources)) for r in planned_of([tmp_path / r.path for r in reports], probes, None)[1].ranks
        ]

    text = (
        "ranks.csv states rank 3 of two processes that ran at once, 0.json and 1.json; expected another rank for one of"
        " them"
    )
    with pytest.raises(UsageError, match=f"^{text}$"):
        ranks(windows((0, 100), (40, 120), pids=(7, 8)))
    elsewhere = windows((0, 100), (40, 120), pids=(7, 7))
    with pytest.raises(UsageError, match=r"of two processes on two hosts, 0\.json and 1\.json"):
        ranks([elsewhere[0], elsewhere[1]._replace(host="g")])
    # windows of one process, one that was started again, and reports without times
    for may_be in (
        windows((0, 100), (40, 120), pids=(7, 7)),
        windows((0, 100), (90, 200), pids=(7, 8)),
        windows((0, None), (40, 120), pids=(7, 8)),
    ):
        assert ranks(may_be) == [(3, 2)]

"""Which reports are one recording, and which are of several jobs."""

from __future__ import annotations

import gzip
import json
import re
import shutil

import pytest
from tests.run.test_identity import report

from alltrace.readers.base import ReportProcess
from alltrace.run.importer import import_reports
from alltrace.run.same_recording import check_one_job, doubles, doubles_notes
from alltrace.synth import write_run
from alltrace.trace.errors import UsageError
from alltrace.trace.side_file_words import ROLE

HOUR = 3600 * 10**9


def trace(
    path, pid, *, host="h", fmt="kineto", rank=None, size=None, gpu=True, start=None, stop=None, utc_ns=0, **environment
):
    lead = ReportProcess(0, pid, gpu=gpu, rank_hint=rank, rank_hint_source=None if rank is None else "distributedInfo")
    found = report(path, host=host, utc_ns=utc_ns, world_size=size, processes=(lead,), environment=environment)
    return found._replace(format=fmt, start_ns=start, stop_ns=stop)


def of(reports, contents=None):
    contents = contents or [(n, str(n)) for n in range(len(reports))]
    return doubles(reports, contents)


def test_copies_have_one_content_and_the_shortest_name_counts():
    reports = [trace("a (1).json", 1), trace("a.json", 1), trace("b.json", 2), None]
    found = of(reports, [(5, "x"), (5, "x"), (5, "y"), (5, "x")])
    assert found == {0: (1, "the same content as")}
    assert doubles_notes(reports, found) == ("a (1).json: left out, it is the same content as a.json",)
    assert of(reports, [(5, ""), (5, ""), (5, ""), (5, "")]) == {}


def test_copies_that_stand_for_several_ranks_or_roles_stay():
    contents = [(5, "x")] * 3
    assert of([trace(f"x_rank{n}.json", 1) for n in range(3)], contents) == {}
    assert of([trace(f"{role}.json", 1, **{ROLE: role}) for role in "abc"], contents) == {}
    assert of([trace("x_rank1.json", 1), trace("x_rank1 (1).json", 1), trace("x.json", 1)], contents) == {
        0: (2, "the same content as"),
        1: (2, "the same content as"),
    }


def test_traces_of_one_process_that_begin_with_one_event():
    reports = [
        trace(f"d/{name}", 1, start=5, rank=r)
        for name, r in (("r0.json.gz", 0), ("r0.json", 0), ("another.json", None))
    ]
    reports += [
        trace("d/r0.json.zst", 2, start=5),
        trace("d/r1.json", 1, start=6),
        trace("d/r0 .json", 1, start=5, rank=1),
    ]
    assert of(reports) == {0: (1, "the same trace as"), 2: (1, "the same trace as")}


def test_exports_of_one_session_under_two_names():
    names = ("x.sqlite", "y_pqtdir", "z.sqlite")
    reports = [
        trace(n, 7, fmt="nsys-sqlite" if n != "y_pqtdir" else "nsys-parquetdir", start=1, stop=9, utc_ns=5)
        for n in names
    ]
    reports[2] = reports[2]._replace(stop_ns=10)  # another capture range
    assert of(reports) == {1: (0, "the same session as")}
    assert of([r._replace(stop_ns=None) for r in reports]) == {}


def test_two_profilers_of_one_process():
    """PyTorch's profiler and Nsight Systems recorded the same device; where one has no device work, they complement
    each other."""
    reports = [trace("t.json", 7), trace("s.sqlite", 7, fmt="nsys-sqlite"), trace("u.json", 8)]
    assert of(reports) == {0: (1, "the same process as")}
    assert of([reports[0], reports[1]._replace(processes=(ReportProcess(0, 7, gpu=False),))]) == {}
    assert of([trace("t-1.json", 7), trace("t-2.json", 7)]) == {}
    assert of([trace("t.json", 7, host=None), trace("s.sqlite", 7, fmt="nsys-sqlite", host=None)]) == {}


def job(name, size=2, *, first_pid=0, host="h", utc_ns=0, **more):
    return [
        trace(f"{name}/rank{r}.json", first_pid + r, host=host, rank=r, size=size, utc_ns=utc_ns, **more)
        for r in range(size)
    ]


def over_hosts(name, hosts, first_pid, **more):
    """A job of a rank on each host."""
    names = hosts.split()
    return [
        trace(f"{name}/rank{n}-{h}.json", first_pid + n, host=h, rank=n, size=len(names), **more)
        for n, h in enumerate(names)
    ]


REFUSED = {
    "launchers": (job("a", SLURM_JOB_ID="1") + job("b", first_pid=9, SLURM_JOB_ID="20"), "SLURM_JOB_ID", "a", "b"),
    "world sizes": (job("a", 2) + job("b", 4, first_pid=9, host="g"), "world size", "a", "b"),
    "days": (job("a") + job("b", first_pid=9, utc_ns=24 * HOUR), "time", "a", "b"),
    "hosts": (job("a") + job("b", host="g", first_pid=5), "hosts", "a", "b"),
    "hosts by name": (
        [r._replace(path=r.path.replace("/", "-")) for r in job("d/a") + job("d/b", host="g", first_pid=5)],
        "hosts",
        "d-b-rank*",
        "d-a-rank*",
    ),
    "sets of hosts by time": (
        over_hosts("d", "n1 n4", 0, utc_ns=HOUR // 2) + over_hosts("d", "n2 n3", 9),
        "hosts",
        "d/rank0-n2.json d/rank1-n3.json",
        "d/rank0-n1.json d/rank1-n4.json",
    ),
    "sets of hosts by folder": (over_hosts("b", "n1 n3", 0) + over_hosts("a", "n2 n4", 9), "hosts", "a", "b"),
    "attempts on hosts of which one was replaced": (
        over_hosts("a", "n1 n2", 0) + over_hosts("b", "n2 n3", 9, utc_ns=HOUR // 2),
        "time",
        "a",
        "b",
    ),
    "hosts twice by time": (job("a") + job("b", first_pid=9, utc_ns=11 * 10**9), "time", "a", "b"),
    "hosts twice by folder": (job("a") + job("b", first_pid=9), "folders", "a", "b"),
    "a host twice by process": (
        [r._replace(path=f"d/{r.processes[0].pid}.json") for r in job("a") + job("b", first_pid=9)],
        "process ids",
        "d/0.json d/1.json",
        "d/9.json d/10.json",
    ),
    "without host names": (
        job("a", host=None, first_pid=1) + job("b", host=None, first_pid=9, utc_ns=11 * 10**9),
        "time",
        "a",
        "b",
    ),
    "without a size, one after the other": (
        [
            r._replace(world_size=None, start_ns=0, last_ns=10**9)
            for r in job("a") + job("b", first_pid=9, utc_ns=HOUR // 2)
        ],
        "time",
        "a",
        "b",
    ),
    "two windows each": (
        [r for n in range(4) for r in job("ab"[n % 2], first_pid=9 * (n % 2), utc_ns=(n // 2) * 20 * 10**9)],
        "folders",
        "a",
        "b",
    ),
    "sets of hosts by name": (
        over_hosts("d", "n1 n2", 0) + over_hosts("d", "n10 n11", 9),
        "hosts",
        "d/rank0-n1.json d/rank1-n2.json",
        "d/rank0-n10.json d/rank1-n11.json",
    ),
}


@pytest.mark.parametrize(("reports", "what", "first", "second"), REFUSED.values(), ids=REFUSED)
def test_two_jobs_are_refused_with_a_command_for_each(reports, what, first, second):
    with pytest.raises(
        UsageError, match=rf"^the reports are of 2 jobs, by their {what}; expected those of one\."
    ) as error:
        check_one_job(reports)
    assert re.findall(r"`([^`]*)`", str(error.value)) == [f"alltrace info {first}", f"alltrace info {second}"]


ONE_JOB = {
    "roles": job("a", 2, **{ROLE: "trainer"}) + job("b", 4, first_pid=9, **{ROLE: "rollout"}),
    "windows of a long job": job("a") + job("b", utc_ns=24 * HOUR),
    "other sizes without a clash": [
        *job("a", 2),
        trace("b/x.json", 50, rank=2, size=4),
        trace("b/y.json", 51, rank=3, size=4),
    ],
    "replicas of a service on two hosts": [
        trace(f"{h}/r{r}.json", n, host=h, rank=r, size=None)
        for n, (h, r) in enumerate((h, r) for h in "ab" for r in range(2))
    ],
    "a host twice in one folder, with ids that mix": [
        r._replace(path=f"d/{p}.json", processes=(r.processes[0]._replace(pid=p),))
        for r, p in zip(job("a") + job("b"), (10, 12, 11, 13), strict=True)
    ],
    "without a size, at once": [
        r._replace(world_size=None, start_ns=0, last_ns=10**9) for r in job("a") + job("b", first_pid=9, utc_ns=10**8)
    ],
    "without a size, on other hosts": [
        r._replace(world_size=None, start_ns=0, last_ns=10**9)
        for r in job("a") + job("b", first_pid=9, host="g", utc_ns=HOUR // 2)
    ],
    "a rank that the wrapper started again": [
        r._replace(path=f"d/{name}_rank{n}_on_h.json")
        for name, its in (("j", job("a", 1)), ("j-restart1", job("b", 1, first_pid=9, utc_ns=HOUR // 2)))
        for n, r in enumerate(its)
    ],
    "sets of hosts that nothing tells apart": over_hosts("a", "n1 n3", 0) + over_hosts("a", "n2 n4", 9),
    "a set of hosts and part of another": over_hosts("a", "n1 n2", 0) + over_hosts("b", "n3 n4", 9)[:1],
    "no size": [r._replace(world_size=None) for r in job("a") + job("b", host="g")],
    "no times": [r._replace(utc_ns=None) for r in job("a") + job("b", utc_ns=24 * HOUR)],
    "stated by hand": [
        r._replace(processes=(r.processes[0]._replace(rank_hint_source="ranks.csv"),))
        for r in job("a", 2) + job("b", 4)
    ],
}


@pytest.mark.parametrize("reports", ONE_JOB.values(), ids=ONE_JOB)
def test_what_can_be_one_job_is_not_refused(reports):
    check_one_job([*reports, None])


def test_commands_name_the_reports_of_a_job_alone():
    mixed = [
        r._replace(path=f"d/{r.path.replace('/', '-')}") for r in job("a") + job("b x", first_pid=9, utc_ns=24 * HOUR)
    ]
    with pytest.raises(UsageError) as error:
        check_one_job(mixed)
    assert re.findall(r"`([^`]*)`", str(error.value)) == ["alltrace info d/a-rank*", "alltrace info 'd/b x-rank'*"]
    odd = [r._replace(path=f"{n}.json") for n, r in enumerate(mixed)]
    with pytest.raises(UsageError) as error:
        check_one_job([odd[0], odd[2], odd[1], odd[3]])
    assert re.findall(r"`([^`]*)`", str(error.value)) == ["alltrace info 0.json 1.json", "alltrace info 2.json 3.json"]


def test_an_import_takes_one_of_each(tmp_path):
    write_run("tiny", tmp_path, ideal=True)
    reports = sorted(tmp_path.glob("*.sqlite"))
    shutil.copy(reports[0], tmp_path / "copy.sqlite")
    manifest = import_reports([str(tmp_path)], tmp_path / "run", jobs=1)
    assert len(manifest.ranks) == len(reports)
    assert len(manifest.reports) == len(reports)
    assert any(n.endswith(f"left out, it is the same content as {tmp_path / 'copy.sqlite'}") for n in manifest.notes)


def one_trace(first_us=1e15):
    events = [
        {"ph": "X", "cat": "cpu_op", "name": "o", "pid": 44, "tid": 44, "ts": first_us + n, "dur": 1, "args": {}}
        for n in range(3)
    ]
    for n in range(1, 9):
        work = {"ph": "X", "cat": "kernel", "name": "k", "pid": 0, "tid": 7, "ts": first_us + n * 10, "dur": 5}
        events.append({**work, "args": {"device": 0, "stream": 7, "correlation": n}})
    return {"schemaVersion": 1, "traceEvents": events, "distributedInfo": {"rank": 0, "world_size": 1}}


TEXT = json.dumps(one_trace())


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("r.pt.trace.json.gz", gzip.compress(TEXT.encode())),
        ("copy of r.json.gz", gzip.compress(TEXT.encode(), 1)),
        ("indented and longer.json", json.dumps(one_trace(), indent=1).encode()),
        ("below/another name.json", json.dumps(one_trace(), sort_keys=True).encode()),
        (
            "q.json",
            TEXT[: TEXT.index('"correlation": 6')].encode(),
        ),  # of which the end is lost: a shorter name, but not all of it
    ],
)
def test_a_trace_twice_is_taken_once(tmp_path, name, content):
    (tmp_path / "r.pt.trace.json").write_text(TEXT)
    (tmp_path / name).parent.mkdir(exist_ok=True)
    (tmp_path / name).write_bytes(content)
    manifest = import_reports([str(tmp_path)], tmp_path / "run", jobs=1)
    assert [(r.rank, r.rank_source, r.rows["kernels"]) for r in manifest.ranks] == [(0, "distributedInfo", 8)]
    assert any(f"{name}: left out, it is the same trace as" in n for n in manifest.notes)


def test_windows_of_a_process_that_begin_within_a_second_are_no_copies(tmp_path):
    (tmp_path / "r.pt.trace.json").write_text(TEXT)
    (tmp_path / "r_1.pt.trace.json").write_text(json.dumps(one_trace(1e15 + 500)))
    manifest = import_reports([str(tmp_path)], tmp_path / "run", jobs=1)
    assert not any("left out, it is" in n for n in manifest.notes)
    assert sum(r.rows["kernels"] for r in manifest.ranks) == 16


def test_a_report_that_the_user_states_is_the_one_that_is_taken():
    by_user = trace("x (1).json", 7, rank=3)
    by_user = by_user._replace(processes=(by_user.processes[0]._replace(rank_hint_source="ranks.csv"),))
    same = [(1, "a"), (1, "a")]
    assert of([trace("x.json", 7), by_user], same) == {0: (1, "the same content as")}
    # what names say does not count beside it, and two that are stated as two ranks are two
    assert of([by_user._replace(path="rank0.json"), by_user._replace(path="rank1.json")], same) == {
        1: (0, "the same content as")
    }
    other = by_user._replace(processes=(by_user.processes[0]._replace(rank_hint=4),))
    assert of([by_user, other], same) == {}


def test_one_process_records_one_trace_at_a_time():
    """A trace that was changed or exported again begins with another event."""

    def of_times(*spans, ranks=(0, 0), pids=(7, 7)):
        its = zip(spans, ranks, pids, strict=True)
        return of([trace(f"t{n}.json", p, rank=r, start=a)._replace(last_ns=b) for n, ((a, b), r, p) in enumerate(its)])

    assert of_times((0, 100), (10, 100)) == {1: (0, "of the same rank, process and time as")}
    assert of_times((0, 100), (90, 200)) == {}  # windows, as exact as their ends are known
    assert of_times((0, 100), (10, 100), ranks=(0, 1)) == {}  # containers may all number the process alike
    assert of_times((0, 100), (10, 100), ranks=(None, None)) == {}
    assert of_times((0, 100), (10, 100), pids=(7, 8)) == {}

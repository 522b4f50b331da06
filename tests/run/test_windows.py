"""Windows of one process, between which nothing was recorded, and attempts of a process that was started again."""

from __future__ import annotations

import gzip
import json

import pytest

from alltrace.api import OpenRun
from alltrace.run.importer import import_reports
from alltrace.run.windows import between, merged_spans, recorded_windows

US = 1_700_000_000_000_000.0


def window(number, *, first_correlation=1, first_step=0, apart_us=1e6, steps=4):
    """Steps of 5 ms with six kernels of 300 us each, as a schedule that repeats records them."""
    events, correlation = [], first_correlation
    for n in range(steps):
        at = US + number * apart_us + n * 5000
        events.append(
            {
                "ph": "X",
                "cat": "user_annotation",
                "name": f"ProfilerStep#{first_step + n}",
                "pid": 851,
                "tid": 9,
                "ts": at,
                "dur": 4900,
            }
        )
        for k in range(6):
            ids = {"correlation": correlation}
            events.append(
                {
                    "ph": "X",
                    "cat": "cuda_runtime",
                    "name": "cudaLaunchKernel",
                    "pid": 851,
                    "tid": 9,
                    "ts": at + 80 + 400 * k,
                    "dur": 5,
                    "args": ids,
                }
            )
            on = {**ids, "device": 0, "stream": 7}
            events.append(
                {
                    "ph": "X",
                    "cat": "kernel",
                    "name": "gemm",
                    "pid": 0,
                    "tid": 7,
                    "ts": at + 100 + 400 * k,
                    "dur": 300,
                    "args": on,
                }
            )
            correlation += 1
    return {"schemaVersion": 1, "deviceProperties": [{"id": 0, "name": "GPU"}], "traceEvents": events}


def imported(folder, windows):
    folder.mkdir()
    for n, content in enumerate(windows):
        (folder / f"node1_851.17000000{n}0000000000.pt.trace.json").write_text(json.dumps(content))
    import_reports([str(folder)], folder / "run", jobs=1)
    return OpenRun(folder / "run")


@pytest.fixture(scope="module")
def one(tmp_path_factory):
    return imported(tmp_path_factory.mktemp("one") / "x", [window(0)])


@pytest.fixture(scope="module")
def three(tmp_path_factory):
    return imported(
        tmp_path_factory.mktemp("three") / "x", [window(n, first_correlation=1 + 1000 * n) for n in range(3)]
    )


def in_one(windows, *more):
    """Windows in one trace, as it is merged from them."""
    return windows[0] | {"traceEvents": [*(e for w in windows for e in w["traceEvents"]), *more]}


def call(name, at_us):
    return {
        "ph": "X",
        "cat": "cuda_runtime",
        "name": name,
        "pid": 851,
        "tid": 9,
        "ts": US + at_us,
        "dur": 5,
        "args": {},
    }


def without_steps(content):
    return content | {"traceEvents": [e for e in content["traceEvents"] if e["cat"] != "user_annotation"]}


def row(run, question, **options):
    return run.recipe(question, **options).to_arrow().to_pylist()[0]


@pytest.mark.parametrize("question", ["breakdown", "idle"])
def test_three_windows_are_as_idle_as_one(one, three, question):
    alone, together = row(one, question), row(three, question)
    assert alone["idle_percent"] > 50
    assert together["idle_percent"] == pytest.approx(alone["idle_percent"], abs=1e-9)
    assert (together["span_ns"], together["idle_ns"]) == (3 * alone["span_ns"], 3 * alone["idle_ns"])


def test_what_was_not_recorded_is_said_and_is_no_gap(three):
    answer = three.recipe("breakdown")
    assert any("windows were recorded; the time between them is not judged: 3" in note for note in answer.notes)
    gaps = three.recipe("gaps").to_arrow().to_pylist()
    assert max(g["duration_ns"] for g in gaps) < 5_000_000
    (rank,) = three.manifest.ranks
    assert len(rank.windows) == 3
    assert rank.unrecorded == between(rank.windows)
    assert between(rank.windows) == ((19_900_000, 1_000_000_000), (1_019_900_000, 2_000_000_000))


THREE = [window(n, first_correlation=1 + 1000 * n) for n in range(3)]
FURTHER = [window(n, first_correlation=1 + 1000 * n, first_step=10 * n) for n in range(3)]
ONE_BY_ONE = [window(n, first_correlation=1 + 1000 * n, first_step=4 * n, apart_us=60_000) for n in range(3)]
SWITCHED = [call("cudaProfilerStop", 19_950), call("cudaProfilerStart", 999_000)]
SWITCHED += [call("cuProfilerStop", 1_019_950), call("cuProfilerStart", 1_999_000)]
OPERATOR = {
    "ph": "X",
    "cat": "cpu_op",
    "name": "aten::add",
    "pid": 851,
    "tid": 9,
    "ts": US + 500_000,
    "dur": 3,
    "args": {},
}


def relative(content):
    """The trace with times since the base that it states, as newer profilers write them."""
    moved = [e | {"ts": e["ts"] - US} for e in content["traceEvents"]]
    return content | {"baseTimeNanoseconds": round(US * 1000), "traceEvents": moved}


def written(path, content):
    text = json.dumps(content).encode()
    path.parent.mkdir(exist_ok=True)
    path.write_bytes(gzip.compress(text) if path.suffix == ".gz" else text)


@pytest.mark.parametrize(
    ("names", "form"),
    [
        (["node1_851.9.pt.trace.json", "node1_851.10.pt.trace.json", "node1_851.2.pt.trace.json"], None),
        (["node1_851.1.pt.trace.json", "node1_851.2.pt.trace.json.gz", "node1_851.3.pt.trace.json"], None),
        (["node1_851.1.pt.trace.json", "node1_851.2.pt.trace.json", "node1_851.3.pt.trace.json.gz"], relative),
    ],
    ids=["names in another order", "packed in part", "times since a base"],
)
def test_windows_are_one_process_however_they_are_written(tmp_path, three, names, form):
    for content, name in zip(THREE, names, strict=True):
        written(tmp_path / "x" / name, form(content) if form else content)
    import_reports([str(tmp_path / "x")], tmp_path / "run", jobs=1)
    run = OpenRun(tmp_path / "run")
    assert run.manifest.ranks[0].windows == three.manifest.ranks[0].windows
    assert row(run, "breakdown") == row(three, "breakdown")


def test_windows_of_other_lengths_count_by_their_time(tmp_path, one):
    """A window of one step, and one of six in which the kernels are half as long."""
    long = window(1, steps=6, first_correlation=1000)
    for event in long["traceEvents"]:
        if event["cat"] == "kernel":
            event["dur"] = 150
    alone = [
        row(imported(tmp_path / f"{n}", [content]), "breakdown") for n, content in enumerate((window(0, steps=1), long))
    ]
    both = row(imported(tmp_path / "both", [window(0, steps=1), long]), "breakdown")
    assert alone[0]["idle_percent"] < row(one, "breakdown")["idle_percent"] < alone[1]["idle_percent"]
    assert (both["span_ns"], both["idle_ns"]) == tuple(sum(a[c] for a in alone) for c in ("span_ns", "idle_ns"))
    assert both["idle_percent"] == pytest.approx(100 * both["idle_ns"] / both["span_ns"])


def test_a_rank_that_lacks_a_window_of_the_others_is_judged_by_its_own(tmp_path, one):
    for n, content in enumerate(THREE):
        written(tmp_path / "x" / f"node1_851.{n}.pt.trace.json", content)
        if n != 1:
            other = [e | {"pid": 852 if e["pid"] == 851 else e["pid"]} for e in content["traceEvents"]]
            written(tmp_path / "x" / f"node1_852.{n}.pt.trace.json", content | {"traceEvents": other})
    import_reports([str(tmp_path / "x")], tmp_path / "run", jobs=1)
    run = OpenRun(tmp_path / "run")
    assert [len(r.windows) for r in run.manifest.ranks] == [3, 2]
    alone, rows = row(one, "breakdown"), run.recipe("breakdown").to_arrow().to_pylist()
    assert [r["span_ns"] for r in rows] == [3 * alone["span_ns"], 2 * alone["span_ns"]]
    assert [r["idle_percent"] for r in rows] == pytest.approx([alone["idle_percent"]] * 2)


@pytest.mark.parametrize("question", ["breakdown", "idle"])
@pytest.mark.parametrize(
    ("content", "windows"),
    [(in_one(THREE), 3), (in_one(FURTHER), 3), (in_one(ONE_BY_ONE), 3), (without_steps(in_one(THREE, *SWITCHED)), 3)],
    ids=["steps again", "steps left out", "steps one by one", "calls of the program"],
)
def test_windows_in_one_report(tmp_path, one, question, content, windows):
    run = imported(tmp_path / "x", [content])
    assert len(run.manifest.ranks[0].windows) == windows
    alone, together = row(one, question), row(run, question)
    assert together["idle_percent"] == pytest.approx(alone["idle_percent"], abs=1e-9)
    assert together["span_ns"] == windows * alone["span_ns"]
    assert any("windows were recorded; the time between them is not judged: 3" in n for n in run.recipe(question).notes)


@pytest.mark.parametrize(
    "content",
    [
        window(0),
        in_one([window(0, steps=1), window(0, first_step=1, steps=3, first_correlation=50, apart_us=0)]),
        in_one([window(0), window(1, first_step=4, apart_us=22_000, first_correlation=100)]),  # for less than a step
        without_steps(in_one(THREE)),  # a program may wait
        without_steps(in_one(THREE, call("cudaProfilerStart", -50), call("cudaProfilerStop", 2_020_000))),
        in_one(THREE[:2], *({**OPERATOR, "ts": US + at} for at in range(20_000, 1_000_000, 2_000))),
    ],
    ids=["one", "overlapping", "short", "no evidence", "on once", "operators between"],
)
def test_what_is_no_pause_of_the_profiler(tmp_path, content):
    assert imported(tmp_path / "x", [content]).manifest.ranks[0].windows == ()


def test_windows_of_several_reports_may_have_pauses_of_their_own(tmp_path):
    """The first report has two windows, the second one begins 3 s later."""
    second = [window(n, first_correlation=5000 + 1000 * n, first_step=20 + 4 * n) for n in (3, 4)]
    run = imported(tmp_path / "x", [in_one(THREE[:2]), in_one(second)])
    assert [a // 1_000_000 for a, _ in run.manifest.ranks[0].windows] == [0, 1000, 3000, 4000]


def test_steps_of_all_windows_are_judged(three):
    answer = three.recipe("diagnose")
    assert any(note.startswith("10 steps are judged") for note in answer.notes)
    assert all(f["lost_share"] is None or f["lost_share"] < 0.6 for f in answer.to_arrow().to_pylist())


def test_the_last_attempt_of_a_process_that_was_started_again_is_answered(tmp_path):
    """The pod has its host and its process id again, its launches are counted from 1, and its steps come again."""
    again = imported(tmp_path / "again", [window(0, steps=6), window(1, steps=4, apart_us=6e7)])
    (rank,) = again.manifest.ranks
    assert (rank.rows["kernels"], rank.windows, len(rank.reports)) == (24, (), 1)
    notes = again.recipe("breakdown").notes
    assert any(
        "reports of earlier attempts of the process, which was started again and has its last attempt here: 1" in note
        for note in notes
    )
    further = imported(
        tmp_path / "further", [window(0), window(1, first_step=10)]
    )  # as the capture ranges of one process
    assert (further.manifest.ranks[0].rows["kernels"], len(further.manifest.ranks[0].windows)) == (48, 2)


def test_spans():
    assert merged_spans([(5, 7), (0, 2), (2, 3), (6, 9)]) == ((0, 3), (5, 9))
    assert recorded_windows([(0, 5), (3, 9)]) == ()
    assert recorded_windows([(7, 9), (0, 5)]) == ((0, 5), (7, 9))
    assert between(()) == ()


@pytest.mark.parametrize("count", [1, 2], ids=["one report", "windows"])
def test_reports_with_nvidias_names_have_impossible_rows_as_recorded(tmp_path, count):
    """A kernel of 2 s in the last window: cut for questions of ours, whole for NVIDIA's, also where reports were
    joined."""
    windows = [window(n, first_correlation=1 + 1000 * n) for n in range(count)]
    kernels = [e for e in windows[-1]["traceEvents"] if e["cat"] == "kernel"]
    kernels[3]["dur"] = 2e6
    run = imported(tmp_path / "x", windows)
    assert run.manifest.ranks[0].rows["suspects"] == 1
    ours, theirs = run.recipe("kernels"), run.recipe("stats:cuda_gpu_kern_sum")
    total = (24 * count - 1) * 300_000
    assert ours.to_pylist()[0]["total_ns"] == total + 400_000
    assert theirs.to_pylist()[0]["Total Time (ns)"] == total + 2_000_000_000
    assert any(note.startswith("rows that cannot be true are left out, or have another end") for note in ours.notes)
    assert any(
        note.startswith("rows that cannot be true are in this answer as they were recorded") for note in theirs.notes
    )
    suspects = run.connect().sql('SELECT "table", reason, "end" - start, believed_end - start FROM suspects').fetchall()
    assert suspects == [("kernels", "overrun", 2_000_000_000, 400_000)]

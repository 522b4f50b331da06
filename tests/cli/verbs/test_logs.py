"""The verb `logs`, from arguments to answers and exit codes."""

import csv
import gzip
import io
import json
import os
import pickle

import pyarrow.parquet as pq
import pytest
from tests.inspector_writing import collective, record
from tests.nccl_writing import write_log
from tests.readers.flight_recorder.test_read import Evil, dump, entry
from tests.readers.nccl_tests.test_read import NEW
from tests.recipes.logs.test_nccl_views import coll


@pytest.fixture
def log(tmp_path):
    path = tmp_path / "nccl.log"
    path.write_bytes(write_log(calls=20).text)
    return path


@pytest.mark.parametrize(
    "view", ["calls", "ops", "histogram", "sizes", "communicators", "topology", "tuning", "mismatches"]
)
def test_every_view_of_nccl_in_json(alltrace, log, view):
    done = alltrace("logs", "nccl", log, "--view", view, "--format", "json")
    assert done.code == 0
    answer = json.loads(done.out)
    assert (answer["verb"], answer["run"]["ranks"], answer["run"]["hosts"]) == ("logs nccl", 4, 2)
    assert [set(row) for row in answer["rows"]] == [{c["name"] for c in answer["columns"]}] * len(answer["rows"])
    assert answer["not_understood"] == []
    assert any("80 COLL" in note for note in answer["notes"])


@pytest.mark.parametrize("view", ["calls", "ops", "histogram", "sizes"])
def test_views_of_nccl_with_amounts_have_a_picture(alltrace, log, tmp_path, view):
    assert alltrace("logs", "nccl", log, "--view", view, "--picture", tmp_path / "p.svg").code == 0
    assert "AllReduce" in (tmp_path / "p.svg").read_text(encoding="utf-8") or view == "calls"


def test_views_of_nccl_without_amounts_have_none(alltrace, log, tmp_path):
    done = alltrace("logs", "nccl", log, "--view", "communicators", "--picture", tmp_path / "p.svg")
    assert (done.code, done.out) == (2, "")
    assert "logs nccl has no chart" in done.err


def test_calls_in_every_format(alltrace, log, tmp_path):
    done = alltrace("logs", "nccl", log, "--view", "calls", "--format", "csv")
    assert done.code == 0
    assert len(list(csv.DictReader(io.StringIO(done.out)))) == 80
    assert (
        alltrace("logs", "nccl", log, "--view", "calls", "--format", "parquet", "-o", tmp_path / "c.parquet").code == 0
    )
    assert pq.read_table(tmp_path / "c.parquet").num_rows == 80
    rows = json.loads(alltrace("logs", "nccl", log, "--view", "calls", "--format", "json", "--ranks", "1").out)["rows"]
    assert [row["rank"] for row in rows] == [1] * 20


def test_logs_without_lines_of_steps_are_told_of_and_lines_without_calls_are_refused(alltrace, log, tmp_path):
    steps = b"".join(b"iteration %d/ 9 | elapsed time per iteration (ms): 3 |\n" % n for n in range(1, 4))
    (tmp_path / "steps.log").write_bytes(steps)
    done = alltrace("logs", "nccl", log, tmp_path / "steps.log", "--steps", "2:3")
    assert done.code == 2
    assert "the files with a step's line have no call of NCCL" in done.err
    (tmp_path / "both.log").write_bytes(log.read_bytes() + steps)
    done = alltrace("logs", "nccl", log, tmp_path / "both.log", "--steps", "1:3", "--format", "json")
    assert done.code == 0
    assert (
        "1 of 2 logs with calls have no step's line and share no communicator from its INIT on with logs that have, "
        "so none of their calls is counted with --steps" in json.loads(done.out)["notes"]
    )


def test_steps_of_nccl_by_a_training_log_of_its_own(alltrace, tmp_path):
    logs = tmp_path / "logs"
    logs.mkdir()
    stamps = [f"[2026-05-05 06:16:4{n}.{n}25] " for n in range(9)]
    (logs / "nccl.log").write_text("".join(stamp + coll(0, count=n + 1) for n, stamp in enumerate(stamps)))
    steps = "".join(f"[2026-05-05 06:16:4{n}.9{n}1] my step {n} loss 3.5\n" for n in range(2, 9, 2))
    (tmp_path / "own.log").write_text(steps)
    named = ("--training-log", tmp_path / "own.log", "--pattern", r"step (?P<step>\d+) loss (?P<loss>\S+)")
    done = alltrace("logs", "nccl", logs, *named, "--steps", "4:8", "--view", "sizes", "--format", "json")
    assert sorted(row["count"] for row in json.loads(done.out)["rows"]) == [4, 5, 6, 7]
    done = alltrace("logs", "nccl", logs, *named, "--view", "calls", "--format", "json")
    assert [row["step"] for row in json.loads(done.out)["rows"]] == [2, 2, 2, 4, 4, 6, 6, 8, 8]
    (logs / "train.log").write_text(steps.replace("my step", "step:").replace(" loss ", "  loss: "))
    done = alltrace("logs", "nccl", logs, "--steps", "4:8", "--view", "sizes", "--format", "json")
    assert sorted(row["count"] for row in json.loads(done.out)["rows"]) == [4, 5, 6, 7]
    for options, why in (
        (named, "--training-log assigns calls to steps; it works only with --steps and with the view calls"),
        ((*named[2:], "--steps", "4:8"), "--pattern needs --training-log, which was not given"),
        (("--training-log", logs / "nccl.log", "--steps", "4:8"), "0 steps in 9 lines, none of them with a time"),
    ):
        done = alltrace("logs", "nccl", logs, *options)
        assert done.code == (3 if "0 steps" in why else 2)
        assert why in done.err


def test_a_pattern_of_the_users_own(alltrace, tmp_path):
    (tmp_path / "a.log").write_text("at 1 took 7 ms\nat 2 took 9 ms\n")
    pattern = r"at (?P<step>\d+) took (?P<step_time_ms>\d+)"
    done = alltrace("logs", "training", tmp_path / "a.log", "--view", "steps", "--pattern", pattern, "--format", "json")
    assert [(r["step"], r["step_time_s"]) for r in json.loads(done.out)["rows"]] == [
        (1, pytest.approx(0.007)),
        (2, pytest.approx(0.009)),
    ]
    done = alltrace("logs", "training", tmp_path / "a.log")
    assert (done.code, "describe its lines with --pattern" in done.err) == (3, True)


def test_options_of_a_view_and_what_was_not_understood(alltrace, log):
    for options in (
        ["calls", "--time-format", "%H:%M"],
        ["histogram", "--edges", "1K"],
        ["histogram", "--preset", "four"],
    ):
        assert alltrace("logs", "nccl", log, "--view", *options).code == 0
    log.write_bytes(log.read_bytes() + b"gpu-node-0:1000:2000 [0] NCCL INFO AllReduce: opCount 5 sendbuff 0x1 recvb\n")
    answer = json.loads(alltrace("logs", "nccl", log, "--format", "json").out)
    assert [(u["file"], u["text"][:20]) for u in answer["not_understood"]] == [(str(log), "AllReduce: opCount 5")]


def test_nccl_tests_and_training(alltrace, tmp_path):
    (tmp_path / "t.out").write_text(NEW)
    rows = json.loads(alltrace("logs", "nccl-tests", tmp_path / "t.out", "--format", "json", "--peak", "200").out)[
        "rows"
    ]
    assert [(r["size_bytes"], r["place"], r["peak_share"]) for r in rows[:2]] == [
        (8, "out", 0.0),
        (1048576, "out", 50.0),
    ]
    (tmp_path / "a.log").write_text(
        "".join(f"iteration {k}/ 9 | elapsed time per iteration (ms): {k}000 |\n" for k in range(9))
    )
    rows = json.loads(alltrace("logs", "training", tmp_path / "a.log", "--format", "json", "--steps", "3:5").out)[
        "rows"
    ]
    assert [(r["metric"], r["mean"]) for r in rows] == [("step_time_s", 3.5)]


def test_a_pickle_with_code_is_refused_by_name(alltrace, tmp_path):
    (tmp_path / "rank_0").write_bytes(pickle.dumps(dump([entry(1)])))
    assert alltrace("logs", "flight-recorder", tmp_path / "rank_0").code == 0
    (tmp_path / "rank_1").write_bytes(pickle.dumps({"entries": [Evil()]}))
    done = alltrace("logs", "flight-recorder", tmp_path / "rank_1")
    assert (done.code, done.out) == (3, "")
    assert "rank_1: it has the instruction" in done.err
    done = alltrace("logs", "flight-recorder", tmp_path / "rank_0", tmp_path / "rank_1")
    assert done.code == 0
    assert "rank_1: it has the instruction" in done.out


@pytest.mark.parametrize("view", ["sizes", "summary", "compare", "hosts"])
def test_half_of_a_character_in_the_json_of_nccl_tests(alltrace, tmp_path, view):
    place = {"time": 1, "alg_bw": 1, "bus_bw": 1}
    data = {
        "nccl_tests_version": "\ud800",
        "config": {"test": "\ud800"},
        "devices": [{"host": "\ud800", "name": "\ud800"}, {"host": "b", "name": "x"}],
        "results": [{"size": 8, "type": "\ud800", "redop": "\ud800", "out_of_place": place}],
    }
    (tmp_path / "t.json").write_text(json.dumps(data))
    done = alltrace("logs", "nccl-tests", tmp_path / "t.json", "--view", view, "--format", "json")
    assert done.code == 0
    assert "ud800" not in done.out


@pytest.mark.parametrize("format", ["json", "csv", "md", "table", "parquet"])
@pytest.mark.parametrize(
    ("kind", "views", "text"),
    [
        (
            "nccl",
            ["calls", "ops", "mismatches"],
            write_log(calls=2).text + b"n:1:2 [0] NCCL INFO AllReduce: opCount 5 sendbuff\n",
        ),
        ("nccl-tests", ["sizes", "summary", "compare", "hosts"], NEW.encode()),
        ("nccl-tests", ["sizes"], b'{"results": [{"size": 8, "out_of_place": {"time": 1, "alg_bw": 1, "bus_bw": 1}}]}'),
        ("training", ["summary", "steps"], b"iteration 1/ 9 | elapsed time per iteration (ms): 3 |\niteration x\n"),
        ("flight-recorder", ["hangs", "entries", "steps"], pickle.dumps(dump([entry(1)]))),
        ("inspector", ["missing", "operations"], record(0, collective("AllReduce", 1, 1)).encode() + b"\n"),
    ],
)
def test_names_that_are_no_utf8(alltrace, tmp_path, kind, views, text, format):  # noqa: A002
    path = tmp_path / os.fsdecode(b"rank\xff.log")
    path.write_bytes(text)
    for view in views:
        done = alltrace("logs", kind, path, "--view", view, "--format", format, "-o", tmp_path / "answer")
        assert done.code == 0
        assert "\udcff" not in done.err
        assert b"udcff" not in (tmp_path / "answer").read_bytes()
        if format == "json" and view in ("calls", "mismatches", "sizes", "summary", "steps"):
            assert r"rank\\xff.log" in (tmp_path / "answer").read_text()


@pytest.mark.parametrize(
    ("arguments", "code", "said"),
    [
        (["logs"], 2, "logs needs a kind of log"),
        (["logs", "x"], 2, "invalid choice"),
        (["logs", "nccl", "nowhere.log"], 3, "there is no such file"),
        (["logs", "nccl", "empty.log"], 3, "none of 0 lines is an NCCL record"),
        (["logs", "nccl", "empty.log", "--steps", "x"], 2, "--steps is 'x'"),
        (["logs", "nccl", "empty.log", "--edges", "5,4"], 2, "--edges is '5,4'"),
        (["logs", "nccl", "empty.log", "--time-format", "%s"], 2, "--time-format is not for the view ops"),
        (["logs", "nccl", "empty.log", "--edges", "4,5"], 2, "--edges is not for the view ops"),
        (["logs", "nccl", "empty.log", "--preset", "powers", "--view", "calls"], 2, "it is for the view histogram"),
        (["logs", "nccl", "empty.log", "--format", "parquet"], 2, "give -o FILE"),
        (["logs", "nccl-tests", "empty.log"], 3, "no table of nccl-tests"),
        (["logs", "nccl-tests", "empty.log", "--peak", "-1"], 2, "--peak is -1"),
        (["logs", "training", "empty.log"], 3, "no step lines"),
        (["logs", "flight-recorder", "empty.log"], 3, "it is empty"),
        (["logs", "inspector", "empty.log"], 3, "no record of NCCL Inspector"),
        (["logs", "inspector", "empty.log", "--nccl-tests", "nowhere.out"], 3, "there is no such file"),
    ],
)
def test_what_cannot_work_is_told_in_a_sentence(alltrace, arguments, code, said):
    with open("empty.log", "w"):  # noqa: PTH123  the fixture has changed into an empty folder
        pass
    done = alltrace(*arguments)
    assert (done.code, done.out) == (code, "")
    assert said in done.err


@pytest.mark.parametrize(
    ("kind", "said"),
    [
        ("training", "no step lines in 0 lines"),
        ("nccl", "none of 0 lines is an NCCL record"),
        ("nccl-tests", "no table of nccl-tests in 0 lines"),
    ],
)
def test_a_packed_log_that_is_cut_before_its_first_line_is_said_to_be_cut(alltrace, tmp_path, kind, said):
    (tmp_path / "cut.log.gz").write_bytes(gzip.compress(b"iteration 1/10 | loss 1.0\n" * 99)[:10])
    done = alltrace("logs", kind, tmp_path / "cut.log.gz")
    assert (done.code, done.out) == (3, "")
    assert f"cut.log.gz: {said}: the gzip data ends early; everything before was read" in done.err
    assert "Traceback" not in done.err
    (tmp_path / "all.log").write_text("nothing\n")
    done = alltrace("logs", kind, tmp_path / "all.log", tmp_path / "cut.log.gz")
    assert "cut.log.gz: the gzip data ends early" in done.err
    assert "all.log and 1 more" in done.err

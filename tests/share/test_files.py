import gzip
import json
import pickle
import re
import shutil
import sqlite3
from contextlib import closing

import pytest
from tests.making import kernel, make_run

from alltrace.cli.main import main
from alltrace.readers.flight_recorder.read import read_recording
from alltrace.run.store import Run
from alltrace.share.files import share
from alltrace.trace.errors import InputError, UsageError

HOST = "gpu-zeppelin-17"
PAYLOAD = "the merger closes on Friday"
SECRETS = {
    "host": HOST,
    "domain": f"{HOST}.rack9.zeppelin.example",
    "address": "10.77.66.55",
    "address of version 6": "fe80::77:66ff",
    "user": "mallory",
    "home": "/home/mallory/moonshot/train.py",
    "path": "/lustre/zeppelin-weights/v7/shard.bin",
    "variable": "HF_TOKEN=hunter2xyz",
    "key": "AKIAZEPPELIN12345678",
    "argument": "--password hunter2xyz",
    "address of a bucket": "https://zeppelin.s3.example/x?X-Signature=hunter2xyz",
    "mail": "mallory@zeppelin.example",
    "payload": PAYLOAD,
}
LEFT = re.compile(rb"zeppelin|mallory|moonshot|hunter2|10\.77|fe80|merger|ZEPPELIN")
IN_NAMES = [text for kind, text in SECRETS.items() if kind != "payload"]


def trace(path, rank=0):
    """A trace with all secrets in all places that hold a program's text."""
    secret_stack = ";".join(IN_NAMES)
    events = [
        {"ph": "X", "cat": "kernel", "name": "gemm", "pid": 0, "tid": 7, "ts": 1234567890123.456, "dur": 5.25,
         "args": {"device": 0, "stream": 7, "correlation": 3, "note": PAYLOAD, PAYLOAD: 1, "grid": [1, 1, 1],
             "block": [32, 1, 1]}},
        {"ph": "X", "cat": "cpu_op", "name": "aten::mm", "pid": 4000, "tid": 4000, "ts": 1234567890120.001, "dur": 4,
         "args": {"Concrete Inputs": ["", "[1, 2]", "True", *SECRETS.values()], "Input Dims": [[2, 3], []],
                  "Call stack": secret_stack}},
        {"ph": "M", "name": "process_name", "pid": 4000, "tid": 0, "ts": 0, "args": {"name": f"python {secret_stack}"}},
    ]  # fmt: skip
    events += [
        {
            "ph": "X",
            "cat": "user_annotation",
            "name": f"load {text}",
            "pid": 4000,
            "tid": 4000,
            "ts": 1234567890120.5 + n,
            "dur": 1,
        }
        for n, text in enumerate(IN_NAMES)
    ]
    whole = {
        "schemaVersion": 1,
        "distributedInfo": {
            "backend": "nccl",
            "rank": rank,
            "world_size": 2,
            "pg_config": [{"pg_name": "0", "pg_desc": HOST}],
        },
        "host_name": SECRETS["domain"],
        "config": dict(SECRETS),
        "traceEvents": events,
        "traceName": SECRETS["home"],
    }
    data = json.dumps(whole).encode()
    path.write_bytes(gzip.compress(data) if path.suffix == ".gz" else data)


def dump(path, rank=0):
    """A dump of the flight recorder, as pickle or JSON by its name."""
    frames = [{"name": "train", "filename": text, "line": 3} for text in IN_NAMES]
    entry = {
        "record_id": 0, "pg_id": 0, "process_group": ("0", SECRETS["home"]), "collective_seq_id": 1, "p2p_seq_id": 0,
        "op_id": 1, "profiling_name": "nccl:all_reduce", "time_created_ns": 17 * 10**17, "input_sizes": [[4, 4]],
        "input_dtypes": ["Float"], "output_sizes": [[4, 4]], "output_dtypes": ["Float"], "state": "started",
        "is_p2p": False, "frames": frames, "thread_name": PAYLOAD, "note": PAYLOAD,
    }  # fmt: skip
    groups = {"0": {"name": "0", "desc": f"of {SECRETS['mail']}", "ranks": f"[0, {rank + 1}]"}}
    whole = {"version": "2.10", "pg_config": groups, "rank": rank, "entries": [entry], "host": HOST, **SECRETS}
    path.write_bytes(json.dumps(whole).encode() if path.suffix == ".json" else pickle.dumps(whole, 2))


def log(path):
    """The output of a job: lines of NCCL, of steps, and of the program."""
    lines = [
        (
            f"0: [pod/{SECRETS['user']}-0/x] 2026-01-01 13:00:00 {HOST}:77:77 [0] NCCL INFO comm 0x1 rank 0 nranks 2 -"
            " Init START"
        ),
        f"{SECRETS['domain']}:77:78 [0] NCCL INFO NET/Socket : Using [0]eth0:10.77.66.55<0> fe80::77:66ff",
        f"{HOST}:77:78 [0] NCCL INFO NCCL_TOPO_FILE set by environment to {SECRETS['path']}",
        f"{HOST}:77:78 [0] NCCL INFO NCCL_IB_HCA set by environment to {PAYLOAD}",
        (
            f"{PAYLOAD} {HOST}:77:78 [0] NCCL INFO AllReduce: opCount 0 sendbuff 0x1 recvbuff 0x2 count 5 datatype 7 op"
            " 0 comm 0x1"
        ),
        *(f"{kind}: {text}" for kind, text in SECRETS.items()),
        "stream 0x5 of nothing",
        " iteration 5/ 12 | elapsed time per iteration (ms): 36.0 | note: the merger | lm loss: 1.5 |",
        "{'loss': 1.5, 'learning_rate': 0.1, 'epoch': 0.5, 'note': 'the merger'}",
        (
            "2026-01-01 13:00:01 iteration 6/ 12 | elapsed time per iteration (ms): 37.0 | lm loss: 1.4 |"
            f" {' '.join(IN_NAMES)}"
        ),
    ]
    path.write_text("\n".join(lines) + "\n")


def export(path):
    """An export of nsys with texts that stay and name what they must not."""
    with closing(sqlite3.connect(path)) as db:
        db.execute("CREATE TABLE TARGET_INFO_SYSTEM_ENV (name TEXT, value TEXT)")
        environment = ";".join([SECRETS["variable"], "USER=mallory", "RANK=0", f"NOTE={PAYLOAD}"])
        rows = [("Hostname", SECRETS["domain"]), ("DeviceEnvironment", environment)]
        db.executemany("INSERT INTO TARGET_INFO_SYSTEM_ENV VALUES (?, ?)", rows)
        db.execute("CREATE TABLE StringIds (id INTEGER PRIMARY KEY, value TEXT)")
        db.executemany(
            "INSERT INTO StringIds VALUES (?, ?)", enumerate([*IN_NAMES, "ncclKernel", "/usr/lib/libcuda.so"])
        )
        db.execute("CREATE TABLE NVTX_EVENTS (text TEXT, eventType INTEGER, jsonText TEXT, textId INTEGER)")
        db.executemany(
            "INSERT INTO NVTX_EVENTS VALUES (?, 59, ?, ?)", [(f"x {t}", PAYLOAD, n) for n, t in enumerate(IN_NAMES)]
        )
        db.commit()


def run_directory(path):
    """A run with payloads, and names of all kinds."""
    ranges = [
        {"start": n, "end": n + 1, "name": f"load {text}", "payload": json.dumps({"note": PAYLOAD, "rank": 3})}
        for n, text in enumerate(IN_NAMES)
    ]
    rows = {"kernels": [kernel(0, 10), kernel(12, 20)], "ranges": ranges}
    make_run(
        path,
        {0: rows, 1: rows},
        hosts={0: HOST, 1: SECRETS["domain"]},
        notes=[f"from {SECRETS['path']}", SECRETS["mail"]],
    )


FORMATS = {
    "a.json": trace, f"{HOST}_4000.17.pt.trace.json.gz": trace, "nccl_trace_rank_3": dump, "fr_3.json": dump,
    "slurm.out": log, "rank0.sqlite": export, "run": run_directory,
}  # fmt: skip


def everything(folder):
    """The bytes of all files, unpacked, with their names; of Parquet files the values."""
    import pyarrow.parquet as pq

    parts = []
    for path in [folder, *folder.rglob("*")]:
        parts.append(path.name.encode())
        if path.suffix == ".parquet":
            parts.append(str(pq.read_table(path).to_pydict()).encode())
        elif path.is_file():
            data = path.read_bytes()
            parts += [data, gzip.decompress(data) if data[:2] == b"\x1f\x8b" else b""]
    return b"\n".join(parts)


@pytest.mark.parametrize("name", FORMATS)
def test_thirteen_secrets_are_gone_and_what_was_done_is_said(name, tmp_path):
    FORMATS[name](tmp_path / name)
    before = everything(tmp_path / name)
    assert LEFT.search(before)
    said = share([tmp_path / name], tmp_path / "out")
    assert LEFT.findall(everything(tmp_path / "out")) == []
    assert everything(tmp_path / name) == before
    assert any("removed" in line or "emptied" in line for line in said)
    assert "kept: times" in said[-1]
    assert LEFT.search("\n".join(said[1:]).encode()) is None


def test_all_kinds_at_once_name_a_host_alike_and_the_rest_is_named(tmp_path):
    folder = tmp_path / "job"
    for name, write in FORMATS.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        write(folder / name)
    (folder / "image.png").write_bytes(b"\x89PNG")
    (folder / "link.json").symlink_to(folder / "a.json")
    said = share([folder], tmp_path / "out", hide=["image"])
    assert LEFT.findall(everything(tmp_path / "out")) == []
    assert said[0] == "left out, as they are of no kind that can be scrubbed: image.png, link.json"
    out = tmp_path / "out"
    assert sorted(p.name for p in out.iterdir()) == [
        "a.json", "fr_3.json", "host1_4000.17.pt.trace.json.gz", "nccl_trace_rank_3", "rank0.sqlite", "run",
        "slurm.out",
    ]  # fmt: skip
    with closing(sqlite3.connect(out / "rank0.sqlite")) as db:
        stated = db.execute("SELECT value FROM TARGET_INFO_SYSTEM_ENV").fetchall()
        strings = [value for (value,) in db.execute("SELECT value FROM StringIds")]
    assert stated == [("host1",), ("RANK=0",)]
    assert strings[-2:] == ["ncclKernel", "/usr/lib/libcuda.so"]
    assert json.loads((out / "a.json").read_text())["host_name"] == "host1"
    assert set(Run(out / "run").hosts) == {"host1"}
    lines = (out / "slurm.out").read_text().splitlines()
    assert lines[0] == "0:  2026-01-01 13:00:00 host1:77:77 [0] NCCL INFO comm 0x1 rank 0 nranks 2 - Init START"
    assert lines[3] == "host1:77:78 [0] NCCL INFO NCCL_IB_HCA set by environment to (removed)"
    assert lines[4].startswith("host1:77:78 [0] NCCL INFO AllReduce: opCount 0")
    assert lines[5:18] == [""] * 13
    assert lines[19].endswith("| note: 0| lm loss: 1.5 |")
    assert len(lines) == 22


def test_numbers_and_shapes_of_a_trace_stay_as_they_were_written(tmp_path):
    trace(tmp_path / "a.json")
    share([tmp_path / "a.json"], tmp_path / "b.json")
    text = (tmp_path / "b.json").read_text()
    assert '"ts": 1234567890123.456, "dur": 5.25' in text
    first, second, _, *ranges = json.loads(text)["traceEvents"]
    assert first["args"] == {"device": 0, "stream": 7, "correlation": 3, "grid": [1, 1, 1], "block": [32, 1, 1]}
    assert second["args"]["Concrete Inputs"][:3] == ["", "[1, 2]", "True"]
    assert second["args"]["Input Dims"] == [[2, 3], []]
    assert len(ranges) == len(IN_NAMES)
    share([tmp_path / "a.json"], tmp_path / "c.json", drop_texts=True)
    names = [event["name"] for event in json.loads((tmp_path / "c.json").read_text())["traceEvents"]]
    assert names == ["gemm", "aten::mm", "process_name", *(f"range{n}" for n in range(1, len(IN_NAMES) + 1))]


def test_a_dump_says_the_same_without_its_places(tmp_path):
    dump(tmp_path / "nccl_trace_rank_3", 3)
    share([tmp_path / "nccl_trace_rank_3"], tmp_path / "out_rank_3")
    before, after = (read_recording(str(tmp_path / name)) for name in ("nccl_trace_rank_3", "out_rank_3"))
    assert after.ranks == before.ranks == (3,)
    assert after.groups == before.groups == {"0": (0, 4)}
    (old,), (new,) = before.entries, after.entries
    assert (new.op, new.state, new.bytes, new.sequence, new.created_ns) == (old.op, old.state, 64, 1, old.created_ns)
    assert new.frame != old.frame


class Evil:
    """Calls a function when it is unpickled."""

    def __reduce__(self):
        return (print, ("executed",))


def test_what_cannot_be_scrubbed_is_refused_and_nothing_stays(tmp_path, capfd):
    trace(tmp_path / "cut.json")
    (tmp_path / "cut.json").write_bytes((tmp_path / "cut.json").read_bytes()[:-400])
    (tmp_path / "evil_rank_0").write_bytes(pickle.dumps({"entries": [Evil()]}, 2))
    (tmp_path / "deep.json").write_text('{"traceEvents": ' + "[" * 100_000)
    (tmp_path / "plain.txt").write_text("hello\n")
    (tmp_path / "rank0.qdstrm").write_bytes(b"x")
    (tmp_path / "empty").mkdir()
    for name, expected in (
        ("cut.json", "its JSON is damaged or ends early"),
        ("evil_rank_0", "it cannot be scrubbed"),
        ("deep.json", "it has no event"),
        ("plain.txt", "it is of no kind that can be scrubbed; expected a report of nsys"),
        ("rank0.qdstrm", "a report itself cannot be scrubbed"),
        ("empty", "there is nothing in it that can be scrubbed"),
        ("missing", "there is no such file"),
    ):
        with pytest.raises(InputError, match=expected):
            share([tmp_path / name], tmp_path / "out")
        assert not [p for p in tmp_path.iterdir() if p.name.startswith((".out", "out"))], name
    assert "executed" not in capfd.readouterr().out
    trace(tmp_path / "a.json")
    with pytest.raises(UsageError, match="already exists"):
        share([tmp_path / "a.json"], tmp_path / "plain.txt")
    (tmp_path / "other").mkdir()
    trace(tmp_path / "other/a.json")
    with pytest.raises(UsageError, match=r"two files would be called a\.json"):
        share([tmp_path / "a.json", tmp_path / "other/a.json"], tmp_path / "out")
    assert not (tmp_path / "out").exists()


def judged(capfd, *paths):
    """What `diagnose` says, with the names of hosts as numbers in their order."""
    capfd.readouterr()
    assert main(["diagnose", *map(str, paths), "--format", "json"]) == 0
    answer = json.loads(capfd.readouterr().out)
    return [{k: len(v) if k == "hosts" else v for k, v in row.items() if k != "devices"} for row in answer["rows"]]


@pytest.mark.slow
@pytest.mark.parametrize("form", ["sqlite", "kineto"])
def test_findings_are_the_same(form, tmp_path, capfd, monkeypatch):
    monkeypatch.setenv("ALLTRACE_CACHE_DIR", str(tmp_path / "cache"))
    before = tmp_path / "before"
    scenario = ["straggler", "--ranks", "4", "--hosts", "2", "--steps", "6", "--as", form, "--logs"]
    assert main(["synth", *scenario, "-o", str(before)]) == 0
    logs = ["--nccl-log", str(before / "logs")]
    assert main(["import", str(before), *logs, "-o", str(before / "run")]) == 0
    found = judged(capfd, before / "run")
    assert found[0]["kind"] == "straggler"
    assert main(["capture", "scrub", str(before), "-o", str(tmp_path / "after")]) == 0
    after = tmp_path / "after"
    assert judged(capfd, after / "run") == found
    shutil.rmtree(after / "run")
    assert main(["import", str(after), "--nccl-log", str(after / "logs"), "-o", str(tmp_path / "again")]) == 0
    assert judged(capfd, tmp_path / "again") == found


def test_a_text_that_looks_like_a_marked_number_is_a_text(tmp_path):
    trace(tmp_path / "a.json")
    content = json.loads((tmp_path / "a.json").read_text())
    content["traceEvents"].append(
        {"ph": "X", "cat": "cpu_op", "name": f"\0{SECRETS['home']}", "pid": 1, "tid": 1, "ts": 1.5, "dur": 1}
    )
    (tmp_path / "a.json").write_text(json.dumps(content))
    share([tmp_path / "a.json"], tmp_path / "b.json")
    assert LEFT.search((tmp_path / "b.json").read_bytes()) is None

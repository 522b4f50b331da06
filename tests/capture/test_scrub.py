import json
import re
import shutil
import sqlite3
import struct
import subprocess
from contextlib import closing

import pytest

from alltrace.capture.scrub import scrub
from alltrace.trace.errors import InputError, UsageError

SECRET = "hunter2-" * 600  # longer than a page


@pytest.fixture
def export(tmp_path):
    path = tmp_path / "a.sqlite"
    with closing(sqlite3.connect(path)) as db:
        db.execute("CREATE TABLE TARGET_INFO_SYSTEM_ENV (globalVid, devStateName, name, nameEnum, value)")
        rows = [
            ("DeviceEnvironment", f"HF_TOKEN={SECRET};RANK=3;PMI_SIZE=x{SECRET};EMPTY=\nWORLD_SIZE=8"),
            ("CpuInfo", "{}"),
        ]
        db.executemany("INSERT INTO TARGET_INFO_SYSTEM_ENV (name, value) VALUES (?, ?)", rows)
        db.execute("CREATE TABLE META_DATA_CAPTURE (name, value)")
        rows = [
            ("PROCESS_0:COMMAND", "python"),
            ("PROCESS_0:ARGUMENT_1", f"--password={SECRET}"),
            ("PROCESS_0:WORKING_DIR", f"/home/{SECRET}"),
            ("PROCESS_0:ENVIRONMENT_VARIABLE", f"AWS_KEY={SECRET}"),
            ("PROCESS_0:ENVIRONMENT_VARIABLE", 'SLURM_PROCID="3"'),
            ("RATE_HZ", "0"),
        ]
        db.executemany("INSERT INTO META_DATA_CAPTURE VALUES (?, ?)", rows)
        db.execute("CREATE TABLE StringIds (id INTEGER PRIMARY KEY, value TEXT)")
        db.executemany(
            "INSERT INTO StringIds VALUES (?, ?)",
            [
                (1, "ncclKernel"),
                (2, f"token {SECRET}"),
                (3, "stdout.log"),
                (4, f"[ini] {SECRET}"),
                (
                    5,
                    f"HOME=/root\0MFLAGS\0OF_ANOTHER={SECRET}\0RANK=3",
                ),  # of any process of the host; no table refers to it
                (6, f"ALONE={SECRET}"),
                (7, "lr=0.1"),
                (8, f"NAMED={SECRET}\0TWICE={SECRET}"),
                (9, "a == b"),
            ],
        )
        db.execute(
            "CREATE TABLE NVTX_EVENTS (start,\n    textId INTEGER, -- REFERENCES StringIds(id)\n    rangeId INTEGER)"
        )
        db.executemany("INSERT INTO NVTX_EVENTS VALUES (0, ?, ?)", [(7, 6), (8, None), (1, None)])
        db.execute("CREATE TABLE ProcessStreams (globalPid, filenameId, contentId)")
        db.execute("INSERT INTO ProcessStreams VALUES (1, 3, 2)")
        db.execute("CREATE TABLE ANALYSIS_FILE (id, filename, contentId, globalPid)")
        db.executemany("INSERT INTO ANALYSIS_FILE VALUES (?, 'f', ?, 1)", [(0, 2), (1, 4), (2, None)])
        db.commit()
    return path


def test_nothing_secret_is_left_anywhere_in_the_file(export, tmp_path):
    before = export.read_bytes()
    found = scrub(export, tmp_path / "b.sqlite")
    assert found.variables == (
        *("ALONE", "AWS_KEY", "EMPTY", "HF_TOKEN", "HOME", "NAMED", "OF_ANOTHER", "PMI_SIZE", "RANK", "TWICE"),
    )
    assert (found.command_words, found.streams, found.environments, found.strings) == (3, 2, 3, 1)
    assert export.read_bytes() == before
    assert b"hunter2" in before
    assert b"hunter2" not in (tmp_path / "b.sqlite").read_bytes()
    with closing(sqlite3.connect(tmp_path / "b.sqlite")) as db:
        assert db.execute("SELECT name, value FROM TARGET_INFO_SYSTEM_ENV").fetchall() == [
            ("DeviceEnvironment", "RANK=3;WORLD_SIZE=8"),
            ("CpuInfo", "{}"),
        ]
        values = [v for (v,) in db.execute("SELECT value FROM META_DATA_CAPTURE")]
        assert values == ["", "", "", "", 'SLURM_PROCID="3"', "0"]
        values = [v for (v,) in db.execute("SELECT value FROM StringIds ORDER BY id")]
        assert values == ["ncclKernel", "", "stdout.log", "", "", "", "lr=0.1", "", ""]


def test_where_the_tables_do_not_say_what_refers_to_a_string_a_name_stays(export, tmp_path):
    with closing(sqlite3.connect(export)) as db:
        db.execute("DROP TABLE NVTX_EVENTS")
        db.execute("CREATE TABLE NVTX_EVENTS (start INTEGER, textId INTEGER)")
        db.execute("INSERT INTO NVTX_EVENTS VALUES (6, 7)")
        db.commit()
    assert scrub(export, tmp_path / "b.sqlite").environments == 3
    with closing(sqlite3.connect(tmp_path / "b.sqlite")) as db:
        assert db.execute("SELECT value FROM StringIds WHERE id IN (6, 7) ORDER BY id").fetchall() == [
            ("",),
            ("lr=0.1",),
        ]


def test_names_of_processes_without_an_event_go(export, tmp_path):
    own, other = 7 << 24, 8 << 24
    with closing(sqlite3.connect(export)) as db:
        db.execute("CREATE TABLE PROCESSES (globalPid INTEGER, pid INTEGER, name TEXT)")
        db.executemany("INSERT INTO PROCESSES VALUES (?, ?, ?)", [(own, 7, "train"), (other, 8, "secret-sshd")])
        db.execute(
            "CREATE TABLE ThreadNames (nameId INTEGER, -- REFERENCES StringIds(id)\n priority, globalTid INTEGER)"
        )
        db.executemany(
            "INSERT INTO StringIds VALUES (?, ?)", [(20, "main"), (21, "secret-thread"), (22, "secret-sleep")]
        )
        db.executemany("INSERT INTO ThreadNames VALUES (?, 0, ?)", [(20, own | 1), (21, other | 1)])
        db.execute("CREATE TABLE OSRT_API (globalTid INTEGER)")
        db.execute("INSERT INTO OSRT_API VALUES (?)", (own | 1,))
        db.execute("CREATE TABLE SCHED_EVENTS (globalTid INTEGER)")
        db.execute("INSERT INTO SCHED_EVENTS VALUES (?)", (other | 1,))
        db.commit()
    assert scrub(export, tmp_path / "b.sqlite").processes == 1
    with closing(sqlite3.connect(tmp_path / "b.sqlite")) as db:
        assert db.execute("SELECT pid, name FROM PROCESSES").fetchall() == [(7, "train"), (8, "")]
        assert db.execute("SELECT nameId FROM ThreadNames").fetchall() == [(20,)]
    assert b"secret-" not in (tmp_path / "b.sqlite").read_bytes()


def test_texts_of_ranges_can_be_dropped(tmp_path):
    path = tmp_path / "a.sqlite"
    with closing(sqlite3.connect(path)) as db:
        db.execute("CREATE TABLE StringIds (id INTEGER PRIMARY KEY, value TEXT)")
        db.executemany("INSERT INTO StringIds VALUES (?, ?)", [(1, "secret_layer"), (2, "NCCL"), (3, "ncclAllReduce")])
        db.execute(
            "CREATE TABLE NVTX_EVENTS (eventType INTEGER, text TEXT, textId INTEGER, -- REFERENCES StringIds(id)\n"
            "domainId INTEGER, jsonText TEXT)"
        )
        rows = [
            (75, "NCCL", None, 5, None),
            (59, None, 3, 5, '{"bytes": 1}'),
            (59, None, 1, 0, '{"secret": 1}'),
            (60, "secret b", None, 0, None),
            (34, "secret_layer", None, None, None),
        ]
        db.executemany("INSERT INTO NVTX_EVENTS VALUES (?, ?, ?, ?, ?)", rows)
        db.commit()
    assert scrub(path, tmp_path / "b.sqlite", drop_texts=True).texts == 2
    with closing(sqlite3.connect(tmp_path / "b.sqlite")) as db:
        assert db.execute("SELECT text, textId, jsonText FROM NVTX_EVENTS").fetchall() == [
            ("NCCL", None, None), (None, 3, '{"bytes": 1}'),
            ("range 2", None, None), ("range 1", None, None), ("range 2", None, None),
        ]  # fmt: skip
    assert b"secret" not in (tmp_path / "b.sqlite").read_bytes()


def nvtx_export(path):
    """An export with payloads of NCCL and of a program, as text, as numbers and as binary data."""
    nccl = {"NCCL communicator ID": 255, "Message size [bytes]": 64, "Peer rank": 1}
    header = struct.pack("<QQQQ", 1, 1 << 24, 24, 56)
    with closing(sqlite3.connect(path)) as db:
        db.execute(
            "CREATE TABLE NVTX_EVENTS (start, eventType, text, textId, domainId, jsonText, jsonTextId, binaryData,"
            " uint64Value,\nrangeId INTEGER, -- REFERENCES StringIds(id)\nmore INTEGER)"
        )
        rows = [
            (0, 75, "NCCL", None, 1, None, None, None, None),
            (1, 59, "ncclSend", None, 1, json.dumps(nccl), None, None, None),
            (2, 59, "ncclSend", None, 2, json.dumps({**nccl, "note": SECRET, "datatype": SECRET}), None, None, None),
            (3, 59, "ncclSend", None, 1, None, None, header + bytes(24), None),
            (4, 59, "ncclSend", None, 1, None, None, header.replace(b"\1\0\0\0", b"\1\1\0\0") + SECRET.encode(), None),
            (5, 59, "mine", None, 0, json.dumps({"rank": 3}), None, None, None),
            (6, 59, "mine", None, 0, None, 1, None, None),
            (7, 59, "mine", None, 0, None, None, None, 7),
            (8, 59, "plain", None, 0, None, None, None, None),
        ]
        db.executemany("INSERT INTO NVTX_EVENTS VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, 0, 0)", rows)
        db.execute("CREATE TABLE StringIds (id INTEGER PRIMARY KEY, value TEXT)")
        db.execute("INSERT INTO StringIds VALUES (1, ?)", (SECRET,))
        db.execute("CREATE TABLE NVTX_PAYLOAD_SCHEMA_ENTRIES (domainId, schemaId, name)")
        entries = [(1, 1 << 24, "NCCL communicator ID"), (1, 1 << 24, "Peer rank"), (1, (1 << 24) + 256, "prompt")]
        db.executemany("INSERT INTO NVTX_PAYLOAD_SCHEMA_ENTRIES VALUES (?, ?, ?)", entries)
        db.execute("CREATE TABLE DYNAMIC_NVTXPAYLOAD_DATATYPE_1_1_2 AS SELECT ? AS prompt", (SECRET,))
        db.commit()
    return json.dumps(nccl)


def test_of_payloads_only_fields_of_nccl_stay(tmp_path):
    kept = nvtx_export(tmp_path / "a.sqlite")
    assert scrub(tmp_path / "a.sqlite", tmp_path / "b.sqlite").payloads == 5
    with closing(sqlite3.connect(tmp_path / "b.sqlite")) as db:
        asked = "SELECT jsonText, jsonTextId, length(binaryData), uint64Value FROM NVTX_EVENTS ORDER BY start"
        found = db.execute(asked).fetchall()
        assert not db.execute("SELECT 1 FROM sqlite_master WHERE name LIKE 'DYNAMIC%'").fetchall()
    nothing = (None,) * 4
    assert found == [nothing, (kept, *nothing[1:]), (kept, *nothing[1:]), (None, None, 56, None), *[nothing] * 5]
    assert b"hunter2" not in (tmp_path / "b.sqlite").read_bytes()


def test_payloads_stay_where_they_are_to(capture, tmp_path):
    nvtx_export(tmp_path / "a.sqlite")
    capture("scrub", "a.sqlite", "--output", "b.sqlite", "--keep-payloads")
    counted = "SELECT count(jsonText), count(jsonTextId), count(binaryData), count(uint64Value) FROM NVTX_EVENTS"
    with closing(sqlite3.connect(tmp_path / "b.sqlite")) as db:
        assert db.execute(counted).fetchall() == [(3, 1, 2, 1)]
    said = capture("scrub", "a.sqlite", "--output", "c.sqlite").stdout
    assert "5 payloads" in said


def test_a_report_is_exported_with_payloads_before(capture, export, tmp_path):
    (tmp_path / "a.nsys-rep").write_bytes(b"report")
    tool = tmp_path / "nsys"
    tool.write_text(
        '#!/bin/sh\n[ "$2" != --help ] || { echo "--include-blobs= --include-json="; exit; }\necho "$*" >'
        f' {tmp_path}/words; for a in "$@"; do case "$a" in --output=*) cp {export} "${{a#--output=}}";; esac; done\n'
    )
    tool.chmod(0o755)
    assert capture("scrub", "a.nsys-rep", "--output", "b.sqlite", "--nsys", tool).returncode == 0
    assert "--include-blobs=true --include-json=true" in (tmp_path / "words").read_text()


def test_a_folder_of_exports_and_reports(capture, export, tmp_path):
    folder = tmp_path / "job"
    (folder / "node 1").mkdir(parents=True)
    for place in ("rank0.sqlite", "node 1/rank1.sqlite"):
        shutil.copyfile(export, folder / place)
    (folder / "rank0.nsys-rep").write_bytes(b"has an export beside it")
    (folder / "rank2.nsys-rep").write_bytes(b"has none")
    (folder / "slurm.out").write_text(SECRET)
    nsys = tmp_path / "nsys"
    nsys.write_text(f'#!/bin/sh\nfor a; do case $a in --output=*) cp {export} "${{a#--output=}}";; esac; done\n')
    nsys.chmod(0o755)
    done = capture("scrub", folder, "-o", tmp_path / "out", "--nsys", nsys)
    assert done.returncode == 0, done.stderr
    assert sorted(str(p.relative_to(tmp_path / "out")) for p in (tmp_path / "out").rglob("*.*")) == [
        "node 1/rank1.sqlite", "rank0.sqlite", "rank2.sqlite",
    ]  # fmt: skip
    assert all(b"hunter2" not in p.read_bytes() for p in (tmp_path / "out").rglob("*.sqlite"))
    assert "node 1/rank1.sqlite: removed 10 variables" in done.stdout
    nsys.write_text("#!/bin/sh\necho it is damaged; exit 1\n")
    done = capture("scrub", folder / "rank2.nsys-rep", "-o", tmp_path / "c.sqlite", "--nsys", nsys)
    assert (done.returncode, "cannot export it (it is damaged)" in done.stderr) == (3, True)
    assert capture("scrub", folder, "-o", tmp_path / "out", "--nsys", nsys).returncode == 2
    (tmp_path / "empty").mkdir()
    assert capture("scrub", tmp_path / "empty", "-o", tmp_path / "d").returncode == 3


@pytest.mark.oracle
def test_an_export_of_the_real_nsys_has_nothing_of_any_process_of_the_host(capture, nsys, tmp_path):
    with subprocess.Popen(["sleep", "60"], env={"OTHER_TOKEN": SECRET, "ANOTHER": "1"}) as other:
        alone = subprocess.Popen(["sleep", "60"], env={"ALONE_TOKEN": SECRET})
        try:
            program = ["sh", "-c", f"echo {SECRET[:64]}; sleep 0.5", f"--password={SECRET[:64]}"]
            done = capture("exec", "--nsys", nsys, "--trace", "nvtx", "--job", "j", "--", *program, MY_TOKEN=SECRET)
        finally:
            for process in (other, alone):
                process.kill()
                process.wait()
    assert done.returncode == 0, done.stderr
    (report,) = (tmp_path / "reports").iterdir()
    export = tmp_path / "a.sqlite"
    subprocess.run([nsys, "export", "--type=sqlite", f"--output={export}", report], check=True, capture_output=True)
    assert b"hunter2" in export.read_bytes()
    found = scrub(export, tmp_path / "b.sqlite")
    assert b"hunter2" not in (tmp_path / "b.sqlite").read_bytes()
    assert {"MY_TOKEN", "OTHER_TOKEN", "ALONE_TOKEN"} <= set(found.variables)
    assert found.environments >= 2


def test_the_command_lists_names_and_warns_of_the_report(capture, export, tmp_path):
    done = capture("scrub", export, "-o", tmp_path / "b.sqlite")
    assert done.stdout.splitlines()[:2] == [
        (
            "removed 10 variables (ALONE AWS_KEY EMPTY HF_TOKEN HOME NAMED OF_ANOTHER PMI_SIZE RANK TWICE), 3 words of"
            " command lines, 2 outputs, 3 environments of processes of the host, names of 0 other processes, 1 strings"
            " that nothing refers to"
        ),
        "replaced, equal ones alike: user 1",
    ]
    assert "cannot be scrubbed; do not share it" in done.stdout
    assert "hunter2" not in done.stdout


def test_what_cannot_be_scrubbed(export, tmp_path):
    for name, content, said in (
        ("a.nsys-rep", b"NVIDIA", "a report itself cannot be scrubbed"),
        ("x.sqlite", b"", "it is not an SQLite file"),
        ("y.sqlite", b"SQLite format 3\0" + b"x" * 5000, "it cannot be scrubbed"),
    ):
        (tmp_path / name).write_bytes(content)
        with pytest.raises(InputError, match=said):
            scrub(tmp_path / name, tmp_path / "out.sqlite")
        assert not (tmp_path / "out.sqlite").exists()
    with pytest.raises(UsageError, match="already exists"):
        scrub(export, tmp_path / "a.nsys-rep")
    assert [p for p in tmp_path.iterdir() if p.name.startswith(".")] == []


ENVIRONMENT = re.compile(rb"[A-Z_]{2,}=[^\0]*\0[A-Z_]{2,}=")
REAL = ("a100x4_ddp_baseline_nsys2022.4", "h100x2_torchrun_nsys2026.2", "no_cuda_nsys2023.3", "fuser_nvtx_nsys2025.1")


def environment_of(path):
    """Every variable in an export, by name, from the two places where nsys keeps them."""
    found = {}
    with closing(sqlite3.connect(path)) as db:
        tables = {n for (n,) in db.execute("SELECT name FROM sqlite_master")}
        lines = []
        if "TARGET_INFO_SYSTEM_ENV" in tables:
            texts = db.execute("SELECT value FROM TARGET_INFO_SYSTEM_ENV WHERE name = 'DeviceEnvironment'")
            lines += [line for (text,) in texts for line in text.split(";")]
        if "META_DATA_CAPTURE" in tables:
            lines += [
                v for (v,) in db.execute("SELECT value FROM META_DATA_CAPTURE WHERE name LIKE '%ENVIRONMENT_VARIABLE'")
            ]
        for line in lines:
            name, equals, value = line.partition("=")
            if equals and name.isidentifier():
                found[name] = value
    return found


def answers(path, capsys):
    """What is asked of a run, without where it lies."""
    from alltrace.cli.main import main

    said = []
    for question in (["kernels"], ["overlap"], ["stats", "nvtx_sum"], ["info"]):
        code = main([*question, str(path), "--format", "json"])
        rows = json.loads(capsys.readouterr().out)["rows"]
        said.append((code, [{k: v for k, v in row.items() if k != "reports"} for row in rows]))
    return said


@pytest.mark.corpus
@pytest.mark.parametrize("name", REAL)
def test_a_real_export_answers_the_same_and_has_no_variable_left(name, corpus, tmp_path, monkeypatch, capsys):
    monkeypatch.setenv("ALLTRACE_CACHE_DIR", str(tmp_path / "cache"))
    source = corpus / "nsys" / f"{name}.sqlite"
    before, clean = tmp_path / "before" / f"{name}.sqlite", tmp_path / "after" / f"{name}.sqlite"
    for path in (before, clean):
        path.parent.mkdir()
    shutil.copyfile(source, before)
    found = scrub(before, clean)
    there = environment_of(before)
    content = clean.read_bytes()
    assert set(found.variables) | set(environment_of(clean)) >= set(there)
    for variable in there.keys() - environment_of(clean).keys():
        assert f"{variable}={there[variable]}".encode() not in content or not there[variable]
    assert not ENVIRONMENT.search(content)
    with closing(sqlite3.connect(clean)) as db:
        assert db.execute("PRAGMA integrity_check").fetchall() == [("ok",)]
        streams = db.execute(
            "SELECT value FROM StringIds WHERE id IN (SELECT contentId FROM ProcessStreams)"
        ).fetchall()
        words = "name GLOB '*:ARGUMENT_*' OR name GLOB '*:COMMAND' OR name GLOB '*:WORKING_DIR'"
        commands = db.execute(f"SELECT value FROM META_DATA_CAPTURE WHERE {words}").fetchall()
    assert {*streams, *commands} <= {("",)}
    assert answers(clean, capsys) == answers(before, capsys)

from __future__ import annotations

import os
import re
import stat
import subprocess
import sys
import tempfile
import textwrap
import threading
import time
from pathlib import Path
from types import SimpleNamespace

import pytest

from alltrace.capture.processes import started_at
from alltrace.readers.nsys import tool
from alltrace.readers.nsys.read import NsysReader
from alltrace.readers.nsys.sqlite import open_sqlite
from alltrace.readers.registry import open_report
from alltrace.run import importer
from alltrace.trace.errors import InputError
from alltrace.trace.nsys_payloads import EXPORT, payload_switches
from alltrace.trace.schema import EVENT_TABLES

HEAD = b"NVIDIA Tegra Profiler Report 2099@1@2@3-99v0.\n\x0b"


@pytest.fixture
def fake(tmp_path, monkeypatch):
    """Puts a shell script in the place of nsys; `$target` is where the export is to go."""
    folder = tmp_path / "tool"
    folder.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))

    def make(body: str, version: str = "2023.4.4.54-2344v0", options: str = "--tables=") -> Path:
        path = folder / "nsys"
        path.write_text(
            "#!/bin/sh\n"
            f'if [ "$1" = --version ]; then echo "NVIDIA Nsight Systems version {version}"; exit 0; fi\n'
            f'if [ "$2" = --help ]; then echo asked >> "{folder}/asked"; echo "{options}"; exit 0; fi\n'
            'for a in "$@"; do case "$a" in --output=*) target="${a#--output=}";; esac; done\n' + textwrap.dedent(body)
        )
        path.chmod(path.stat().st_mode | stat.S_IXUSR)
        monkeypatch.setenv("ALLTRACE_NSYS", str(path))
        return path

    return make


@pytest.fixture
def report(tmp_path):
    path = tmp_path / "rank0.nsys-rep"
    path.write_bytes(HEAD + bytes(100))
    return path


def left_behind(tmp_path):
    return [p.name for p in tmp_path.iterdir() if p.name.startswith("alltrace-nsys-")]


def test_a_report_is_exported_to_a_folder_that_goes_away(tmp_path, fake, report, export):
    made = export(
        {"NVTX_EVENTS(start, end, eventType, text TEXT, globalTid)": [(1, 2, 59, "r", 9 << 24)]}, name="made.sqlite"
    )
    fake(f'echo "$@" > {tmp_path}/arguments; cp {made} "$target"')
    reader = open_report(report)
    assert len(left_behind(tmp_path)) == 1
    assert (reader.report.path, reader.report.format) == (str(report), "nsys-rep")
    assert [b.num_rows for _, b in reader.stream(("ranges",))] == [1]
    reader.close()
    assert left_behind(tmp_path) == []
    arguments = (tmp_path / "arguments").read_text()
    assert "--type=sqlite" in arguments
    assert "NVTX.*" in arguments


def test_an_export_in_a_folder_of_the_callers_is_made_once(tmp_path, fake, report, export):
    made = export(
        {"NVTX_EVENTS(start, end, eventType, text TEXT, globalTid)": [(1, 2, 59, "r", 9 << 24)]}, name="made.sqlite"
    )
    fake(f'echo again >> {tmp_path}/times; cp {made} "$target"')
    scratch = tmp_path / "scratch"
    scratch.mkdir()
    for _ in range(2):
        reader = open_report(report, scratch=scratch)
        assert [b.num_rows for _, b in reader.stream(("ranges",))] == [1]
        reader.close()
    assert (tmp_path / "times").read_text() == "again\n"
    assert [p.name for p in scratch.iterdir()] == ["export.sqlite"]
    open_report(report, scratch=tmp_path / "elsewhere").close()  # not there: a folder of its own
    assert (tmp_path / "times").read_text() == "again\nagain\n"
    assert left_behind(tmp_path) == []
    fake("exit 1")
    (scratch / "export.sqlite").unlink()
    with pytest.raises(InputError):
        open_report(report, scratch=scratch)
    assert list(scratch.iterdir()) == []


@pytest.mark.parametrize("room", [True, False])
def test_an_import_exports_each_report_once_if_the_disk_has_room(tmp_path, fake, report, export, monkeypatch, room):
    made = export(
        {"NVTX_EVENTS(start, end, eventType, text TEXT, globalTid)": [(1, 2, 59, "r", 9 << 24)]}, name="made.sqlite"
    )
    fake(f'echo again >> {tmp_path}/times; cp {made} "$target"')
    reports = tmp_path / "reports"
    reports.mkdir()
    for rank in range(2):
        (reports / f"rank{rank}.nsys-rep").write_bytes(report.read_bytes())
    free = 4 * made.stat().st_size - (0 if room else 1)
    monkeypatch.setattr(importer.shutil, "disk_usage", lambda _: SimpleNamespace(free=free))
    manifest = importer.import_reports([str(reports)], tmp_path / "run", jobs=1)
    assert [rank.rows["ranges"] for rank in manifest.ranks] == [1, 1]
    assert (tmp_path / "times").read_text().split() == ["again"] * (2 if room else 4)
    assert [p for p in tmp_path.iterdir() if p.name.startswith("alltrace-")] == []


def test_an_nsys_without_partial_export_exports_all(tmp_path, fake, report, export):
    made = export(
        {"NVTX_EVENTS(start, end, eventType, text TEXT, globalTid)": [(1, 2, 59, "r", 9 << 24)]}, name="made.sqlite"
    )
    fake(f"""
        for a in "$@"; do case "$a" in --tables*) echo "unrecognised option '--tables'"; exit 1;; esac; done
        cp {made} "$target"
    """)
    reader = open_report(report)
    assert [name for name, _ in reader.stream(EVENT_TABLES)] == ["ranges"]
    reader.close()


def test_a_report_newer_than_the_tool(tmp_path, fake, report):
    fake('echo "Exportation error: something"; exit 1')
    with pytest.raises(
        InputError, match=r"written by Nsight Systems 2099\.1\.2\.3, and the one installed here is 2023\.4\.4\.54"
    ):
        open_report(report)
    assert left_behind(tmp_path) == []


def test_a_damaged_report(fake, tmp_path):
    path = tmp_path / "old.nsys-rep"
    path.write_bytes(b"garbage")
    fake('echo "progress"; echo "Exportation error: Cannot read from stream."; exit 1')
    with pytest.raises(
        InputError, match=r"nsys 2023\.4\.4\.54 could not read it: Exportation error: Cannot read from stream\."
    ):
        open_report(path)
    path.write_bytes(b"")
    with pytest.raises(InputError, match="the file is empty"):
        open_report(path)


def test_no_nsys(monkeypatch, report):
    monkeypatch.delenv("ALLTRACE_NSYS", raising=False)
    monkeypatch.setattr(tool, "find_nsys", lambda: None)
    with pytest.raises(InputError, match="nsys was not found on this machine; install Nsight Systems") as caught:
        open_report(report)
    assert f"{EXPORT} rank0.nsys-rep" in str(caught.value)


def test_a_variable_that_names_nothing(monkeypatch, report):
    monkeypatch.setenv("ALLTRACE_NSYS", "/nowhere/nsys")
    with pytest.raises(InputError, match="ALLTRACE_NSYS is /nowhere/nsys, which cannot be run"):
        open_report(report)


def test_a_raw_capture_is_imported_first(tmp_path, fake, export):
    made = export(
        {"NVTX_EVENTS(start, end, eventType, text TEXT, globalTid)": [(1, 2, 59, "r", 9 << 24)]}, name="made.sqlite"
    )
    nsys = fake(f'cp {made} "$target"')
    capture = tmp_path / "raw.qdstrm"
    capture.write_bytes(b"x")
    with pytest.raises(InputError, match="QdstrmImporter was not found"):
        open_report(capture)
    host = nsys.parent / "host-linux-x64"
    host.mkdir()
    importer = host / "QdstrmImporter"
    importer.write_text('#!/bin/sh\ntouch "$4"\n')
    importer.chmod(0o755)
    reader = open_report(capture)
    assert [name for name, _ in reader.stream(EVENT_TABLES)] == ["ranges"]
    reader.close()
    assert sorted(p.name for p in tmp_path.iterdir()) == ["made.sqlite", "raw.qdstrm", "tool"]


def test_an_interrupt_ends_the_tool(tmp_path, fake, report):
    fake(f"echo $$ > {tmp_path}/pid; sleep 60")
    code = (
        "import sys; from pathlib import Path; from alltrace.readers.registry import open_report;"
        " open_report(Path(sys.argv[1]))"
    )
    child = subprocess.Popen(
        [sys.executable, "-c", code, str(report)], stderr=subprocess.PIPE, env={**os.environ, "TMPDIR": str(tmp_path)}
    )
    pid = tmp_path / "pid"
    for _ in range(600):
        if pid.exists() and pid.read_text().strip():
            break
        time.sleep(0.05)
    child.send_signal(2)
    watchdog = threading.Timer(30, child.kill)
    watchdog.start()
    _, said = child.communicate()
    watchdog.cancel()
    assert b"KeyboardInterrupt" in said
    end = time.monotonic() + 20
    while started_at(int(pid.read_text())) is not None and time.monotonic() < end:  # no process waits for it
        time.sleep(0.05)
    assert started_at(int(pid.read_text())) is None
    assert left_behind(tmp_path) == []


def test_versions():
    assert tool.report_version(Path(__file__)) is None
    assert tool._numbers("/opt/nvidia/nsight-systems/2024.6.1/bin/nsys") == (2024, 6, 1)
    assert tool._numbers("no version") == ()


@pytest.mark.oracle
def test_a_cut_report_of_the_real_tool(nsys, tmp_path, monkeypatch):
    monkeypatch.setenv("ALLTRACE_NSYS", str(nsys))
    path = tmp_path / "cut.nsys-rep"
    path.write_bytes(HEAD.replace(b"2099", b"2019") + bytes(1000))
    with pytest.raises(InputError, match="could not read it: Exportation error"):
        open_report(path)
    path.write_bytes(HEAD + bytes(1000))
    with pytest.raises(InputError, match=r"written by Nsight Systems 2099\.1\.2\.3"):
        open_report(path)


def test_every_table_that_is_read_is_exported(export):
    path = export(
        {
            "CUPTI_ACTIVITY_KIND_KERNEL(start, end, deviceId, globalPid)": [(1, 2, 0, 1 << 48)],
            "MPI_OTHER_EVENTS(start, end, globalTid)": [],
            "NVTX_EVENTS(start, end, eventType, text TEXT, globalTid, domainId, binaryData BLOB)": [
                (1, 2, 59, "r", 1, 1, bytes(64))
            ],
            "GPU_METRICS(timestamp, typeId, metricId, value)": [(1, 1, 1, 1)],
            "NET_NIC_METRIC(start, end, globalId, metricsListId, metricsIdx, value)": [(1, 2, 3, 4, 5, 6)],
            "COMPOSITE_EVENTS(id, start)": [(1, 1)],
            "GENERIC_EVENTS(timestamp, typeId, genericEventId)": [(1, 1, 1)],
            "GENERIC_EVENT_DATA(genericEventId, fieldIdx, intVal)": [(1, 1, 1)],
            "OSRT_FILE_ACCESS_EVENTS(startedAt, fileAccessId)": [(1, 1)],
        }
    )
    asked = set()

    class Asked(dict):
        def __contains__(self, table):
            asked.add(table)
            return super().__contains__(table)

    source = open_sqlite(path)
    source._tables = Asked(source.tables)
    reader = NsysReader(source, "nsys-sqlite", path)
    assert len({name for name, _ in reader.stream(EVENT_TABLES)}) >= 6
    reader.dictionaries()
    reader.close()
    patterns = [re.compile(p, re.IGNORECASE) for p in tool._TABLES]
    assert {"ENUM_NET_DEVICE_ID", "SAMPLING_CALLCHAINS", "NIC_ID_MAP", "NVTX_PAYLOAD_ENUM_ENTRIES"} <= asked
    assert [t for t in sorted(asked) if not any(p.fullmatch(t) for p in patterns)] == []


NCCL_RANGES = [
    (0, None, 75, 9 << 24, 1, "NCCL", None),
    (10, 20, 59, 9 << 24, 1, "ncclAllReduce", '{"NCCL communicator ID": 255, "Message size [bytes]": 64}'),
    (30, 40, 59, 9 << 24, 0, "step", None),
]


def nccl_export(export, payloads, name, **parameters):
    """An export with a range of NCCL, with or without its payload, that says so in these parameters."""
    rows = NCCL_RANGES if payloads else [(*row[:-1], None) for row in NCCL_RANGES]
    return export(
        {
            "NVTX_EVENTS(start, end, eventType, globalTid, domainId, text TEXT, jsonText TEXT)": rows,
            "META_DATA_EXPORT(name TEXT, value TEXT)": [
                (f"EXPORT_PARAM_INCLUDE_{k}", v) for k, v in parameters.items()
            ],
        },
        name=name,
    )


def read(reader):
    """The payloads of a report's ranges, and what reading it warns of."""
    payloads = [p for _, batch in reader.stream(("ranges",)) for p in batch.column("payload").to_pylist()]
    found = reader.warnings()
    reader.close()
    return [p is not None for p in payloads], found


def test_an_nsys_that_can_is_told_to_export_payloads_and_asked_once(tmp_path, fake, report, export):
    """As Nsight Systems 2026 does: without its options, columns of payloads are null."""
    default = nccl_export(export, False, "default.sqlite", BLOBS="false", JSON="false")
    whole = nccl_export(export, True, "whole.sqlite", BLOBS="true", JSON="true")
    body = (
        f'case "$*" in *--include-blobs=true*--include-json=true*) cp {whole} "$target";; *) cp {default} "$target";;'
        " esac"
    )
    tool = fake(body, "2026.1.0.1", "  --include-blobs=  --include-json=  --tables=")
    for _ in range(2):
        assert read(open_report(report)) == ([True, False], ())
    assert (tool.parent / "asked").read_text() == "asked\n"


def test_an_nsys_without_the_options_is_not_given_them_and_the_answer_says_what_to_do(tmp_path, fake, report, export):
    made = nccl_export(export, False, "made.sqlite")
    fake(f"""
        case "$*" in *--include*) echo "unrecognised option"; exit 1;; esac
        cp {made} "$target"
    """)
    payloads, (warning,) = read(open_report(report))
    assert payloads == [False, False]
    assert "the nsys used here cannot export it; set ALLTRACE_NSYS to a newer one" in warning.text
    assert (warning.tables, warning.number) == (("collectives",), 1)


@pytest.mark.parametrize(
    ("parameters", "words"),
    [
        ({}, f"or export it again with `{EXPORT}`"),
        ({"BLOBS": "false", "JSON": "false"}, f"or export it again with `{EXPORT}`"),
        ({"BLOBS": "true", "JSON": "true"}, "neither NCCL nor the profiler recorded it; NCCL's logs have both"),
    ],
)
def test_an_export_without_payloads_says_how_to_get_them(export, parameters, words):
    _, (warning,) = read(open_report(nccl_export(export, False, "made.sqlite", **parameters)))
    assert words in warning.text


@pytest.mark.oracle
def test_the_real_nsys_of_2023_has_no_option_for_payloads(nsys):
    assert payload_switches(nsys) == ()


@pytest.mark.corpus
def test_real_exports_of_2026_lack_payloads(corpus):
    _, found = read(open_report(corpus / "nsys" / "h100x2_nccl_sendrecv_nsys2026.2.sqlite"))
    assert [(w.tables, w.number) for w in found if "payload" in w.text] == [(("collectives",), 264)]

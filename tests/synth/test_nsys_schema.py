import re
import sqlite3
import subprocess

import pyarrow.parquet as pq
import pytest
from tests.nsight_run import run_nsys

from alltrace.synth.nsys_schema import schema

_ARROW = {
    "int64": "i64",
    "uint64": "u64",
    "int32": "i32",
    "string": "text",
    "double": "f64",
    "float": "f32",
    "bool": "bool",
}


def _declared(path):
    """Columns of each table of an SQLite file: name, type, and whether it may be null."""
    connection = sqlite3.connect(f"file:{path}?mode=ro&immutable=1", uri=True)
    tables = [name for (name,) in connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'")]
    found = {t: [(r[1], r[2], bool(r[3])) for r in connection.execute(f"PRAGMA table_info({t})")] for t in tables}
    connection.close()
    return found


def _ours(columns):
    return [(c.name, re.split(r"\s+", c.declaration)[1], c.required) for c in columns]


@pytest.mark.corpus
def test_the_newer_tables_are_those_of_a_real_export(corpus):
    ours = schema("3.25.0")
    checked = set()
    for path in sorted((corpus / "nsys").glob("h100x2_*_nsys2026.2.sqlite")):
        real = _declared(path)
        for name in real.keys() & ours.keys():
            assert _ours(ours[name]) == real[name], name
            checked.add(name)
    assert {"CUPTI_ACTIVITY_KIND_KERNEL", "NVTX_EVENTS", "TARGET_INFO_SESSION_START_TIME", "StringIds"} <= checked
    assert len(checked) >= 20


@pytest.mark.oracle
def test_the_older_tables_are_those_of_the_real_exporter(nsys, tmp_path):
    def call(*arguments):
        run_nsys(nsys, arguments, tmp_path)

    call("profile", "-t", "nvtx", "-s", "none", "--cpuctxsw=none", "-o", "empty", "/bin/true")
    (version,) = re.findall(
        r"(2\d{3}\.\d)", subprocess.run([nsys, "--version"], capture_output=True, text=True).stdout
    )[:1]
    if version != "2023.4":
        pytest.skip(f"the older schema is that of 2023.4, and here is {version}")
    call("export", "-t", "sqlite", "-l", "false", "-o", "all.sqlite", "empty.nsys-rep")
    call("export", "-t", "parquetdir", "-l", "false", "-o", "all_pqtdir", "empty.nsys-rep")
    real = _declared(tmp_path / "all.sqlite")
    for name, columns in schema("3.7.2").items():
        assert _ours(columns) == real[name], name
        file = tmp_path / "all_pqtdir" / f"{name}.parquet"
        # the exporter leaves the capture's metadata out of this form
        assert file.is_file() == (name != "META_DATA_CAPTURE"), name
        if file.is_file():
            fields = [(f.name, _ARROW[str(f.type)], not f.nullable) for f in pq.read_schema(file)]
            if not name.startswith("ENUM_"):
                assert fields == [(c.name, c.type, c.required) for c in columns], name


def test_versions_differ_where_the_real_ones_do():
    older, newer = schema("3.7.2"), schema("3.25.0")
    added = {name for name in set(newer) - set(older) if not name.startswith("ENUM_DIAGNOSTIC_")}
    assert added == {"TARGET_INFO_CUDA_DEVICE", "CUPTI_ACTIVITY_KIND_GRAPH_TRACE", "DIAGNOSTIC_EVENT"}
    assert [c.name for c in newer["NVTX_EVENTS"]][-1] == "binaryData"
    assert len(older["CUPTI_ACTIVITY_KIND_KERNEL"]) == 28
    assert len(newer["CUPTI_ACTIVITY_KIND_KERNEL"]) == 40
    assert older["StringIds"][0].key

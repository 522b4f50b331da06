"""Input that no format may break on: hostile names, many threads, large values, early times, no events, a full disk."""

import json
import resource

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyarrow import csv
from tests.making import HOSTILE, copy, kernel, make_run
from tests.paraver_checks import labels_of, well_formed

from alltrace.export.chrome import export_chrome
from alltrace.export.paraver.writer import export_paraver
from alltrace.export.perfetto import export_by_host, export_perfetto
from alltrace.export.selection import select
from alltrace.export.tables import export_tables
from alltrace.export.talp import export_talp
from alltrace.readers.paraver.labels import KERNEL, label_of
from alltrace.trace.errors import InputError, UsageError

trace_pb2 = pytest.importorskip("perfetto.protos.perfetto.trace.perfetto_trace_pb2", exc_type=ImportError)

FORMATS = {
    "paraver": ("out.prv", export_paraver),
    "paraver packed": ("out.prv.gz", lambda s, p: export_paraver(s, p, cfgs=True)),
    "perfetto": ("out.pftrace", export_perfetto),
    "perfetto by host": ("out.tar", export_by_host),
    "chrome": ("out.json", export_chrome),
    "talp": ("talp.json", export_talp),
    **{form: (form, lambda s, p, form=form: export_tables(s, p, form)) for form in ("parquet", "csv", "arrow")},
}
NAMES = (*HOSTILE, "a:b:1", "\u2028", "\x85 next", "x" * 70_000)
EACH = pytest.mark.parametrize("form", FORMATS)


def exported(tmp_path, form, run):
    name, write = FORMATS[form]
    write(select(run), tmp_path / name)
    return tmp_path / name


def kernels_of(form, path):
    """(name, start, end) of all kernels, as another program reads them; None for a format that has none of them."""
    if form == "perfetto":
        trace = trace_pb2.Trace()
        trace.ParseFromString(path.read_bytes())
        events = [
            (p.track_event.type, p.track_event.name, p.timestamp) for p in trace.packet if p.HasField("track_event")
        ]
        begun = [(n, t) for kind, n, t in events if kind == 1]
        ends = [t for kind, _, t in events if kind == 2]
        return [(n, t, e) for (n, t), e in zip(begun, ends, strict=True)]
    if form == "chrome":
        events = json.loads(path.read_text(encoding="utf-8"))["traceEvents"]
        return [
            (e["name"], round(e["ts"] * 1000), round((e["ts"] + e["dur"]) * 1000)) for e in events if e["ph"] == "X"
        ]
    if form in ("parquet", "csv", "arrow"):
        file = path / f"kernels.{form}"
        options = {
            "parse_options": csv.ParseOptions(newlines_in_values=True),
            "read_options": csv.ReadOptions(block_size=64 << 20),
        }
        readers = {
            "parquet": pq.read_table,
            "csv": lambda f: csv.read_csv(f, convert_options=csv.ConvertOptions(strings_can_be_null=False), **options),
            "arrow": lambda f: pa.ipc.open_file(str(f)).read_all(),
        }
        rows = readers[form](file).select(["short_name", "start", "end"]).to_pylist()
        return [(r["short_name"], r["start"], r["end"]) for r in rows]
    return None


@EACH
def test_hostile_names_come_out_as_they_went_in(tmp_path, form):
    rows = {"kernels": [{**kernel(10 * i, 10 * i + 5), "name": n, "short_name": n} for i, n in enumerate(NAMES)]}
    path = exported(tmp_path, form, make_run(tmp_path / "run", {0: rows}, hosts={0: "h\nost: 核"}))
    expected = [(n, 10 * i, 10 * i + 5) for i, n in enumerate(NAMES)]
    found = kernels_of(form, path)
    if found is not None:
        assert sorted(found) == sorted(expected)
    elif form.startswith("paraver"):
        well_formed(path)
        assert set(labels_of(tmp_path / "out.pcf")[KERNEL].values()) == {"End", *map(label_of, NAMES)}
    elif form == "talp":
        assert json.loads(path.read_text())["Process"]["Global"][0]["hostname"].startswith("h")


@pytest.mark.parametrize(
    "form", ["paraver", *(pytest.param(f, marks=pytest.mark.slow) for f in ("perfetto", "chrome"))]
)
def test_more_threads_than_paraver_can_number(tmp_path, form):
    rows = {"kernels": [kernel(i, i + 1, stream=i) for i in range(65_536)]}
    run = make_run(tmp_path / "run", {0: rows})
    if form == "paraver":
        with pytest.raises(UsageError, match=r"65,536 threads; Paraver can number 65,535; give --fold-streams"):
            exported(tmp_path, form, run)
        assert [p.name for p in tmp_path.iterdir()] == ["run"]
        return
    assert len(kernels_of(form, exported(tmp_path, form, run))) == 65_536


@EACH
def test_values_and_times_past_32_bits_and_times_before_zero(tmp_path, form):
    late = 2**52 // 1000 * 1000
    rows = {
        "kernels": [kernel(-2000, -1000), kernel(late, late + 2**33 // 1000 * 1000)],
        "copies": [copy(0, 2**33, bytes=2**60)],
        "gpu_metrics": [
            {"time": 5, "metric": "Clock", "value": 3e18},
            {"time": 9, "metric": "Clock", "value": float("inf")},
        ],
    }
    run = make_run(tmp_path / "run", {0: rows})
    path = exported(tmp_path, form, run)
    if form.startswith("paraver"):
        well_formed(path)
    if form in ("parquet", "arrow"):
        assert {(s, e) for _, s, e in kernels_of(form, path)} == {
            (r["start"] + 2000, r["end"] + 2000) for r in rows["kernels"]
        }
    if form == "chrome":
        assert (0, 1000) in {(s, e) for _, s, e in kernels_of(form, path)}
        assert max(s for _, s, _ in kernels_of(form, path)) == late + 2000
    if form == "perfetto":
        trace = trace_pb2.Trace()
        trace.ParseFromString(path.read_bytes())
        times = {p.timestamp for p in trace.packet if p.HasField("track_event")}
        assert {0, 1000, late + 2000} <= times
        assert max(times) == late + 2000 + rows["kernels"][1]["end"] - late


@EACH
@pytest.mark.parametrize("ranks", [{0: {}}, {0: {"kernels": [], "api": []}, 1: {}}], ids=["one", "two"])
def test_empty_tables_give_an_empty_trace(tmp_path, form, ranks):
    path = exported(tmp_path, form, make_run(tmp_path / "run", ranks))
    assert path.exists()
    if form.startswith("paraver"):
        assert well_formed(path).records == 0
    if form in ("chrome", "perfetto"):
        assert kernels_of(form, path) == []


@pytest.mark.sampled(3)
@EACH
def test_a_full_disk_leaves_nothing(tmp_path, form):
    rows = {"kernels": [kernel(10 * i, 10 * i + 5, f"k{i}()") for i in range(5000)]}
    run = make_run(tmp_path / "run", {0: rows})
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(
        resource.RLIMIT_FSIZE, (100 if form == "talp" else 4000, limits[1])
    )  # a larger file is an OSError
    try:
        with pytest.raises(InputError, match=r"it cannot be written \(.*nothing was left there") as error:
            exported(tmp_path, form, run)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert FORMATS[form][0] in str(error.value)
    assert [p.name for p in tmp_path.iterdir()] == ["run"]

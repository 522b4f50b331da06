"""What faces write about two of the recorded runs: formats, exports, the page's data and the report, as text by
name."""

from __future__ import annotations

import base64
import gzip
import html
import io
import json
import re
import shutil
import struct
from collections.abc import Callable
from contextlib import chdir, redirect_stderr, redirect_stdout
from functools import cache, partial
from pathlib import Path
from typing import Any

from alltrace import __version__
from alltrace.api import OpenRun
from alltrace.cli.main import main
from alltrace.recipes.registry import FORMER, RECIPES, find
from tests.recorded.asking import DERIVED, RUNS, clean
from tests.ui.conftest import client_of

OUTPUT_RUNS = ("ddp-slow-rank", "kineto")

_QUESTIONS = tuple(n for n in (*RECIPES, *FORMER) if not any(o.required for o in find(n).options))
_STATS = ("cuda_gpu_kern_sum", "cuda_api_sum", "nvtx_sum", "cuda_gpu_mem_size_sum", "cuda_gpu_trace")
_RULES = ("cuda_memcpy_async", "cuda_api_sync", "gpu_gaps", "gpu_time_util")
_EXPORTS = {
    "paraver": ("trace.prv", ()), "paraver nsys2prv": ("trace.prv", ("--ids", "nsys2prv", "--fold-streams")),
    "chrome": ("trace.json", ()), "perfetto": ("trace.pftrace", ()),
    "perfetto gpu events": ("trace.pftrace", ("--gpu-events",)), "talp": ("talp.json", ()), "csv": ("tables", ()),
    "csv of steps": ("tables", ("--steps", "1:3", "--ranks", "1")), "parquet": ("tables", ()), "arrow": ("tables", ()),
}  # fmt: skip
_DATES = re.compile(r"\d\d/\d\d/\d{4} at \d\d:\d\d|\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d[+]\d{4}")


def outputs_of(run: OpenRun, scratch: Path, chosen: Callable[[str], bool] = lambda _: True) -> dict[str, str]:
    """The chosen outputs by name, without paths, versions and clock times."""
    texts = {}
    for number, (name, write) in enumerate(_all(run, scratch).items()):
        if chosen(name):
            place = scratch / str(number)
            place.mkdir()
            with chdir(run.path.parent):  # a long path breaks lines at other places
                written = clean(write(place), run.path)
            text = written.replace(str(place), "OUT").replace(str(scratch), "SCRATCH")
            texts[name] = text.replace(__version__, "VERSION")
    return texts


def _all(run: OpenRun, scratch: Path) -> dict[str, Callable[[Path], str]]:
    path = run.path.name
    made: dict[str, Callable[[Path], str]] = {}
    for recipe in _QUESTIONS:
        for form in ("table", "csv", "md"):
            made[f"{form} {recipe}"] = partial(_command, "recipe", recipe, path, "--format", form, "--limit", "8")
    made["json diagnose"] = partial(_command, "diagnose", path, "--format", "json")
    made["cards diagnose"] = partial(_command, "diagnose", path, "--format", "cards")
    made["units breakdown"] = partial(_command, "breakdown", path, "--units", "auto")
    made["safe csv kernels"] = partial(_command, "kernels", path, "--format", "csv", "--csv-safe")
    made["diff"] = partial(_diff, path)
    made["sql"] = partial(
        _command, "sql", path, "SELECT rank, kind, count(*) AS n FROM kernels GROUP BY ALL ORDER BY ALL"
    )
    for report in _STATS:
        made[f"stats {report}"] = partial(_command, "stats", report, path, "--format", "csv", "--limit", "20")
    for form in ("column", "table", "csv", "tsv", "json", "hdoc", "htable"):
        made[f"nsys stats {form}"] = partial(
            _command, "nsys", "stats", "-r", ",".join(_STATS[:4]), "-f", form, "-o", "-", path
        )
        made[f"nsys analyze {form}"] = partial(
            _command, "nsys", "analyze", "-r", ",".join(_RULES), "-f", form, "-o", "-", path
        )
    for name, (file, options) in _EXPORTS.items():
        made[f"export {name}"] = partial(_export, name.split()[0], path, file, options)
    made["report md"] = partial(_command, "report", path, "--format", "md", "--title", "title")
    made["report html"] = partial(_report, path)
    for name, ask in _page_requests().items():
        made[f"page {name}"] = partial(_page, run, scratch, ask)
    return made


def _diff(path: str, place: Path) -> str:
    """What differs from a copy of another recorded run, which is aligned on the way."""
    other = place / "ddp"
    shutil.copytree(RUNS / "ddp" / "run", other, ignore=DERIVED)
    return _command("diff", str(other), path, "--format", "json", "--limit", "40", place)


def _command(*words: Any) -> str:
    """What a command prints on standard output, or on standard error if it fails; the last word is its place, which few
    need."""
    printed, refused = (io.TextIOWrapper(io.BytesIO(), "utf-8", write_through=True) for _ in range(2))
    with redirect_stdout(printed), redirect_stderr(refused):
        code = main([str(w) for w in words[:-1]])
    stream = refused if code else printed
    stream.seek(0)
    return (f"exit {code}\n" if code else "") + stream.read()


def _export(form: str, run: str, file: str, options: tuple[str, ...], place: Path) -> str:
    more = ["--cfgs"] if form == "paraver" and not options else []
    refused = _command("export", form, run, "-o", place / file, *options, *more, place)
    files = sorted(p for p in place.rglob("*") if p.is_file())
    return refused + "".join(f"== {p.relative_to(place)}\n{_file_text(p)}\n" for p in files)


def _file_text(path: Path) -> str:
    if path.suffix in (".parquet", ".arrow"):
        return _table_text(path)
    if path.suffix == ".pftrace":
        return _packets(path.read_bytes())
    text = path.read_text(encoding="utf-8")
    if path.name == "trace.json":
        return text.replace("},", "},\n")
    return _DATES.sub("DATE", text) if path.suffix in (".prv", ".json") else text


def _table_text(path: Path) -> str:
    """The types of the columns, and of each column its values: the rows themselves are in the tables as CSV."""
    import pyarrow as pa
    import pyarrow.compute as pc
    import pyarrow.parquet as pq

    table = pq.read_table(path) if path.suffix == ".parquet" else pa.ipc.open_file(path).read_all()
    lines = [f"{table.num_rows} rows"]
    for field in table.schema:
        column = table.column(field.name)
        ends = (
            [str(v) for v in pc.min_max(column).as_py().values()]
            if not pa.types.is_dictionary(field.type)
            else ["", ""]
        )
        lines.append(
            f"{field.name} {field.type} {column.null_count} null, {pc.count_distinct(column)} values,"
            f" {' to '.join(ends)}"
        )
    return "\n".join(lines)


def _packets(data: bytes) -> str:
    """The packets of a trace, a line each."""
    from google.protobuf.text_format import MessageToString
    from perfetto.protos.perfetto.trace.perfetto_trace_pb2 import Trace

    trace = Trace()
    trace.ParseFromString(data)
    return "\n".join(MessageToString(packet, as_one_line=True) for packet in trace.packet)


def _report(run: str, place: Path) -> str:
    """The text of the page and its figures, without its style, its scripts and plotly."""
    refused = _command("report", run, "-o", place / "report.html", "--title", "title", place)
    page = (place / "report.html").read_text(encoding="utf-8")
    packed = re.search(r'<script type="application/gzip" id="figures">([^<]*)</script>', page)
    figures = json.loads(gzip.decompress(base64.b64decode(packed[1]))) if packed else {}
    body = page[page.index("<body>") :]
    body = re.sub(r"<script.*?</script>", "", body, flags=re.DOTALL)
    text = html.unescape(re.sub(r"\s*\n\s*", "\n", re.sub(r"<[^>]*>", "\n", body)))
    lines = [f"{key}: {json.dumps(_rounded(trace))}" for key, figure in figures.items() for trace in figure["data"]]
    return refused + text + "\n".join(lines)


def _rounded(value: Any) -> Any:
    if isinstance(value, float):
        return float(f"{value:.9g}")
    if isinstance(value, list):
        return [_rounded(v) for v in value]
    return {k: _rounded(v) for k, v in value.items()} if isinstance(value, dict) else value


def _page_requests() -> dict[str, tuple[str, dict[str, Any]]]:
    """The page's requests by name: path, values; a number below 1 of `start` or `end` is a share of the run."""
    whole = {"ranks": None, "start": 0.0, "end": 1.0}
    part = {"ranks": [0, 1], "start": 0.3, "end": 0.6}
    tracks = {"tracks": ["0/summary", "1/summary", "0/ranges/0"]}
    answers = {
        n: ("recipe", {"name": n, "options": {}}) for n in ("breakdown", "kernels", "stragglers", "gaps", "activity")
    }
    return {
        **{name: (name, {}) for name in ("run", "findings", "by-rank", "job-time", "recipes", "notes")},
        **{f"recipe {name}": ask for name, ask in answers.items()},
        "heat": ("heat", {"metric": "busy", "level": 5, "index": 0}),
        "tracks": ("tracks", {"ranks": [0, 1]}),
        "tiles": ("tiles", {**tracks, "tracks": "all of rank 1", "level": 8, "first": 0, "count": 64}),
        "window": ("window", whole),
        "window of a part": ("window", part),
        "area": ("area", {**part, **tracks}),
        "events": ("events", {**part, "tables": ["kernels", "copies"], "pattern": None}),
        "search": ("search", {"pattern": "gemm|forward", "ranks": [0, 1]}),
        "event": ("event", {"rank": 1, "table": "kernels", "row": 40}),
        "event of a call": ("event", {"rank": 1, "table": "api", "row": 60}),
        "neighbour": ("neighbour", {"rank": 0, "table": "kernels", "row": 20, "forward": "true"}),
        "sql": ("sql", {"query": 'SELECT rank, min("start"), max("end") FROM ranges GROUP BY rank ORDER BY rank'}),
        "laid": (
            "laid",
            {
                "query": (
                    'SELECT rank, "start", "end", name FROM ranges ORDER BY rank, "start", "end" DESC, name LIMIT 50'
                )
            },
        ),
        "matrix waits": ("matrix", {"measure": "wait_ns", "by": "rank"}),
        "matrix hosts": ("matrix", {"measure": "collective_bytes", "by": "host"}),
        "two spans": (
            "two-spans",
            {"ranks": None, "first_start": 0.2, "first_end": 0.4, "second_start": 0.6, "second_end": 0.8},
        ),
    }


_GET = {"run", "findings", "by-rank", "job-time", "recipes", "notes", "heat", "event", "neighbour", "matrix"}


def _page(run: OpenRun, scratch: Path, ask: tuple[str, dict[str, Any]], _: Path) -> str:
    path, given = ask
    client = _client(run, scratch)
    span = run.facts()["span_ns"]
    values = {k: int(v * span) if isinstance(v, float) else v for k, v in given.items()}
    if "level" in values:  # above the finest
        values["level"] += client.get("/api/run").json()["grid"]["level"]
    if path == "tiles":
        known = client.post("/api/tracks", json={"ranks": [1]}).json()["tracks"]["1"]
        values["tracks"] = [f"1/{track['key']}" for track in known]
    response = client.get(f"/api/{path}", params=values) if path in _GET else client.post(f"/api/{path}", json=values)
    if response.status_code != 200:
        return response.text
    if path == "tiles":
        return _tiles(response.content)
    if path == "heat":
        return json.dumps(struct.unpack(f"<{len(response.content) // 2}H", response.content))
    return json.dumps(_rounded(_timeless(response.json())), indent=0, ensure_ascii=False)


@cache
def _client(run: OpenRun, scratch: Path) -> Any:
    return client_of([run.path], scratch / "page")


def _timeless(value: Any) -> Any:
    """A response without how long its stages took."""
    return {k: v for k, v in value.items() if k not in ("state", "name", "shown")} if isinstance(value, dict) else value


def _tiles(data: bytes) -> str:
    """The tiles' arrays as numbers."""
    length = struct.unpack("<I", data[4:8])[0]
    head = json.loads(data[8 : 8 + length])
    begin = -(-(8 + length) // 8) * 8
    import numpy as np

    lines = [json.dumps(head["names"])]
    for tile in head["tiles"]:
        lines.append(json.dumps({k: v for k, v in tile.items() if k != "arrays"}))
        for name, kind, offset, size in tile["arrays"]:
            values = np.frombuffer(data, np.dtype("<" + kind if kind[-1] != "1" else kind), size, begin + offset)
            lines.append(f"{name}: {_rounded(values.tolist())}")
    return "\n".join(lines)

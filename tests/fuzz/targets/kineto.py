"""Traces of the PyTorch profiler: damaged JSON, read whole."""

from __future__ import annotations

import json
import os
import tempfile
from pathlib import Path

from alltrace.readers.kineto.identity import TABLES
from alltrace.readers.kineto.read import open_report
from alltrace.synth.run import write_run

_FILE = Path(tempfile.gettempdir()) / f"fuzz-{os.getpid()}.json"
_OF_A_KIND = 4  # events kept of each category


def corpus() -> list[bytes]:
    """A few events of each kind: as an object, as a bare list, indented, with metadata behind the events, and without
    any."""
    with tempfile.TemporaryDirectory() as folder:
        write_run("tiny", folder, "kineto", operators=True, ideal=True)
        whole = json.loads(next(Path(folder).glob("*.pt.trace.json")).read_bytes())
    kept: dict[str, list[object]] = {}
    for event in whole["traceEvents"]:
        of_kind = kept.setdefault(f"{event.get('ph')} {event.get('cat')}", [])
        if len(of_kind) < _OF_A_KIND:
            of_kind.append(event)
    events = [event for of_kind in kept.values() for event in of_kind]
    strange = [
        {
            "ph": "X",
            "cat": "kernel",
            "name": 'a \\ "b" é\n核',
            "pid": 0,
            "tid": 7,
            "ts": 1.5e3,
            "dur": "12.0005",
            "args": {"device": -1},
        },
        {
            "ph": "X",
            "cat": "cpu_op",
            "name": "x" * 300,
            "pid": 1,
            "tid": 1,
            "ts": 2**62,
            "dur": -1,
            "args": {"a": [[1, {"b": 2}]]},
        },
        {
            "ph": "X",
            "cat": "cuda_profiler_range",
            "name": "k",
            "pid": 0,
            "tid": 0,
            "ts": 5,
            "dur": 1,
            "args": {"sm__a.sum": 7, "b": {"c": "}"}},
        },
        {},
    ]
    other = {name: value for name, value in whole.items() if name != "traceEvents"}
    texts = [
        json.dumps({**other, "traceEvents": events}),
        json.dumps({"schemaVersion": 1, "traceEvents": events + strange, **other}),
        json.dumps(events),
        json.dumps({"baseTimeNanoseconds": 5, "traceEvents": strange}, indent=2),
        json.dumps({**other, "traceEvents": []}),
        "\ufeff" + json.dumps({"traceEvents": events[:5] + strange}, ensure_ascii=False).replace("-1", "NaN"),
    ]
    return [text.encode() for text in texts]


def run(data: bytes) -> None:
    """All tables of the trace `data`."""
    _FILE.write_bytes(data)
    reader = open_report(_FILE)
    try:
        if len(data) % 4 == 0:  # it reads the whole trace once more
            assert reader.report.tables == TABLES
        for _, batch in reader.stream(TABLES):
            batch.validate(full=True)
        for table in reader.dictionaries().values():
            table.validate(full=True)
        reader.warnings()
    finally:
        reader.close()

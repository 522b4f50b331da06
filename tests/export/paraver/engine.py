"""What Paraver's own engine, `paramedir`, shows of a small trace in each configuration.

`python -m tests.export.paraver.engine PARAMEDIR` rewrites `engine.json`: the printed values and their sources.
Paraver's kernel, which has `paramedir`, is built from the public source bsc-performance-tools/paraver-kernel
(LGPL-2.1).
"""

from __future__ import annotations

import hashlib
import json
import subprocess
import sys
import tempfile
from pathlib import Path

from tests.making import collective, copy, kernel, make_run

from alltrace.export.paraver.writer import export_paraver
from alltrace.export.selection import select

EXPECTED = Path(__file__).with_name("engine.json")
_CALL = {"name": "cudaLaunchKernel", "kind": "runtime"}
US = 1000
"""The engine prints microseconds with two decimals."""

ROWS = {
    "api": [
        {"start": 0, "end": 50 * US, "correlation": 1, **_CALL},
        {"start": 60 * US, "end": 80 * US, "correlation": 2, **_CALL},
        {"start": 850 * US, "end": 870 * US, "correlation": 3, **_CALL},
    ],
    "kernels": [
        kernel(100 * US, 300 * US, "k1()", correlation=1),
        kernel(500 * US, 1000 * US, "k2()", correlation=2),
        collective(900 * US, 1200 * US, correlation=3),
    ],
    "copies": [copy(20 * US, 70 * US, bytes=1000)],
    "collectives": [{"start": 900 * US, "end": 1200 * US, "op": "AllReduce", "bytes": 64, "stream": 20}],
    "ranges": [{"start": 0, "end": 900 * US, "name": "step", "kind": "pushpop"}],
    "gpu_metrics": [{"time": t * US, "metric": "SM Active", "value": t / 10} for t in (100, 200, 300)],
}


def written(folder: Path) -> Path:
    """The trace and its configurations, in a folder."""
    export_paraver(select(make_run(folder / "run", {0: ROWS})), folder / "out.prv", cfgs=True)
    return folder / "out.prv"


def fingerprint(prv: Path) -> str:
    """A hash of the trace, without its date, of its labels and configurations."""
    found = hashlib.sha256(b"\n".join(line for line in prv.read_bytes().splitlines() if not line.startswith(b"#")))
    for path in sorted([prv.with_suffix(".pcf"), *prv.with_name("out-cfgs").rglob("*.cfg")]):
        found.update(path.name.encode() + path.read_bytes())
    return found.hexdigest()


def shown(paramedir: str, prv: Path) -> dict[str, list[list[object]]]:
    """What the engine shows: for each configuration object, start and length (us) and value of what is not 0."""
    found = {}
    for cfg in sorted(prv.with_name("out-cfgs").rglob("*.cfg")):
        out = prv.with_name("shown")
        done = subprocess.run(
            [paramedir, str(prv), str(cfg), str(out)], capture_output=True, text=True, check=True, timeout=60
        )
        assert "rror" not in done.stdout + done.stderr, f"{cfg.name}: {done.stdout}{done.stderr}"
        rows = [line.split("\t") for line in out.with_name("shown.csv").read_text().splitlines()]
        found[f"{cfg.parent.name}/{cfg.stem}"] = [[r[0], *map(float, r[1:4])] for r in rows if float(r[3])]
    return found


def main(paramedir: str) -> None:
    """Write what the engine shows."""
    with tempfile.TemporaryDirectory() as folder:
        prv = written(Path(folder))
        version = subprocess.run(
            [paramedir, "--version"], capture_output=True, text=True, check=False, timeout=60
        ).stdout.split(" Build")[0]
        found = {"engine": version.strip(), "of": fingerprint(prv), "shown": shown(paramedir, prv)}
    rows = ",\n".join(f"  {json.dumps(name)}: {json.dumps(values)}" for name, values in found["shown"].items())
    EXPECTED.write_text(
        f'{{"engine": {json.dumps(found["engine"])}, "of": "{found["of"]}", "shown": {{\n{rows}\n}}}}\n',
        encoding="utf-8",
    )


if __name__ == "__main__":
    main(sys.argv[1])

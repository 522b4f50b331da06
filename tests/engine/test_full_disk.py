"""A disk that is full in any stage on a cluster: a sentence, nothing half-written, and the stage goes on once there is
room."""

import json
import subprocess
import sys
from pathlib import Path

import pytest
from tests.dask_nodes import why_no_nodes

from alltrace.synth import write_run

pytest.importorskip("distributed")
pytestmark = [pytest.mark.slow, pytest.mark.skipif(why_no_nodes() is not None, reason=why_no_nodes() or "")]
_ON_SMALL_DISK = ("unshare", "--mount", "sh", "-c", 'mount -t tmpfs -o size=40m none "$0" && exec "$@"')
_PROGRAM = """
import contextlib, io, json, logging, os, sys, time
from pathlib import Path
import distributed
from alltrace.cli.main import main
from alltrace.engine.cluster_start import dask_engine
from alltrace.engine.tasks import using
from alltrace.run.store import Run
from alltrace.align.store import aligned
from alltrace.tiles.build import pyramid
from alltrace.trace.errors import AlltraceError

disk, reports = Path(sys.argv[1]), sys.argv[2]
run, filler = disk / "run", disk / "filler"

def fill():
    with filler.open("wb", buffering=0) as file, contextlib.suppress(OSError):
        while file.write(bytes(1 << 16)):
            pass

def half_written():
    return sorted(p.name for p in disk.rglob("*") if p.name.endswith(".tmp") or p.name.startswith(".alltrace"))

def levels(address):
    with dask_engine(address) as engine, using(engine):
        try:
            opened = Run(run)
            aligned(opened)
            pyramid(opened)
        except AlltraceError as error:
            print(error, file=sys.stderr)
            return 3
    return 0

def stages(address):
    place = ["--dask", address]
    yield "import", lambda: main(["import", reports, "-o", str(run), *place])
    yield "align", lambda: main(["info", str(run), "--format", "json", *place])
    yield "tiles", lambda: levels(address)
    yield "export", lambda: main(["export", "perfetto", str(run), "-o", str(disk / "out.pftrace"), *place])

if __name__ == "__main__":
    found = {}
    options = dict(threads_per_worker=1, dashboard_address=None, host="127.0.0.1", memory_limit=0, silence_logs=logging.CRITICAL)
    with distributed.LocalCluster(2, **options) as cluster:
        for name, stage in stages(cluster.scheduler_address):
            told = []
            for full in (True, False):
                if full:
                    fill()
                said = io.StringIO()
                with contextlib.redirect_stderr(said), contextlib.redirect_stdout(io.StringIO()):
                    code = stage()
                until = time.monotonic() + 20
                while (left := half_written()) and time.monotonic() < until:  # the other worker's task may still run
                    time.sleep(0.05)
                told.append([code, said.getvalue(), left])
                filler.unlink(missing_ok=True)
            found[name] = told
    print(json.dumps(found))
"""  # noqa: E501


def test_a_full_disk_in_each_stage(tmp_path):
    disk, reports, program = tmp_path / "disk", tmp_path / "reports", tmp_path / "program.py"
    disk.mkdir()
    write_run("straggler", reports, ranks=4, hosts=2, steps=4, ideal=True)
    program.write_text(_PROGRAM)
    command = [*_ON_SMALL_DISK, str(disk), sys.executable, str(program), str(disk), str(reports)]
    root = Path(__file__).parent.parent.parent / "src"
    ended = subprocess.run(
        command,
        capture_output=True,
        text=True,
        check=False,
        env={"PATH": "/usr/bin:/bin:/usr/sbin", "PYTHONPATH": str(root)},
    )
    assert ended.returncode == 0, ended.stderr
    stages = json.loads(ended.stdout.splitlines()[-1])
    assert list(stages) == ["import", "align", "tiles", "export"]
    for name, ((code, said, left), (again, _, _)) in stages.items():
        assert code == 3, (name, said)
        assert len(said.splitlines()) == 1, (name, said)
        assert "full" in said or "No space left" in said, (name, said)
        assert left == [], name
        assert again == 0, name

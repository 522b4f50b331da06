"""What `nsys stats` prints of a report is what the canonical tables hold."""

from __future__ import annotations

import csv
import io
import shutil
import subprocess
from collections import Counter

import pytest

pytestmark = [pytest.mark.oracle, pytest.mark.corpus, pytest.mark.slow]


@pytest.fixture
def stats(nsys, corpus, tmp_path):
    """The rows of a report of `nsys stats` on a copy of a real export, and the copy."""

    def ask(name, report):
        original = corpus / "nsys" / f"{name}.sqlite"
        if not original.is_file():
            pytest.skip(f"{original.name} is not there")
        path = tmp_path / original.name
        shutil.copyfile(original, path)
        command = [str(nsys), "stats", "-q", "-r", report, "--format", "csv", str(path)]
        said = subprocess.run(command, check=True, capture_output=True, text=True, timeout=300).stdout
        return path, list(csv.DictReader(io.StringIO(said[said.index("Start (ns)") :])))

    return ask


@pytest.mark.parametrize("name", ["v100x4_mpi_openacc_one_report_nsys2022.3", "osrt_nsys2024.6"])
def test_devices_of_the_gpu_trace(stats, read, name):
    path, rows = stats(name, "cuda_gpu_trace")
    got = read(path, ("kernels", "copies"))
    devices = [f"{d['name']} ({d['ordinal']})" for d in got.rows("devices")]
    mine = Counter((r["start"], devices[r["device"]], r["stream"]) for t in ("kernels", "copies") for r in got.rows(t))
    assert mine == Counter((int(r["Start (ns)"]), r["Device"], int(r["Strm"])) for r in rows if r["Start (ns)"])


@pytest.mark.parametrize("name", ["v100x4_mpi_openacc_one_report_nsys2022.3", "a100x4_ddp_baseline_nsys2022.4"])
def test_threads_of_the_api_trace(stats, read, name):
    path, rows = stats(name, "cuda_api_trace")
    got = read(path, ("api",))
    threads, pids = got.rows("threads"), got.column("processes", "pid")
    mine = Counter()
    for row in got.rows("api"):
        thread = threads[row["thread"]]
        label = thread["name"] or "", "" if thread["priority"] is None else str(thread["priority"])
        mine[(row["start"], str(pids[row["process"]]), str(thread["tid"]), *label)] += 1
    theirs = Counter(
        (int(r["Start (ns)"]), r["Pid"], r["Tid"], r["Thread Name"], r["T-Pri"]) for r in rows if r["Start (ns)"]
    )
    assert mine == theirs

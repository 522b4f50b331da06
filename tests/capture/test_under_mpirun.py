import json
import os
import shutil
import subprocess
import sys

import pytest

pytestmark = [
    pytest.mark.oracle,
    pytest.mark.skipif(shutil.which("mpirun") is None, reason="no mpirun on this machine"),
    pytest.mark.skipif(sys.platform != "linux", reason="profilers are wrapped on Linux"),
]
PROGRAM = "import nvtx\nfor i in range(20):\n    with nvtx.annotate(f'step {i}'): pass"
ROOT = {"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"}


def mpirun(tmp_path, nsys, *options):
    alltrace = [sys.executable, "-m", "alltrace.cli.main"]
    capture = [*alltrace, "capture", "exec", "--nsys", str(nsys), "--trace", "nvtx", "--job", "j", *options]
    command = ["mpirun", "--oversubscribe", "-np", "4", *capture, "--", sys.executable, "-c", PROGRAM]
    return subprocess.run(
        command, cwd=tmp_path, env={**os.environ, **ROOT}, capture_output=True, text=True, timeout=120, check=False
    )


@pytest.mark.slow
def test_four_ranks_come_home_and_info_finds_them(bare_environment, nsys, tmp_path):
    pytest.importorskip("nvtx")
    done = mpirun(tmp_path, nsys)
    assert done.returncode == 0, done.stderr
    reports = sorted((tmp_path / "reports").iterdir())
    assert [p.name[:8] for p in reports] == ["j_rank0_", "j_rank1_", "j_rank2_", "j_rank3_"]
    assert list((tmp_path / "tmp").glob("alltrace-*")) == []
    info = [
        sys.executable,
        "-m",
        "alltrace.cli.main",
        "info",
        str(tmp_path / "reports"),
        *"--jobs 1 --format json".split(),
    ]
    answer = subprocess.run(
        info, env={**os.environ, "ALLTRACE_NSYS": str(nsys)}, capture_output=True, text=True, check=True
    )
    ranks = json.loads(answer.stdout)
    ranks = ranks["rows"] if isinstance(ranks, dict) else ranks
    assert [(r["rank"], r["local_rank"], r["ranges"]) for r in ranks] == [(n, n, 20) for n in range(4)]


@pytest.mark.slow
def test_only_chosen_ranks_leave_a_report(bare_environment, nsys, tmp_path):
    pytest.importorskip("nvtx")
    done = mpirun(tmp_path, nsys, "--ranks", "1,3", "--verbose")
    assert done.returncode == 0, done.stderr
    assert [p.name[:7] for p in sorted((tmp_path / "reports").iterdir())] == ["j_rank1", "j_rank3"]
    said = [line for line in done.stderr.splitlines() if line.startswith("alltrace capture: ")]
    assert sorted(line[18:24] for line in said) == ["rank 1", "rank 3"]

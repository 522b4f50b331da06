import os
import subprocess
import sys

import pytest
from tests.making import kernel, make_run

SETTINGS = {"OPENBLAS_NUM_THREADS": "1", "ARROW_DEFAULT_MEMORY_POOL": "system"}
SCRIPT = (
    "import gc, os, sys; from alltrace.cli.startup import configure_process; configure_process();"
    "assert not {'numpy', 'pyarrow'} & set(sys.modules);"
    "import pyarrow as pa; print(os.environ['OPENBLAS_NUM_THREADS'], pa.default_memory_pool().backend_name, gc.get_threshold()[0])"
)


@pytest.mark.parametrize(
    ("given", "expected"),
    [({}, "1 system 100000"), ({"OPENBLAS_NUM_THREADS": "3", "ARROW_DEFAULT_MEMORY_POOL": "mimalloc"}, "3 mimalloc 100000")],
)
def test_settings_of_the_user_stay(given, expected):
    environment = {k: v for k, v in os.environ.items() if k not in SETTINGS}
    done = subprocess.run([sys.executable, "-c", SCRIPT], env={**environment, **given}, capture_output=True, text=True, check=True)
    assert done.stdout.strip() == expected


CLOSED = "alltrace: standard output is closed; write the answer to a file with -o, or open it\n3\n"


@pytest.mark.parametrize(("output", "said"), [(">&-", CLOSED), ("| true", "0\n")])
def test_an_output_that_nobody_reads_is_no_traceback(output, said):
    command = f"{{ sleep 0.2; {sys.executable} -m alltrace.cli.main --version; echo $? >&2; }} {output}"
    done = subprocess.run(["bash", "-c", command], capture_output=True, text=True, check=False)
    assert done.stderr == said


def test_a_report_of_a_run_loads_neither_filters_nor_the_importer(tmp_path):
    """Each takes as long to load as a short report takes to answer."""
    make_run(tmp_path / "run", {0: {"kernels": [kernel(0, 40)]}})
    code = (
        "import sys; from alltrace.cli.main import main; main(sys.argv[1:]);"
        "print(sorted({'alltrace.run.importer', 'alltrace.nvidia.filters'} & set(sys.modules)))"
    )
    for given, loaded in (([], "[]"), (["--filter-time", "0/1s"], "['alltrace.nvidia.filters']")):
        command = [sys.executable, "-c", code, "nsys", "stats", "-r", "cuda_gpu_kern_sum", *given, str(tmp_path / "run")]
        done = subprocess.run(command, capture_output=True, text=True, check=True)
        assert done.stdout.splitlines()[-1] == loaded

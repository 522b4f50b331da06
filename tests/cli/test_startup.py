from __future__ import annotations

import os
import subprocess
import sys
from importlib.metadata import version

import pytest

from alltrace.synth import write_run

SCRIPT = """
import sys
from importlib.machinery import ModuleSpec

class Pandas:
    asked = 0
    def find_spec(self, name, path=None, target=None):
        if name == "pandas":
            Pandas.asked += 1

sys.meta_path.insert(0, Pandas())
from alltrace.cli.startup import keep_pandas_out
keep_pandas_out()
finders = len(sys.meta_path)
keep_pandas_out()
assert len(sys.meta_path) == finders
import numpy as np, pyarrow as pa
assert pa.array(np.arange(3)).to_numpy().tolist() == [0, 1, 2]
assert pa.chunked_array([pa.array([1.5])]).to_numpy().tolist() == [1.5]
assert "pandas" not in sys.modules
print(Pandas.asked)
"""


def test_pyarrow_looks_for_no_pandas_afterwards() -> None:
    done = subprocess.run([sys.executable, "-c", SCRIPT], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "0"


def test_questions_load_no_pandas(run, tmp_path):
    (tmp_path / "pandas.py").write_text("class DataFrame: pass")
    (tmp_path / "budget.toml").write_text('limits = ["overlap_percent >= 0"]')
    questions = [["diff", run, run], ["check", run, "--budget", str(tmp_path / "budget.toml")]]
    questions.append(["synth", "tiny", "-o", str(tmp_path / "simulated")])
    if int(version("duckdb").split(".")[0]) > 1:  # older ones load it by themselves
        questions.append(["sql", run, "select count(*) as n from kernels"])
    for question in questions:
        code = (
            f"import sys; sys.path.insert(0, {str(tmp_path)!r}); from alltrace.cli.main import main;"
            f"main({question!r}); print('pandas' in sys.modules)"
        )
        done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
        assert done.stdout.splitlines()[-1] == "False", question[0]


def test_arrow_allocates_as_the_system_does_unless_told_otherwise():
    code = (
        "from alltrace.cli.startup import load_lightly; load_lightly();"
        "import pyarrow as pa; print(pa.default_memory_pool().backend_name)"
    )
    environment = {k: v for k, v in os.environ.items() if k != "ARROW_DEFAULT_MEMORY_POOL"}
    for given, expected in ({}, "system"), ({"ARROW_DEFAULT_MEMORY_POOL": "mimalloc"}, "mimalloc"):
        command = [sys.executable, "-c", code]
        done = subprocess.run(command, env={**environment, **given}, capture_output=True, text=True, check=True)
        assert done.stdout.strip() == expected


def test_a_question_asked_of_a_run_loads_little(run):
    heavy = {
        "alltrace.engine.local",
        "alltrace.readers.base",
        "alltrace.recipes.nvtx_projection",
        "alltrace.run.cache",
        "alltrace.run.importer",
        "_compat_pickle",
        "_hashlib",
        "_socket",
        "concurrent.futures",
        "dateutil",
        "dis",
        "duckdb",
        "multiprocessing.connection",
        "numba",
        "numpy._typing._array_like",
        "numpy.ma",
        "pandas",
        "pyarrow.compute",
        "pyarrow.fs",
        "pyarrow.parquet",
        "rich",
        "ssl",
    }
    code = (
        "import sys; from alltrace.cli.main import main;"
        f"assert main(['stats', 'cuda_gpu_kern_sum', {run!r}, '--format', 'csv']) == 0;"
        f"print(sorted({heavy} & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.startswith("Time (%),Total Time (ns),")
    assert done.stdout.splitlines()[-1] == "[]"


def test_an_import_loads_no_wrappers_and_no_compiler(tmp_path):
    reports = str(tmp_path / "reports")
    write_run("tiny", tmp_path / "reports", ranks=1, hosts=1)
    code = (
        "import sys; from alltrace.cli.main import main;"
        f"assert main(['import', {reports!r}, '-o', {str(tmp_path)!r} + sys.argv[1], '--jobs', '1']) == 0;"
        "print(sorted({'numba', 'pandas', 'pyarrow.compute', 'pyarrow.parquet'} & set(sys.modules)))"
    )
    for again in ("first", "second"):  # the first may compile
        done = subprocess.run([sys.executable, "-c", code, again], capture_output=True, text=True, check=True)
    # what Numba made before 0.62 is loaded by Numba, see docs/architecture.md
    older = tuple(map(int, version("numba").split(".")[:2])) < (0, 62)
    assert done.stdout.splitlines()[-1] == ("['numba']" if older else "[]")


def test_a_command_ends_as_python_does(tmp_path):
    code = (
        "import atexit, sys, threading, time; from alltrace.cli.startup import leave;"
        "atexit.register(lambda: print('tidied'));"
        "threading.Thread(target=lambda: (time.sleep(0.2), print('worked'))).start();"
        "sys.stdout.write('said\\n'); leave(3)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (3, "said\nworked\ntidied\n", "")


def test_an_output_that_nobody_reads_is_no_traceback():
    code = "import sys; from alltrace.cli.startup import leave; sys.stdout.write('x'); sys.stdout.close(); leave(0)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")


def test_libraries_start_no_threads_unless_told_otherwise():
    code = (
        "import gc, os; from alltrace.cli.startup import load_lightly; load_lightly();"
        "print(os.environ['OPENBLAS_NUM_THREADS'], gc.get_threshold()[0])"
    )
    environment = {k: v for k, v in os.environ.items() if k != "OPENBLAS_NUM_THREADS"}
    for given, expected in ({}, "1 100000"), ({"OPENBLAS_NUM_THREADS": "3"}, "3 100000"):
        done = subprocess.run(
            [sys.executable, "-c", code], env={**environment, **given}, capture_output=True, text=True, check=True
        )
        assert done.stdout.strip() == expected


def test_numpy_documents_nothing_in_a_command_and_everything_elsewhere():
    for lightly, documented in ("load_lightly()", "False"), ("pass", "True"):
        code = (
            f"from alltrace.cli.startup import load_lightly; {lightly};"
            "import numpy as np; print(bool(np.ndarray.sum.__doc__), np.arange(4).sum(), np.linalg.det(np.eye(2)))"
        )
        done = subprocess.run([sys.executable, "-W", "error", "-c", code], capture_output=True, text=True, check=True)
        assert done.stdout.split() == [documented, "6", "1.0"]


def test_what_comes_later_is_there_when_it_is_wanted():
    code = (
        "import sys; from alltrace.cli.startup import load_lightly; load_lightly();"
        "import numpy as np, pyarrow as pa;"
        "print(sorted({'dis', '_socket', '_compat_pickle'} & set(sys.modules)));"
        "import inspect, pickle, socket, ast;"
        "print(pickle.loads(pickle.dumps(np.arange(3))).tolist(), ast.literal_eval('[1]'), socket.AF_INET.name);"
        "print(inspect.signature(lambda a, *, b=2: 0), inspect.cleandoc('  a'), inspect.signature(np.full).parameters['dtype']);"
    )
    done = subprocess.run([sys.executable, "-W", "error", "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines() == ["[]", "[0, 1, 2] [1] AF_INET", "(a, *, b=2) a dtype=None"]


def test_libraries_that_were_opened_ahead_are_those_that_are_imported():
    code = (
        "import sys; from alltrace.cli.startup import load_lightly, open_libraries_ahead; load_lightly(); open_libraries_ahead();"
        "import numpy as np, pyarrow as pa; from pyarrow import _compute, _parquet;"
        "print(sum(pa.array(np.arange(4)).to_pylist()));"
        "paths = {line.split()[-1] for line in open('/proc/self/maps') if 'libarrow.so' in line or 'multiarray_umath' in line};"
        "print(len(paths)); open_libraries_ahead()"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["6", "2"]
    assert done.stderr == ""


def test_who_waits_for_the_libraries_is_told_when_they_are_open():
    code = (
        "import time; from alltrace.cli.startup import open_libraries_ahead; found = [];"
        "opened = lambda: found.append('libarrow.so' in open('/proc/self/maps').read());"
        "open_libraries_ahead(opened);"
        "[time.sleep(0.05) for _ in range(200) if not found];"
        "print(found)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert (done.stdout, done.stderr) == ("[True]\n", "")


ENVIRONMENT = """
import os, sys
for name in ("OPENBLAS_MAIN_FREE", "GOTOBLAS_MAIN_FREE"):
    os.environ.pop(name, None)
changes, opening = [], False

def hook(event, arguments):
    if opening and event in ("os.putenv", "os.unsetenv"):
        changes.append(arguments)

sys.addaudithook(hook)
from alltrace.cli import main, startup
open_ahead = startup.open_libraries_ahead

def watched(then=None):
    global opening
    opening = True
    if LIGHTLY:
        open_ahead(then)

startup.open_libraries_ahead = watched
if not LIGHTLY:
    startup.load_lightly = lambda: None
code = main.main(sys.argv[1:])
print(code, opening, "numpy" in sys.modules, "pyarrow" in sys.modules, changes, file=sys.stderr)
"""


@pytest.mark.parametrize(
    "arguments", [["stats", "nvtx_sum"], ["breakdown"], ["import", "-o", "made"], ["export", "perfetto", "-o", "t.gz"]]
)
def test_the_environment_is_not_changed_while_libraries_look_into_it(tmp_path, arguments):
    """A thread that opens a library calls getenv, which reads what is no longer there once setenv has moved the environment."""
    write_run("tiny", tmp_path / "reports")
    verb, *rest = arguments
    command = [sys.executable, "-c", ENVIRONMENT.replace("LIGHTLY", "True"), verb, *rest, str(tmp_path / "reports")]
    command += [] if verb == "import" else ["--cache-dir", str(tmp_path / "cache")]
    done = subprocess.run(command, capture_output=True, text=True, check=True, cwd=tmp_path)
    assert done.stderr.splitlines()[-1] == "0 True True True []"


def test_numpy_alone_changes_the_environment():
    """Else the test above could not fail; no library is opened beside it here, which could crash."""
    code = ENVIRONMENT.replace("LIGHTLY", "False")
    done = subprocess.run([sys.executable, "-c", code, "stats", "nvtx_sum", "no run"], capture_output=True, text=True, check=True)
    assert "MAIN_FREE" in done.stderr.splitlines()[-1]


def test_python_ends_once_the_libraries_are_open():
    """Otherwise a command that fails at once would end while they are still being opened, and could crash."""
    code = (
        "import _thread, os, time; from alltrace.cli import startup;"
        "startup.open_libraries_ahead(); startup._opening.acquire();"
        "opened = lambda: (time.sleep(0.3), os.write(1, b'open'), startup._opening.release());"
        "_thread.start_new_thread(opened, ())"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "open"


def test_libraries_that_are_not_there_are_told_of_by_their_import():
    code = (
        "import sys, time; from alltrace.cli import startup; startup._LIBRARIES = {'none': ('x',), 'alltrace': ('none',)};"
        "startup.open_libraries_ahead(); time.sleep(0.1); import numpy; print(numpy.arange(3).sum())"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert (done.stdout, done.stderr) == ("3\n", "")


CLOUDPICKLE = """
import sys, pathlib
folder = pathlib.Path(sys.argv[1])
(folder / "cloudpickle.py").write_text("from pickle import *")
sys.path.insert(0, str(folder))
from alltrace.cli.startup import keep_pandas_out, load_lightly
load_lightly()
refusing = lambda: [f for f in sys.meta_path if type(f).__module__ == "alltrace.trace.absent"]
assert len(refusing()) == 1
import pyarrow as pa
assert "cloudpickle" not in sys.modules
keep_pandas_out()
assert refusing() == []
import cloudpickle, pickle
table = pa.table({"a": [1, None, 3]})
assert pickle.loads(pickle.dumps(table)).equals(table)
load_lightly()
assert refusing() == []
print(cloudpickle.__file__)
"""


def test_pyarrow_loads_no_cloudpickle_and_others_may(tmp_path):
    done = subprocess.run([sys.executable, "-c", CLOUDPICKLE, str(tmp_path)], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == str(tmp_path / "cloudpickle.py")

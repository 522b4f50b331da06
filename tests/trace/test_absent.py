from __future__ import annotations

import subprocess
import sys

PARTS = {
    "fresh": "",
    "loaded": "import pandas;",
}
CODE = """
import sys; sys.path.insert(0, {folder!r})
{before}
from alltrace.trace.absent import Without, keep_pandas_out
keep_pandas_out()
import pyarrow as pa
pa.array([1])
print("pandas" in sys.modules, any(isinstance(f, Without) for f in sys.meta_path))
sys.meta_path.insert(0, Without("colorsys"))
try:
    import colorsys
except ModuleNotFoundError as error:
    print(error.name, sys.meta_path[0].refused)
import this_is_there
"""


def test_pandas_is_kept_out_where_nobody_has_loaded_it_and_the_rest_is_found(tmp_path):
    (tmp_path / "pandas.py").write_text("__version__ = '0'\nclass DataFrame: pass")
    (tmp_path / "this_is_there.py").write_text("print('found')")
    for name, before in PARTS.items():
        code = CODE.format(folder=str(tmp_path), before=before)
        done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
        assert done.stdout.splitlines() == [f"{name == 'loaded'} False", "colorsys 1", "found"]


def last_line(code):
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    return done.stdout.splitlines()[-1]


def test_pyarrow_loads_no_dateutil_for_what_has_a_known_type(tmp_path):
    (tmp_path / "dateutil").mkdir()
    (tmp_path / "dateutil" / "__init__.py").touch()
    (tmp_path / "dateutil" / "relativedelta.py").write_text("class relativedelta: pass")
    code = f"""
import sys; sys.path.insert(0, {str(tmp_path)!r})
from alltrace.trace.absent import keep_pandas_out
keep_pandas_out()
import pyarrow as pa
from alltrace.trace import compute as pc
numbers = pa.array([1.5, None], pa.float64())
found = [pc.if_else(pc.is_valid(numbers), numbers, None).to_pylist(), pc.greater(numbers, 1).to_pylist()]
found += [pc.multiply(numbers, 2.0).to_pylist(), pc.and_(pc.is_valid(numbers), True).to_pylist()]
found += [pc.equal(pa.array(["a", "b"], pa.string()), "b").to_pylist()]
print(found, "dateutil" in sys.modules)
"""
    expected = [[1.5, None], [True, None], [3.0, None], [True, False], [False, True]]
    assert last_line(code) == f"{expected} False"


def test_a_module_comes_when_something_of_it_is_wanted():
    ways = {
        "import pathlib, ipaddress; print('IPv4Address' in vars(ipaddress))": "False",
        "import ipaddress as a; print(a.ip_address('::1').is_loopback, a.ip_address('10.0.0.1').is_loopback)": "True False",
        "from ipaddress import ip_network; print(ip_network('10.0.0.0/8').num_addresses)": "16777216",
        "from ipaddress import *; print(IPv4Address(1))": "0.0.0.1",
        "from urllib.parse import urlsplit; print(urlsplit('http://[::1]:80/x').hostname)": "::1",
    }
    for way, expected in ways.items():
        assert last_line(f"from alltrace.cli.startup import load_lightly; load_lightly(); {way}") == expected, way


def test_the_types_of_numpy_come_when_they_are_wanted():
    """Whoever wants them, by whatever way, gets the real ones; NumPy's own results are what they are without."""
    ways = {
        "import numpy.typing as t; print(t.NDArray[numpy.float64])": "numpy.ndarray",
        "from numpy._typing import NDArray; print(NDArray[numpy.float64])": "numpy.ndarray",
        "import numpy._typing._array_like as a; print(a.NDArray[numpy.float64])": "numpy.ndarray",
        "print(numpy.linalg.eigh(numpy.eye(2)).eigenvalues.tolist())": "[1.0, 1.0]",
        "import sys; print(hasattr(numpy, '_typing'), 'numpy._typing._array_like' in sys.modules)": "False False",
    }
    start = "from alltrace.cli.startup import load_lightly; load_lightly(); import numpy; "
    for way, expected in ways.items():
        assert last_line(start + way).startswith(expected), way

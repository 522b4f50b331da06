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

from __future__ import annotations

import subprocess
import sys

import numpy as np
import pyarrow as pa
import pytest

from alltrace.trace.arrays import plain_array


@pytest.mark.parametrize("kind", ["int8", "uint16", "int32", "uint32", "int64", "float64"])
def test_numbers_are_what_arrow_makes_of_them(kind):
    values = np.arange(1, 21, dtype=kind)
    valid = values % 3 != 0
    for some, flags in ((values, valid), (values[::2], valid[::2]), (values[:0], valid[:0])):
        assert plain_array(some).equals(pa.array(some))
        assert plain_array(some, flags).equals(pa.array(some, mask=~flags))
        assert plain_array(some, flags).null_count == int((~flags).sum())


def test_no_masked_arrays_are_loaded():
    code = (
        "import sys, numpy as np; from alltrace.trace.arrays import plain_array; plain_array(np.arange(3));"
        "print('numpy.ma' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "False"

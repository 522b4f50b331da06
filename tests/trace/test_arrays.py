from __future__ import annotations

import subprocess
import sys

import numpy as np
import pyarrow as pa
import pytest

from alltrace.trace.arrays import extremes, masked_array, plain_array, plain_table


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
        "import sys, numpy as np; from alltrace.trace.arrays import masked_array, plain_array; plain_array(np.arange(3));"
        "print('numpy.ma' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "False"


@pytest.mark.parametrize(
    ("values", "kind"),
    [
        (np.array([1, -2, 2**62]), None),
        (np.array([1, 0, 3]), pa.int32()),
        (np.array([1, 0, 3], np.int32), pa.int64()),
        (np.array([1.5, float("nan"), 0.0]), None),
        (np.array([True, False, True]), None),
        (np.arange(18)[::2], None),
        (np.zeros(0, np.int16), None),
        (np.zeros(0, np.bool_), None),
    ],
)
def test_a_masked_array_is_what_pyarrow_makes(values, kind):
    nothing = np.arange(len(values)) % 3 == 1
    for mask in (None, nothing, np.zeros(len(values), np.bool_)):
        made = masked_array(values, kind, mask)
        assert made.type == (kind or pa.from_numpy_dtype(values.dtype))
        assert str(made) == str(pa.array(values, kind, mask=mask))
        assert made.null_count == (0 if mask is None else int(mask.sum()))
        made.validate(full=True)


def test_a_table_of_numpys_arrays_and_arrows():
    columns = {"n": np.arange(3), "share": np.array([0.5, 1.0, 2.0]), "word": pa.array(["a", None, "c"])}
    assert plain_table(columns).equals(pa.table(columns))


@pytest.mark.parametrize(
    ("values", "expected"),
    [([3, -1, 2], (-1, 3)), ([5], (5, 5)), ([None, 7, 2], (2, 7)), ([], (None, None)), ([None], (None, None))],
)
def test_extremes_leave_nulls_out(values, expected):
    array = pa.array(values, pa.int64())
    assert extremes(array) == extremes(pa.array([0, *values, 0], pa.int64()).slice(1, len(values))) == expected
    assert all(type(n) is int for n in extremes(array) if n is not None)

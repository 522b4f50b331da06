from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as real
import pytest

import alltrace
from alltrace.trace import compute as pc

USED = sorted(
    {name for path in Path(alltrace.__file__).parent.rglob("*.py") for name in re.findall(r"\bpc\.(\w+)\(", path.read_text())}
)
N = pa.array([3, None, -1, 2, 2])
M = pa.array([1, 1, None, 2, 5])
F = pa.array([1.26, -2.5, None, float("inf"), 0.0])
T = pa.array(["abc", None, "b", "a b", ""])
B = pa.array([True, None, False, True, True])
TABLE = pa.table({"n": N, "t": T})

CALLS = {
    **{
        name: [(N, M), (N, 2)] for name in ("add", "subtract", "multiply", "equal", "not_equal", "greater", "greater_equal", "less")
    },
    **{name: [(N, M), (N, 2)] for name in ("greater_equal", "less", "less_equal", "coalesce", "max_element_wise")},
    **{name: [(B, B), (B, pa.scalar(False))] for name in ("and_", "or_", "and_kleene")},
    **{name: [(N,), (pa.chunked_array([N, M]),)] for name in ("sum", "max", "min", "min_max", "unique", "value_counts", "abs")},
    **{name: [(N,), (T,)] for name in ("is_null", "is_valid", "dictionary_encode", "count_distinct")},
    "divide": [(F, 2.0)],
    "any": [(B,), (pa.array([], pa.bool_()),)],
    "all": [(B,)],
    "invert": [(B,)],
    "is_finite": [(F,)],
    "if_else": [(B, N, M), (B, "named", T)],
    "fill_null": [(N, 7), (T, ""), (N, M), (pa.chunked_array([N]), 0), (pa.array([1.5, None]), 2)],
    "cast": [(N, pa.int8()), (N, "string"), (F, pa.int64(), False), (pa.chunked_array([N]), pa.float64()), (5, pa.int16())],
    "take": [(N, pa.array([0, 3])), (TABLE, pa.array([4, 0])), (pa.chunked_array([T]), [1, 2])],
    "filter": [(N, B), (TABLE, B)],
    "binary_length": [(T,)],
    "binary_repeat": [(T, 2)],
    "binary_join_element_wise": [(T, T, "-")],
    "binary_join": [(pa.array([["a", "b"], [], None]), "+")],
    "utf8_lower": [(T,)],
    "sort_indices": [(N,)],
    "list_flatten": [(pa.array([[1, None], [], None, [3]]),)],
}
SETTINGS = {
    "round": [((F, 1), {}), ((F,), {"ndigits": 1, "round_mode": "half_to_even"})],
    "is_in": [((N,), {"value_set": pa.array([2, 3])}), ((T, pa.array(["b", None])), {})],
    "index_in": [((N,), {"value_set": pa.array([2, 3])})],
    "match_substring": [((T, "b"), {})],
    "match_substring_regex": [((T,), {"pattern": "^a"}), ((T, "B"), {"ignore_case": True})],
    "replace_substring": [((T,), {"pattern": "b", "replacement": "c"})],
    "replace_substring_regex": [((T, "[ab]", "x"), {})],
    "starts_with": [((T, "a"), {})],
    "ends_with": [((T, "b"), {})],
    "sort_indices": [((TABLE,), {"sort_keys": [("t", "descending"), ("n", "ascending")]})],
    "min_max": [((N,), {"skip_nulls": False})],
    "all": [((pa.array([], pa.bool_()),), {"min_count": 0})],
    "count_distinct": [((T,), {"mode": "all"})],
    "dictionary_encode": [((T,), {"null_encoding": "encode"})],
    "binary_join_element_wise": [((T, T, "-"), {"null_handling": "replace", "null_replacement": "?"})],
    "filter": [((N, B), {"null_selection_behavior": "emit_null"})],
    "max_element_wise": [((N, M), {"skip_nulls": False})],
    "sum": [((N,), {"min_count": 9})],
}


def same(one, other):
    assert type(one) is type(other)
    assert one.equals(other) or (one.type == other.type and str(one) == str(other))


@pytest.mark.parametrize("name", sorted({*CALLS, *SETTINGS}))
def test_a_function_gives_what_pyarrow_compute_gives(name):
    for arguments, settings in [*((a, {}) for a in CALLS.get(name, [])), *SETTINGS.get(name, [])]:
        same(getattr(pc, name)(*arguments, **settings), getattr(real, name)(*arguments, **settings))


@pytest.mark.parametrize("name", USED)
def test_what_the_package_uses_is_there_and_compared(name):
    assert callable(getattr(pc, name))
    if name != "cast_table":
        assert name in {*CALLS, *SETTINGS}


def test_expressions_are_left_to_pyarrow_compute():
    assert str(pc.equal(real.field("n"), 3)) == str(real.equal(real.field("n"), 3))


def test_what_does_not_exist_is_said():
    with pytest.raises(AttributeError):
        _ = pc.no_such_function
    with pytest.raises(TypeError):
        pc.add(N, M, wrong=3)


def test_a_table_is_cast_by_columns():
    schema = pa.schema([("n", pa.int16()), ("t", pa.large_string())])
    assert pc.cast_table(TABLE, schema).equals(TABLE.cast(schema))
    with pytest.raises(ValueError, match=r"expected columns \['n'\], got \['n', 't'\]"):
        pc.cast_table(TABLE, pa.schema([("n", pa.int16())]))
    with pytest.raises(pa.ArrowInvalid):
        pc.cast_table(pa.table({"n": [1 << 40]}), pa.schema([("n", pa.int16())]))


def test_pyarrow_compute_is_not_loaded():
    code = (
        "import sys; from alltrace.trace import compute as pc\n"
        "assert 'pyarrow' not in sys.modules\n"
        "from alltrace.cli.startup import keep_pandas_out; keep_pandas_out()\n"
        "import pyarrow as pa\n"
        "print(pc.sum(pc.fill_null(pc.cast(pa.array([1, None]), pa.int32()), 4)).as_py(), 'pyarrow.compute' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout == "5 False\n"

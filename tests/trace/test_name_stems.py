"""Names of ranges without their counters: one answer from Arrow and from DuckDB."""

import duckdb
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.together import together

from alltrace.trace.name_stems import NUMBERED, stem_sql, stems


@together(
    ("name", "expected"),
    [
        # as torch/csrc/profiler/util.cpp puts them together
        ("aten::to, op_id = 998949", "aten::to"),
        ("aten::add, seq = 7", "aten::add"),
        ("aten::addmm, seq = 12, op_id = 41, sizes = [[2, 3], []], input_op_ids = [(1,0), (7,1)]", "aten::addmm"),
        ("aten::mm, sizes = [[512, 512], [512, 512]]", "aten::mm"),
        ("FSDP::forward (layers.3), op_id = 5", "FSDP::forward (layers.3)"),
        # what programs count
        ("step 12", "step"),
        ("train_step_12", "train_step"),
        ("ProfilerStep#12", "ProfilerStep"),
        ("Batch 12/100", "Batch"),
        ("Iteration 3 of 20", "Iteration"),
        ("iter12", "iter"),
        ("epoch 3/step 12", "epoch/step"),
        ("epoch=3, step=12", "epoch, step"),
        ("[step 4]", "[step"),
        ("iteration[12]", "iteration"),
        # what is not a counter
        ("step", "step"),
        ("layer 3", "layer 3"),
        ("conv2d", "conv2d"),
        ("AllToAll4D", "AllToAll4D"),
        ("writer 2", "writer 2"),
        ("batch_norm_2", "batch_norm_2"),
        ("batch_size 32 warmup", "batch_size 32 warmup"),
        ("step 1 of the plan", "step 1 of the plan"),
        ("x, op_id = abc", "x, op_id = abc"),
        ("", ""),
    ],
)  # fmt: skip
def test_a_name_is_split(name, expected):
    assert stems(pa.array([name, None])).to_pylist() == [expected, None]


PARTS = st.sampled_from(
    ["step", "iter", "Epoch", "batch", "x", "é核", "layer", " ", "_", "#", "/", "12", "0", ", seq = 3", ", op_id = 9",
     ", sizes = [[1], []]",
     "[", "]", "\n", "'", "of", ":", "=", "-", ".", ", input_op_ids = [(1,0)]"]
)  # fmt: skip


@pytest.mark.slow
@given(st.lists(st.one_of(st.lists(PARTS, max_size=9).map("".join), st.text(max_size=12)), min_size=1, max_size=20))
def test_arrow_and_duckdb_agree(names):
    names = [n.encode("utf-8", "replace").decode() for n in names if "\0" not in n]
    given_names = pa.table({"name": pa.array(names, pa.string())})
    expected = stems(given_names.column("name")).to_pylist()
    assert [row[0] for row in duckdb.sql(f"SELECT {stem_sql('name')} FROM given_names").fetchall()] == expected


@together(
    ("name", "expected"),
    [("layers.3.mlp", "layers.#.mlp"), ("layer12", "layer#"), ("copy in 7", "copy in #"), ("conv2d", "conv2d"),
        ("a[2]", "a[#]")],
)  # fmt: skip
def test_any_number_is_one_where_that_is_asked_for(name, expected):
    assert duckdb.sql(f"SELECT {stem_sql('n', (NUMBERED,))} FROM (SELECT '{name}' AS n)").fetchall() == [(expected,)]

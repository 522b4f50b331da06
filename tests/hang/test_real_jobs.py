"""Jobs of PyTorch with gloo that hang on this machine; `python -m benchmarks.hangs` runs all causes."""

import os

import pytest

from alltrace.hang.verdict import verdict_of
from benchmarks.hangs import TRUTHS, hang


@pytest.mark.slow
@pytest.mark.nightly
@pytest.mark.parametrize("cause", ["skipped-call", "other-order", "killed", "stopped"])
def test_the_cause_and_the_rank_of_a_real_hang(tmp_path, cause):
    if not os.environ.get("ALLTRACE_TORCH_PYTHON"):
        pytest.skip("no PyTorch: set ALLTRACE_TORCH_PYTHON")
    hang(cause, tmp_path, 5, 12, 6.0)
    answer = verdict_of(tmp_path)
    row = answer.table.to_pylist()[0]
    assert row["ranks"] == [5], answer.verdict
    assert row["kind"] in TRUTHS[cause]

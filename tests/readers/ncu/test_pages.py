"""Real reports against every page that a real Nsight Compute prints of them; `python -m tests.readers.ncu.pages` for
others."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from tests.readers.ncu.pages import compare


@pytest.mark.corpus
@pytest.mark.oracle
@pytest.mark.parametrize("name", ["cuda_tutorial", "gemm_badtile", "hpc_a3", "mojo_rtx"])
def test_every_value_that_nsight_compute_prints_is_ours(corpus, name):
    if not (Path(os.environ.get("ALLTRACE_NSIGHT", "")) / "ncu" / "ncu").is_file():
        pytest.skip("no Nsight Compute: set ALLTRACE_NSIGHT")
    pages = compare(corpus / "ncu" / f"{name}.ncu-rep")
    assert {p.page: p.differences for p in pages if p.differences} == {}
    assert all(p.values for p in pages if p.page != "source, lines")

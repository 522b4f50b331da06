"""A slice of `python -m tests.fuzz.lost_kernels`."""

from __future__ import annotations

import pytest

from tests.fuzz import lost_kernels


@pytest.mark.slow
def test_every_lost_kernel_is_counted_and_none_counts_as_idle(tmp_path, monkeypatch):
    monkeypatch.setenv("ALLTRACE_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.setattr(lost_kernels, "SIMULATED", (("tiny", 2),))
    said: list[str] = []
    assert lost_kernels.run_cases(None, tmp_path, 4, ("random", "start", "stream", "rank", "end"), said.append) == 0, (
        said
    )
    assert said[-1] == "0 of 5 are wrong"

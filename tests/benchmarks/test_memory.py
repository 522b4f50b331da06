from __future__ import annotations

from alltrace.api import open_run
from benchmarks import memory


def test_the_trace_has_blocks_operators_and_steps(tmp_path):
    path = tmp_path / "trace.json"
    with path.open("w", encoding="utf-8") as file:
        memory.write_trace(file, 400, 40)
    run = open_run(path, cache_dir=tmp_path / "cache")
    (row,) = run.recipe("memory").to_pylist()
    assert row["allocations"] + row["frees"] == 400
    assert (row["unmatched_frees"], row["first_bytes"]) == (0, 0)
    assert len(run.recipe("memory-steps").to_pylist()) == 4
    assert {r["name"] for r in run.recipe("memory-peak", top=0).to_pylist()} - {None} <= {
        f"aten::op{n}" for n in range(40)
    }

"""Questions that read a large rank some rows at a time answer as if they read it whole."""

import pytest
from tests.making import COMMUNICATION_KERNEL, COMPUTE_KERNEL, copy, kernel, make_run
from tests.recipes.work import call, operator

from alltrace.recipes.questions import kernel_sequences
from alltrace.run import rank, time_slices
from alltrace.trace import arrays

_STEPS = 12


def tables():
    """Steps of 100 ns of four kernels on two streams, a copy and a call each; a range of all steps, and long calls."""
    rows = {
        "kernels": [],
        "copies": [],
        "api": [],
        "ranges": [{"start": 0, "end": 1250, "name": "all", "kind": "pushpop"}],
    }
    for step in range(_STEPS):
        at = 100 * step
        rows["ranges"].append({"start": at, "end": at + 99, "name": f"ProfilerStep#{step}", "kind": "pushpop"})
        rows["ranges"] += [operator("aten::mm", at + 2, at + 40), operator("aten::add", at + 45, at + 98)]
        for number in range(4):
            name = COMMUNICATION_KERNEL if number == 3 else COMPUTE_KERNEL
            place = {"grid_x": 8 + number, "grid_y": 1, "grid_z": 1, "stream": 7 + number % 2}
            begin, id_ = at + 22 * number, 5 * step + number
            rows["api"].append(call(begin + 3, begin + 9 + 60 * (step % 3 == 1), id_))
            rows["kernels"].append(kernel(begin + 15, begin + 40 + 90 * (number == 2), name, correlation=id_, **place))
        rows["copies"].append(copy(at + 60, at + 75))
    return rows


@pytest.mark.parametrize(
    ("question", "options"),
    [("step-time", {}), ("operators", {}), ("operators", {"by": "range"}), ("kernel-sequences", {"min_length": 1})],
)
def test_pieces_of_a_rank_give_the_answer_of_the_whole(question, options, tmp_path, monkeypatch):
    run = make_run(tmp_path, {0: tables(), 1: tables()})
    whole = run.recipe(question, **options).to_pylist()
    monkeypatch.setattr(rank, "_MOST_HELD_ROWS", 5)
    for name, rows in (("_FIRST_ROWS", 3), ("_SPAN_ROWS", 7), ("_SAMPLE_ROWS", 2)):
        monkeypatch.setattr(time_slices, name, rows)
    monkeypatch.setattr(arrays, "BLOCK_ROWS", 5)
    monkeypatch.setattr(kernel_sequences, "BLOCK_ROWS", 5)
    assert len(whole) > 1
    assert run.recipe(question, **options).to_pylist() == whole

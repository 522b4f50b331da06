"""Every recipe finds the steps that `steps` lists, in a run of one rank as in one of several."""

from __future__ import annotations

import random

import pytest
from tests.making import kernel, make_run
from tests.recipes.test_every_recipe import EVERY, answer_of

from alltrace.recipes.execution.ask import ask
from alltrace.recipes.registry import find

WINDOWED = [name for name in EVERY if find(name).windowed]
FIRST, LAST = 3, 9
OF_ALL_RANKS = {
    "diagnose": ("hosts",),
    "mfu": ("tokens", "tokens_per_s", "tflops_per_gpu", "mfu_percent", "hfu_percent"),
}
"""Columns that are about the other ranks too."""


def program(rank):
    """A rank without collectives: numbered steps, in each a few launches, a copy and kernels, the first step slow."""
    draw = random.Random(rank)
    rows = {name: [] for name in ("ranges", "kernels", "copies", "api")}
    at, launched = 0, 0
    for step in range(FIRST, LAST + 1):
        begin = at
        for n in range(6 if step > FIRST else 30):
            launched += 1
            end = at + draw.randrange(40, 90)
            rows["api"].append(
                {"start": at, "end": at + 10, "name": "cudaLaunchKernel", "kind": "runtime", "correlation": launched}
            )
            if n % 6 == 5:
                copy = {"kind": "HtoD", "bytes": 4096, "src_kind": "pinned", "dst_kind": "device"}
                rows["copies"].append({"start": at + 15, "end": end, "correlation": launched, **copy})
            else:
                rows["kernels"].append(kernel(at + 15, end, f"kernel_{n % 6}", correlation=launched))
            at = end + 20
        rows["ranges"] += [
            {"start": begin, "end": at, "name": f"step {step}"},
            {"start": begin + 1, "end": at - 1, "name": "forward"},
        ]
        at += 30
    return rows


@pytest.fixture(scope="module")
def alone(tmp_path_factory):
    return make_run(tmp_path_factory.mktemp("alone") / "run", {0: program(0)})


@pytest.fixture(scope="module")
def beside(tmp_path_factory):
    """The same rank beside another one, with which it never communicates."""
    return make_run(tmp_path_factory.mktemp("beside") / "run", {0: program(0), 1: program(1)})


@pytest.mark.sampled(4)
@pytest.mark.parametrize("steps", [None, f"{FIRST + 1}:{LAST - 1}"], ids=["whole", "steps"])
@pytest.mark.parametrize("name", WINDOWED)
def test_a_rank_alone_has_the_answer_that_it_has_beside_another(name, steps, alone, beside):
    answers = [answer_of(run, name, ranks=[0], steps=steps) for run in (alone, beside)]
    one, two = (
        a.table.drop_columns([c for c in OF_ALL_RANKS.get(name, ()) if c in a.table.column_names]) for a in answers
    )
    assert one.equals(two)
    for answer in answers:
        assert not any("no steps were found" in note for note in answer.notes)


@pytest.mark.parametrize("steps", [None, f"{FIRST + 2}:"], ids=["whole", "steps"])
def test_diagnose_judges_the_steps_that_steps_lists(steps, alone):
    listed = ask(alone, "steps", steps=steps).table.to_pylist()
    judged = [row["step"] for row in listed if row["kind"] == "step"]
    assert judged == list(range(FIRST + (1 if steps is None else 2), LAST + 1))
    assert any(note.startswith(f"{len(judged)} steps are judged") for note in ask(alone, "diagnose", steps=steps).notes)


@pytest.mark.parametrize("jobs", [1, 2])
def test_other_processes_are_given_the_steps_too(jobs, beside):
    spread = ask(beside, "diagnose", jobs=jobs)
    assert any(note.startswith(f"{LAST - FIRST} steps are judged") for note in spread.notes)

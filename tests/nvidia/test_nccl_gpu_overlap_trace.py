import random

import pytest
from tests.making import collective, kernel, make_run

from alltrace.recipes.execution.ask import ask


def by_hand(kernels, of):
    """For each kernel the time of it in which another one of the class runs, ns by ns."""
    return [
        sum(any(o["start"] <= t < o["end"] for o in kernels if o is not k and o["kind"] == of) for t in range(k["start"], k["end"]))
        for k in kernels
    ]


@pytest.mark.parametrize("seed", range(5))
def test_each_kernel_against_a_count_of_its_moments(seed, tmp_path):
    draw = random.Random(seed)
    kernels = []
    for _ in range(25):
        start = draw.randrange(200)
        kernels.append((collective if draw.random() < 0.4 else kernel)(start, start + draw.randrange(0, 30)))
    kernels.sort(key=lambda k: (k["start"], k["end"], k["name"]))
    other = [kernel(0, 300, device=1), collective(0, 300, device=1)]
    devices = [{"device": d, "ordinal": d, "uuid": f"GPU-{d}", "name": "H200"} for d in (0, 1)]
    answer = ask(make_run(tmp_path / "run", {0: {"kernels": [*kernels, *other], "devices": devices}}), "nccl_gpu_overlap_trace")
    rows = [r for r in answer.further["rank_trace"].table.to_pylist() if r["DeviceID"] == 0]
    wanted = sorted(
        (
            k["start"],
            k["end"],
            k["name"],
            *(round(100 * x / (k["end"] - k["start"]), 1) if k["end"] > k["start"] else 0.0 for x in both),
        )
        for k, *both in zip(kernels, by_hand(kernels, "collective"), by_hand(kernels, "compute"), strict=True)
    )
    assert sorted((r["Start"], r["End"], r["Name"], r["Communication Overlap"], r["Compute Overlap"]) for r in rows) == wanted


def test_names_are_weighted_by_duration_over_ranks(tmp_path):
    ranks = {
        0: {"kernels": [collective(0, 100), kernel(0, 50)]},
        1: {"kernels": [collective(0, 300)]},
    }
    answer = ask(make_run(tmp_path / "run", ranks), "nccl_gpu_overlap_trace", {"divisor": 3})
    rows = [(r["Count"], r["Communication Overlap"], r["Compute Overlap"]) for r in answer.table.to_pylist()]
    assert rows == [(2, 0.0, 12.5), (1, 100.0, 0.0)]

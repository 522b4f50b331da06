from __future__ import annotations

from tests.making import kernel, make_run

from alltrace.recipes.execution.ask import ask


def sampled(issue, clock_name="GPC Clock Frequency [MHz]", clock=1000.0, multiprocessors=100, uuid="GPU-0"):
    """A device that is sampled each microsecond, ten times."""
    times = [1000 * n for n in range(1, 11)]
    samples = [{"time": t, "device": 0, "metric": "SM Issue [Throughput %]", "value": issue} for t in times]
    samples += [{"time": t, "device": 0, "metric": clock_name, "value": clock} for t in times]
    device = {"device": 0, "ordinal": 0, "uuid": uuid, "name": "H200", "sm_count": multiprocessors}
    return {"kernels": [kernel(0, 10_000)], "gpu_metrics": samples, "devices": [device]}


def executed(folder, ranks):
    rows = ask(make_run(folder, ranks), "gpu-rates").table.to_pylist()
    return [(r["rank"], r["instructions"]) for r in rows if r["rate"] == "sm issue"]


def test_instructions_are_those_of_the_schedulers_over_the_time_and_of_the_application_the_sum(tmp_path):
    # 100 multiprocessors issue a quarter of 4 a cycle of 1 ns, over the ten periods of 1 us that the samples describe
    found = executed(tmp_path / "run", {0: sampled(25.0), 1: sampled(50.0, "GPC Clock Frequency", 1e9, uuid="GPU-1")})
    assert found == [(0, 1_000_000), (1, 2_000_000), (None, 3_000_000)]


def test_without_multiprocessors_or_clock_they_are_unknown(tmp_path):
    assert executed(tmp_path / "a", {0: sampled(25.0, multiprocessors=None)}) == [(0, None)]
    assert executed(tmp_path / "b", {0: sampled(25.0, clock_name="Other")}) == [(0, None)]

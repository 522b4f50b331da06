import pytest

from alltrace.synth import SCENARIOS
from alltrace.synth.faults import SlowRank
from alltrace.trace.errors import UsageError


def test_override_reaches_every_part_and_moves_faults():
    healthy = SCENARIOS["healthy"]
    changed = healthy.override(ranks=6, hosts=3, steps=2, layers=5, schema="3.7.2", drift_ppm=1.0, latency_ns=7)
    assert (changed.layout.ranks, changed.layout.ranks_per_host, changed.steps) == (6, 2, 2)
    assert (changed.work.layers, changed.environment.schema, changed.clocks.drift_ppm, changed.links.latency_ns) == (
        5,
        "3.7.2",
        1.0,
        7,
    )
    assert (healthy.layout.ranks, healthy.steps) == (16, 8)
    assert SCENARIOS["healthy"].override(
        faults=(text for text in ["slow-rank:ranks=1:factor=1.5"]), ideal=True
    ).faults == (SlowRank(ranks=(1,), factor=1.5),)
    changed = SCENARIOS["healthy"].override(gradient_bytes=8e8, ranks=4.0, ideal=True)
    assert (repr(changed.work.gradient_bytes), repr(changed.layout.ranks)) == ("800000000", "4")
    assert SCENARIOS["straggler"].override(ranks=4, ideal=True).faults == (SlowRank(ranks=(3,), factor=1.25),)
    assert SCENARIOS["straggler"].override(steps=1, ideal=True).faults == (SlowRank(ranks=(11,), factor=1.25),)


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"ranks": 5}, "5 ranks cannot be spread evenly over 2 hosts"),
        ({"ranks": 0}, "ranks_per_host must be at least 1; 0 was given"),
        ({"hosts": 0}, "hosts must be at least 1; 0 was given"),
        ({"step": 3}, "unknown scenario value 'step'; did you mean steps"),
        ({"steps": 0}, "steps must be at least 1; 0 was given"),
        ({"seed": -1}, "seed must be at least 0"),
        ({"buckets": 13}, "buckets must be 1 to the 12 layers; 13 was given"),
        ({"tensor_parallel": 3}, "must divide the 8 ranks of a host; 3 was given"),
        ({"schema": "9"}, "unknown schema '9'"),
        ({"rank_source": "guess"}, "unknown rank source 'guess'"),
        ({"kind": "pipe"}, "unknown layout 'pipe'"),
        ({"host_gap_ns": 5}, "host_gap_ns must be at least 1000"),
        ({"page_bytes": 1000}, "page_bytes must be a power of two"),
        ({"steps": "abc"}, "steps must be a whole number; 'abc' was given"),
        ({"hosts": 1.5}, "hosts must be a whole number; 1.5 was given"),
        ({"ranks": "x"}, "ranks must be a whole number; 'x' was given"),
        ({"nvtx": 7}, "nvtx must be true or false; 7 was given"),
        ({"schema": 3.25}, "schema must be text; 3.25 was given"),
        ({"latency_ns": True}, "latency_ns must be a whole number; True was given"),
        ({"jitter": float("nan")}, "jitter must be 0 to 10; nan was given"),
        ({"extra_calls": -1}, "extra_calls must be 0 to 1e+15; -1 was given"),
        ({"copy_gb_per_s": 0}, "copy_gb_per_s must be 0.001 to 1e+15; 0 was given"),
        ({"drift_ppm": -1}, "drift_ppm must be 0 to 100000; -1 was given"),
        ({"gpu_metrics_hz": 2_000_000_000}, "gpu_metrics_hz must be 0 to 1e+09; 2000000000 was given"),
        ({"name": "../x"}, "because it becomes part of file names; '../x' was given"),
        ({"layout": 3}, "layout must be a Layout"),
        ({"faults": "sync"}, "faults must be a list of faults"),
        ({"faults": [3]}, "a fault must be a text or a Fault; 3 was given"),
        (
            {"faults": (SlowRank(ranks=(0,), factor=float("inf")),)},
            "factor of fault 'slow-rank' must be a number up to 1e+15",
        ),
        ({"faults": (SlowRank(ranks=(16,)),)}, "fault 'slow-rank' names rank 16, but the run has ranks 0 to 15"),
    ],
)
def test_values_that_do_not_fit_are_named(changes, words):
    with pytest.raises(UsageError) as error:
        SCENARIOS["healthy"].override(**changes, ideal=True)
    assert words in str(error.value)


def test_every_scenario_is_valid_and_bench_has_a_million_kernels():
    for name, scenario in SCENARIOS.items():
        scenario.check()
        assert scenario.name == name
    scenario = SCENARIOS["bench"]
    work = scenario.work
    kernels = scenario.steps * (work.layers * work.kernels_per_layer * 3 + work.optimizer_kernels)
    assert kernels == 1_000_000
    assert kernels * (1 + work.extra_calls) == 3_000_000

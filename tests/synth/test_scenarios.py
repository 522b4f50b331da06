from alltrace.synth import SCENARIOS


def test_every_scenario_is_valid_and_bench_has_a_million_kernels():
    for name, scenario in SCENARIOS.items():
        scenario.check()
        assert scenario.name == name
    scenario = SCENARIOS["bench"]
    work = scenario.work
    kernels = scenario.steps * (work.layers * work.kernels_per_layer * 3 + work.optimizer_kernels)
    assert kernels == 1_000_000
    assert kernels * (1 + work.extra_calls) == 3_000_000

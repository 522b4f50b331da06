"""The named scenarios."""

from alltrace.synth.faults.compute import SlowRank
from alltrace.synth.scenario import Environment, Layout, Scenario, Work
from alltrace.trace.errors import UsageError

_ALL = (
    Scenario(name="healthy", about="16 ranks on 2 hosts, data parallel, nothing wrong"),
    Scenario(
        name="straggler",
        about="16 ranks on 2 hosts, data parallel; the kernels of one rank take 25 % longer",
        steps=12,
        faults=(SlowRank(ranks=(11,), factor=1.25),),
        environment=Environment(visible_devices=True),
    ),
    Scenario(
        name="tensor-data",
        about="16 ranks on 2 hosts, tensor parallel by 4 inside a host, data parallel across",
        layout=Layout(tensor_parallel=4),
        work=Work(gradient_bytes=100_000_000),
        seed=2,
    ),
    Scenario(
        name="pipeline",
        about="16 ranks on 2 hosts, a pipeline of 4 stages with 4 ranks each, 8 microbatches",
        layout=Layout(kind="pipeline", pipeline_stages=4),
        work=Work(layers=8, activation_bytes=32 << 20, gradient_bytes=600_000_000, buckets=2, warmup_steps=1),
        seed=3,
    ),
    Scenario(
        name="experts",
        about="16 ranks on 2 hosts, a mixture of experts on the 8 ranks of a host, data parallel across",
        layout=Layout(kind="expert", expert_parallel=8),
        work=Work(activation_bytes=64 << 20, gradient_bytes=800_000_000, warmup_steps=1),
        seed=4,
    ),
    Scenario(
        name="sharded",
        about="16 ranks on 2 hosts, fully sharded data parallel: all-gathers and reduce-scatters in every layer",
        layout=Layout(kind="sharded"),
        work=Work(warmup_steps=1),
        seed=5,
    ),
    Scenario(
        name="tiny",
        about="2 ranks on 2 hosts, 2 steps of a very small model",
        steps=2,
        layout=Layout(hosts=2, ranks_per_host=1),
        work=Work(layers=2, kernels_per_layer=4, optimizer_kernels=2, buckets=2, gradient_bytes=40_000_000),
        environment=Environment(page_bytes=1024),
    ),
    Scenario(
        name="bench",
        about=(
            "1 rank with 1 million kernels of 220 names, 3 million API calls, 0.3 million ranges, 2 million metric"
            " samples"
        ),
        steps=5,
        layout=Layout(hosts=1, ranks_per_host=1),
        work=Work(
            layers=266,
            kernels_per_layer=250,
            optimizer_kernels=500,
            kernel_ns=10_000,
            host_call_ns=3_000,
            host_jitter=0.8,
            host_gap_ns=1_000,
            extra_calls=2,
            kernels_per_range=3,
            kernel_names=220,
            jitter=0.2,
        ),
        environment=Environment(gpu_metrics_hz=12_000),
    ),
)

SCENARIOS: dict[str, Scenario] = {scenario.name: scenario for scenario in _ALL}
"""Every named scenario by its name."""


def scenario_named(name: str) -> Scenario:
    """The scenario of this name. Raises `UsageError`: there is none."""
    if name not in SCENARIOS:
        raise UsageError.unknown("scenario", name, SCENARIOS)
    return SCENARIOS[name]

"""The main metrics of a launch, under the names they had over the years. What a report lacks is None."""

from alltrace.trace import columns as col
from alltrace.trace.launches import Launch

_ELAPSED = ".avg.pct_of_peak_sustained_elapsed"
_ACTIVE = ".avg.pct_of_peak_sustained_active"
MAIN: tuple[tuple[col.Column, tuple[str, ...]], ...] = (
    (col.ns("duration_ns", "time on the device"), ("gpu__time_duration.sum",)),
    (col.whole("registers", "registers per thread"), ("launch__registers_per_thread",)),
    (col.size("shared_memory_bytes", "shared memory per block"), ("launch__shared_mem_per_block",)),
    (col.real("waves", "waves of blocks per multiprocessor"), ("launch__waves_per_multiprocessor",)),
    (col.percent("theoretical_occupancy_percent", "warps that fit, of all", None),
        ("sm__maximum_warps_per_active_cycle_pct",)),
    (col.percent("achieved_occupancy_percent", "warps that were there", None), (f"sm__warps_active{_ACTIVE}",)),
    (col.percent("sm_percent", "speed of light of the multiprocessors", None), (f"sm__throughput{_ELAPSED}",)),
    (col.percent("memory_percent", "speed of light of memory", None), (f"gpu__compute_memory_throughput{_ELAPSED}",)),
    (col.percent("dram_percent", "throughput of DRAM, of its peak", None),
     (f"gpu__dram_throughput{_ELAPSED}", f"dram__throughput{_ELAPSED}")),
    (col.percent("l2_percent", "throughput of the L2 cache, of its peak", None), (f"lts__throughput{_ELAPSED}",)),
    (col.percent("l1_percent", "likewise L1", None), (f"l1tex__throughput{_ELAPSED}", f"l1tex__throughput{_ACTIVE}")),
    (
        col.percent("tensor_percent", "share of cycles in which the tensor pipe was active", None),
        (f"sm__pipe_tensor_cycles_active{_ELAPSED}", f"sm__inst_executed_pipe_tensor{_ELAPSED}"),
    ),
    (
        col.percent("issue_percent", "share of the cycles with active warps in which a scheduler issued an instruction",
            None),
        (f"smsp__issue_active{_ACTIVE}", f"smsp__inst_issued{_ACTIVE}", f"sm__inst_issued{_ACTIVE}"),
    ),
)  # fmt: skip
LIMITS = {
    "registers": "launch__occupancy_limit_registers",
    "shared memory": "launch__occupancy_limit_shared_mem",
    "warps": "launch__occupancy_limit_warps",
    "blocks": "launch__occupancy_limit_blocks",
    "barriers": "launch__occupancy_limit_barriers",
}
_STALL = "smsp__average_warps_issue_stalled_", "_per_issue_active.ratio"
_OLD_STALL = "smsp__average_warp_latency_issue_stalled_", ".ratio"
_SAMPLED, _NOT_ISSUED = "smsp__pcsamp_warps_issue_stalled_", "_not_issued"
_MOST = 2**62
WORKING = "selected"  # the state of a warp that issues: no stall


def main_of(launch: Launch, name: str) -> float | int | None:
    for column, known_as in MAIN:
        if column.name == name:
            value = _shared(launch) if name == "shared_memory_bytes" else launch.number_of(*known_as)
            return _whole(value) if column.type == "int64" else value
    raise KeyError(name)


def _whole(value: float | None) -> int | None:
    """The nearest whole number; None for what no count or time can be, which only a damaged report has."""
    return None if value is None or abs(value) >= _MOST else round(value)


def _shared(launch: Launch) -> float | None:
    """Shared memory per block; of a page of details, the sum of its three kinds."""
    whole = launch.number_of("launch__shared_mem_per_block")
    if whole is not None:
        return whole
    parts = [launch.number_of(f"launch__shared_mem_per_block_{kind}") for kind in ("driver", "dynamic", "static")]
    return None if None in parts else sum(p for p in parts if p is not None)


def limiter(launch: Launch) -> str | None:
    """What lets the fewest blocks onto a multiprocessor; several if they are equal."""
    blocks_by_limit = {what: v for what, name in LIMITS.items() if (v := launch.number_of(name)) is not None}
    least = min(blocks_by_limit.values(), default=None)
    return None if least is None else ", ".join(what for what, blocks in blocks_by_limit.items() if blocks == least)


def stalls(launch: Launch) -> dict[str, tuple[float | None, int | None]]:
    """Warps in each state per issued instruction, and samples in it, by state; `selected` is a warp that issues."""
    cycles: dict[str, float] = {}
    samples: dict[str, int] = {}
    for metric in launch.metrics:
        for front, back in (_STALL, _OLD_STALL):
            if metric.startswith(front) and metric.endswith(back) and (value := launch.number_of(metric)) is not None:
                cycles.setdefault(_state(metric[len(front) : -len(back)]), value)
        sampled = state_of_sample(metric)
        if sampled is not None and sampled[1] and (count := _whole(launch.number_of(metric))) is not None:
            samples[sampled[0]] = count
    return {state: (cycles.get(state), samples.get(state)) for state in sorted(cycles.keys() | samples.keys())}


def _state(name: str) -> str:
    return "no_instruction" if name == "no_instructions" else name


def state_of_sample(metric: str) -> tuple[str, bool] | None:
    """The state that a metric counts samples of, and whether in all cycles, not only those without issue."""
    if not metric.startswith(_SAMPLED):
        return None
    state = metric[len(_SAMPLED) :]
    every = not state.endswith(_NOT_ISSUED)
    return _state(state if every else state.removesuffix(_NOT_ISSUED)), every


def top_stall(launch: Launch) -> tuple[str, float] | None:
    """The state that holds most warps back, and its share of all warps' time in percent; None if not known."""
    states = stalls(launch)
    column = 0 if any(c is not None for c, _ in states.values()) else 1
    values = {state: float(v) for state, both in states.items() if (v := both[column]) is not None}
    whole = sum(values.values())
    waiting = {state: v for state, v in values.items() if state != WORKING}
    if not whole or not waiting:
        return None
    most = max(waiting, key=lambda state: waiting[state])
    return most, 100 * waiting[most] / whole

"""Clocks, power and temperature of the GPUs of ranks compared with those of their peers: why a rank is slow.

What a rank's GPU did comes from a GPU log that was imported with the reports, else from the clock among the GPU metrics
of nsys.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

import numpy as np

from alltrace.recipes.analysis.sampled import gpu_series_of_host, plain_metric
from alltrace.run.rank import Rank
from alltrace.trace.arrays import Floats, Int64
from alltrace.trace.gpu_log_words import COMMAND, IDLE, REASONS, reason_names
from alltrace.trace.intervals import Merged, containing
from alltrace.trace.number_text import number_ranges

COLLECT = f"To see the GPUs' clocks, record `{COMMAND}` on each node and import it with --gpu-log."
"""What to do if it is unknown."""

_VALUES = ("sm_clock_mhz", "memory_clock_mhz", "power_w", "temperature_c")
_METRICS = {"gpc clock frequency": "sm_clock_mhz", "dram clock frequency": "memory_clock_mhz"}
_LOWER = 0.97  # a clock below this share of the peers' is lower; boost clocks of equal GPUs differ by less

_MOSTLY = 0.5  # a reason counts if it holds in this share of the samples


_State = TypeVar("_State")


@dataclass(frozen=True)
class GpuState:
    """State of a rank's GPU over some time: medians of samples, without those of an idle GPU; None without samples."""

    sm_clock_mhz: float | None = None
    memory_clock_mhz: float | None = None
    power_w: float | None = None
    temperature_c: float | None = None
    reasons: int = 0  # the bits of NVML's clock event reasons that hold in half of the samples
    samples: int = 0  # how many samples there are


@dataclass(frozen=True)
class Comparison:
    """State of the GPUs of some ranks, and of the others."""

    sentence: str  # that in words; what to record if it is unknown
    evidence: dict[str, float]  # that in numbers, by name; the peers' begin with `peers_`
    slower: bool = False  # whether their clock is lower than the peers'


def gpu_state(rank: Rank, spans: Int64) -> GpuState | None:
    """How the rank's GPU ran within `spans` (n, 2), in order and apart; None if no sample is in them."""
    log = rank.shared("gpu_log")
    state = None if log is None else state_of_log(log, spans)
    return state or _state_of_metrics(rank, spans)


def state_of_log(log: Any, spans: Int64) -> GpuState | None:
    """The same of the rank's rows of `gpu_log`, a `pyarrow.Table`."""
    reasons = log.column("event_reasons").fill_null(0).to_numpy()
    inside = containing(Merged(*spans.T.copy()), log.column("time").to_numpy()) >= 0
    rows = np.flatnonzero(inside & ((reasons & IDLE) == 0))
    if not len(rows):
        return None
    bits = sum(bit for bit in REASONS if np.mean((reasons[rows] & bit) != 0) >= _MOSTLY)
    clock, memory, power, temperature = (
        median(log.column(name).fill_null(np.nan).to_numpy()[rows]) for name in _VALUES
    )
    return GpuState(clock, memory, power, temperature, bits, len(rows))


def _state_of_metrics(rank: Rank, spans: Int64) -> GpuState | None:
    parts_of: dict[str, list[Floats]] = {}
    for series in gpu_series_of_host(rank):
        name = _METRICS.get(plain_metric(series.metric))
        if name is not None:
            mine = series.values[containing(Merged(*spans.T.copy()), series.times) >= 0]
            parts_of.setdefault(name, []).append(np.where(mine > 1e5, mine / 1e6, mine))  # in Hz, by some versions
    values = {name: np.concatenate(parts) for name, parts in parts_of.items()}
    samples = max((len(v) for v in values.values()), default=0)
    clock, memory = (median(values[name]) if name in values else None for name in _METRICS.values())
    return GpuState(clock, memory, samples=samples) if samples else None


def median(values: Floats) -> float | None:
    """The median of the values that are known; None without any."""
    finite = values[np.isfinite(values)]
    return float(np.median(finite)) if len(finite) else None


def typical(states: Iterable[Any], names: Sequence[str]) -> dict[str, float | None]:
    """The median over states of each value, of those that have it."""
    states = tuple(states)
    return {name: median(np.array([getattr(s, name) for s in states], np.float64)) for name in names}


def own_and_peers(
    states: Mapping[int, _State | None], ranks: Sequence[int]
) -> tuple[list[int], list[_State], list[_State]]:
    """The numbers and states of some ranks, and the states of the others; without those of which none is known."""
    by_rank = {rank: state for rank, state in states.items() if state is not None}
    numbers = sorted(by_rank.keys() & set(ranks))
    return numbers, [by_rank[rank] for rank in numbers], [by_rank[rank] for rank in by_rank if rank not in numbers]


def beside_peers(keys: Mapping[str, str], mine: Mapping[str, Any], others: Mapping[str, Any]) -> dict[str, float]:
    """Evidence: what is known of some and of their peers, by the key of each value; the peers' begin with `peers_`."""
    each = ((prefix + key, of[name]) for name, key in keys.items() for prefix, of in (("", mine), ("peers_", others)))
    return {key: value for key, value in each if value is not None}


def compared(states: Mapping[int, GpuState | None], ranks: Sequence[int]) -> Comparison:
    """State of the GPUs of `ranks` compared with those of the others."""
    numbers, own, peers = own_and_peers(states, ranks)
    if not own:
        return Comparison(COLLECT, {})
    mine, others = typical(own, _VALUES), typical(peers, _VALUES)
    evidence = beside_peers({name: name for name in _VALUES}, mine, others)
    bits = sum(bit for bit in REASONS if np.mean([s.reasons & bit != 0 for s in own]) >= _MOSTLY)
    slower = _lower(mine["sm_clock_mhz"], others["sm_clock_mhz"])
    return Comparison(_sentence(numbers, mine, others, bits), evidence, slower)


def _lower(mine: float | None, others: float | None) -> bool:
    return mine is not None and others is not None and mine < _LOWER * others


def _sentence(
    ranks: Sequence[int], mine: Mapping[str, float | None], others: Mapping[str, float | None], bits: int
) -> str:
    one = len(ranks) == 1
    who = f"Rank {ranks[0]}'s GPU" if one else f"The GPUs of ranks {number_ranges(ranks)}"
    its, it = ("its", "it") if one else ("their", "they")
    why = f" ({', '.join(reason_names(bits))})" if bits else ""
    clock, peers_clock = mine["sm_clock_mhz"], others["sm_clock_mhz"]
    if clock is None:
        parts = [f"{who} ran at an unknown clock{why}."]
    elif peers_clock is None:
        parts = [f"{who} ran at {clock:,.0f} MHz{why}."]
    else:
        parts = [f"{who} ran at {clock:,.0f} MHz{why}, {its} peers at {peers_clock:,.0f}."]
    memory, peers_memory = mine["memory_clock_mhz"], others["memory_clock_mhz"]
    if _lower(memory, peers_memory):
        parts.append(f"{its.capitalize()} memory ran at {memory:,.0f} MHz, {its} peers' at {peers_memory:,.0f}.")
    if _lower(clock, peers_clock) or bits:
        drawn, peers_drawn = _drawn(mine), _drawn(others)
        if drawn:
            parts.append(f"{it.capitalize()} drew {drawn}{f', {its} peers {peers_drawn}' if peers_drawn else ''}.")
    return " ".join(parts)


def _drawn(values: Mapping[str, float | None]) -> str:
    """Power and temperature in words; empty without power."""
    power, temperature = values["power_w"], values["temperature_c"]
    if power is None:
        return ""
    return f"{power:,.0f} W" + ("" if temperature is None else f" at {temperature:.0f} °C")

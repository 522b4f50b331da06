"""Advice on launches by rules: what was found, the numbers that support it, and the upper bound of the gain.

A gain is a bound: the share of the launch's time that could go if the fault were wholly gone and nothing else came in
its way. Unless fewer bytes are moved, it is never more than what the most used unit leaves over: a launch that runs at
90 % of a peak cannot lose more than 10 % of its time. `docs/ncu.md` has the formulas.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from math import ceil
from typing import Any

from alltrace.recipes.base import Answer, Chart, View
from alltrace.recipes.ncu import tables
from alltrace.recipes.ncu.ceilings import SECTOR
from alltrace.recipes.ncu.metrics import limiter, main_of, top_stall
from alltrace.recipes.ncu.tables import IDENTITY, Profiled, identity
from alltrace.recipes.ncu.views import MEANING
from alltrace.trace import columns as col
from alltrace.trace.launches import Launch

COLUMNS = (
    *IDENTITY,
    col.text("rule", "what was found: `memory-bound`, `tail-effect` and so on"),
    col.text("evidence", "the numbers that support it"),
    col.percent("gain_percent", "upper bound of the gain, as a share of the launch's time", None),
    col.ns("gain_ns", "upper bound of the gain in time"),
    col.text("advice", "what to do"),
)  # fmt: skip
CHART = Chart("bars", "name", ("gain_percent",), "rule", detail="launch", title="What could be gained at most, by rule")
_FULL, _NEAR = 80.0, 10.0  # an occupancy that is enough; points below the theoretical one that are too many
_BUSY = 60.0  # a unit that is used as much bounds the launch
_ISSUE = 60.0
_LEAST_TAIL = 5.0
_LEAST_EXCESS = 0.01
_WIDEST = 16  # sectors of a request of a warp with threads that read 16 adjacent bytes each


@dataclass(frozen=True)
class Finding:
    rule: str  # the rule
    evidence: dict[str, float | str]  # numbers by name
    gain: float | None  # share of the launch's time, 0 to 1, at most
    advice: str  # what to do


def answer(profiled: Sequence[Profiled], notes: Sequence[str]) -> Answer:
    """One row per launch and rule that found something, of each launch the largest gain first."""
    rows: list[tuple[Any, ...]] = []
    for each in profiled:
        duration = main_of(each.launch, "duration_ns")
        for finding in findings(each.launch):
            gain = None if finding.gain is None or duration is None else round(finding.gain * duration)
            share = None if finding.gain is None else 100 * finding.gain
            rows.append((*identity(each), finding.rule, _words(finding.evidence), share, gain, finding.advice))
    return Answer(tables.table(COLUMNS, rows), COLUMNS, tuple(notes), chart=CHART)


def _words(evidence: dict[str, float | str]) -> str:
    return ", ".join(
        f"{name}={value:g}" if isinstance(value, (int, float)) else f"{name}={value}"
        for name, value in evidence.items()
    )


def findings(launch: Launch) -> list[Finding]:
    """What the rules found, the largest gain first; a rule without its metrics finds nothing."""
    results = [finding for rule in _RULES if (finding := rule(launch)) is not None]
    results = [replace(f, gain=min(1.0, max(0.0, f.gain))) if f.gain is not None else f for f in results]
    return sorted(results, key=lambda f: -(f.gain or 0.0))


def _headroom(launch: Launch) -> float:
    """What the most used unit leaves over, 0 to 1; 1 if not known."""
    used = [v for name in ("sm_percent", "memory_percent") if (v := main_of(launch, name)) is not None]
    return min(1.0, max(0.0, 1 - max(used, default=0.0) / 100))


def _occupancy_limit(launch: Launch) -> Finding | None:
    theoretical, what = main_of(launch, "theoretical_occupancy_percent"), limiter(launch)
    if theoretical is None or what is None or theoretical >= _FULL:
        return None
    advice = {
        "registers": "use fewer registers per thread (launch bounds, smaller tiles)",
        "shared memory": "use less shared memory per block",
        "warps": "choose a block size that divides the warps of a multiprocessor",
        "blocks": "use larger blocks",
        "barriers": "use fewer barriers per block",
    }
    numbers: dict[str, float | str] = {"theoretical_occupancy_percent": theoretical, "limiter": what}
    for name in ("registers", "shared_memory_bytes"):
        if (value := main_of(launch, name)) is not None:
            numbers[name] = value
    gain = min(1 - theoretical / 100, _headroom(launch))
    return Finding("occupancy-limit", numbers, gain, "; ".join(advice[w] for w in what.split(", ")))


def _occupancy_achieved(launch: Launch) -> Finding | None:
    theoretical, achieved = (main_of(launch, f"{k}_occupancy_percent") for k in ("theoretical", "achieved"))
    if not theoretical or achieved is None or theoretical - achieved <= _NEAR:
        return None
    gain = min(1 - achieved / theoretical, _headroom(launch))
    return Finding(
        "occupancy-achieved",
        {"theoretical_occupancy_percent": theoretical, "achieved_occupancy_percent": achieved},
        gain,
        "balance the work of warps and blocks, or launch more blocks: fewer warps were there than fit",
    )


def _blocks_and_places(launch: Launch) -> tuple[float, float, float] | None:
    blocks = launch.number_of("launch__grid_size")
    if blocks is None and launch.grid is not None:
        blocks = float(launch.grid[0] * launch.grid[1] * launch.grid[2])
    count = launch.number_of("launch__sm_count", "device__attribute_multiprocessor_count")
    waves = main_of(launch, "waves")
    return None if blocks is None or not count or waves is None else (blocks, count, waves)


def _small_grid(launch: Launch) -> Finding | None:
    sizes = _blocks_and_places(launch)
    if sizes is None or sizes[0] >= sizes[1]:
        return None
    blocks, count, _ = sizes
    gain = min(1 - blocks / count, _headroom(launch))
    return Finding(
        "small-grid",
        {"blocks": blocks, "multiprocessors": count},
        gain,
        "use more and smaller blocks, or run it together with other kernels: multiprocessors have no block",
    )


def _tail_effect(launch: Launch) -> Finding | None:
    sizes = _blocks_and_places(launch)
    if sizes is None or sizes[2] <= 1:
        return None
    waves = sizes[2]
    lost = 1 - waves / ceil(waves - 1e-9)
    if 100 * lost < _LEAST_TAIL:
        return None
    return Finding(
        "tail-effect",
        {"waves": waves, "last_wave_percent": 100 * (waves % 1)},
        min(lost, _headroom(launch)),
        "choose a grid that fills its last wave of blocks, or let blocks take work until none is left",
    )


def _uncoalesced(launch: Launch) -> Finding | None:
    numbers: dict[str, float | str] = {}
    excess = 0.0
    sectors_used = launch.number_of("memory_l2_theoretical_sectors_global")
    needed = launch.number_of("memory_l2_theoretical_sectors_global_ideal")
    for op, what in (("ld", "loads"), ("st", "stores")):
        used = launch.number_of(f"smsp__sass_average_data_bytes_per_sector_mem_global_op_{op}.ratio")
        name = f"l1tex__t_%s_pipe_lsu_mem_global_op_{op}.sum"
        sectors, requests = launch.number_of(name % "sectors"), launch.number_of(name % "requests")
        if used is not None and 0 < used < SECTOR:
            numbers[f"bytes_used_per_sector_of_{what}"] = used
            excess = max(excess, 1 - used / SECTOR)
        if sectors and requests and sectors / requests > _WIDEST:
            numbers[f"sectors_per_request_of_{what}"] = sectors / requests
            excess = max(excess, 1 - _WIDEST * requests / sectors)
    if sectors_used and needed is not None and sectors_used > needed:
        numbers = {"sectors": sectors_used, "sectors_needed": needed, **numbers}
        excess = 1 - needed / sectors_used  # counted for each instruction, so it takes the place of averages
    if excess < _LEAST_EXCESS:
        return None
    busy = main_of(launch, "memory_percent")
    gain = excess if busy is None else excess * busy / 100
    return Finding(
        "uncoalesced",
        numbers,
        gain,
        "let neighbouring threads access neighbouring addresses: sectors are moved of which only a part is used",
    )


def _bound(launch: Launch) -> Finding | None:
    sm, memory = main_of(launch, "sm_percent"), main_of(launch, "memory_percent")
    if sm is None or memory is None:
        return None
    numbers: dict[str, float | str] = {"sm_percent": sm, "memory_percent": memory}
    gain = _headroom(launch)
    if max(sm, memory) < _BUSY:
        advice = "it waits: more warps, more independent work per thread, or fewer dependent accesses hide latency"
        return Finding("latency-bound", numbers, gain, advice)
    if sm >= memory:
        tensor = main_of(launch, "tensor_percent")
        if tensor is not None:
            numbers["tensor_percent"] = tensor
        return Finding("compute-bound", numbers, gain, "do less arithmetic, or use tensor cores or a smaller data type")
    for level in ("dram", "l2", "l1"):
        if (value := main_of(launch, f"{level}_percent")) is not None:
            numbers[f"{level}_percent"] = value
    advice = (
        "move fewer bytes: fuse with its neighbours, reuse data in registers and shared memory, or use a smaller data"
        " type"
    )
    return Finding("memory-bound", numbers, gain, advice)


def _low_issue(launch: Launch) -> Finding | None:
    issue = main_of(launch, "issue_percent")
    if issue is None or issue >= _ISSUE:
        return None
    numbers: dict[str, float | str] = {"issue_percent": issue}
    eligible = launch.number_of("smsp__warps_eligible.avg.per_cycle_active")
    if eligible is not None:
        numbers["warps_eligible"] = eligible
    advice = "schedulers find no warp that can issue"
    if (stall := top_stall(launch)) is not None:
        numbers |= {"top_stall": stall[0], "top_stall_percent": stall[1]}
        advice += f": most warps wait for {MEANING.get(stall[0], stall[0])}"
    return Finding("low-issue", numbers, min(1 - issue / 100, _headroom(launch)), advice)


_RULES: tuple[Callable[[Launch], Finding | None], ...] = (
    _bound, _occupancy_limit, _occupancy_achieved, _small_grid, _tail_effect, _uncoalesced, _low_issue,
)  # fmt: skip

VIEW = View(COLUMNS, answer, CHART)

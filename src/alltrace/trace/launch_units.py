"""Units of Nsight Compute's metrics, which a report does not hold: they follow from a metric's name.

A name is `unit__quantity_qualifiers.rollup.submetric` (Kernel Profiling Guide, "Metrics Structure"). Units are base
units: ns, byte, Hz, and per second or cycle.
"""

from __future__ import annotations

import re
from functools import cache

_OF_NAME = {
    "launch__registers_per_thread": "register/thread", "launch__registers_per_thread_allocated": "register/thread",
    "launch__shared_mem_config_size": "byte", "launch__sm_count": "SM", "launch__stack_size": "byte",
    "launch__thread_count": "thread", "launch__cluster_max_active": "cluster",
    "launch__cluster_max_potential_size": "block", "derived__pct_occupancy_per_block_size": "%",
    "derived__pct_occupancy_per_register_count": "%/register", "derived__pct_occupancy_per_shared_mem_size": "%/byte",
    "derived__avg_thread_executed": "thread", "derived__avg_thread_executed_true": "thread",
    "smsp__pcsamp_interval_cycles": "cycle", "smsp__average_warp_latency_per_inst_issued": "cycle",
    "smsp__average_warps_active_per_inst_executed": "cycle", "nvlink__bandwidth": "byte/s",
}  # fmt: skip
_PATTERNS = (
    (re.compile(r"launch__block_dim_[xyz]|launch__occupancy_limit_(?:blocks|registers|shared_mem|warps)"), "block"),
    (re.compile(r"launch__shared_mem_per_block.*"), "byte/block"),
    (re.compile(r"(?:sm|smsp)__maximum_warps_avg_per_active_cycle"), "warp"),
    (re.compile(r"derived__sm(?:sp)?__sass_thread_inst_executed_op_.*_x2"), "thread"),
    (re.compile(r"smsp__average_warps?_(?:latency_)?issue_stalled_.*"), "inst"),
    (re.compile(r".*_(?:pct|percent)"), "%"),
    (re.compile(r"device__attribute_.*(?:_khz|clock_rate)"), "kHz"),
)
_NO_UNIT = re.compile(
    r"(?:device|launch|nvlink|numa|c2clink|profiler__perfworks)_.*|.*_per_opcode.*|.*_per_inst_executed|"
    r"memory_(?:access_)?(?:size_)?type"
    r"|smsp__pcsamp_(?:interval|sample_count)|smsp__(?:sass_)?branch.*|smsp__issue_active"
    r"|.*wavefronts.*|.*bank_conflicts.*|.*tag_requests_global"
)
_QUANTITY = re.compile(r"(?:^|_)(bytes|sectors|cycles|warps?|requests?|insts?|passes|time_duration)(?:_|$)")
_WORDS = {"bytes": "byte", "sectors": "sector", "cycles": "cycle", "warps": "warp", "warp": "warp",
          "requests": "request", "request": "request", "inst": "inst", "insts": "inst", "passes": "pass",
          "time_duration": "ns"}  # fmt: skip


@cache
def unit_of(metric: str) -> str | None:
    """The base unit of a metric's value; None if it has none, such as a plain count, or if not known."""
    if ":" in metric:
        return None
    base, *roll = metric.split(".")
    last = roll[-1] if roll else ""
    if last.startswith("pct"):
        return "%"
    quantity = _quantity(base)
    if quantity is None or last in ("ratio", "max_rate"):
        return quantity
    if last == "per_second":
        return "Hz" if quantity == "cycle" else f"{quantity}/s"
    if last.startswith(("per_cycle", "peak_sustained")):
        return quantity if quantity == "warp" else f"{quantity}/cycle"
    return quantity


def _quantity(base: str) -> str | None:
    if (quantity := _OF_NAME.get(base)) is not None:
        return quantity
    for pattern, unit in _PATTERNS:
        if pattern.fullmatch(base):
            return unit
    if _NO_UNIT.fullmatch(base):
        return None
    match = _QUANTITY.search(base.partition("__")[2] or base)
    if match is not None:
        return _WORDS[match[1]]
    return "cycle" if base.partition("__")[0] != base and re.search(r"_active(?:_|$)", base) else None

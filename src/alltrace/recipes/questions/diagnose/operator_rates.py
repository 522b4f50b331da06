"""Operators of PyTorch that run far below their device's roof, and why, by the shapes that they were called with.

The roof of a call is the longer of its operations by the rate of its format and its least bytes by the rate of the
memory. What could be saved is the time beyond that; of an operator whose shapes allow no more, what other shapes would
save. Operators whose shapes or whose work is not known, and those near their roof, are left out.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from alltrace.recipes.analysis.device_peaks import Peaks, Roof, device_of_code, lowest_ridge, lowest_roof, roof_of
from alltrace.recipes.analysis.flops import Call, call_of, work_of
from alltrace.recipes.analysis.kernel_families import FP32, HALF, TF32, family_of
from alltrace.recipes.analysis.launched_work import gpu_work
from alltrace.recipes.analysis.operator_shapes import Reason, experts_in_words, is_half, moved_bytes, reasons_of
from alltrace.recipes.analysis.operator_sums import Program, has_operators
from alltrace.recipes.analysis.range_sums import Intervals, innermost_node, outermost
from alltrace.run.rank import Rank
from alltrace.trace.amounts import amount
from alltrace.trace.arrays import integers
from alltrace.trace.distinct import distinct, rows_by
from alltrace.trace.kernel_families import ATTENTION, SOFTMAX

_NEAR_ROOF = 0.5  # from this share of its roof on an operator is as fast as such kernels usually are
_FAR_BELOW = 0.35  # below this share of the roof it is slow even if its shapes do not say why
_BELOW_ANY = 0.8  # below this share of the lowest roof of all devices it is slow on any, if its shapes say why
_FAR_BELOW_RIDGE = 0.25  # below this share of the ridge an operator does nothing but read and write
_MOST_OPERATORS = 32  # kept of a rank

_SHORT_NS = 10_000
_SHORT = Reason(
    "short",
    f"short: a call has less than {_SHORT_NS // 1000} us of work, of which starting and ending a kernel is a large"
    " part",
    "batch such calls, fuse them (torch.compile), or record them in a CUDA graph",
)


@dataclass(frozen=True)
class SlowOperator:
    """An operator with shapes that runs below its device's roof in a rank's judged steps."""

    where: str  # its name, the shapes of its inputs and their type
    name: str  # its name
    reason: str  # in two or three words; empty if its device is not known and its shapes do not say whether it is slow
    says: str  # the reason in words
    advice: str
    saved_ns: int  # the most that a change can save
    took_ns: int  # the time of its kernels
    in_table: bool  # whether its device's roof is known
    evidence: dict[str, float] = field(default_factory=dict)


@dataclass(frozen=True)
class _Group:
    name: str
    call: Call
    flops: float  # operations of a call; 0 for one that only moves data
    moved: int | None  # the least bytes
    calls: int = 0
    took_ns: int = 0
    kernels: tuple[str, ...] = ()  # the names of its kernels, the one that takes longest first


def slow_operators(rank: Rank, step: NDArray[np.int32]) -> list[SlowOperator]:
    """The operators of a rank that could save most.

    `step`: The place of the step of each row of `kernels`; -1 for what does not count.
    """
    device = _device(rank)
    slow_ones = [slow for group in _groups(rank, step) if (slow := _judged(group, device)) is not None]
    return sorted(slow_ones, key=lambda s: (-s.saved_ns, -s.took_ns, s.where))[:_MOST_OPERATORS]


def _device(rank: Rank) -> tuple[str | None, int | None, int | None]:
    """The name, multiprocessors and memory bandwidth, in bytes a second, of the rank's device; None if unknown."""
    rows = rank.table("devices", ("name", "sm_count", "memory_bandwidth_bytes_per_s")).to_pylist()
    row = next((r for r in rows if r["name"] is not None), rows[0] if rows else {})
    name = rank.texts(pa.array([row["name"]], pa.int64()))[0].as_py() if row.get("name") is not None else None
    return name, row.get("sm_count") or None, row.get("memory_bandwidth_bytes_per_s") or None


def _groups(rank: Rank, step: NDArray[np.int32]) -> list[_Group]:
    if not has_operators(rank):
        return []
    operators = Program.of(rank).operators
    payloads = operators.payloads
    kinds, kind = distinct(operators.name * len(payloads) + operators.payload)
    about = [_work(operators.names[k // len(payloads)], payloads[k % len(payloads)]) for k in kinds.tolist()]
    rows = np.flatnonzero(np.array([a is not None for a in about], np.bool_)[kind])
    at = operators.at.of(rows)
    rows = rows[outermost(at.thread, at.start, at.end)]
    work = gpu_work(rank)
    mine = np.flatnonzero((step >= 0) & (work.call[: len(step)] >= 0))
    calls = Intervals(*(work.of_calls(c, mine) for c in ("thread", "start", "end")))
    inside = innermost_node(operators.at.of(rows), calls)
    mine, inside = mine[inside >= 0], inside[inside >= 0]
    length, of_kind = (work.end - work.start)[mine], kind[rows[inside]]
    full_name = integers(rank.table("kernels", ("name",)).column("name"))[mine]
    groups = []
    for number, chosen in rows_by(of_kind).items():
        if (group := about[number]) is None:
            continue
        ids, place = distinct(full_name[chosen])
        by_name = np.zeros(len(ids), np.int64)
        np.add.at(by_name, place, length[chosen])
        texts = rank.texts(pa.array(ids[np.argsort(-by_name, kind="stable")], pa.int64())).to_pylist()
        calls_of, kernels = len(np.unique(inside[chosen])), tuple(t or "" for t in texts)
        groups.append(replace(group, calls=calls_of, took_ns=int(length[chosen].sum()), kernels=kernels))
    return groups


def _work(name: str | None, payload: str | None) -> _Group | None:
    """An operator's call with what it does; None if unknown."""
    call = call_of(payload)
    if not name or call is None:
        return None
    work = work_of(name, call)
    if work is not None:
        return _Group(name, call, float(work.flops), work.moved_bytes) if work.flops else None
    moved = moved_bytes(name, call)
    return _Group(name, call, 0.0, moved) if moved else None


def _judged(group: _Group, device: tuple[str | None, int | None, int | None]) -> SlowOperator | None:
    """An operator that is below its roof, or of which nobody knows; None for one near it."""
    name, units, bandwidth = device
    roof = roof_of(name) or (roof_of(device_of_code(group.kernels[0])) if name is None else None)
    in_table = roof is not None
    roof = roof or lowest_roof()
    if bandwidth and in_table:
        roof = roof._replace(memory_gb_per_s=bandwidth / 1e9)
    half = is_half(group.call)
    rate, whole = _rate(roof.peaks, group), group.took_ns
    if rate is None or not whole:
        return None
    peak = roof.flop_per_s(rate)
    moved = group.moved or 0
    ideal_ns = max(group.calls * group.flops / peak, group.calls * moved / roof.bytes_per_s) * 1e9
    share = ideal_ns / whole
    reasons = reasons_of(group.name, group.call, units or roof.units, group.kernels[0])
    families = {family_of(kernel).family for kernel in group.kernels}
    if "attention" in group.name and SOFTMAX in families and ATTENTION not in families:
        says = "not fused: attention runs as separate products and a softmax, which write all scores to memory"
        reasons.insert(0, Reason("not fused", says, "use a fused kernel (FlashAttention, memory-efficient attention)"))
    intensity = group.flops / moved if moved else None
    ridge = peak / roof.bytes_per_s if in_table else lowest_ridge(half)
    bound = group.flops > 0 and intensity is not None and intensity < _FAR_BELOW_RIDGE * ridge
    evidence = _evidence(group, roof if in_table else None, peak, share, intensity, ridge, reasons, units)
    where = f"{group.name} {_shapes(group.call)}"
    of_shape = [r for r in reasons if r.by_shape]
    if of_shape and (bound or not in_table) and intensity is not None and intensity < ridge:
        saved = whole - (group.calls * group.flops / peak * 1e9 if in_table else whole * intensity / ridge)
        return _slow(where, group, of_shape, round(saved), in_table, evidence)
    reasons = [r for r in reasons if not r.by_shape]
    if whole < _SHORT_NS * group.calls and not any(r.on_any for r in reasons):
        reasons = [_SHORT]
    near = _NEAR_ROOF if reasons or not group.flops else _FAR_BELOW
    if not in_table:
        near = _BELOW_ANY if reasons else _FAR_BELOW
    if share < near:
        reasons = reasons or [_without_reason(group, share, "the device" if in_table else "any device", bound=bound)]
        return _slow(where, group, reasons, round(whole - ideal_ns), in_table, evidence)
    if in_table:
        return None
    of_any = [r for r in reasons if r.on_any]
    if of_any:
        return _slow(where, group, of_any, _saved_on_any(group, of_any[0], half=half), in_table, evidence)
    if not group.flops:
        return None
    bound_by = "bound by memory" if intensity is not None and intensity < ridge else "bound by compute"
    speed = amount(group.calls * group.flops / whole / 1e3, "TFLOP/s", 3)
    says = (
        f"runs at {speed}{experts_in_words(group.name, group.call)},"
        f" {'; '.join([bound_by, *(r.says for r in reasons)])}"
    )
    says += "; its device is not in the table of roofs, so whether that is slow is not known"
    return SlowOperator(where, group.name, "", says, "", 0, whole, False, evidence)


def _saved_on_any(group: _Group, reason: Reason, *, half: bool) -> int:
    """The least that a device of the tables saves of what is slow on any; all of it if that is not known."""
    if reason.tiles:
        return round(group.took_ns * (1 - reason.tiles / lowest_roof().units))
    return group.took_ns if half else group.took_ns // 2


def _without_reason(group: _Group, share: float, device: str, *, bound: bool) -> Reason:
    if not group.flops or bound:
        reached = f"it reaches {100 * share:.2g} % of what the memory of {device} carries"
        says = f"memory-bound at a poor bandwidth: {reached}"
        advice = "fuse it with its neighbours (torch.compile), use a 16-bit format, or a newer kernel"
        return Reason("poor bandwidth", says, advice)
    says = f"low efficiency: it reaches {100 * share:.2g} % of the rate of {device}, and its shapes do not say why"
    advice = "try another version of the library, or let it choose a kernel by trying (TunableOp, cudnn.benchmark)"
    return Reason("low efficiency", says, advice)


def _slow(
    where: str, group: _Group, reasons: Sequence[Reason], saved_ns: int, in_table: bool, evidence: dict[str, float]
) -> SlowOperator:
    first, says = reasons[0], "; ".join(r.says for r in reasons[:2])
    about = (max(saved_ns, 0), group.took_ns, in_table, evidence)
    return SlowOperator(where, group.name, first.name, says, first.advice, *about)


def _rate(peaks: Peaks, group: _Group) -> float | None:
    """The rate of the format that the products are in; None if it is not known."""
    kinds = [t.lower().replace("c10::", "") for s, t in zip(group.call.shapes, group.call.types, strict=False) if s]
    kind = kinds[0] if kinds else ""
    if "float8" in kind:
        return peaks.fp8 or 2 * peaks.half
    if is_half(group.call):
        return peaks.half
    if kind in ("char", "signed char", "unsigned char"):
        return peaks.int8
    if kind == "double":
        return peaks.fp64_tensor or peaks.fp64
    if kind != "float":
        return None
    precision = family_of(group.kernels[0]).precision
    return peaks.rate(precision if precision in (HALF, TF32) else FP32)


def _evidence(
    group: _Group, roof: Roof | None, peak: float, share: float, intensity: float | None, ridge: float,
    reasons: Sequence[Reason], units: int | None,
) -> dict[str, float]:  # fmt: skip
    evidence: dict[str, float] = {"calls": group.calls}
    if group.flops:
        evidence["tflop_per_s"] = round(group.calls * group.flops / group.took_ns / 1e3, 3)
    if group.moved:
        evidence["moved_gb_per_s"] = round(group.calls * group.moved / group.took_ns, 3)
    if intensity:
        evidence["flop_per_byte"] = round(intensity, 2)
    if roof is not None:
        evidence["roof_share"] = round(share, 4)
        evidence["roof_gb_per_s"] = roof.memory_gb_per_s
        if group.flops:
            evidence |= {"roof_tflop_per_s": round(peak / 1e12, 1), "ridge_flop_per_byte": round(ridge, 1)}
    tiles = next((r.tiles for r in reasons if r.tiles), None)
    if tiles:
        evidence |= {"tiles": tiles, "multiprocessors": units or (roof or lowest_roof()).units}
    return evidence


def _shapes(call: Call) -> str:
    kind = next((t.removeprefix("c10::") for s, t in zip(call.shapes, call.types, strict=False) if s), "")
    return " ".join([*("x".join(map(str, s)) for s in call.shapes if s), kind]).strip()

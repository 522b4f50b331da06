"""One round of the fit of clocks in machine code: residuals, weights and normal equations of one communicator."""

from __future__ import annotations

from typing import Any

from alltrace.align.medians import middle
from alltrace.trace.jit import plain_kernel

_F = "float64[::1]"
_I = "int64[::1]"
_FF = "float64[:, ::1]"
_BB = "boolean[:, ::1]"


@plain_kernel(f"void({_FF}, {_BB}, {_F}, {_F}, float64, {_F}, {_FF})")
def late(ends: Any, present: Any, ahead: Any, rate: Any, t0: Any, spare: Any, out: Any) -> None:
    """What each end is later than the median of its instance; 0 where a member is missing.

    Args:
        ends: Stamped ends, instances x members.
        present: Where a member is there.
        ahead: What each member's clock is ahead at `t0`.
        rate: Its relative rate error.
        t0: See there.
        spare: Room for a value of each member.
        out: Filled with the residuals.
    """
    for i in range(ends.shape[0]):
        count = 0
        for j in range(ends.shape[1]):
            if present[i, j]:
                out[i, j] = ends[i, j] - ahead[j] - rate[j] * (ends[i, j] - t0)
                spare[count] = out[i, j]
                count += 1
            else:
                out[i, j] = 0.0
        if count > 0:
            typical = middle(spare, count)
            for j in range(ends.shape[1]):
                if present[i, j]:
                    out[i, j] -= typical


@plain_kernel(f"int64({_FF}, {_BB}, {_F})")
def sizes(residual: Any, present: Any, out: Any) -> Any:
    """Writes the absolute residuals of the members that are there into `out`; returns how many there are."""
    count = 0
    for i in range(residual.shape[0]):
        for j in range(residual.shape[1]):
            if present[i, j]:
                out[count] = abs(residual[i, j])
                count += 1
    return count


@plain_kernel(f"void({_FF}, {_BB}, float64, float64, float64, boolean, {_FF})")
def weigh(residual: Any, present: Any, scale: Any, cut: Any, late_weight: Any, tukey: Any, out: Any) -> None:
    """The weight of each end: Tukey's biweight that is 0 from `cut` scales on, less where it is late, or one over the absolute."""
    for i in range(residual.shape[0]):
        for j in range(residual.shape[1]):
            value = residual[i, j]
            weight = 0.0
            if present[i, j] and tukey:
                part = value / (cut * scale)
                if part * part < 1.0:
                    weight = (1.0 - part * part) * (1.0 - part * part)
                    if value > 0.0:
                        weight *= late_weight
            elif present[i, j]:
                weight = 1.0 / max(abs(value) / scale, 1.0)
            out[i, j] = weight / (scale * scale)


@plain_kernel(f"void({_F}, {_F}, float64, {_FF}, {_FF}, {_FF})")
def _take_off(unit_weight: Any, host_weight: Any, total: Any, a_cc: Any, a_cb: Any, a_bb: Any) -> None:
    """Takes the weighted mean of one instance off the normal equations."""
    for u in range(unit_weight.size):
        share = unit_weight[u] / total
        if share == 0.0:
            continue
        for v in range(unit_weight.size):
            a_cc[u, v] -= share * unit_weight[v]
        for h in range(host_weight.size):
            a_cb[u, h] -= share * host_weight[h]
    for h in range(host_weight.size):
        share = host_weight[h] / total
        for g in range(host_weight.size):
            a_bb[h, g] -= share * host_weight[g]


@plain_kernel(f"void({_FF}, {_FF}, {_I}, {_I}, {_F}, {_F}, float64, boolean, {_F}, {_F}, {_F}, {_FF}, {_FF}, {_FF}, {_F}, {_F})")
def gather(
    ends: Any, weights: Any, unit: Any, host: Any, ahead: Any, rate: Any, t0: Any, with_drift: Any,
    times: Any, unit_weight: Any, host_weight: Any, a_cc: Any, a_cb: Any, a_bb: Any, y_c: Any, y_b: Any,
) -> None:  # fmt: skip
    """Adds the normal equations of one communicator to `a_cc`, `a_cb`, `a_bb`, `y_c` and `y_b`.

    For each instance with weights w and W their sum, the matrix diag(w) - w w' / W takes the weighted mean off.

    Args:
        ends: Stamped ends, instances x members.
        weights: Their weights.
        unit: Unit of each member, counted among the communicator's.
        host: Host of each member, likewise.
        ahead: What each member's clock is ahead at `t0`.
        rate: Its relative rate error.
        t0: See there.
        with_drift: Whether rates are unknown.
        times: Room for a value of each member.
        unit_weight: Room for a value of each unit; 0 before and after.
        host_weight: Room for a value of each host; 0 before and after.
        a_cc: Units x units.
        a_cb: Units x hosts.
        a_bb: Hosts x hosts.
        y_c: Units.
        y_b: Hosts.
    """
    members = ends.shape[1]
    for i in range(ends.shape[0]):
        total, base, count = 0.0, 0.0, 0
        for j in range(members):
            if weights[i, j] > 0.0:
                times[j] = ends[i, j] - ahead[j] - rate[j] * (ends[i, j] - t0)
                total += weights[i, j]
                base += times[j]
                count += 1
        if count == 0:
            continue
        base /= count
        mean = 0.0
        for j in range(members):
            if weights[i, j] > 0.0:
                times[j] -= base
                mean += weights[i, j] * times[j]
        mean /= total
        for j in range(members):
            w = weights[i, j]
            if w <= 0.0:
                continue
            u = unit[j]
            pull = w * (times[j] - mean)
            y_c[u] += pull
            a_cc[u, u] += w
            unit_weight[u] += w
            if with_drift:
                h = host[j]
                z = (ends[i, j] - t0) / 1e9
                y_b[h] += z * pull
                a_cb[u, h] += w * z
                a_bb[h, h] += w * z * z
                host_weight[h] += w * z
        _take_off(unit_weight, host_weight, total, a_cc, a_cb, a_bb)
        unit_weight[:] = 0.0
        host_weight[:] = 0.0

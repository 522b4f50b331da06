"""NCCL's calls and kernels, joined: which call launched which kernels."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from alltrace.align.nccl_calls import Calls, Contexts
from alltrace.align.nccl_kernels import NOT_KNOWN, Kernels
from alltrace.align.nccl_names import RECV, SEND, SEND_RECV, SENT
from alltrace.align.nccl_trace import Traced
from alltrace.trace.arrays import Flags, Int64
from alltrace.trace.communication_kernels import EXCHANGE

_KERNEL, _CALL, _BOTH, _COPIES, _EXCHANGE, _TRACE = range(6)
_WORDS = ("kernel", "nvtx", "nvtx+kernel", "nvtx+copy", EXCHANGE, "trace")


def join(
    calls: Calls | None, kernels: Kernels | None, contexts: Contexts | None = None, traced: Traced | None = None
) -> dict[str, Any]:
    """The operations of one rank as columns of `collectives`: Arrow arrays of equal length, or nothing.

    A kernel belongs to the unit that its launching call is in, on the same thread. A unit's kernels belong to its
    calls: one to one where there are as many, one per communicator where there are as many, else each call has the
    extent of all of them. Sends and receives among all members, grouped, are one all-to-all. What the profiler traced
    itself comes first; calls and kernels that it did not trace are added.
    """
    parts = []
    alone = ~kernels.copied if kernels else np.zeros(0, np.bool_)  # only the call shows the purpose of a copy
    if traced is not None and traced.calls is not None:
        if calls is not None:
            traced.calls.members.update(calls.members)
        alone &= traced.unit < 0
        parts.append(_of_calls(traced.calls, kernels, traced.unit))
    if calls is not None and calls.count:
        unit = _units_of_kernels(calls, kernels) if kernels else np.zeros(0, np.int64)
        if traced is not None and traced.calls is not None:
            calls, unit = _untraced(calls, np.where(traced.unit < 0, unit, -1))
        alone &= unit < 0
        parts.append(_of_calls(calls, kernels, unit))
    if kernels is not None and alone.any():
        parts.append(_of_kernels(kernels, np.flatnonzero(alone), contexts))
    return _concatenated(parts)


def _untraced(calls: Calls, unit: Int64) -> tuple[Calls, Int64]:
    """The calls of units with a kernel that the profiler did not trace, and the units of kernels among them."""
    units = np.unique(unit[unit >= 0])
    rows = np.flatnonzero(np.isin(calls.unit, units))
    kept = {n: getattr(calls, n)[rows] for n in ("start", "end", "process", "thread", "op", "payload")}
    of_units = {n: getattr(calls, n)[units] for n in ("unit_start", "unit_end", "unit_thread", "unit_context")}
    found = replace(calls, **kept, **of_units, unit=np.searchsorted(units, calls.unit[rows]), ops=[*calls.ops])
    return found, np.where(unit < 0, -1, np.searchsorted(units, unit))


def _units_of_kernels(calls: Calls, kernels: Kernels) -> Int64:
    """The unit in which each kernel was launched, or -1."""
    unit = np.full(kernels.count, -1, np.int64)
    for thread in np.unique(calls.unit_thread):
        mine = np.flatnonzero(calls.unit_thread == thread)  # by start, as units are numbered
        rows = np.flatnonzero((kernels.thread == thread) & (kernels.api_start != NOT_KNOWN))
        at = np.searchsorted(calls.unit_start[mine], kernels.api_start[rows], side="right") - 1
        inside = (at >= 0) & (kernels.api_start[rows] < calls.unit_end[mine[at]])
        unit[rows[inside]] = mine[at[inside]]
    return unit


def _of_calls(calls: Calls, kernels: Kernels | None, unit: Int64) -> dict[str, Any]:
    """A row for each call, or for each exchange among all."""
    units, count = len(calls.unit_start), calls.count
    told = calls.payloads
    names = sorted({p.communicator for p in told if p.communicator is not None})
    codes = np.array([names.index(p.communicator) if p.communicator is not None else -1 for p in told], np.int64)
    communicator = codes[calls.payload]
    first, last = np.full(count, -1, np.int64), np.full(count, -1, np.int64)
    if kernels is not None and (unit >= 0).any():
        first, last = _kernels_of_calls(calls, communicator, unit, units)
    have = first >= 0
    nothing = np.full(count, NOT_KNOWN)
    start, end = (v.copy() for v in calls.work or (nothing, nothing))
    api_start, api_end, thread = calls.start, calls.end, calls.thread
    device, stream = np.full(count, -1, np.int64), np.full(count, -1, np.int64)
    type_code = np.full(count, -1, np.int64)
    evidence = np.where(have, _BOTH, _CALL)
    kernel_types: list[str] = []
    if kernels is not None and have.any():
        order = np.lexsort((np.arange(kernels.count), unit))  # kernels by unit, which first and last count in
        begin, finish = kernels.start[order], kernels.end[order]
        start[have] = begin[first[have]]
        end[have] = _range_maximum(finish, first[have], last[have])
        device[have], stream[have] = kernels.device[order][first[have]], kernels.stream[order][first[have]]
        type_code[have] = kernels.datatype[order][first[have]]
        evidence[np.flatnonzero(have)[kernels.copied[order][first[have]]]] = _COPIES
        kernel_types = kernels.datatypes
        if calls.work is not None:  # traced on the device, by a thread that launches nothing
            lacking = have & (api_start == NOT_KNOWN)
            api_start, api_end, thread = (
                np.where(lacking, launch[order][first], own)
                for launch, own in (
                    (kernels.api_start, api_start),
                    (kernels.api_end, api_end),
                    (kernels.thread, thread),
                )
            )
    numbers, valid = _payload_numbers(calls)
    evidence = np.where(valid["sequence"] & (communicator >= 0), _TRACE, evidence)
    types = sorted({p.datatype for p in told if p.datatype is not None} | set(kernel_types))
    own = np.array([types.index(p.datatype) if p.datatype is not None else -1 for p in told], np.int64)[calls.payload]
    launched = np.array([*(types.index(t) for t in kernel_types), -1], np.int64)[type_code]
    op = calls.op.copy()
    ops = list(calls.ops)
    keep = _fold_exchanges(calls, numbers, valid, op, ops)
    rows = np.flatnonzero(keep)
    return {
        "start": _array(start[rows], start[rows] != NOT_KNOWN),
        "end": _array(end[rows], end[rows] != NOT_KNOWN),
        "api_start": _array(api_start[rows], api_start[rows] != NOT_KNOWN),
        "api_end": _array(api_end[rows], (api_end[rows] != np.iinfo(np.int64).max) & (api_end[rows] != NOT_KNOWN)),
        "process": _array(calls.process[rows], calls.process[rows] >= 0),
        "thread": _array(thread[rows], thread[rows] >= 0),
        "device": _array(device[rows], device[rows] >= 0),
        "stream": _array(stream[rows], stream[rows] >= 0),
        "communicator": _texts(names, communicator[rows]),
        "op": _texts(ops, op[rows]),
        "datatype": _texts(types, np.where(own >= 0, own, launched)[rows]),
        "evidence": _texts(list(_WORDS), evidence[rows]),
        **{name: _array(numbers[name][rows], valid[name][rows]) for name in numbers},
    }


def _kernels_of_calls(calls: Calls, communicator: Int64, unit: Int64, units: int) -> tuple[Int64, Int64]:
    """The first and last kernel of each call, counted in the kernels sorted by unit; -1 without a kernel."""
    kernels_in = np.bincount(unit[unit >= 0], minlength=units)
    offset = np.cumsum(np.concatenate(([0], kernels_in[:-1]))) + int((unit < 0).sum())
    calls_in = np.bincount(calls.unit, minlength=units)
    place = np.arange(calls.count) - np.cumsum(np.concatenate(([0], calls_in[:-1])))[calls.unit]
    # the communicators of a unit, numbered by their first call
    width = int(communicator.max(initial=0)) + 2
    pair = calls.unit * width + communicator + 1
    _, first_at, inverse = np.unique(pair, return_index=True, return_inverse=True)
    groups_in = np.bincount(calls.unit[first_at], minlength=units)
    by_first = np.argsort(first_at, kind="stable")
    nth = np.empty(len(first_at), np.int64)
    nth[by_first] = np.arange(len(first_at)) - np.cumsum(np.concatenate(([0], groups_in[:-1])))[calls.unit[first_at[by_first]]]
    here = kernels_in[calls.unit]
    one_to_one = here == calls_in[calls.unit]
    per_group = ~one_to_one & (here == groups_in[calls.unit])
    single = one_to_one | per_group
    begin = offset[calls.unit]
    first = begin + np.where(one_to_one, place, np.where(per_group, nth[inverse.reshape(-1)], 0))
    last = np.where(single, first, begin + here - 1)
    return np.where(here > 0, first, -1), np.where(here > 0, last, -1)


def _range_maximum(values: Int64, first: Int64, last: Int64) -> Int64:
    """The largest of values[first..last] for each pair."""
    result: Int64 = values[first].copy()
    several = np.flatnonzero(last > first)
    for i in several.tolist():
        result[i] = values[first[i] : last[i] + 1].max()
    return result


_NUMBERS = ("bytes", "count", "peer", "root", "group_rank", "group_size", "sequence")


def _payload_numbers(calls: Calls) -> tuple[dict[str, Int64], dict[str, Flags]]:
    """What the payloads say of each call, and whether they do; sizes of communicators also from their initialisation."""
    numbers, valid = {}, {}
    for name in _NUMBERS:
        found = []
        for told in calls.payloads:
            value = getattr(told, name)
            if value is None and name in ("group_rank", "group_size") and told.communicator in calls.members:
                value = calls.members[told.communicator][name == "group_size"]
            found.append(value)
        valid[name] = np.array([v is not None for v in found])[calls.payload]
        numbers[name] = np.array([v or 0 for v in found], np.int64)[calls.payload]
    return numbers, valid


def _fold_exchanges(
    calls: Calls,
    numbers: dict[str, Int64],
    valid: dict[str, Flags],
    op: Int64,
    ops: list[str],
) -> Flags:
    """Makes grouped sends and receives of which a framework's range states the operation one, in place; returns which stay rows."""
    keep: Flags = np.ones(calls.count, np.bool_)
    send = ops.index(SEND) if SEND in ops else -2
    recv = ops.index(RECV) if RECV in ops else -2
    paired = (op == send) | (op == recv)
    if not paired.any():
        return keep
    units = len(calls.unit_start)
    calls_in = np.bincount(calls.unit, minlength=units)
    all_paired = np.bincount(calls.unit, ~paired, minlength=units) == 0
    context = calls.unit_context
    said = (context >= 0) & (calls_in >= 1) & all_paired & ~np.isin(context, (send, recv))
    if not said.any():
        return keep
    mine = said[calls.unit]
    firsts = np.concatenate(([True], calls.unit[1:] != calls.unit[:-1]))
    keep = ~mine | firsts
    head = np.flatnonzero(mine & firsts)
    op[head] = context[calls.unit[head]]
    sent = np.bincount(calls.unit, np.where(calls.op == send, numbers["bytes"], 0), minlength=units)  # 0 where it is not known
    fits = sent[calls.unit[head]] < 2.0**63
    numbers["bytes"][head] = np.where(fits, sent[calls.unit[head]], 0).astype(np.int64)
    valid["bytes"][head] &= fits
    valid["peer"][head] = valid["sequence"][head] = False  # those of its first call
    return keep


def _of_kernels(kernels: Kernels, rows: Int64, contexts: Contexts | None) -> dict[str, Any]:
    """A row for each kernel alone; a framework's range around its launch says what sends and receives are."""
    known = kernels.api_start[rows] != NOT_KNOWN
    ends = kernels.api_end[rows] != NOT_KNOWN
    thread = kernels.thread[rows]
    op, ops = kernels.op[rows], list(kernels.ops)
    if contexts is not None and SEND_RECV in ops:
        ops = sorted({*ops, *contexts.op})
        op = np.array([*map(ops.index, kernels.ops), -1], np.int64)[op]
        around = contexts.around(thread, kernels.api_start[rows], kernels.api_start[rows])
        named = np.array([*(ops.index(o) if o in SENT else -1 for o in contexts.op), -1], np.int64)[around]
        op = np.where((op == ops.index(SEND_RECV)) & (named >= 0), named, op)
    return {
        "start": _array(kernels.start[rows]),
        "end": _array(kernels.end[rows]),
        "api_start": _array(kernels.api_start[rows], known),
        "api_end": _array(kernels.api_end[rows], ends),
        "process": _array(kernels.process[rows], kernels.process[rows] >= 0),
        "thread": _array(thread, thread >= 0),
        "device": _array(kernels.device[rows], kernels.device[rows] >= 0),
        "stream": _array(kernels.stream[rows], kernels.stream[rows] >= 0),
        "op": _texts(ops, op),
        "datatype": _texts(kernels.datatypes, kernels.datatype[rows]),
        "evidence": _texts(list(_WORDS), np.where(kernels.exchanging[rows], _EXCHANGE, _KERNEL)),
    }


def _array(values: Int64, valid: Flags | None = None) -> Any:
    import pyarrow as pa

    return pa.array(values, pa.int64(), mask=None if valid is None else ~valid)


def _texts(words: list[str], codes: Int64) -> Any:
    """Text by number, -1 for none."""
    import pyarrow as pa

    return pa.DictionaryArray.from_arrays(
        pa.array(codes.astype(np.int32), pa.int32(), mask=codes < 0), pa.array(words, pa.string())
    )


def _concatenated(parts: list[dict[str, Any]]) -> dict[str, Any]:
    """The parts' columns one after the other; a column that a part lacks is null there."""
    import pyarrow as pa

    if len(parts) < 2:
        return parts[0] if parts else {}
    counts = [len(next(iter(p.values()))) for p in parts]
    made = {}
    for name in {n: None for p in parts for n in p}:
        kind = next(p[name].type for p in parts if name in p)
        arrays = [p[name] if name in p else pa.nulls(n, kind) for p, n in zip(parts, counts, strict=True)]
        made[name] = pa.chunked_array(arrays, kind).unify_dictionaries().combine_chunks()
    return made

"""NCCL's calls and kernels, joined: which call launched which kernels."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pyarrow as pa

from alltrace.align.nccl_calls import NOT_KNOWN, OPEN, Calls, Contexts, Kernels, spans_around
from alltrace.align.nccl_names import RECV, SEND, SEND_RECV, SENT, numbered
from alltrace.align.nccl_trace import Traced
from alltrace.trace.arrays import Flags, Int64
from alltrace.trace.communication_kernels import EXCHANGE
from alltrace.trace.distinct import run_starts

_WORDS = ("kernel", "nvtx", "nvtx+kernel", "nvtx+copy", EXCHANGE, "trace")
_KERNEL, _CALL, _BOTH, _COPIES, _EXCHANGE, _TRACE = range(len(_WORDS))


def join(calls: Calls, kernels: Kernels, contexts: Contexts, traced: Traced) -> list[dict[str, Any]]:
    """The operations of one rank, in parts of columns of `collectives`: Arrow arrays of equal length.

    A kernel belongs to the unit that its launching call is in, on the same thread. A unit's kernels belong to its
    calls: one to one where there are as many, one per communicator where there are as many, else each call has the
    extent of all of them. Sends and receives among all members, grouped, are one all-to-all. What the profiler traced
    itself comes first; calls and kernels that it did not trace are added.
    """
    parts = []
    alone = ~kernels.copied & (traced.unit < 0)  # only the call shows the purpose of a copy
    if traced.calls is not None:
        traced.calls.members.update(calls.members)
        parts.append(_of_calls(traced.calls, kernels, traced.unit))
    if len(calls.start):
        # a kernel is of the unit in which it was launched; units of a thread are numbered by start
        began = kernels.api_start
        unit = spans_around((calls.unit_thread, calls.unit_start, calls.unit_end), (kernels.thread, began, began + 1))
        if traced.calls is not None:
            calls, unit = _untraced(calls, np.where(traced.unit < 0, unit, -1))
        alone &= unit < 0
        parts.append(_of_calls(calls, kernels, unit))
    if alone.any():
        parts.append(_of_kernels(kernels, np.flatnonzero(alone), contexts))
    return parts


def _untraced(calls: Calls, unit: Int64) -> tuple[Calls, Int64]:
    """The calls of units with a kernel that the profiler did not trace, and the units of kernels among them."""
    units = np.unique(unit[unit >= 0])
    rows = np.flatnonzero(np.isin(calls.unit, units))
    kept = {n: getattr(calls, n)[rows] for n in ("start", "end", "process", "thread", "op", "payload")}
    of_units = {n: getattr(calls, n)[units] for n in ("unit_start", "unit_end", "unit_thread", "unit_context")}
    found = replace(calls, **kept, **of_units, unit=np.searchsorted(units, calls.unit[rows]), ops=[*calls.ops])
    return found, np.where(unit < 0, -1, np.searchsorted(units, unit))


def _of_calls(calls: Calls, kernels: Kernels, unit: Int64) -> dict[str, Any]:
    """A row for each call, or for each exchange among all."""
    told = calls.payloads
    names, codes = numbered([p.communicator for p in told])
    communicator = codes[calls.payload]
    first, last = _kernels_of_calls(calls, communicator, unit, len(calls.unit_start))
    have = np.flatnonzero(first >= 0)
    by_unit = np.argsort(unit, kind="stable")  # which first and last count in
    head = by_unit[first[have]]
    start, end = (v.copy() for v in calls.work or 2 * [np.full(len(calls.start), NOT_KNOWN)])
    start[have], end[have] = kernels.start[head], _range_maximum(kernels.end[by_unit], first[have], last[have])
    nowhere = np.full(len(calls.start), -1, np.int64)
    device, stream, type_code = nowhere.copy(), nowhere.copy(), nowhere
    device[have], stream[have], type_code[have] = kernels.device[head], kernels.stream[head], kernels.datatype[head]
    api_start, api_end, thread = calls.start.copy(), calls.end.copy(), calls.thread.copy()
    if calls.work is not None:  # traced on the device, by a thread that launches nothing
        lacking = api_start[have] == NOT_KNOWN
        for own, launch in ((api_start, kernels.api_start), (api_end, kernels.api_end), (thread, kernels.thread)):
            own[have[lacking]] = launch[head[lacking]]
    numbers, valid = _payload_numbers(calls)
    evidence = np.where(first >= 0, _BOTH, _CALL)
    evidence[have[kernels.copied[head]]] = _COPIES
    evidence[valid["sequence"] & (communicator >= 0)] = _TRACE
    kernel_types = kernels.datatypes if len(have) else []
    types, codes = numbered([p.datatype for p in told], kernel_types)
    own, launched = codes[calls.payload], np.array([*map(types.index, kernel_types), -1], np.int64)[type_code]
    op, ops = calls.op.copy(), list(calls.ops)
    rows = np.flatnonzero(_fold_exchanges(calls, numbers, valid, op, ops))
    times = {"start": start, "end": end, "api_start": api_start, "api_end": api_end}
    return {
        **_columns(rows, times, {"process": calls.process, "thread": thread, "device": device, "stream": stream}),
        "communicator": _texts(names, communicator[rows]),
        "op": _texts(ops, op[rows]),
        "datatype": _texts(types, np.where(own >= 0, own, launched)[rows]),
        "evidence": _texts(_WORDS, evidence[rows]),
        **{name: pa.array(numbers[name][rows], pa.int64(), mask=~valid[name][rows]) for name in numbers},
    }


def _kernels_of_calls(calls: Calls, communicator: Int64, unit: Int64, units: int) -> tuple[Int64, Int64]:
    """The first and last kernel of each call, counted in the kernels sorted by unit; -1 without a kernel."""
    kernels_in = np.bincount(unit[unit >= 0], minlength=units)
    offset = np.cumsum(np.concatenate(([0], kernels_in[:-1]))) + int((unit < 0).sum())
    calls_in = np.bincount(calls.unit, minlength=units)
    place = np.arange(len(calls.start)) - np.cumsum(np.concatenate(([0], calls_in[:-1])))[calls.unit]
    # the communicators of a unit, numbered by their first call
    width = int(communicator.max(initial=0)) + 2
    pair = calls.unit * width + communicator + 1
    _, first_at, inverse = np.unique(pair, return_index=True, return_inverse=True)
    groups_in = np.bincount(calls.unit[first_at], minlength=units)
    by_first = np.argsort(first_at, kind="stable")
    nth = np.empty(len(first_at), np.int64)
    nth[by_first] = (
        np.arange(len(first_at)) - np.cumsum(np.concatenate(([0], groups_in[:-1])))[calls.unit[first_at[by_first]]]
    )
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
    return np.maximum.reduceat(np.append(values, NOT_KNOWN), np.stack((first, last + 1), axis=1).ravel())[::2]


_NUMBERS = ("bytes", "count", "peer", "root", "group_rank", "group_size", "sequence")


def _payload_numbers(calls: Calls) -> tuple[dict[str, Int64], dict[str, Flags]]:
    """What payloads say of each call, and whether they do; sizes of communicators also from their initialisation."""
    numbers, valid = {}, {}
    for name in _NUMBERS:
        found = []
        for told in calls.payloads:
            value = getattr(told, name)
            if value is None and name == "group_size" and told.communicator in calls.members:
                value = calls.members[told.communicator][1]
            found.append(value)
        valid[name] = np.array([v is not None for v in found])[calls.payload]
        numbers[name] = np.array([v or 0 for v in found], np.int64)[calls.payload]
    for communicator, (of_thread, _) in calls.members.items():
        calling = np.array([told.communicator == communicator for told in calls.payloads])[calls.payload]
        for thread, group_rank in of_thread.items():
            its = calling & ~valid["group_rank"]
            if len(of_thread) > 1:  # devices of one process, each with a thread of its own
                its &= calls.thread == thread
            if group_rank is not None:
                numbers["group_rank"][its], valid["group_rank"][its] = group_rank, True
    return numbers, valid


def _fold_exchanges(
    calls: Calls, numbers: dict[str, Int64], valid: dict[str, Flags], op: Int64, ops: list[str]
) -> Flags:
    """Makes grouped sends and receives one that a framework's range names, in place; returns which stay rows."""
    send = ops.index(SEND) if SEND in ops else -2
    recv = ops.index(RECV) if RECV in ops else -2
    paired = (op == send) | (op == recv)
    units = len(calls.unit_start)
    all_paired = np.bincount(calls.unit, ~paired, minlength=units) == 0
    context = calls.unit_context
    said = (context >= 0) & all_paired & ~np.isin(context, (send, recv))
    mine, firsts = said[calls.unit], np.zeros(len(calls.start), np.bool_)
    firsts[run_starts(calls.unit)] = True
    head = np.flatnonzero(mine & firsts)
    op[head] = context[calls.unit[head]]
    # 0 where it is not known
    sent = np.bincount(calls.unit, np.where(calls.op == send, numbers["bytes"], 0), minlength=units)
    fits = sent[calls.unit[head]] < 2.0**63
    numbers["bytes"][head] = np.where(fits, sent[calls.unit[head]], 0).astype(np.int64)
    valid["bytes"][head] &= fits
    valid["peer"][head] = valid["sequence"][head] = False  # those of its first call
    rows: Flags = ~mine | firsts
    return rows


def _of_kernels(kernels: Kernels, rows: Int64, contexts: Contexts) -> dict[str, Any]:
    """A row for each kernel alone; a framework's range around its launch says what sends and receives are."""
    op, ops, launched = kernels.op, list(kernels.ops), kernels.api_start
    if SEND_RECV in ops:
        ops = sorted({*ops, *contexts.op})
        op = np.array([*map(ops.index, kernels.ops), -1], np.int64)[op]
        around = contexts.named_around(ops, kernels.thread, launched, launched)
        named = (around >= 0) & np.array([*(o in SENT for o in ops), False])[around]
        op = np.where((op == ops.index(SEND_RECV)) & named, around, op)
    times = {"start": kernels.start, "end": kernels.end, "api_start": launched, "api_end": kernels.api_end}
    numbers = {name: getattr(kernels, name) for name in ("process", "thread", "device", "stream")}
    return {
        **_columns(rows, times, numbers),
        "op": _texts(ops, op[rows]),
        "datatype": _texts(kernels.datatypes, kernels.datatype[rows]),
        "evidence": _texts(_WORDS, np.where(kernels.exchanging, _EXCHANGE, _KERNEL)[rows]),
    }


def _columns(rows: Int64, times: Mapping[str, Int64], numbers: Mapping[str, Int64]) -> dict[str, Any]:
    """Some rows as Arrow arrays; times that are not known or open, and numbers below 0, are null."""
    known = {name: pa.array(v[rows], pa.int64(), mask=np.isin(v[rows], (NOT_KNOWN, OPEN))) for name, v in times.items()}
    return known | {name: pa.array(v[rows], pa.int64(), mask=v[rows] < 0) for name, v in numbers.items()}


def _texts(words: Sequence[str], codes: Int64) -> Any:
    """Text by number, -1 for none."""
    return pa.DictionaryArray.from_arrays(
        pa.array(codes.astype(np.int32), pa.int32(), mask=codes < 0), pa.array(words, pa.string())
    )

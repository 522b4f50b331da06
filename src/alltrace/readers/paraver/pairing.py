"""Begins and ends of a Paraver trace as intervals, in machine code."""

from __future__ import annotations

from typing import Any

from alltrace.trace.jit import plain_kernel

_I64 = "int64[:]"
_TABLE = "int64[:, :]"

PUNCTUAL, CHANGES = 1, 2
"""Kinds of a slot besides intervals (0): events without an end, and changes of the innermost range."""

TIME, VALUE, STOP, CALL, UNDER, MORE = 0, 1, 2, 3, 4, 5
"""Columns of what is open: the begin, the value, the known end or -1, the number of the call, what is below, other values."""

SLOT, THREAD, BEGIN, END_, VALUE_, CALL_, MORE_ = 0, 1, 2, 3, 4, 5, 6
"""Columns of an interval."""

FREE, CALLS, ROWS, LOST = 0, 1, 2, 3
"""Numbers that go on: the first free place, calls that launched, intervals made, ends without a begin."""


@plain_kernel(
    f"int64(int64, {_I64}, {_I64}, boolean[:], {_I64}, {_I64}, {_I64}, {_I64}, {_I64}, {_TABLE}, {_TABLE}, "
    f"{_TABLE}, {_TABLE}, {_I64}, int64, int64, int64, int64, {_I64})"
)
def pair(  # noqa: C901  one loop, for speed
    first: Any, values: Any, offsets: Any, wrong: Any, threads: Any, types: Any, slots: Any, kinds: Any, places: Any,
    heads: Any, waiting: Any, nodes: Any, out: Any, numbers: Any, length_type: Any, call_slot: Any, last_work: Any, tags: Any,
    sizes: Any,
) -> Any:  # fmt: skip
    """Makes intervals of begins and ends.

    Args:
        first: The line to begin with.
        values: int64 array of numbers, see `Lines`.
        offsets: int64 array of n + 1.
        wrong: Boolean array of n.
        threads: int64 array: the first thread of each task, and the number of all last.
        types: int64 array of known event types, ascending.
        slots: int64 array: the slot of each, -1 for one that goes with others.
        kinds: int64 array: the kind of each slot.
        places: int64 array: for each type that goes with others where its value is kept, else -1.
        heads: int64 array (threads, slots): the innermost of what is open, -1 for none.
        waiting: int64 array (threads, 2): first and last of the launches that have not begun, -1 for none.
        nodes: int64 array of what is open and of what is free, linked by `UNDER`.
        out: int64 array with room for half as many rows as there are numbers.
        numbers: int64 array of what goes on, see `FREE`.
        length_type: The type that tells a length.
        call_slot: The slot of calls; work has the slots after it up to `last_work`.
        last_work: The last slot of work.
        tags: The first tag of a launch; the one after it is another.
        sizes: int64 array: how many ranges of a thread and slot are open, by thread times slots plus slot.

    Returns:
        n, or the line for which no place is free.
    """
    tasks = threads.size - 1
    for i in range(first, offsets.size - 1):
        at, stop = offsets[i], offsets[i + 1]
        if wrong[i] or stop - at < 8:
            continue
        kind = values[at]
        if kind != 2 and kind != 3:
            continue
        task = values[at + 3] - 1
        if task < 0 or task >= tasks or values[at + 4] < 1 or values[at + 4] > threads[task + 1] - threads[task]:
            continue
        thread = threads[task] + values[at + 4] - 1
        time = values[at + 5]
        if numbers[FREE] < 0 or nodes[numbers[FREE], UNDER] < 0:  # a line takes two places at most
            return i
        if kind == 3:
            tag = values[at + 14] if stop - at == 15 else -1
            task = values[at + 9] - 1 if stop - at == 15 else -1
            if tag < tags or tag > tags + 1 or task < 0 or task >= tasks:
                continue
            if values[at + 10] < 1 or values[at + 10] > threads[task + 1] - threads[task]:
                continue
            other = threads[task] + values[at + 10] - 1
            arrives = values[at + 11]
            call = -1
            node = heads[thread, call_slot]
            while node >= 0 and call < 0:
                if nodes[node, TIME] == time:
                    if nodes[node, CALL] < 0:
                        numbers[CALLS] += 1
                        nodes[node, CALL] = numbers[CALLS]
                    call = nodes[node, CALL]
                node = nodes[node, UNDER]
            if call < 0:
                continue
            known = False
            for slot in range(call_slot + 1, last_work + 1):
                node = heads[other, slot]
                while node >= 0 and not known:
                    if nodes[node, TIME] == arrives and nodes[node, CALL] < 0:
                        nodes[node, CALL] = call
                        known = True
                    node = nodes[node, UNDER]
            if not known and arrives >= time:
                node = numbers[FREE]
                numbers[FREE] = nodes[node, UNDER]
                nodes[node, TIME] = arrives
                nodes[node, CALL] = call
                nodes[node, UNDER] = -1
                if waiting[other, 0] < 0:
                    waiting[other, 0] = node
                else:
                    nodes[waiting[other, 1], UNDER] = node
                waiting[other, 1] = node
            continue
        for p in range(at + 6, stop - 1, 2):
            low = 0
            high = types.size
            while low < high:
                middle = (low + high) // 2
                if types[middle] < values[p]:
                    low = middle + 1
                else:
                    high = middle
            if low == types.size or types[low] != values[p] or slots[low] < 0:
                continue
            slot = slots[low]
            value = values[p + 1]
            begins = value != 0
            if kinds[slot] == CHANGES:
                depth = values[p + 3] if p + 3 < stop else 0
                begins = depth > sizes[thread * heads.shape[1] + slot]
                sizes[thread * heads.shape[1] + slot] = depth
            if kinds[slot] == PUNCTUAL:
                row = numbers[ROWS]
                numbers[ROWS] += 1
                out[row, SLOT] = slot
                out[row, THREAD] = thread
                out[row, BEGIN] = time
                out[row, END_] = time
                out[row, VALUE_] = value
                continue
            if begins:
                node = numbers[FREE]
                if node < 0:  # a line with many types; what does not fit is left out
                    numbers[LOST] += 1
                    continue
                numbers[FREE] = nodes[node, UNDER]
                nodes[node, TIME] = time
                nodes[node, VALUE] = value
                nodes[node, STOP] = -1
                nodes[node, CALL] = -1
                for q in range(at + 6, stop - 1, 2):
                    if values[q] == length_type:
                        nodes[node, STOP] = time + values[q + 1]
                for k in range(MORE, nodes.shape[1]):
                    nodes[node, k] = -1
                for q in range(at + 6, stop - 1, 2):
                    if q == p:
                        continue
                    below = 0
                    high = types.size
                    while below < high:
                        middle = (below + high) // 2
                        if types[middle] < values[q]:
                            below = middle + 1
                        else:
                            high = middle
                    if below < types.size and types[below] == values[q] and places[below] >= 0:
                        nodes[node, MORE + places[below]] = values[q + 1]
                if call_slot < slot <= last_work:
                    before = -1
                    other = waiting[thread, 0]
                    while other >= 0:
                        after = nodes[other, UNDER]
                        mine = nodes[other, TIME] == time
                        if mine or nodes[other, TIME] < time:
                            if before < 0:
                                waiting[thread, 0] = after
                            else:
                                nodes[before, UNDER] = after
                            if after < 0:
                                waiting[thread, 1] = before
                            nodes[other, UNDER] = numbers[FREE]
                            numbers[FREE] = other
                            if mine:
                                nodes[node, CALL] = nodes[other, CALL]
                                break
                        else:
                            before = other
                        other = after
                nodes[node, UNDER] = heads[thread, slot]
                heads[thread, slot] = node
                continue
            above = -1
            over = -1
            chosen = -1
            node = heads[thread, slot]
            while node >= 0:
                if nodes[node, STOP] == time:
                    chosen = node
                    over = above
                    break
                if chosen < 0 and nodes[node, STOP] < 0:
                    chosen = node
                    over = above
                above = node
                node = nodes[node, UNDER]
            if chosen < 0:
                numbers[LOST] += 1
                continue
            if over < 0:
                heads[thread, slot] = nodes[chosen, UNDER]
            else:
                nodes[over, UNDER] = nodes[chosen, UNDER]
            row = numbers[ROWS]
            numbers[ROWS] += 1
            out[row, SLOT] = slot
            out[row, THREAD] = thread
            out[row, BEGIN] = nodes[chosen, TIME]
            out[row, END_] = time
            out[row, VALUE_] = nodes[chosen, VALUE]
            out[row, CALL_] = nodes[chosen, CALL]
            for k in range(MORE, nodes.shape[1]):
                out[row, MORE_ + k - MORE] = nodes[chosen, k]
            nodes[chosen, UNDER] = numbers[FREE]
            numbers[FREE] = chosen
    return offsets.size - 1

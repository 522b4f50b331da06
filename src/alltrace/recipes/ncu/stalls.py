"""One row per launch and state of warps: what they waited for."""

from __future__ import annotations

from typing import TYPE_CHECKING

from alltrace.recipes.base import Answer, Chart
from alltrace.recipes.ncu import tables
from alltrace.recipes.ncu.metrics import stalls
from alltrace.recipes.ncu.tables import IDENTITY, identity, typed

if TYPE_CHECKING:
    from collections.abc import Sequence

    from alltrace.recipes.ncu.tables import Profiled

_TYPED = (
    *IDENTITY,
    typed("state", str, None, "why the warp did not issue; `selected` is a warp that did"),
    typed("warps_per_issue", float, None, "warps in this state, on average, per cycle in which an instruction was issued"),
    typed("share_percent", float, "%", "share of the time of all warps; from warps_per_issue, otherwise from samples"),
    typed("samples", int, None, "samples of the program counter that found a warp in this state"),
    typed("meaning", str, None, "what the warp waits for"),
)
COLUMNS = tables.plain(_TYPED)
CHART = Chart("stacked_bars", "name", ("share_percent",), "state", detail="launch", title="What warps waited for")
MEANING = {
    "barrier": "other warps of the block, at a barrier",
    "branch_resolving": "the target of a branch",
    "dispatch_stall": "the dispatcher, which delayed the warp",
    "drain": "stores to finish, after the program's end",
    "gmma": "matrix instructions of a warp group",
    "imc_miss": "a constant that is not in the cache",
    "lg_throttle": "space in the queue of local and global memory instructions",
    "long_scoreboard": "data from global, local, surface or texture memory",
    "math_pipe_throttle": "an arithmetic pipe that is busy",
    "membar": "a memory barrier",
    "mio_throttle": "space in the queue of shared memory and special instructions",
    "misc": "something else",
    "no_instruction": "the next instruction, to be fetched",
    "not_selected": "nothing: ready, but the scheduler selected another warp",
    "selected": "nothing: the warp issued",
    "short_scoreboard": "data from shared memory or a special function",
    "sleeping": "its own sleep",
    "tex_throttle": "space in the queue of texture instructions",
    "wait": "a fixed latency of the previous instruction",
    "warpgroup_arrive": "the other warps of the warp group",
}


def answer(profiled: Sequence[Profiled], notes: Sequence[str]) -> Answer:
    """One row per launch and state, of each launch the largest share first; the notes say which have none."""
    rows = []
    lacking = 0
    for each in profiled:
        found = stalls(each.launch)
        lacking += not found
        column = 0 if any(c is not None for c, _ in found.values()) else 1
        whole = sum(float(v[column] or 0) for v in found.values())
        order = sorted(found, key=lambda s: (-float(found[s][column] or 0), s))
        for state in order:
            cycles, samples = found[state]
            own = found[state][column]
            share = 100 * float(own) / whole if own is not None and whole else None
            rows.append((*identity(each), state, cycles, share, samples, MEANING.get(state)))
    said = list(notes)
    if lacking:
        said.append(
            f"{lacking} of {len(profiled)} launches have no states of warps in their report; "
            "`ncu --section WarpStateStats --section SourceCounters` collects them"
        )
    return Answer(tables.table(_TYPED, rows), COLUMNS, tuple(said), chart=CHART)

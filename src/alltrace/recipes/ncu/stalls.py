"""One row per launch and state of warps: what they waited for."""

from __future__ import annotations

from collections.abc import Sequence

from alltrace.recipes.base import Answer, Chart
from alltrace.recipes.ncu import tables
from alltrace.recipes.ncu.metrics import stalls
from alltrace.recipes.ncu.tables import IDENTITY, Profiled, identity
from alltrace.trace import columns as col

COLUMNS = (
    *IDENTITY,
    col.text("state", "why the warp did not issue; `selected` is a warp that did"),
    col.real("warps_per_issue", "warps in this state, on average, per cycle in which an instruction was issued"),
    col.percent("share_percent", "share of the time of all warps; from warps_per_issue, otherwise from samples", None),
    col.whole("samples", "samples of the program counter that found a warp in this state"),
    col.text("meaning", "what the warp waits for"),
)
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
        states = stalls(each.launch)
        lacking += not states
        column = 0 if any(c is not None for c, _ in states.values()) else 1
        whole = sum(float(v[column] or 0) for v in states.values())
        order = sorted(states, key=lambda s: (-float(states[s][column] or 0), s))
        for state in order:
            cycles, samples = states[state]
            own = states[state][column]
            share = 100 * float(own) / whole if own is not None and whole else None
            rows.append((*identity(each), state, cycles, share, samples, MEANING.get(state)))
    texts = list(notes)
    if lacking:
        texts.append(
            f"{lacking} of {len(profiled)} launches have no states of warps in their report; "
            "`ncu --section WarpStateStats --section SourceCounters` collects them"
        )
    return Answer(tables.table(COLUMNS, rows), COLUMNS, tuple(texts), chart=CHART)

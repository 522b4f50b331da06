"""What the recipes that replay a run share: its graph from all ranks, and what must be said of it."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from alltrace.recipes.analysis.unrecorded import refuse_unrecorded
from alltrace.recipes.base import Answer, Options, Part, RunFacts, alignment_of
from alltrace.recipes.execution.shared_tables import kept_once, once
from alltrace.replay.change import Change, changed_weights, replayed
from alltrace.replay.join import Replay, join
from alltrace.replay.path import blame_ns
from alltrace.replay.peers import Peers, peers_of
from alltrace.replay.rank_graph import RankGraph, rank_graph
from alltrace.replay.work import TABLES as WORK
from alltrace.replay.work import copy_name
from alltrace.run.rank import Rank
from alltrace.trace.amounts import amount
from alltrace.trace.errors import InputError

_TRIED = 3
_LEAST_SHARE = 0.01

TABLES: dict[str, tuple[str, ...]] = {
    "kernels": ("start", "end", "device", "stream", "correlation", "name", "kind"),
    "copies": ("start", "end", "device", "stream", "correlation", "kind"),
    "graphs": ("start", "end", "device", "stream", "correlation", "graph"),
    "mpi": ("start", "end"),
}
"""What a rank must have some of to be replayed."""


def compared(parts: Sequence[Part], run: RunFacts) -> list[Part]:
    """The parts of the ranks whose times are compared with each other: all but those in doubt."""
    return [p for p in parts if p.rank not in alignment_of(run).doubted] or list(parts)


def merged_replay(
    answer: Callable[[Replay, Any, RunFacts, Options], Answer], parts: Sequence[Part], run: RunFacts, options: Options
) -> Answer:
    """What `answer` makes of the joined graph and the members of operations, for a question whose `map` is `graph_of`.

    Raises `InputError`: a rank's reports lost too many records to distinguish waits from work.
    """
    parts = compared(parts, run)
    refuse_unrecorded(run, {p.rank for p in parts})
    members, _ = alignment_tables(run)
    replay = replay_of([p.table for p in parts], run)
    if replay.unplaced is not None:
        raise InputError(
            getattr(run, "path", "the run"),
            found=replay.unplaced,
            expected="the kernels or copies of all, because the replay has no other waits between ranks",
            advice="capture the rank again with cuda in the profiler's list of traces, and graphs by node",
        )
    return answer(replay, members, run, options)


def graph_reads(_options: Options) -> dict[str, tuple[str, ...]]:
    """What graphs are made from."""
    return with_graph(TABLES)


def with_graph(reads: Mapping[str, tuple[str, ...]]) -> dict[str, tuple[str, ...]]:
    """Tables and columns, and those besides that a rank's graph is made from."""
    tables = dict.fromkeys((*reads, *WORK))
    return {t: tuple(dict.fromkeys((*reads.get(t, ()), *WORK.get(t, ())))) for t in tables}


def graph_of(rank: Rank, _options: Options | None = None) -> RankGraph:
    """The rank's graph, made once for all recipes that share the rank's tables, and kept with the run."""
    return kept_once(rank, "graph", (RankGraph,), lambda own: rank_graph(own, matched_rows(own)))


def replay_of(graphs: Sequence[RankGraph], run: RunFacts) -> Replay:
    """The joined graphs of ranks, made once for all recipes that share the run and have the same graphs."""
    # a replay keeps its graphs, so that their identities stay theirs
    sharing = () if run.members is None else run.members.sharing
    return once(run, ("replay", *map(id, graphs)), lambda: join(graphs, *alignment_tables(run), sharing))


def peers_in(replay: Replay, run: RunFacts) -> Peers:
    """What the peers of a replay from `replay_of` take, made once likewise."""
    return once(run, ("peers", id(replay)), lambda: (replay, peers_of(replay, alignment_of(run).members)))[1]


def costliest_rank(replay: Replay, peers: Peers, run: RunFacts) -> tuple[int, int] | None:
    """The rank that would save most at its peers' pace, and how much, ns; None if little. A few ranks are tried."""

    def find() -> tuple[int, int] | None:
        if len(replay.parts) < 2 or alignment_of(run).matching_reason is not None:
            return None
        blame, _ = blame_ns(replay, peers)
        before, _ = replayed(replay, replay.weights)
        saved = {
            rank: before - replayed(replay, changed_weights(replay, peers, Change(ranks=frozenset([rank]))))[0]
            for rank in sorted(blame, key=lambda r: -blame[r])[:_TRIED]
        }
        best = max(saved, key=lambda r: saved[r])
        return (best, saved[best]) if saved[best] >= max(_LEAST_SHARE * before, 1) else None

    return once(run, ("costliest rank", id(replay)), lambda: (replay, find()))[1]


def other_culprit(replay: Replay, peers: Peers, run: RunFacts, named: Collection[int], why: str) -> list[str]:
    """A note if the rank that would save most is not among those that an answer names first, or cannot be known."""
    reason = alignment_of(run).matching_reason
    if named and reason is not None:
        return [f"it is unknown which ranks wait for which: {reason}"]
    best = costliest_rank(replay, peers, run)
    if best is None or not named or best[0] in named:
        return []
    rank, saved = best
    return [
        f"rank {rank} would save the most, {amount(saved, 'ns', 3)}, if it took as long as its peers; rank "
        f"{min(named)} is listed first because {why}"
    ]


def matched_rows(rank: Rank) -> Any:
    """The rows of a rank's `collectives` that are members of an instance: int64 array."""
    members = rank.shared("members")
    return np.empty(0, np.int64) if members is None else members.column("row").to_numpy().astype(np.int64)


def alignment_tables(run: RunFacts) -> tuple[Any, Any]:
    """The members of all instances and the steps, aligned."""
    alignment = alignment_of(run)
    return alignment.members, alignment.steps


def replay_notes(replay: Replay, members: Any) -> list[str]:
    """What must be said of every answer from a replay."""
    notes = []
    if len(replay.when) > 1:
        notes.append(f"the replay error is {100 * replay.error:.2f} %")
    if replay.parts and not members.num_rows:
        notes.append("no collective is matched across ranks, so no rank waits for another here")
    has_error = members.column("error_ns").null_count < members.num_rows if members.num_rows else True
    if not has_error:
        notes.append("the clock error is unknown, so waits between hosts may be clock errors")
    elif members.num_rows and members.column("error_ns").null_count:
        notes.append("some hosts' clocks are not connected by collectives, so waits between them may be clock errors")
    if len(replay.graph.dropped):
        notes.append(f"{len(replay.graph.dropped)} dependencies run backward in time and are left out")
    return notes


def name_texts(run: RunFacts, names: Any) -> list[str]:
    """The text of each name of device work (`alltrace.replay.work.Work.name`), in order."""
    kinds = {
        copy_name(w): f"copy {w}" for w in ("HtoD", "DtoH", "DtoD", "HtoH", "PtoP", "AtoD", "DtoA", "AtoA", "memset")
    }
    kinds[copy_name("graph")] = "CUDA graph"
    names = np.asarray(names, np.int64)
    texts = run.texts(pa.array(names)).to_pylist() if len(names) else []
    # ids of names are of all 64 bits, so that a negative one can be a kernel's
    return [kinds.get(n) or t or ("copy" if n < 0 else "") for n, t in zip(names.tolist(), texts, strict=True)]

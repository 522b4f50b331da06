"""How long the run would take if a rank, an operation, a communicator or a kernel took as long as its peers.

The run is replayed as a graph of what waits for what (see `critical-path`) with changed durations: a rank's kernels and
copies at the median of other ranks' means, its host's time of each step at their median; a transfer at the median of
all of its operation, size and number of members; or everything chosen times `--scale`. Without a choice each rank,
operation and communicator is tried, and the one that would save most comes first. A replay that is more than 5 % away
from the unchanged run is refused.
"""

import re
from collections.abc import Mapping
from functools import partial
from typing import Any

import numpy as np

from alltrace.recipes.analysis.run_replay import (
    TABLES,
    graph_of,
    graph_reads,
    merged_replay,
    name_texts,
    other_culprit,
    peers_in,
    replay_notes,
)
from alltrace.recipes.base import Answer, Chart, Option, Options, Question, RunFacts, alignment_of
from alltrace.replay.change import Change, changed_weights, replayed
from alltrace.replay.graph import times
from alltrace.replay.join import Replay
from alltrace.replay.path import blame_ns
from alltrace.replay.peers import Peers
from alltrace.replay.slowdown import share_recovered, slowdown, slowdown_by, worst
from alltrace.trace import columns as col
from alltrace.trace.errors import InputError, UsageError
from alltrace.trace.user_pattern import UserPattern

_MOST_RANKS = 64

COLUMNS: col.Columns = (
    col.text("what", "what changes: rank, op, communicator or kernel, with its name; only `rank` for one rank"),
    col.rank("rank", "the rank, if one rank changes"),
    col.device(),
    col.text("duration", "the new duration: the peers' median, or its own times the scale"),
    col.whole("step", "the step, or null for the whole run"),
    col.ns("before_ns", "time of the replayed run or step without the change"),
    col.ns("after_ns", "time with the change"),
    col.ns("saved_ns", "the difference; negative if the change makes the run longer"),
    col.percent("saved_percent", "saved_ns as a share of before_ns", None),
)


def _answer(replay: Replay, members: Any, run: RunFacts, options: Options) -> Answer:
    _check(options)
    if 100 * replay.error > options["max_error"]:
        raise InputError(
            getattr(run, "path", "the run"),
            found=f"the replay error is {100 * replay.error:.1f} %",
            expected=f"at most {options['max_error']:g} %",
            advice="look at `critical-path`, whose class idle is what no dependency explains",
        )
    notes = replay_notes(replay, members)
    rows: list[dict[str, Any]] = []
    extra = {}
    if replay.parts:
        peers = peers_in(replay, run)
        chosen = any(options[o] is not None for o in ("rank", "op", "communicator", "kernel"))
        changes = (
            [_chosen(peers, members, run, options)] if chosen else _all(replay, peers, members, run, options, notes)
        )
        before, steps_before = replayed(replay, replay.weights)
        for label, change in changes:
            after, steps_after = replayed(replay, changed_weights(replay, peers, change))
            head = {"what": label, "rank": _one_rank(change), "duration": _duration(options["scale"])}
            rows.append(head | _row(None, before, after))
            if options["per_step"]:
                rows += [head | _row(s, steps_before[s], steps_after[s]) for s in steps_before]
        if not chosen and not options["per_step"]:
            rows.sort(key=lambda r: -r["saved_ns"])
            first = next((r["rank"] for r in rows if r["rank"] is not None), None)
            notes += other_culprit(replay, peers, run, [] if first is None else [first], "--scale takes no peers")
        extra = {"slowdown": _slowdowns(replay, peers, run)}
    return Answer.of(rows, COLUMNS, tuple(notes), extra)


def _one_rank(change: Change) -> int | None:
    return next(iter(change.ranks)) if change.ranks is not None and len(change.ranks) == 1 else None


def _row(step: int | None, before: int, after: int) -> dict[str, Any]:
    saved = before - after
    share = 100 * saved / before if before else 0.0
    return {"step": step, "before_ns": before, "after_ns": after, "saved_ns": saved, "saved_percent": share}


def _check(options: Mapping[str, Any]) -> None:
    scale = options["scale"]
    if scale is not None and not 0 <= scale < 1_000:
        raise UsageError(f"--scale is {scale}; expected a factor from 0 to less than 1000")
    if options["rank"] is not None and (options["op"] is not None or options["communicator"] is not None):
        raise UsageError("--rank does not go with --op or --communicator: a transfer belongs to all of its ranks")
    if options["kernel"] is not None:
        UserPattern("--kernel", options["kernel"])


def _duration(scale: float | None) -> str:
    return "peers' median" if scale is None else f"times {scale:g}"


def _chosen(peers: Peers, members: Any, run: RunFacts, options: Mapping[str, Any]) -> tuple[str, Change]:
    scale, labels = options["scale"], []
    ranks = names = instances = None
    if options["rank"] is not None:
        devices, wanted = run.members, _ranks(options["rank"])
        replayed_ranks = peers.pace.ranks.tolist()
        unknown = sorted(set(wanted) - set(replayed_ranks if devices is None else devices.ranks(replayed_ranks)))
        if unknown:
            raise UsageError(f"rank {unknown[0]} is not among those replayed; see `alltrace info`")
        ranks = frozenset(wanted if devices is None else devices.numbers(wanted))
        several = f"ranks {options['rank']}" if devices is None else devices.words(ranks)
        labels.append("rank" if len(ranks) == 1 else several)
    if options["kernel"] is not None:
        texts = name_texts(run, peers.pace.names)
        hits = UserPattern("--kernel", options["kernel"]).matches(texts)
        names = frozenset(n for n, hit in zip(peers.pace.names.tolist(), hits, strict=True) if hit)
        if not names:
            raise UsageError(f"no kernel's name contains {options['kernel']!r}; `alltrace kernels` lists them")
        labels.append(f"kernels {options['kernel']}")
    if options["op"] is not None or options["communicator"] is not None:
        instances = _instances(members, run, options)
        labels += [f"{o} {options[o]}" for o in ("op", "communicator") if options[o] is not None]
    return ", ".join(labels), Change(ranks=ranks, names=names, instances=instances, scale=scale)


def _ranks(text: str) -> list[int]:
    numbers: list[int] = []
    for piece in text.split(","):
        match = re.fullmatch(r"\s*(\d{1,7})(?:-(\d{1,7}))?\s*", piece)
        if not match:
            raise UsageError(f"--rank is {text!r}; expected numbers such as 3,8-11")
        first, last = int(match[1]), int(match[2] or match[1])
        if last < first or last - first > 1_000_000:
            raise UsageError(f"--rank is {text!r}; expected the lower number first")
        numbers += range(first, last + 1)
    return numbers


def _instances(members: Any, run: RunFacts, options: Mapping[str, Any]) -> Any:
    """Which instances are of the operation and communicator wanted, as a boolean array by instance."""
    count = int(members.column("instance").to_numpy().max(initial=-1)) + 1
    wanted = np.ones(members.num_rows, np.bool_)
    if options["op"] is not None:
        op = members.column("op").combine_chunks()
        ops = op.dictionary.to_pylist() if members.num_rows else []
        same = [code for code, o in enumerate(ops) if o and o.lower() == options["op"].lower()]
        if not same:
            there = ", ".join(sorted(o for o in ops if o))
            raise UsageError(f"no matched operation is called {options['op']}; the run has {there or 'none'}")
        wanted &= np.isin(op.indices.fill_null(-1).to_numpy(zero_copy_only=False), same)
    if options["communicator"] is not None:
        name = options["communicator"]
        numbers = [g.number for g in alignment_of(run).groups if name in (g.name, str(g.number))]
        if not numbers:
            raise UsageError(f"no communicator is called {name}; `alltrace collectives` lists them")
        wanted &= np.isin(members.column("communicator").to_numpy(), numbers)
    chosen = np.zeros(max(count, 1), np.bool_)
    chosen[members.column("instance").to_numpy()[wanted]] = True
    return chosen


def _all(
    replay: Replay, peers: Peers, members: Any, run: RunFacts, options: Mapping[str, Any], notes: list[str]
) -> list[tuple[str, Change]]:
    """Every rank, operation and communicator; of many ranks those with most blame."""
    scale = options["scale"]
    ranks = peers.pace.ranks.tolist()
    if len(ranks) > _MOST_RANKS:
        blame, _ = blame_ns(replay, peers)
        ranks = sorted(sorted(ranks, key=lambda r: -blame[r])[:_MOST_RANKS])
        notes.append(
            f"of {len(peers.pace.ranks)} ranks the {_MOST_RANKS} with most blame on the critical path are tried"
        )
    changes = [("rank", Change(ranks=frozenset([r]), scale=scale)) for r in ranks]
    if members.num_rows:
        for op in sorted({o for o in members.column("op").unique().to_pylist() if o}):
            chosen = _instances(members, run, {"op": op, "communicator": None})
            changes.append((f"op {op}", Change(instances=chosen, scale=scale)))
        several = np.unique(members.column("communicator").to_numpy()).tolist()
        for number in several if 1 < len(several) <= _MOST_RANKS else ():
            group = next(g for g in alignment_of(run).groups if g.number == number)
            chosen = _instances(members, run, {"op": None, "communicator": str(number)})
            changes.append((f"communicator {group.name}", Change(instances=chosen, scale=scale)))
    return changes


def _slowdowns(replay: Replay, peers: Peers, run: RunFacts) -> list[dict[str, Any]]:
    """The slowdown against a run in which all takes as long as its peers: of the whole, by class, and by rank."""
    everything = np.ones(int(replay.instance.max(initial=0)) + 1, np.bool_)
    all_ranks = frozenset(peers.pace.ranks.tolist())
    actual = replay.weights
    ideal = changed_weights(replay, peers, Change(ranks=all_ranks, instances=everything))
    transfers = changed_weights(replay, peers, Change(instances=everything))

    def evaluate(weights: Any) -> float:
        return float(times(replay.graph, weights)[0].max(initial=0))

    best = evaluate(ideal)
    rows = [{"what": "run", "slowdown": slowdown(evaluate, actual, ideal)}]
    transfer = replay.instance >= 0
    rows.append({"what": "transfers", "slowdown": evaluate(np.where(transfer, actual, ideal)) / best if best else 1.0})
    rows.append({"what": "computation, copies and host", "slowdown": evaluate(transfers) / best if best else 1.0})
    if len(peers.pace.ranks) <= 4 * _MOST_RANKS:
        rank = np.where(transfer, -1, replay.rank[replay.graph.target])
        by_rank = slowdown_by(evaluate, actual, ideal, rank)
        by_rank.pop(-1, None)
        named = {r: f"rank {r}" if run.members is None else run.members.words([r]) for r in by_rank}
        rows += [{"what": named[r], "slowdown": s} for r, s in sorted(by_rank.items(), key=lambda i: (-i[1], i[0]))]
        share = share_recovered(evaluate, actual, ideal, np.isin(rank, worst(by_rank)))
        rows.append({"what": "share regained by the worst 3 % of ranks", "slowdown": share})
    return rows


QUESTION = Question(
    "whatif",
    __doc__,
    COLUMNS,
    graph_of,
    partial(merged_replay, _answer),
    tables=TABLES,
    reading=graph_reads,
    options=(
        Option("rank", str, None, "the ranks to change, such as 3,8-11"),
        Option("op", str, None, "the collective operation to change, such as AllReduce"),
        Option("communicator", str, None, "the communicator to change, by its name in `collectives` or its number"),
        Option("kernel", str, None, "the kernels to change: a regular expression to find in their names"),
        Option("scale", float, None, "multiply by this, instead of taking the peers' median"),
        Option("max_error", float, 5.0, "refuse to answer if the replay error is larger, in %"),
        Option("per_step", bool, False, "add the time of every step"),
    ),
    chart=Chart("bars", "what", ("saved_ns",), detail="rank", title="What the run would save"),
    clock="aligned",
    kept_parts=("graph",),
    of_hosts=True,
    of_devices=True,
    important=("what", "saved_ns", "saved_percent", "before_ns", "after_ns"),
)

"""Flight records: which rank is missing in which collective, where a hang is, and how long operations took.

The ranks of a group issue the same collectives in the same order, so the k-th one must be on all of them. The recorder
keeps the last entries only, so a group is analyzed from the first sequence number that all its ranks still have.
"""

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from statistics import fmean, median
from typing import Any

from alltrace.recipes.analysis.recorded_steps import CapturedSteps, RecordedSteps, recorded_steps, slowdown_by_recorder
from alltrace.recipes.base import Answer, Chart
from alltrace.recipes.logs import whole_characters
from alltrace.trace import columns as col
from alltrace.trace.errors import path_text
from alltrace.trace.number_text import numbered

VIEWS = ("hangs", "entries", "times", "steps")
_MOST_ROWS_A_GROUP = 20
COLUMNS: dict[str, col.Columns] = {
    "hangs": (
        col.text("group", "The process group"),
        col.text("description", "Its name in the program"),
        col.whole("sequence", "The collective's number in the group"),
        col.text(
            "kind",
            "`missing`: ranks never issued it; `mismatch`: they issued another operation; `size mismatch`, `type"
            " mismatch`: other sizes or data types; `not completed`: all issued it, and it did not end; `unmatched"
            " send`, `unmatched receive`: the peer never issued the other end; `no dump`: ranks of the group have no"
            " file",
        ),
        col.text("op", "The operation of most ranks"),
        col.text("sizes", "Its input sizes on most ranks"),
        col.numbers("missing_ranks", "Ranks that did not issue it, or issued something else"),
        col.numbers("waiting_ranks", "Ranks that issued it and have not completed it"),
        col.numbers("completed_ranks", "Ranks that completed it"),
        col.text("found", "What the ranks of a mismatch issued instead; otherwise the last of the missing ranks"),
        col.text("frame", "The source line that issued it"),
    ),
    "entries": (
        col.whole("rank", "The rank"),
        col.text("group", "The process group"),
        col.whole("sequence", "Its number in the group"),
        col.text("op", "The operation"),
        col.text("state", "scheduled, started or completed"),
        col.size("bytes", "Bytes of its input; null if the type is unknown"),
        col.text("sizes", "Shapes of its inputs"),
        col.text("datatypes", "Their types"),
        col.whole("peer", "The peer of a point-to-point operation"),
        col.ns("created_ns", "When it was issued, since 1970"),
        col.real("duration_us", "Its duration, if measured", "us"),
        col.text("frame", "The source line that issued it"),
    ),
    "times": (
        col.text("op", "The operation"),
        col.size("bytes", "The size"),
        col.whole("operations", "Operations with a time, over all ranks"),
        col.real("min_us", "The shortest", "us"),
        col.real("median_us", "The median, exact", "us"),
        col.real("mean_us", "The mean", "us"),
        col.real("max_us", "The longest", "us"),
        col.whole("max_rank", "The rank of the longest"),
    ),
    "steps": (
        col.whole("rank", "The rank"),
        col.ns("start_ns", "When the first collective of the step was issued, since 1970"),
        col.real("duration_us", "Until the first collective of the next step was issued", "us"),
        col.whole("collectives", "How many collectives a step has, after which the same come again"),
        col.flag(
            "captured", "With `--run`: whether it lies within the capture; null for a step that is partly outside of it"
        ),
    ),
}
CHARTS = {"times": Chart("scatter", "bytes", ("median_us",), "op", title="Median time by size", log_x=True, log_y=True)}


def answer(recordings: Sequence[Any], view: str, captured: Mapping[int, CapturedSteps] | None = None) -> Answer:
    """The answer to a view (`VIEWS`) of dumps; `captured`: for `steps`, what a run of the job says of each rank."""
    further: list[str] = []
    if view == "steps":
        rows, further = _steps(recordings, captured)
    else:
        rows = {"hangs": _hangs, "entries": _entries, "times": _times}[view](recordings)
    notes = [
        f"{path_text(r.path)}: flight recorder {r.version}, {len(r.entries)} entries of ranks "
        f"{', '.join(map(str, r.ranks[:8]))}; {r.unread} not understood"
        for r in recordings[:20]
    ]
    notes += [f"{path_text(r.path)}: {r.damage}; what came before was read" for r in recordings if r.damage]
    notes += [f"{path_text(r.path)}: {r.goes_on}" for r in recordings if r.goes_on]
    if len(recordings) > 20:
        rest = recordings[20:]
        notes.append(
            f"{len(rest)} more files: {sum(len(r.entries) for r in rest)} entries; {sum(r.unread for r in rest)} not"
            " understood"
        )
    notes += further
    if view == "hangs" and not rows:
        notes.append(
            "every operation that all ranks still have in their records was issued by all of them, alike, and completed"
        )
    return Answer.of(whole_characters(rows), COLUMNS[view], tuple(notes), chart=CHARTS.get(view))


def _steps(
    recordings: Sequence[Any], captured: Mapping[int, CapturedSteps] | None
) -> tuple[list[dict[str, Any]], list[str]]:
    """The steps of all ranks, and what must be said of them."""
    entries: dict[int, list[Any]] = defaultdict(list)
    for recording in recordings:
        for entry in recording.entries:
            entries[entry.rank].append(entry)
    usable, without, absent = [], [], []
    for rank, its in sorted(entries.items()):
        if captured is not None and rank not in captured:
            absent.append(rank)
            continue
        steps = recorded_steps(its, rank, None if captured is None else captured[rank])
        if steps is None:
            without.append(rank)
        else:
            usable.append(steps)
    notes = []
    if absent:
        notes.append(f"the run has no steps of {numbered('rank', absent)}, so their records are not compared with it")
    if without:
        why = (
            "the same collectives do not come again and again"
            if captured is None
            else "the run's steps cannot be found in them"
        )
        notes.append(f"no steps in the records of {numbered('rank', without)}: {why}")
    slowdown = slowdown_by_recorder(usable)
    if slowdown is not None:
        notes.append(slowdown.text)
    elif captured is not None and usable:
        notes.append(
            "fewer than 3 recorded steps lie within the capture or fewer than 5 outside of it, so they are not compared"
        )
    rows = [
        {"rank": s.rank, "start_ns": start, "duration_us": took / 1e3, "collectives": s.period, "captured": within}
        for s in usable
        for start, took, within in zip(s.starts.tolist(), s.took_ns.tolist(), _captured(s), strict=True)
    ]
    return rows, notes


def _captured(steps: RecordedSteps) -> list[bool | None]:
    if steps.captured is None or steps.outside is None:
        return [None] * len(steps.starts)
    return [
        True if a else False if b else None
        for a, b in zip(steps.captured.tolist(), steps.outside.tolist(), strict=True)
    ]


def _entries(recordings: Sequence[Any]) -> list[dict[str, Any]]:
    names = [c.name for c in COLUMNS["entries"]]
    rows = [{name: getattr(e, name) for name in names} for r in recordings for e in r.entries]
    return sorted(rows, key=lambda r: (r["group"], r["sequence"], r["rank"]))


def _times(recordings: Sequence[Any]) -> list[dict[str, Any]]:
    groups: dict[tuple[str, int], list[Any]] = defaultdict(list)
    for r in recordings:
        for e in r.entries:
            if e.duration_us is not None:
                groups[e.op, -1 if e.bytes is None else e.bytes].append(e)
    rows = []
    for (op, size), its in sorted(groups.items()):
        times = [e.duration_us for e in its]
        longest = max(its, key=lambda e: e.duration_us)
        rows.append(
            {
                "op": op,
                "bytes": None if size < 0 else size,
                "operations": len(its),
                "min_us": min(times),
                "median_us": median(times),
                "mean_us": fmean(times),
                "max_us": longest.duration_us,
                "max_rank": longest.rank,
            }
        )
    return rows


def _hangs(recordings: Sequence[Any]) -> list[dict[str, Any]]:
    present: set[int] = {rank for r in recordings for rank in r.ranks}
    cut: set[int] = {rank for r in recordings if r.damage for rank in r.ranks}
    members: dict[str, set[int]] = defaultdict(set)
    descriptions: dict[str, str] = {}
    entries: dict[str, dict[int, dict[int, Any]]] = defaultdict(lambda: defaultdict(dict))
    messages: dict[str, list[Any]] = defaultdict(list)
    for r in recordings:
        for name, its in r.groups.items():
            members[name] |= set(its)
        descriptions.update(r.descriptions)
        for e in r.entries:
            messages[e.group].append(e)
            if e.p2p:
                entries[e.group]  # of a group with messages alone
            else:
                members[e.group].add(e.rank)
                # a group of coalesced operations has one number; its first entry is used
                entries[e.group][e.rank].setdefault(e.sequence, e)
    rows: list[dict[str, Any]] = []
    for group, by_rank in sorted(entries.items()):
        base = {"group": group, "description": descriptions.get(group, "")}
        rows += [{**base, **row} for row in _of_group(by_rank, members[group], present, cut)]
        rows += [{**base, **row} for row in _of_messages(messages[group], sorted(members[group]), cut)]
        unseen = sorted(members[group] - present)
        if unseen:
            rows.append({**base, "kind": "no dump", "missing_ranks": unseen})
    return rows


def _of_group(
    by_rank: dict[int, dict[int, Any]], members: set[int], present: set[int], cut: set[int]
) -> list[dict[str, Any]]:
    """What is wrong in a group, in order, without consequences; what ranks of `cut` did later is not known."""
    its = sorted(members & present)
    begin = max((min(by_rank[r]) for r in its if by_rank.get(r)), default=0)
    numbers = sorted({n for r in its for n in by_rank.get(r, {}) if n >= begin})
    rows: list[dict[str, Any]] = []
    gone: set[int] = set()
    for number in numbers:
        here = {r: by_rank[r][number] for r in its if number in by_rank.get(r, {})}
        missing = [r for r in its if r not in here and (r not in cut or number <= max(by_rank.get(r, {}), default=-1))]
        kinds = Counter((e.op, e.sizes, e.datatypes, e.output_sizes, e.output_datatypes) for e in here.values())
        most = kinds.most_common(1)[0][0]
        op, sizes = most[:2]
        usual = next(
            e for e in here.values() if (e.op, e.sizes, e.datatypes, e.output_sizes, e.output_datatypes) == most
        )
        other = {r: kind for r, e in here.items() if (kind := difference(e, usual, len(members)))}
        same = {r: e for r, e in here.items() if r not in other}
        completed = sorted(r for r, e in same.items() if e.state == "completed" or e.retired)
        waiting = sorted(r for r in same if r not in completed)
        row = {
            "sequence": number,
            "op": op,
            "sizes": sizes,
            "waiting_ranks": waiting,
            "completed_ranks": completed,
            "frame": usual.frame,
        }
        for kind in dict.fromkeys(other.values()):
            odd = [r for r, its_kind in other.items() if its_kind == kind]
            others = "; ".join(f"rank {r}: {_shown(here[r])}" for r in odd[:4])
            rows.append({**row, "kind": kind, "missing_ranks": sorted(odd), "found": others})
        new = [r for r in missing if r not in gone]
        if new:
            gone |= set(new)
            rows.append({**row, "kind": "missing", "missing_ranks": new, "found": _last(by_rank, new[0])})
        elif waiting and not missing and not other:
            rows.append({**row, "kind": "not completed", "missing_ranks": [], "found": ""})
        if len(rows) >= _MOST_ROWS_A_GROUP:
            break
    return rows


_UNEVEN = ("all_to_all", "alltoall", "scatter", "gather")
"""What may have other sizes on each rank; `reduce_scatter` and `all_gather` are none of these."""


def _uneven(op: str) -> bool:
    return (op.startswith(_UNEVEN) and not op.startswith("gather_into")) or op.startswith("ALLTOALL")


def difference(entry: Any, usual: Any, members: int) -> str | None:
    """How a rank's part differs from most ranks', or is impossible, as classed by PyTorch's analyser."""
    if entry.op != usual.op:
        return "mismatch"
    if not _uneven(entry.op):
        rooted = entry.op in ("reduce", "broadcast")  # a rank that is not the root may have no input
        if entry.sizes != usual.sizes and not (rooted and "[]" in (entry.sizes, usual.sizes)):
            return "size mismatch"
        if entry.output_sizes != usual.output_sizes and not (
            rooted and "[]" in (entry.output_sizes, usual.output_sizes)
        ):
            return "size mismatch"
        if members and not _possible(entry, members):
            return "size mismatch"
    for own, most in ((entry.datatypes, usual.datatypes), (entry.output_datatypes, usual.output_datatypes)):
        if own != most and own and most and set(own.split(", ")) != set(most.split(", ")):
            return "type mismatch"
    return None


def _possible(entry: Any, members: int) -> bool:
    """Whether a rank's output has as many elements as its input needs."""
    if entry.elements is None or not all(entry.elements):
        return True
    taken, result = entry.elements
    op = entry.op.strip("_")
    if op.startswith(("all_reduce", "allreduce")):
        return bool(taken == result)
    if op in ("all_gather_base", "all_gather_into_tensor"):
        return bool(result == taken * members)
    if op in ("reduce_scatter_base", "reduce_scatter_tensor"):
        return bool(taken == result * members)
    return True


def _shown(entry: Any) -> str:
    return f"{entry.op} {entry.sizes} {entry.datatypes} to {entry.output_sizes} {entry.output_datatypes}"


def _of_messages(entries: list[Any], members: Sequence[int], cut: set[int]) -> list[dict[str, Any]]:
    """Sends and receives of a group that have no other end, or one of another size or type.

    The k-th send from one rank to another belongs to its k-th receive. If records do not reach back to a rank's first
    operation, only operations that have not ended are matched. An end on a rank of `cut`, whose dump is damaged, may
    only be lost.
    """
    whole = {
        r: min((e.number for e in entries if e.rank == r and e.number is not None), default=1) <= 1 for r in members
    }
    ends: dict[tuple[int, int], tuple[list[Any], list[Any]]] = defaultdict(lambda: ([], []))
    for e in entries:
        if e.p2p and e.ends is not None:
            ends[e.ends][0 if e.op.lower().startswith("send") else 1].append(e)
    ranks = dict(enumerate(members))
    rows: list[dict[str, Any]] = []
    for (source, target), sides in sorted(ends.items()):
        there = [r for r in (ranks.get(source), ranks.get(target)) if r is not None and r in whole]
        if len(there) < 2:
            continue
        if not all(whole[r] for r in there):
            sides = tuple([e for e in side if e.state != "completed" and not e.retired] for side in sides)  # type: ignore[assignment]
        sends, receives = (sorted(side, key=lambda e: (e.number or 0, e.sequence)) for side in sides)
        for one, other in zip(sends, receives, strict=False):
            kind = "size mismatch" if one.sizes != other.output_sizes else "type mismatch"
            if kind == "size mismatch" or (
                one.datatypes and other.output_datatypes and one.datatypes != other.output_datatypes
            ):
                other_end = f"rank {there[1]}: {_shown(other)}"
                rows.append(_message(one, kind, [there[1]], [there[0]], other_end))
        for side, rest, kind in (
            (there[1], sends[len(receives) :], "unmatched send"),
            (there[0], receives[len(sends) :], "unmatched receive"),
        ):
            if side not in cut:
                rows += [_message(e, kind, [side], [e.rank], "") for e in rest[:_MOST_ROWS_A_GROUP]]
    return rows[:_MOST_ROWS_A_GROUP]


def _message(entry: Any, kind: str, missing: list[int], waiting: list[int], other_end: str) -> dict[str, Any]:
    done = entry.state == "completed" or entry.retired
    return {
        "sequence": entry.sequence,
        "kind": kind,
        "op": entry.op,
        "sizes": entry.sizes if kind.endswith("send") or "mismatch" in kind else entry.output_sizes,
        "missing_ranks": missing,
        "waiting_ranks": [] if done else waiting,
        "completed_ranks": waiting if done else [],
        "found": other_end,
        "frame": entry.frame,
    }


def _last(by_rank: dict[int, dict[int, Any]], rank: int) -> str:
    its = by_rank.get(rank)
    if not its:
        return f"rank {rank}: nothing"
    last = its[max(its)]
    return f"rank {rank}: last issued {last.op}, sequence {last.sequence}, {last.state}"

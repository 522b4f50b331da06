"""Flight records: which rank is missing in which collective, where a hang is, and how long operations took.

The ranks of a group issue the same collectives in the same order, so the k-th one must be on all of them. The recorder keeps the
last entries only, so a group is looked at from the first sequence number on that all its ranks still have.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from statistics import fmean, median
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from alltrace.recipes.base import Answer, AnswerColumn, Chart
from alltrace.trace.errors import path_text

if TYPE_CHECKING:
    from collections.abc import Sequence

VIEWS = ("hangs", "entries", "times")
_MOST_ROWS_A_GROUP = 20
_MOST_RANKS = 1 << 20
COLUMNS: dict[str, tuple[AnswerColumn, ...]] = {
    "hangs": (
        AnswerColumn("group", None, "The process group, or the communicator's id"),
        AnswerColumn("description", None, "What the program calls it"),
        AnswerColumn("sequence", None, "The collective's number in the group"),
        AnswerColumn(
            "kind",
            None,
            "`missing`: ranks never issued it; `mismatch`: they issued another operation or size; `not completed`: "
            "all issued it and it did not end; `no dump`: ranks of the group have no file",
        ),
        AnswerColumn("op", None, "The operation of most ranks"),
        AnswerColumn("sizes", None, "Its input sizes on most ranks"),
        AnswerColumn("missing_ranks", None, "Ranks that did not issue it, or issued something else"),
        AnswerColumn("waiting_ranks", None, "Ranks that issued it and have not completed it"),
        AnswerColumn("completed_ranks", None, "Ranks that completed it"),
        AnswerColumn("found", None, "What the ranks of a mismatch issued instead; else the last that the missing ranks issued"),
        AnswerColumn("frame", None, "The program's line of it"),
    ),
    "entries": (
        AnswerColumn("rank", None, "The rank"),
        AnswerColumn("group", None, "The process group, or the communicator's id"),
        AnswerColumn("sequence", None, "Its number in the group"),
        AnswerColumn("op", None, "The operation"),
        AnswerColumn("state", None, "scheduled, started or completed"),
        AnswerColumn("bytes", "bytes", "Bytes of its input; of the message with Inspector; null where the type is not known"),
        AnswerColumn("sizes", None, "Shapes of its inputs"),
        AnswerColumn("datatypes", None, "Their types"),
        AnswerColumn("peer", None, "The peer of a point-to-point operation"),
        AnswerColumn("created_ns", "ns", "When it was issued, since 1970"),
        AnswerColumn("duration_us", "us", "How long it took, where that was measured"),
        AnswerColumn("busbw_gb_per_s", "GB/s", "Its bus bandwidth, from Inspector"),
        AnswerColumn("frame", None, "The program's line that issued it"),
    ),
    "times": (
        AnswerColumn("op", None, "The operation"),
        AnswerColumn("bytes", "bytes", "The size"),
        AnswerColumn("operations", None, "Operations with a time, over all ranks"),
        AnswerColumn("min_us", "us", "The shortest"),
        AnswerColumn("median_us", "us", "The median, exact"),
        AnswerColumn("mean_us", "us", "The mean"),
        AnswerColumn("max_us", "us", "The longest"),
        AnswerColumn("max_rank", None, "The rank of the longest"),
        AnswerColumn("busbw_gb_per_s", "GB/s", "The median bus bandwidth, from Inspector"),
    ),
}
CHARTS = {"times": Chart("scatter", "bytes", ("median_us",), "op", title="Median time by size", log_x=True, log_y=True)}


def answer(recordings: Sequence[Any], view: str) -> Answer:
    """The answer to a view of files that `alltrace.readers.flight_recorder.read.read_recording` read."""
    rows = {"hangs": _hangs, "entries": _entries, "times": _times}[view](recordings)
    whole = ("rank", "sequence", "bytes", "peer", "created_ns", "operations", "max_rank")
    number = ("duration_us", "busbw_gb_per_s", "min_us", "median_us", "mean_us", "max_us")
    lists = ("missing_ranks", "waiting_ranks", "completed_ranks")
    types: dict[str, Any] = {**dict.fromkeys(whole, pa.int64()), **dict.fromkeys(number, pa.float64())}
    types |= dict.fromkeys(lists, pa.list_(pa.int64()))
    schema = pa.schema([(c.name, types.get(c.name, pa.string())) for c in COLUMNS[view]])
    notes = [
        f"{path_text(r.path)}: {r.kind} {r.version}, {len(r.entries)} entries of ranks {', '.join(map(str, r.ranks[:8]))}; "
        f"{r.unread} not understood"
        for r in recordings[:20]
    ]
    if len(recordings) > 20:
        rest = recordings[20:]
        notes.append(
            f"{len(rest)} more files: {sum(len(r.entries) for r in rest)} entries; {sum(r.unread for r in rest)} not understood"
        )
    notes += [f"{path_text(r.path)}: {r.damage}" for r in recordings if r.damage]
    if view == "hangs" and not rows:
        notes.append("every collective that all ranks still have in their records was issued by all of them, and completed")
    for row in rows:  # JSON can write half of a character, which is no text
        row.update({k: v.encode("utf-8", "replace").decode() for k, v in row.items() if isinstance(v, str) and not v.isascii()})
    return Answer(pa.Table.from_pylist(rows, schema), COLUMNS[view], tuple(notes), chart=CHARTS.get(view))


def _entries(recordings: Sequence[Any]) -> list[dict[str, Any]]:
    attributes = {c.name: c.name.removesuffix("_gb_per_s") for c in COLUMNS["entries"]}
    rows = [{name: getattr(e, its) for name, its in attributes.items()} for r in recordings for e in r.entries]
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
        speeds = [e.busbw for e in its if e.busbw is not None]
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
                "busbw_gb_per_s": median(speeds) if speeds else None,
            }
        )
    return rows


def _hangs(recordings: Sequence[Any]) -> list[dict[str, Any]]:
    present: set[int] = {rank for r in recordings for rank in r.ranks}
    members: dict[str, set[int]] = defaultdict(set)
    sizes: dict[str, int] = {}
    descriptions: dict[str, str] = {}
    entries: dict[str, dict[int, dict[int, Any]]] = defaultdict(lambda: defaultdict(dict))
    for r in recordings:
        for name, its in r.groups.items():
            members[name] |= set(its)
        sizes.update(r.sizes)
        descriptions.update(r.descriptions)
        for e in r.entries:
            if not e.p2p:
                members[e.group].add(e.rank)
                # a group of coalesced operations has one number; its first entry stands for it
                entries[e.group][e.rank].setdefault(e.sequence, e)
    rows: list[dict[str, Any]] = []
    for group, by_rank in sorted(entries.items()):
        base = {"group": group, "description": descriptions.get(group, "")}
        rows += [{**base, **row} for row in _of_group(by_rank, members[group], present)]
        unseen = sorted(members[group] - present)
        if 0 < sizes.get(group, 0) <= _MOST_RANKS:  # Inspector tells the number of a communicator's ranks, not who they are
            unseen = sorted(set(range(sizes[group])) - set(by_rank))
        if unseen:
            rows.append({**base, "kind": "no dump", "missing_ranks": unseen})
    return rows


def _of_group(by_rank: dict[int, dict[int, Any]], members: set[int], present: set[int]) -> list[dict[str, Any]]:
    """What is wrong in a group, in order of sequence; what follows from a missing rank is not told again."""
    its = sorted(members & present)
    begin = max((min(by_rank[r]) for r in its if by_rank.get(r)), default=0)
    numbers = sorted({n for r in its for n in by_rank.get(r, {}) if n >= begin})
    rows: list[dict[str, Any]] = []
    gone: set[int] = set()
    for number in numbers:
        here = {r: by_rank[r][number] for r in its if number in by_rank.get(r, {})}
        missing = [r for r in its if r not in here]
        kinds = Counter((e.op, e.sizes) for e in here.values())
        (op, sizes), _count = kinds.most_common(1)[0]
        other = {r: e for r, e in here.items() if (e.op, e.sizes) != (op, sizes) and (e.op != op or op in _SAME_SIZES)}
        same = {r: e for r, e in here.items() if r not in other}
        completed = sorted(r for r, e in same.items() if e.state == "completed" or e.retired)
        waiting = sorted(r for r in same if r not in completed)
        first = next(iter(same.values()))
        row = {
            "sequence": number,
            "op": op,
            "sizes": sizes,
            "waiting_ranks": waiting,
            "completed_ranks": completed,
            "frame": first.frame,
        }
        if other:
            found = "; ".join(f"rank {r}: {e.op} {e.sizes}" for r, e in list(other.items())[:4])
            rows.append({**row, "kind": "mismatch", "missing_ranks": sorted(other), "found": found})
        new = [r for r in missing if r not in gone]
        if new:
            gone |= set(new)
            rows.append({**row, "kind": "missing", "missing_ranks": new, "found": _last(by_rank, new[0])})
        elif waiting and not missing and not other:
            rows.append({**row, "kind": "not completed", "missing_ranks": [], "found": ""})
        if len(rows) >= _MOST_ROWS_A_GROUP:
            break
    return rows


_SAME_SIZES = frozenset(
    {"all_reduce", "allreduce", "broadcast", "reduce", "all_gather_into_tensor", "_all_gather_base", "all_gather"}
)


def _last(by_rank: dict[int, dict[int, Any]], rank: int) -> str:
    its = by_rank.get(rank)
    if not its:
        return f"rank {rank}: nothing"
    last = its[max(its)]
    return f"rank {rank}: last issued {last.op}, sequence {last.sequence}, {last.state}"

"""Collectives on which the ranks of a communicator disagree: a hang, found before it is one.

The k-th collective of each rank on a communicator must be the same operation with the same count, datatype, reduction
and root (NCCL's user guide, "Collective Operations"). Reductions that the program defines are not distinguished: NCCL
derives their numbers from the communicator's address (`ncclUserRedOpMangle` in src/include/comm.h), so each rank has a
different number for the same reduction. If a rank's INIT is not in the log, its calls are matched with the others' by
opCount.
"""

from collections import Counter, defaultdict
from typing import Any

import numpy as np

from alltrace.recipes.base import Answer, View
from alltrace.recipes.logs.nccl import NcclOptions, datatype_name, reduction_name, refuse_a_choice
from alltrace.recipes.logs.nccl_steps import FROM_CALL
from alltrace.run.nccl_logs import NcclLogs
from alltrace.trace import columns as col
from alltrace.trace.errors import path_text
from alltrace.trace.nccl_words import OPERATIONS, POINT_TO_POINT, REDUCTIONS, ROOTED

COLUMNS = (
    col.text("communicator", "The communicator"),
    col.whole("sequence", "The index among the collectives that the ranks have in common on it, from 0"),
    col.text(
        "kind",
        "What differs: `operation`, `order` (the same calls, in another order), `count`, `datatype`, `reduction`, "
        "`root`, or `missing`",
    ),
    col.text("expected", "The call of most ranks"),
    col.text("found", "The call of these ranks; empty if it is missing"),
    col.texts("ranks", "The ranks that differ; processes if the log does not show ranks"),
    col.whole("agreeing", "How many ranks made the expected call"),
    col.whole("op_count", "NCCL's opCount on the first of these ranks, or of the expected call if it is missing"),
    col.text("log", "The log of the first of these ranks"),
    col.whole("line", "The line of the call in it, from 1; the rank's last call if one is missing"),
)
_SAME = ("operation", "count", "datatype", "redop", "root")
_KINDS = ("operation", "count", "datatype", "reduction", "root")
_MOST_ROWS = 20
_LOOK = 16
_P2P = np.array([op in POINT_TO_POINT for op in OPERATIONS])
_ROOTED = np.array([op in ROOTED for op in OPERATIONS])


def answer(logs: NcclLogs, options: NcclOptions) -> Answer:
    """The disagreements of each communicator, in order; after operations that differ only the first."""
    refuse_a_choice("mismatches", options)
    calls = _collectives(logs)
    groups: dict[str, list[int]] = defaultdict(list)
    for n, member in enumerate(logs.members):
        groups[member.communicator].append(n)
    rows: list[dict[str, Any]] = []
    notes = list(logs.notes)
    compared = 0
    for communicator, members in sorted(groups.items()):
        if len(members) < 2:
            continue
        compared += 1
        differences, note = _compare(logs, members, calls)
        rows += [{"communicator": communicator, **row} for row in differences]
        if note:
            notes.append(f"{communicator}: {note}")
    alone = len(groups) - compared
    notes.append(f"{compared} communicators were compared" + (f"; {alone} have one rank in the logs" if alone else ""))
    return Answer.of(rows, COLUMNS, tuple(notes))


def _collectives(logs: NcclLogs) -> dict[int, Any]:
    """The collectives of each member in order: rows of line, opCount, and what must be the same."""
    pieces: dict[int, list[Any]] = defaultdict(list)
    for log, batch in logs.calls():
        names = ("line", "op_count", *_SAME, "flags")
        its = [batch.column(n).fill_null(-1).to_numpy() for n in names]
        keep = ~_P2P[its[2]] & (((its[-1] & FROM_CALL) != 0) == logs.uses_calls_of_trace)
        table = np.column_stack(its[:-1])[keep]
        table[~_ROOTED[table[:, 2]], 6] = 0
        table[:, 5] = np.minimum(table[:, 5], len(REDUCTIONS))
        member = np.array(logs.member_of[log], np.int64)[batch.column("instance").to_numpy()][keep]
        order = np.argsort(member, kind="stable")
        member = member[order]
        for its_member in np.unique(member).tolist():
            lo, hi = np.searchsorted(member, [its_member, its_member + 1])
            pieces[its_member].append(table[order[lo:hi]])
    return {member: np.concatenate(parts) for member, parts in pieces.items()}


def _compare(logs: NcclLogs, members: list[int], calls: dict[int, Any]) -> tuple[list[dict[str, Any]], str]:
    empty = np.zeros((0, 2 + len(_SAME)), np.int64)
    series = {m: calls.get(m, empty) for m in members}
    note = ""
    if not all(logs.members[m].from_start for m in members):
        series = {m: s for m, s in series.items() if len(s)}
        if len(series) < 2:
            return [], "only one rank has calls in the log"
        if any(len(s) > 1 and (s[:, 1] == s[0, 1]).all() for s in series.values()):
            return (
                [],
                (
                    "the log does not begin with its INIT and opCount does not count, so which calls belong together is"
                    " not known"
                ),
            )
        begin = max(int(s[0, 1]) for s in series.values())
        series = {
            m: s[np.searchsorted(s[:, 1], begin) :] if (np.diff(s[:, 1]) >= 0).all() else s for m, s in series.items()
        }
        note = f"the log does not begin with its INIT; compared from opCount {begin:x} on, which is {begin}"
    longest = max(len(s) for s in series.values())
    shortest = min(len(s) for s in series.values())
    stack = (
        np.stack([s[:shortest, 2:] for s in series.values()])
        if shortest
        else np.zeros((len(series), 0, len(_SAME)), np.int64)
    )
    differ = np.flatnonzero((stack != stack[:1]).any(axis=(0, 2)))
    rows: list[dict[str, Any]] = []
    order = list(series)
    for sequence in differ[:_MOST_ROWS].tolist():
        its = _one(logs, order, series, sequence)
        rows += its
        if any(r["kind"] in ("operation", "order") for r in its):
            more = int((differ > sequence).sum())
            note += ("; " if note else "") + (f"{more} later collectives differ too, as a consequence" if more else "")
            return rows, note.strip("; ")
    if differ.size > _MOST_ROWS:
        note += f"; {differ.size - _MOST_ROWS} later collectives differ too"
    if shortest < longest:
        rows += _missing(logs, order, series, shortest)
    return rows, note.strip("; ")


def _one(logs: NcclLogs, order: list[int], series: dict[int, Any], sequence: int) -> list[dict[str, Any]]:
    signatures = {m: tuple(series[m][sequence, 2:].tolist()) for m in order}
    expected, agreeing = Counter(signatures.values()).most_common(1)[0]
    others: dict[tuple[int, ...], list[int]] = defaultdict(list)
    for m in order:
        if signatures[m] != expected:
            others[signatures[m]].append(m)
    rows = []
    pattern = next(m for m in order if signatures[m] == expected)
    for signature, members in others.items():
        kind = next(k for k, a, b in zip(_KINDS, expected, signature, strict=True) if a != b)
        first = members[0]
        near = [sorted(map(tuple, series[m][sequence : sequence + _LOOK, 2:].tolist())) for m in (pattern, first)]
        ahead = [set(map(tuple, series[m][sequence : sequence + _LOOK, 2:].tolist())) for m in (pattern, first)]
        if near[0] == near[1] or (kind == "operation" and signature in ahead[0] and expected in ahead[1]):
            kind = "order"
        call = series[first][sequence]
        rows.append(_row(logs, members, sequence, kind, expected, signature, agreeing, int(call[1]), int(call[0])))
    return rows


def _missing(logs: NcclLogs, order: list[int], series: dict[int, Any], shortest: int) -> list[dict[str, Any]]:
    """The ranks with calls that end first, compared with the next call of the ranks that continue."""
    short = [m for m in order if len(series[m]) == shortest]
    longer = [m for m in order if len(series[m]) > shortest]
    nexts = Counter(tuple(series[m][shortest, 2:].tolist()) for m in longer)
    expected, agreeing = nexts.most_common(1)[0]
    line = int(series[short[0]][-1, 0]) if shortest else None
    op_count = int(series[longer[0]][shortest, 1])
    return [_row(logs, short, shortest, "missing", expected, None, agreeing, op_count, line)]


def _row(
    logs: NcclLogs,
    members: list[int],
    sequence: int,
    kind: str,
    expected: tuple[int, ...],
    values: tuple[int, ...] | None,
    agreeing: int,
    op_count: int,
    line: int | None,
) -> dict[str, Any]:
    its = [logs.members[m] for m in members]
    return {
        "sequence": sequence,
        "kind": kind,
        "expected": _words(expected),
        "found": "" if values is None else _words(values),
        "ranks": [m.process if (r := m.rank if m.rank is not None else m.global_rank) is None else str(r) for m in its],
        "agreeing": agreeing,
        "op_count": op_count,
        "log": path_text(logs.paths[its[0].log]),
        "line": None if line is None else line + 1,
    }


def _words(signature: tuple[int, ...]) -> str:
    op, count, datatype, redop, root = signature
    text = f"{OPERATIONS[op]} count {count} {datatype_name(datatype)}"
    if OPERATIONS[op] in ("AllReduce", "ReduceScatter", "Reduce"):
        text += f" {reduction_name(redop) if redop < len(REDUCTIONS) else 'user'}"
    return text + (f" root {root}" if _ROOTED[op] else "")


VIEW = View(COLUMNS, answer)

"""From evidence to the verdict: one sentence, a row for each cause, and nothing that only follows from them."""

from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import Any

from alltrace.hang.evidence import Evidence
from alltrace.hang.files import gather
from alltrace.hang.order import shown
from alltrace.hang.progress import Progress
from alltrace.hang.waits import Root, Waits, follow
from alltrace.readers.flight_recorder.read import Entry, Recording
from alltrace.recipes.base import Answer
from alltrace.recipes.terms import HANG_KIND_MEANINGS
from alltrace.trace import columns as col
from alltrace.trace.errors import path_text
from alltrace.trace.number_text import counted, number_ranges

_ADVICE = {
    "missing-call": (
        "look for a branch, an exception handler or a loop length that differs between ranks before this call"
    ),
    "mismatch": "make all ranks issue the same operation, with the same sizes, in the same order",
    "missing-peer": "look for the branch in which the rank leaves out the send or receive",
    "dead-rank": "read the end of the rank's own log and its host's kernel log; take the host out if its GPU failed",
    "rank-computes": (
        "look at the line in which the rank is; take its stack again a minute later to see whether it moves"
    ),
    "rank-waits": "look at what the rank waits for: the data loader, the lock, or the storage",
    "network": (
        "look at the links and adapters of these ranks' hosts; NCCL_DEBUG=INFO and NCCL RAS show which connection"
        " stands"
    ),
    "unknown": (
        "let every rank write its dump: TORCH_FR_BUFFER_SIZE, TORCH_NCCL_DUMP_ON_TIMEOUT=1, and a path on each host"
    ),
    "no-hang": "",
}
_EVIDENCE = (
    "waiting_ranks", "sequence", "age_s", "longest_gap_s", "exit_code", "signal", "xid", "operations", "dumps",
    "missing_dumps",
)  # fmt: skip
COLUMNS: col.Columns = (
    col.text("kind", "; ".join(f"`{kind}`: {text}" for kind, text in HANG_KIND_MEANINGS.items())),
    col.Column("ranks", "ranks", None, "the culprits"),
    col.DEVICES,
    col.texts("hosts", "their hosts, where a file says them"),
    col.text("where", "the operation that the others wait in, or the line in which the culprit is"),
    col.Column("evidence", "any", None, "the numbers behind the finding, and in `details` what the files say"),
    col.text("advice", "what to do about it"),
    col.real("confidence", "confidence in the kind and the culprits, 0 to 1"),
)
_LEAST_AGE_NS = 5_000_000_000
_LEAST_CUT = 4
"""At least this many ranks whose operations stand, and half of all, are those of a network that is cut."""
_GAPS = 3.0
"""A job hangs if nothing was issued for this many times the longest time without an operation before."""
_ACCEPTED_KINDS = ("missing-call", "missing-peer", "dead-rank")


@dataclass
class Cause:
    kind: str
    ranks: list[int]
    where: str
    details: list[str]
    confidence: float
    sentence: str
    numbers: dict[str, float] = field(default_factory=dict)
    places: list[str] = field(default_factory=list)  # of the culprits, by a host's failure


def verdict_of(folder: Path, at_ns: int | None = None, words: Callable[[str], str] | None = None) -> Answer:
    """The verdict on what is in a folder: rows of causes, and the sentence as `verdict`."""
    # `at_ns`: when the dumps were written, ns since 1970; None for the times of the files. `words`: what is shown
    # instead of a text, for an answer that is shared; None to show texts as they are.
    return judged(gather(folder), at_ns, words)


def judged(evidence: Evidence, at_ns: int | None = None, words: Callable[[str], str] | None = None) -> Answer:
    case = _Case(evidence, at_ns)
    causes = case.causes()
    show = words or (lambda text: text)
    sentence = " ".join(cause.sentence for cause in causes[:1]) + case.further(causes)
    rows = [_row(cause, evidence, show) for cause in causes]
    schema = col.schema_of(COLUMNS)
    import pyarrow as pa

    numbers = pa.struct([("details", pa.string()), *((name, pa.float64()) for name in _EVIDENCE)])
    schema = schema.set(schema.get_field_index("evidence"), pa.field("evidence", numbers, metadata={"sparse": "1"}))
    notes = tuple(_clean(show(note)) for note in case.notes())
    return Answer(col.table_of(rows, COLUMNS, schema), COLUMNS, notes, verdict=_clean(show(sentence)))


def _clean(text: str) -> str:
    return text if text.isascii() else text.encode("utf-8", "replace").decode()


def _row(cause: Cause, evidence: Evidence, show: Callable[[str], str]) -> dict[str, Any]:
    hosts = sorted({evidence.hosts[r] for r in cause.ranks if r in evidence.hosts} | set(cause.places))
    return {
        "kind": cause.kind,
        "ranks": cause.ranks,
        "hosts": [_clean(show(host)) for host in hosts],
        "where": _clean(show(cause.where)),
        "evidence": {"details": _clean(show("; ".join(cause.details))) or None, **cause.numbers},
        "advice": _ADVICE[cause.kind],
        "confidence": cause.confidence,
    }


def who(ranks: Sequence[int]) -> str:
    if len(ranks) == 2:
        return f"Ranks {min(ranks)} and {max(ranks)}"
    return f"{'Rank' if len(ranks) == 1 else 'Ranks'} {number_ranges(ranks)}"


class _Case:
    def __init__(self, evidence: Evidence, at_ns: int | None) -> None:
        self.evidence = evidence
        self._with_watchdogs()
        self.progress = Progress(evidence)
        self.waits: Waits = follow(self.progress)
        self.all_ranks = sorted(self.progress.ranks)
        self._times(at_ns)

    def _with_watchdogs(self) -> None:
        """Where no rank has a dump, what the watchdogs of ranks printed is used."""
        evidence = self.evidence
        if evidence.recordings:
            return
        entries: dict[tuple[int, str], Entry] = {}
        for watchdog in evidence.watchdogs:
            recording = evidence.recordings.setdefault(
                watchdog.rank, Recording("", ranks=(watchdog.rank,), damage="only what its watchdog printed is known")
            )
            entry = watchdog.entry
            if watchdog.progress is not None:
                recording.progress[entry.group] = watchdog.progress
            before = entries.get((entry.rank, entry.group))
            if before is None or before.op == "collective":
                entries[entry.rank, entry.group] = entry
        for (rank, _group), entry in entries.items():
            evidence.recordings[rank].entries.append(entry)
        self.by_watchdogs = bool(entries)

    by_watchdogs = False

    def _times(self, at_ns: int | None) -> None:
        """How long ago the last operation was issued, and the longest time without one before."""
        issued = sorted(
            e.created_ns for r in self.evidence.recordings.values() for e in r.entries if e.created_ns is not None
        )
        written = max(self.evidence.written_ns.values(), default=None) if at_ns is None else at_ns
        self.age_ns = None if not issued or written is None or written < issued[-1] else written - issued[-1]
        self.gap_ns = max((b - a for a, b in pairwise(issued)), default=0)
        # records of completed operations are missing from dumps of active ones, whose gaps say nothing
        whole = any(e.state == "completed" or e.retired for r in self.evidence.recordings.values() for e in r.entries)
        self.least_ns = max(_LEAST_AGE_NS, _GAPS * self.gap_ns if whole else 0)

    @property
    def runs(self) -> bool:
        """Whether the dumps are of a job that went on."""
        return self.age_ns is not None and self.age_ns < self.least_ns and not self.evidence.watchdogs

    def causes(self) -> list[Cause]:
        dead = self._dead()
        roots = {r: root for r, root in self.waits.roots.items() if r not in dead}
        causes = []
        cut = sorted(self.evidence.cut)
        if dead:
            causes.append(self._dead_cause(dead))
        elif cut and 2 * len(cut) < len(self.all_ranks):  # all else follows from it
            return [self._cut_off(cut)]
        if not self.runs:
            causes += self._root_causes(roots, dead)
            if not causes:
                causes += self._less_sure()
        return causes or [self._no_hang()]

    def _dead(self) -> dict[int, str]:
        """The ranks that died by themselves, each with what is said of it."""
        evidence = self.evidence
        strong: dict[int, str] = {}
        for rank, deaths in evidence.deaths.items():
            own = [d for d in deaths if not (d.consequence or d.weak)]
            if own and rank not in self.waits.waits:
                strong[rank] = "; ".join(dict.fromkeys(d.how for d in own))
        killed = [r for r in strong if all(d.number == -9 for d in evidence.deaths[r] if not (d.consequence or d.weak))]
        if len(killed) > max(1, len(self.all_ranks) / 2):  # what a scheduler does to a job that reached its limit
            strong = {r: how for r, how in strong.items() if r not in killed}
        for host, source in evidence.dead_hosts.items():
            its = [r for r, h in evidence.hosts.items() if h.partition(".")[0] == host.partition(".")[0]]
            for rank in its:
                strong.setdefault(rank, f"its host {host} failed ({Path(source).name})")
        return strong

    def _dead_cause(self, dead: dict[int, str]) -> Cause:
        ranks = sorted(dead)
        details = [f"rank {r}: {dead[r]}" for r in ranks[:4]] + self._machine_words(ranks)
        numbers: dict[str, float] = {}
        for death in (d for r in ranks for d in self.evidence.deaths.get(r, ()) if not d.consequence and d.number):
            numbers.setdefault("signal" if death.number < 0 else "exit_code", abs(death.number))
        waiting = self._waiting(ranks)
        hosts = sorted(h for h in self.evidence.dead_hosts if any(h in how for how in dead.values()))
        how = f"host {', '.join(hosts)} failed" if hosts else "; ".join(dict.fromkeys(dead[r] for r in ranks[:2]))
        where = next((self._place(w.entry) for w in self.waits.waits.values()), "")
        sentence = f"{who(ranks)} died ({how}){self._others_wait(waiting, ranks)}."
        return Cause("dead-rank", ranks, where, details, 0.9, sentence, numbers | self._numbers(waiting), hosts)

    def _root_causes(self, roots: dict[int, Root], dead: dict[int, str]) -> list[Cause]:
        by_kind: dict[str, list[Root]] = defaultdict(list)
        odd = [root.entry for root in roots.values() if root.reason == "mismatch" and root.entry is not None]
        # a mismatch ends the call of all its ranks
        failed = {r for entry in odd for r in self.progress.group_of(entry).members}
        for rank, root in sorted(roots.items()):
            # a rank that lost a peer has operations that failed
            lost_peer = any(d.consequence and d.number > 0 for d in self.evidence.deaths.get(rank, ()))
            if root.reason != "mismatch" and (dead or lost_peer or rank in failed):
                continue
            by_kind[self._kind(root)].append(root)
        stopped = [root for root in by_kind["dead-rank"] if root.reason == "stopped"]
        if len(stopped) >= max(_LEAST_CUT, len(self.all_ranks) / 2):  # so many devices do not fail at once
            return [self._network(sorted(root.rank for root in stopped))]
        by_kind = {kind: its for kind, its in by_kind.items() if its}
        return sorted(
            (self._root_cause(kind, its) for kind, its in by_kind.items()), key=lambda cause: -cause.confidence
        )

    def _kind(self, root: Root) -> str:
        kind = {"stopped": "dead-rank", "no-dump": "dead-rank"}.get(root.reason, root.reason)
        stack = self.evidence.stacks.get(root.rank)
        if stack is not None and kind in _ACCEPTED_KINDS and stack.doing != "communicates":
            return "rank-computes" if stack.doing in ("computes", "unknown") else "rank-waits"
        return kind

    def _root_cause(self, kind: str, roots: list[Root]) -> Cause:
        ranks = sorted(r.rank for r in roots)
        waiting = self._waiting(ranks)
        entry = next((r.entry for r in roots if r.entry is not None), None)
        stacks = [self.evidence.stacks[r] for r in ranks if r in self.evidence.stacks]
        place = self._places(roots)
        details = (
            [f"rank {r.rank}: {r.detail}" for r in roots if r.detail][:4]
            + self._recorder_words(roots)
            + self._machine_words(ranks)
        )
        confidence = {"mismatch": 0.9, "dead-rank": 0.8, "missing-call": 0.85, "missing-peer": 0.85}.get(kind, 0.85)
        if kind in ("rank-computes", "rank-waits"):
            stack = stacks[0]
            confidence = 0.85 if stack.exact or stack.doing != "unknown" else 0.6
            what = {
                "data": "waits for data", "lock": "waits for a lock", "storage": "waits for storage",
                "sleeps": "sleeps",
            }.get(stack.doing, "computes" if stack.exact else "computes or waits in its own code")  # fmt: skip
            what = (
                what
                if len(ranks) == 1
                else what.replace("waits", "wait").replace("computes", "compute").replace("sleeps", "sleep")
            )
            doing = f"{what} in {stack.frame}" if stack.frame else what
            never = f" and never entered {place}" if place else ""
            sentence = f"{who(ranks)} {doing}{never}{self._others_wait(waiting, ranks)}."
            place = stack.frame or place
        elif kind == "mismatch":
            detail = next((r.detail for r in roots if r.detail), "another call")
            first = "it is in " if detail.startswith("it is in ") else ""
            text = (
                f"entered {detail.removeprefix(first).removesuffix(' instead')} out of order, before {place}"
                if first
                else f"entered {place} as {detail}"
            )
            sentence = f"{who(ranks)} {text}{self._others_wait(waiting, ranks)}."
        elif kind == "missing-peer":
            missing = self._missing_end(entry)
            sentence = f"{who(ranks)} never issued {missing}{self._others_wait(waiting, ranks)}."
        elif kind == "dead-rank":
            of = "its peers" if len(ranks) == 1 else "their peers"
            device = "The GPU or process of rank" if len(ranks) == 1 else "The GPUs or processes of ranks"
            names = who(ranks).partition(" ")[2]
            stopped = f"stopped: {place} is not complete there, and {of} completed it"
            sentence = f"{device} {names} {stopped}{self._others_wait(waiting, ranks)}."
        else:
            sentence = f"{who(ranks)} never entered {place}{self._others_wait(waiting, ranks)}."
        if details and kind in ("missing-call", "dead-rank"):
            extra = [s for s in details if "recorder" in s or "Xid" in s]
            sentence = sentence[:-1] + (f"; {'; '.join(extra)}." if extra else ".")
        if self.age_ns is None:
            confidence -= 0.1
        numbers = self._numbers(waiting)
        if entry is not None and entry.sequence >= 0:
            numbers["sequence"] = entry.sequence
        return Cause(kind, ranks, place, details, round(confidence, 2), sentence, numbers)

    def _less_sure(self) -> list[Cause]:
        """What is left where no wait leads to a rank that is proven."""
        evidence = self.evidence
        causes = self._without_dump()
        if causes:
            return causes
        behind = sorted({r for b in evidence.behind for r in b.ranks})
        if behind:
            lost = any(b.operation is None for b in evidence.behind)
            first = evidence.behind[0]
            details = [f"{Path(first.source).name}: {self._behind_words(first)}", *self._machine_words(behind)]
            kind = "dead-rank" if lost else "missing-call"
            text = (
                "do not answer" if lost else f"launched fewer operations than the others ({self._behind_words(first)})"
            )
            text = text if len(behind) > 1 else text.replace("do not", "does not")
            return [Cause(kind, behind, "", details, 0.6, f"{who(behind)} {text}.", {})]
        weak = {r: d for r, deaths in evidence.deaths.items() for d in deaths if d.weak and not d.consequence}
        first_failures = [r for r, d in weak.items() if d.first] or (list(weak) if len(weak) == 1 else [])
        if first_failures and not self.waits.waits:
            ranks, death = sorted(first_failures), weak[first_failures[0]]
            sentence = f"{who(ranks)} ended first, with {death.how}; no file says why."
            return [Cause("dead-rank", ranks, "", [death.how], 0.5, sentence, {"exit_code": float(death.number)})]
        if evidence.sizes_differ:
            sentence = "Ranks entered a collective with different sizes; no dump says which."
            return [
                Cause("mismatch", [], "", [f"{Path(evidence.sizes_differ).name}: sizes do not match"], 0.6, sentence)
            ]
        alone = [r for r, s in evidence.stacks.items() if s.doing != "communicates" and r not in self.waits.waits]
        sure = [r for r in alone if evidence.stacks[r].doing != "unknown"]
        if sure and len(sure) < len(evidence.stacks):
            return [self._by_stacks(sure)]
        if alone and 2 * len(alone) < len(evidence.stacks):
            return [self._by_stacks(alone)]
        if evidence.xids:
            hosts = sorted({x.host for x in evidence.xids if x.host})
            ranks = sorted(
                r for r, h in evidence.hosts.items() if h.partition(".")[0] in {x.partition(".")[0] for x in hosts}
            )
            details = self._xid_words(evidence.xids)
            sentence = f"A GPU of {', '.join(hosts) or 'a host'} failed ({', '.join(details)})."
            return [
                Cause("dead-rank", ranks, "", details, 0.5, sentence, {"xid": float(evidence.xids[0].number)}, hosts)
            ]
        if self.waits.together:
            return [self._network(sorted(self.waits.together))]
        if evidence.network and not (evidence.recordings or evidence.ended_well):
            details = self._network_words()
            return [
                Cause(
                    "network",
                    [],
                    "",
                    details,
                    0.4,
                    f"NCCL reports errors of the network ({'; '.join(details)}); no dump says whose.",
                )
            ]
        if self.waits.waits:
            ranks = sorted(self.waits.waits)
            return [
                Cause(
                    "unknown",
                    [],
                    "",
                    [],
                    0.2,
                    f"It cannot be known who is to blame: {who(ranks).lower()} wait, and no dump says for whom.",
                    self._numbers(len(ranks)),
                )
            ]
        return []

    def _by_stacks(self, ranks: list[int]) -> Cause:
        stack = self.evidence.stacks[ranks[0]]
        kind = "rank-computes" if stack.doing in ("computes", "unknown") else "rank-waits"
        others = len(self.evidence.stacks) - len(ranks)
        what = {"data": "waits for data", "lock": "waits for a lock", "storage": "waits for storage"}
        doing = {**what, "unknown": "computes or waits in its own code"}.get(stack.doing, stack.doing)
        sentence = f"{who(sorted(ranks))}: {doing} in {stack.frame}; {others} others are in communication."
        return Cause(kind, sorted(ranks), stack.frame, [f"rank {stack.rank}: {stack.frame}"], 0.6, sentence)

    def _without_dump(self) -> list[Cause]:
        """Ranks that others wait for and that left no dump that can be read."""
        unsure = [set(w.unsure) for w in self.waits.waits.values() if w.unsure and not w.on]
        if not unsure:
            return []
        alone = {r for its in unsure if len(its) == 1 for r in its}
        candidates = alone if alone and all(its & alone for its in unsure) else set().union(*unsure)
        lost = self.progress.lost
        silent = lost | {r for r in self.all_ranks if self.progress.may_wait_unseen(r)}
        while more := {n for r in candidates for n in self.progress.neighbours(r) & silent} - candidates:
            candidates |= more  # each may wait for another one
        entry = next(w.entry for w in self.waits.waits.values() if w.unsure)
        weak = {r for r in candidates if any(d.weak and d.first for d in self.evidence.deaths.get(r, ()))}
        # a lost dump says something of its rank only where no other dump is lost; dumps of a host are lost together
        cut = {r for r, state in self.progress.ranks.items() if state.cut and not self.by_watchdogs}
        alike = lost | cut == candidates
        host = not self.evidence.empty and candidates == lost and _is_host(sorted(candidates), len(self.all_ranks))
        named = candidates if alike and (len(candidates) == 1 or host) else weak if len(weak) == 1 else set()
        place = self._place(entry)
        if named:
            ranks = sorted(named)
            nothing = not any(r in self.evidence.empty or r in self.evidence.recordings for r in ranks)
            left = "left nothing" if nothing else "left no whole dump"
            they = "all ranks of a host, it seems, " if len(ranks) > 1 and named == candidates else ""
            waiting = self._waiting(ranks)
            sentence = (
                f"{who(ranks)} {they}{left}, and {'is' if len(ranks) == 1 else 'are'} the only ranks missing in {place}"
            )
            sentence = (
                sentence.replace("is the only ranks", "is the only one") + f"{self._others_wait(waiting, ranks)}. "
            )
            only = "its dump is lost, and it waits" if len(ranks) == 1 else "their dumps are lost, and they wait"
            sentence += f"Whether only {only} for another rank, cannot be known."
            return [Cause("dead-rank", ranks, place, self._machine_words(ranks), 0.6, sentence, self._numbers(waiting))]
        ranks = sorted(candidates)
        sentence = (
            f"It cannot be known who is to blame: {who(ranks).lower()} left no dump that can be read, and one or"
            f" several of them did not enter {place}, in which the others wait."
        )
        return [Cause("unknown", ranks, place, [], 0.3, sentence, self._numbers(len(self.waits.waits)))]

    def _network(self, ranks: list[int]) -> Cause:
        entry = (
            next((self.waits.waits[r].entry for r in ranks if r in self.waits.waits), None)
            or self.waits.roots[ranks[0]].entry
        )
        place = self._place(entry) if entry is not None else "their operations"
        details = self._network_words()
        others = (
            "" if ranks == sorted(self.waits.together) else ", or others like it that some of their peers completed"
        )
        sentence = (
            f"{who(ranks)} all entered {place}{others}, and it does not complete: a link, an adapter or a GPU stands."
        )
        return Cause("network", ranks, place, details, 0.6 if details else 0.5, sentence, self._numbers(len(ranks)))

    def _cut_off(self, ranks: list[int]) -> Cause:
        words = list(dict.fromkeys(self.evidence.cut[r] for r in ranks))
        entry = next((self.waits.waits[r].entry for r in ranks if r in self.waits.waits), None)
        place = self._place(entry) if entry is not None else ""
        lost = "lost its own network" if len(ranks) == 1 else "lost their own networks"
        sentence = f"{who(ranks)} {lost} ({', '.join(words)}){self._others_wait(self._waiting(ranks), ranks)}."
        details = [f"rank {r}: {self.evidence.cut[r]}" for r in ranks[:4]] + self._network_words()
        return Cause("network", ranks, place, details, 0.8, sentence, self._numbers(self._waiting(ranks)))

    def _network_words(self) -> list[str]:
        return [f"{Path(f).name}: {counted(n, 'network error')}" for f, n in self.evidence.network.items()][:4]

    def _no_hang(self) -> Cause:
        numbers = self._numbers(len(self.waits.waits))
        recordings = self.evidence.recordings.values()
        lost = self.evidence.empty or recordings
        if lost and all(r.damage for r in recordings) and not self.waits.waits and not self.evidence.ended_well:
            reason = "no dump is whole, and what was lost may wait" if recordings else "no dump can be read"
            return Cause("unknown", [], "", [], 0.1, f"It cannot be known whether the job hangs: {reason}.", numbers)
        if self.evidence.stacks and not (recordings or self.evidence.ended_well):
            own = sorted(r for r, stack in self.evidence.stacks.items() if stack.doing != "communicates")
            others = sorted(self.evidence.stacks.keys() - set(own))
            does = ((own, "in the program's own code"), (others, "in communication"))
            parts = [
                f"{who(ranks).lower()} {'is' if len(ranks) == 1 else 'are'} {what}" for ranks, what in does if ranks
            ]
            text = f"{' and '.join(parts)}, and no file says who waits for whom"
            return Cause("unknown", [], "", [], 0.1, f"It cannot be known whether the job hangs: {text}.", numbers)
        if self.evidence.stopped and not (recordings or self.evidence.ended_well):
            text = f"the job ended {self.evidence.stopped}, and no file says whether a rank waited"
            return Cause("unknown", [], "", [], 0.1, f"It cannot be known whether the job hung: {text}.", numbers)
        numbers["operations"] = float(sum(len(r.entries) for r in recordings))
        if self.waits.waits and self.age_ns is not None:
            sentence = (
                f"No hang: the last operation was issued {self.age_ns / 1e9:.1f} s before the dumps were written, and"
                f" up to {self.gap_ns / 1e9:.1f} s passed between operations before."
            )
        elif recordings:
            sentence = "No hang: every operation that the dumps have completed."
        else:
            sentence = "No hang: no file says that a rank died or waits."
        return Cause("no-hang", [], "", [], 0.8 if recordings or self.evidence.ended_well else 0.4, sentence, numbers)

    def further(self, causes: Sequence[Cause]) -> str:
        """The end of the verdict: more causes, and ranks without a dump that others may wait for as well."""
        text = f" In addition: {'; '.join(c.sentence.rstrip('.') for c in causes[1:3])}." if len(causes) > 1 else ""
        named = {rank for cause in causes for rank in cause.ranks}
        silent = {r for r, state in self.progress.ranks.items() if state.cut and r not in self.waits.waits}
        if (
            not (named and self.evidence.recordings)
            or self.by_watchdogs
            or causes[0].kind == "unknown"
            or silent <= named
        ):
            return text
        ranks = sorted(silent - named)
        left = "left no whole dump, is to blame" if len(ranks) == 1 else "left no whole dumps, are to blame"
        return f"{text} Whether {who(ranks).lower()}, which {left} as well cannot be known."

    def notes(self) -> list[str]:
        evidence = self.evidence
        dumps = 0 if self.by_watchdogs else len(evidence.recordings)
        read, ranks = counted(len(evidence.read), "file"), counted(len(self.all_ranks), "rank")
        notes = [f"read {read}, of these {counted(dumps, 'dump')} of {ranks}"]
        cut = [r for r, recording in evidence.recordings.items() if recording.damage and not self.by_watchdogs]
        if cut:
            notes.append(f"dumps of {who(cut).lower()} are damaged or end early; what came before was read")
        notes += [f"{path_text(r.path)}: {r.goes_on}" for r in evidence.recordings.values() if r.goes_on]
        if evidence.earlier:
            names = ", ".join(path_text("/".join(Path(p).parts[-2:])) for p in evidence.earlier[:4])
            more = f" and {len(evidence.earlier) - 4} more" if len(evidence.earlier) > 4 else ""
            notes.append(f"{names}{more}: not used, because a dump of the same rank was written later")
        lost = [r for r in self.all_ranks if r not in evidence.recordings]
        if lost and evidence.recordings:
            notes.append(f"no dump of {who(lost).lower()} can be read")
        if evidence.unread:
            notes.append(
                f"not read: {'; '.join(evidence.unread[:4])}"
                + (f"; {len(evidence.unread) - 4} more" if len(evidence.unread) > 4 else "")
            )
        if evidence.skipped:
            names = ", ".join(path_text(Path(p).name) for p in evidence.skipped[:4])
            more = f" and {len(evidence.skipped) - 4} more" if len(evidence.skipped) > 4 else ""
            notes.append(f"skipped {counted(len(evidence.skipped), 'file')} without a word of a hang: {names}{more}")
        if self.waits.waits and self.age_ns is None:
            notes.append(
                "when the dumps were written is not known, so a slow job could not be told from one that hangs; give"
                " --at TIME"
            )
        return notes

    def _waiting(self, ranks: Sequence[int]) -> int:
        return len([r for r in self.all_ranks if r not in ranks and r in self.waits.waits])

    def _numbers(self, waiting: int) -> dict[str, float]:
        numbers: dict[str, float] = {"waiting_ranks": float(waiting), "dumps": float(len(self.evidence.recordings))}
        lost = sum(r not in self.evidence.recordings for r in self.all_ranks)
        if lost:
            numbers["missing_dumps"] = float(lost)
        if self.age_ns is not None:
            numbers |= {"age_s": round(self.age_ns / 1e9, 3), "longest_gap_s": round(self.gap_ns / 1e9, 3)}
        if self.evidence.xids:
            numbers["xid"] = float(self.evidence.xids[0].number)
        return numbers

    def _others_wait(self, waiting: int, ranks: Sequence[int]) -> str:
        if not waiting:
            return ""
        direct = sum(bool(w.on & set(ranks)) for w in self.waits.waits.values())
        them = "it" if len(ranks) == 1 else "them"
        others = "the other rank waits" if waiting == 1 else f"the other {waiting:,} wait"
        if waiting + len(ranks) < len(self.all_ranks):
            others = f"{counted(waiting, 'rank waits', 'ranks wait')}"
        return f"; {others} for {them}" + (", directly or through other groups" if direct < waiting else "")

    def _place(self, entry: Entry) -> str:
        return f"{shown(entry)} of {self.progress.group_of(entry).title}"

    def _places(self, roots: Sequence[Root]) -> str:
        """The operations that others wait in, those of groups that are described alike together."""
        by_text: dict[str, dict[str, None]] = {}
        for root in roots:
            if root.entry is not None:
                group = self.progress.group_of(root.entry)
                plain = group.title.removesuffix(f" ({group.key.name})")
                by_text.setdefault(f"{shown(root.entry)} of {plain}", {})[
                    group.key.name if plain != group.title else ""
                ] = None
        texts = [text + (f" ({', '.join(names)})" if any(names) else "") for text, names in by_text.items()]
        return " and ".join(texts[:2]) + (f" and {len(texts) - 2} more" if len(texts) > 2 else "")

    def _missing_end(self, entry: Entry | None) -> str:
        if entry is None:
            return "the other end of a message"
        if entry.op == "coalesced":
            return f"its part of {self._place(entry)}"
        sends = entry.op.lower().startswith("send")
        return (
            f"the {'receive' if sends else 'send'} for {shown(entry)} of rank {entry.rank} in"
            f" {self.progress.group_of(entry).title}"
        )

    def _recorder_words(self, roots: Sequence[Root]) -> list[str]:
        """What recorders say by being empty or behind."""
        empty = [r.rank for r in roots if (its := self.evidence.recordings.get(r.rank)) is not None and not its.entries]
        return [f"the recorder of {who(empty).lower()} has no open operation"] if empty else []

    def _machine_words(self, ranks: Iterable[int]) -> list[str]:
        hosts = {self.evidence.hosts[r].partition(".")[0] for r in ranks if r in self.evidence.hosts}
        return self._xid_words([x for x in self.evidence.xids if x.host.partition(".")[0] in hosts or not hosts])

    def _xid_words(self, xids: Sequence[Any]) -> list[str]:
        return list(dict.fromkeys(f"the kernel log of {x.host or 'a host'} has Xid {x.number}" for x in xids))[:4]

    def _behind_words(self, behind: Any) -> str:
        return (
            "no answer" if behind.operation is None else f"up to operation {behind.operation}, most up to {behind.most}"
        )


def _is_host(ranks: Sequence[int], world: int) -> bool:
    """Whether ranks can be all those of one host."""
    size = len(ranks)
    return 1 < size < world and ranks[-1] - ranks[0] == size - 1 and ranks[0] % size == 0 and (world % size == 0)

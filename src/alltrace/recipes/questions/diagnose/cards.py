"""Findings in readable form: the verdict in a sentence, and a card for each finding, equal in all interfaces."""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from alltrace.recipes.base import Answer
from alltrace.recipes.questions.diagnose.evidence_sentences import evidence_sentence
from alltrace.recipes.questions.diagnose.headlines import headline, who
from alltrace.trace.amounts import amount, shortened
from alltrace.trace.number_text import counted, named_devices, numbered

_OPPORTUNITIES = frozenset({"precision", "attention", "fusion", "shapes", "small-kernels", "slow-operator"})
_OTHERS_WAIT = frozenset({"straggler", "slow-host", "throttling", "device-stall", "imbalance"})
_COPIES = ("pageable-copy", "sync-copy", "exposed-transfer")
_LATE_HOST = tuple("sync host-pause data-stall allocation module-loading recompilation idle-gap unexplained".split())
_SHOWN: tuple[tuple[tuple[str, ...], str, str, dict[str, Any]], ...] = (
    (("straggler", "slow-host", "imbalance", "missing-rank"), "waiting", "stragglers", {}),
    (("throttling", "device-stall"), "waiting", "stragglers", {"by_time": True}),
    (("slow-communicator", "low-bandwidth"), "waiting", "collectives", {}),
    (("serialized-communication",), "exposed", "collectives", {}),
    (("exposed-communication",), "exposed", "overlap", {}),
    (_COPIES, "copy", "memory-bandwidth", {}),
    (("launch-bound",), "idle", "launches", {}),
    (_LATE_HOST, "idle", "idle", {}),
    (("hand-over",), "idle", "breakdown", {"by": "role"}),
    (("jitter", "regression"), "compute", "steps", {"per_step": True}),
    (("slow-operator",), "compute", "operators", {"by": "operator-shape"}),
    (("shared-device", *sorted(_OPPORTUNITIES - {"slow-operator"})), "compute", "kernels", {"by_rank": True}),
    (("capture-fault",), "busy", "info", {}),
)
"""Of kinds the measure of the heat map that shows them best, and the recipe and options of the table that they rest
on."""

_SHOWN_BY = {kind: (measure, recipe, options) for kinds, measure, recipe, options in _SHOWN for kind in kinds}

_LONGEST_NAME = 100
_FAR_MORE = 10  # an opportunity that is this many times what all faults cost is what the verdict begins with


class Proof(NamedTuple):
    """The table that a finding rests on: a recipe and its options."""

    recipe: str
    options: Mapping[str, Any]

    def command(self, run: str = "RUN") -> str:
        options = "".join(f" --{k.replace('_', '-')}" + ("" if v is True else f" {v}") for k, v in self.options.items())
        return f"alltrace recipe {self.recipe} {run}{options}"


class StepTimes(NamedTuple):
    """A small picture of how long steps take, with the one from which on they change."""

    steps: tuple[int, ...]  # number of each bar's step, or of the first one in it
    times_ns: tuple[int, ...]  # how long it takes, or the longest one in it
    marked: int  # the place of the bar with the step that is marked
    words: str  # what it shows


class Card(NamedTuple):
    kind: str  # its kind
    severity: str  # `high`, `medium` or `low`
    what: str  # what happens, in a sentence without a full stop
    who: str  # the culprits with their hosts; empty without culprits
    where: str  # the kernel, range, communicator or call, and what launched it; empty if there is none
    cost: str  # what it costs, with units, or why that is not known
    evidence: str  # what it rests on, in sentences
    advice: str  # what to do
    confidence: float  # 0 to 1
    ranks: tuple[int, ...]  # the culprits' ranks
    measure: str  # the measure of the page's heat map that shows it best
    proof: Proof | None  # the table that it rests on; None if there is none
    step_times: StepTimes | None = None  # of a change in time


class Diagnosis(NamedTuple):
    verdict: str  # a sentence or two on what costs most
    cards: tuple[Card, ...]  # a card for each finding, in the order of the rows
    notes: tuple[str, ...]  # what could not be judged, and why; less what the verdict says


def with_verdict(answer: Answer, hosts: Mapping[int, str]) -> Answer:
    answer = answer.read()
    return answer._replace(verdict=told(answer, hosts).verdict)


def told(answer: Answer, hosts: Mapping[int, str]) -> Diagnosis:
    rows = answer.table.to_pylist()
    notes = list(answer.notes)
    causes = [row for row in rows if row["kind"] not in ("capture-fault", *_OPPORTUNITIES)]
    possible = [row for row in rows if row["kind"] in _OPPORTUNITIES]
    faults = [row for row in rows if row["kind"] == "capture-fault" and row["severity"] != "low"]
    known = all(row["lost_share"] is not None for row in causes)
    lost = sum(row["lost_share"] or 0.0 for row in causes)
    if possible and known and lost * _FAR_MORE <= possible[0]["opportunity_share"]:
        saved = _percent(possible[0]["opportunity_share"])
        verdict = f"{headline(possible[0], len(hosts))}: up to {saved} of the time can be saved."
        no_fault = "No fault costs much." if causes else "No fault was found."
        verdict = " ".join([no_fault, verdict, *([_verdict(causes, hosts)] if causes else [])])
    elif causes:
        verdict = _verdict(causes, hosts)
    else:
        reason = next((note for note in notes if note.startswith("nothing ")), None)
        if reason is not None:
            notes.remove(reason)
        verdict = "Nothing could be judged." if reason is None else f"{reason[:1].upper()}{reason[1:]}."
    if faults:
        fault = headline(faults[0], len(hosts))
        verdict += f" The reports are incomplete: {fault[:1].lower()}{fault[1:]}."
    return Diagnosis(verdict, tuple(_card(row, rows, hosts) for row in rows), tuple(notes))


def _verdict(causes: Sequence[Mapping[str, Any]], hosts: Mapping[int, str]) -> str:
    first, others = causes[0], [row for row in causes[1:] if row["lost_share"]]
    said = headline(first, len(hosts))
    waiting, culprits = len(hosts) - len(first["ranks"]), first["devices"] or first["ranks"]
    if first["kind"] in _OTHERS_WAIT and first["lost_ns"] and culprits and (first["devices"] or waiting > 0):
        if first["devices"]:
            said += "; the others wait"
        else:
            said += f"; the other {waiting:,} wait" if waiting > 1 else "; the other waits"
        said += " for it" if len(culprits) == 1 else " for them"
    if first["lost_share"] is not None and first["lost_ns"]:
        said += f", which costs {_percent(first['lost_share'])} of the time ({amount(first['lost_ns'], 'ns', 3)})"
    said += "."
    if first["lost_share"] is None and first["loss_note"]:
        said += f" No loss is given: {first['loss_note']}."
    said += _joint(causes)
    if others:
        lost = _percent(sum(row["lost_share"] for row in others))
        said += f" {counted(len(others), 'further finding')} {'costs' if len(others) == 1 else 'cost'} {lost}."
    return said


def _joint(rows: Sequence[Mapping[str, Any]]) -> str:
    both = [row for row in rows if row["evidence"].get("together_share")]
    if len(both) < 2:
        return ""
    together = _percent(both[0]["evidence"]["together_share"])
    alone = " and ".join("unknown" if row["lost_share"] is None else f"{100 * row['lost_share']:.1f}" for row in both)
    return f" {_name(both[0])} and {_name(both[1])} hide each other: together {together}, alone {alone} %."


def _hidden_by(row: Mapping[str, Any], rows: Sequence[Mapping[str, Any]]) -> str:
    together_ns = row["evidence"].get("together_ns")
    others = [r for r in rows if r is not row and together_ns and r["evidence"].get("together_ns")]
    together = amount(together_ns, "ns", 3) if others else ""
    return f"; {together} together with {_name(others[0])}, as each hides the other" if others else ""


def _name(row: Mapping[str, Any]) -> str:
    whose = named_devices(row["devices"]) if row["devices"] else numbered("rank", row["ranks"] or ())
    return f"`{row['kind']}`" + (f" of {whose}" if row["devices"] or row["ranks"] else "")


def _card(row: Mapping[str, Any], rows: Sequence[Mapping[str, Any]], hosts: Mapping[int, str]) -> Card:
    kind = str(row["kind"])
    measure, recipe, options = _SHOWN_BY.get(kind, ("busy", "breakdown", {}))
    # of copies, not of a link between ranks
    if kind == "low-bandwidth" and row["evidence"].get("gb_per_s") is not None:
        recipe, options = "memory-bandwidth", {}
    return Card(
        kind,
        row["severity"],
        headline(row, len(hosts)),
        who(row, hosts),
        ", ".join(shortened(row[name], _LONGEST_NAME) for name in ("where", "launched_by") if row[name]),
        _cost(row) + _hidden_by(row, rows),
        evidence_sentence(row["evidence"], row["confidence"], about_time=bool(row["classes"])),
        row["advice"],
        row["confidence"],
        tuple(row["ranks"] or ()),
        measure,
        Proof(recipe, options),
        _step_times(row),
    )


def _step_times(row: Mapping[str, Any]) -> StepTimes | None:
    steps, times_ns, since = row["shown_steps"], row["step_times_ns"], row["evidence"].get("since_step")
    if not steps or since is None:
        return None
    marked = max(at for at, step in enumerate(steps) if step <= since or not at)
    shortest, longest = (amount(of(times_ns), "ns", 3) for of in (min, max))
    return StepTimes(tuple(steps), tuple(times_ns), marked, f"step {since:.0f}; {shortest} to {longest} a step")


def _cost(row: Mapping[str, Any]) -> str:
    if row["opportunity_share"] is not None:
        return f"up to {_percent(row['opportunity_share'])} of the analyzed time can be saved"
    note = f" ({row['loss_note']})" if row["loss_note"] else ""
    if row["lost_ns"] is None:
        return f"not known{note}"
    if not row["classes"]:
        return "no time by itself"
    per_step = "" if row["lost_ns_per_step"] is None else f"; {amount(row['lost_ns_per_step'], 'ns', 3)} a step"
    return f"{amount(row['lost_ns'], 'ns', 3)}, {_percent(row['lost_share'])} of the analyzed time{per_step}{note}"


def _percent(share: float) -> str:
    return f"{100 * share:.1f} %"

"""Judges findings by the truth, and sums up the judgements of many programs."""

from __future__ import annotations

from collections import Counter
from dataclasses import asdict, dataclass, field
from statistics import median
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from benchmarks.programs.losses import Truth
    from benchmarks.programs.model import Cause, Program

SAME_KIND = {"idle-gap": "unexplained"}
"""Kinds of findings that mean the same as one of ours."""

NO_LOSS = "capture-fault"
"""Findings about the reports, in addition to those about the program."""

ANY_RANKS = ("jitter", "exposed-communication", "serialized-communication")
CLOSE = 0.15
CAUSES_WITHIN = 4
QUIET = 0.02
"""A share that a program may lose without a planted cause and without a report."""


@dataclass
class Judgement:
    """What was found in one program, and what is true.

    Attributes:
        seed: Of the program.
        program: What it is, in a few words.
        planted: The kinds of its causes that cost enough to count, with their true share, variant and ranks.
        expected: The kind that costs most, planted or natural; None if nothing costs enough.
        accepted: Kinds that the first finding may have.
        natural: Whether the costliest loss is the program's own, without a planted cause.
        share: The true share of the expected kind.
        first: Kind of the first finding; None if there is none.
        confidence: Of the first finding.
        right: Whether the first finding has an accepted kind, or there is rightly none.
        ranks_right: Whether it names the culprits; None if none were planted or the kind is wrong.
        all_found: Whether every planted cause that counts is in the first findings; None with fewer than two.
        true_shares: The gain from removing the only planted cause, and from removing the whole loss of its kind.
        found_share: The loss that the finding of the only planted cause states; None if it states none.
        stated: Whether there was such a finding.
        false_alarms: Kinds of findings of severity high or medium that cost less than half of the limit of that
            severity.
        impossible: Findings with a loss below 0 or above 1.
        findings: Kind, severity, share, ranks and confidence of the first findings.
        error: What went wrong instead of an answer.
    """

    seed: int
    program: str
    planted: list[dict[str, Any]]
    expected: str | None
    accepted: list[str]
    natural: bool
    share: float
    first: str | None = None
    confidence: float | None = None
    right: bool = False
    ranks_right: bool | None = None
    all_found: bool | None = None
    true_shares: tuple[float, float] | None = None
    found_share: float | None = None
    stated: bool = False
    false_alarms: list[str] = field(default_factory=list)
    impossible: list[str] = field(default_factory=list)
    findings: list[dict[str, Any]] = field(default_factory=list)
    error: str | None = None

    def as_dict(self) -> dict[str, Any]:
        """All of it, for JSON."""
        return asdict(self)


def also_accepted(program: Program, cause: Cause) -> set[str]:
    """Kinds that the reports cannot distinguish from the cause's own."""
    view = program.view
    if cause.kind == "data-stall" and not view.data_text and not view.osrt:
        return {"host-pause"}
    if cause.kind == "recompilation" and not (view.phases or view.operators):
        return {"host-pause", "module-loading"}
    if cause.kind == "low-bandwidth" and len(_touched(program, cause)) == 1:
        return {"slow-communicator"}
    return set()


def _touched(program: Program, cause: Cause) -> list[tuple[int, ...]]:
    """The communicators that a slow rank slows and that have others of their kind to compare with."""
    across = cause.variant == "nic"
    found = []
    for link in program.communicators:
        hosts = {program.grid.host_of(r) for r in link.ranks}
        if cause.ranks[0] in link.ranks and (len(hosts) > 1) == across and link.role not in ("norm", "barrier"):
            found.append(link.ranks)
    return found


def ranks_right(program: Program, cause: Cause, kind: str, ranks: Iterable[int] | None) -> bool:
    """Whether a finding of a kind names the culprits of a cause.

    Of a cause of some ranks, exactly these; of one of all ranks, at least half of those with a report.
    """
    named = set(ranks or ())
    culprits = set(cause.ranks)
    everyone = set(range(program.grid.ranks)) - set(program.view.missing)
    if kind == "slow-communicator" and cause.kind == "low-bandwidth":
        return named in [set(touched) for touched in _touched(program, cause)]
    if cause.kind in ANY_RANKS or cause.variant == "rotating":
        return True
    if not cause.ranks or set(cause.ranks) == set(range(program.grid.ranks)):
        return not named or 2 * len(named & everyone) >= len(everyone)
    if cause.variant == "equally slow":  # removing one alone gains nothing, so either or both are accepted
        return bool(named) and named <= culprits
    return named == culprits


def culprits_of(row: Mapping[str, Any], devices: int) -> set[int]:
    """The culprits of a row of `diagnose`, as ranks of the program: of processes with several devices, these.

    What is said of processes as a whole, such as that their report is missing, is of all of their devices.
    """
    if row.get("devices"):
        return {d["rank"] * devices + d["device"] for d in row["devices"]}
    return {rank * devices + place for rank in row["ranks"] or () for place in range(devices)}


def judge(seed: int, program: Program, truth: Truth, findings: Sequence[dict[str, Any]], least: float) -> Judgement:
    """What the findings of a program are worth.

    Args:
        seed: Of the program.
        program: The program.
        truth: What its causes cost.
        findings: Rows of `diagnose`, of which only `kind`, `severity`, `lost_share`, `ranks` and `confidence` are used.
        least: The share below which a cause does not count.
    """
    counted = [(c, s) for c, s in zip(program.causes, truth.causes, strict=True) if s >= least]
    accepted = truth.right(least)
    for cause, _ in counted:
        if cause.kind in accepted:
            accepted |= also_accepted(program, cause)
    best = max(truth.kinds, key=lambda k: truth.kinds[k], default=None)
    expected = best if best is not None and truth.kinds[best] >= least else None
    rows = [{**f, "kind": SAME_KIND.get(f["kind"], f["kind"])} for f in findings]
    about = [r for r in rows if r["kind"] != NO_LOSS]
    made = Judgement(
        seed,
        described(program),
        [
            {"kind": c.kind, "variant": c.variant, "share": s, "ranks": list(c.ranks), "steps": len(c.steps)}
            for c, s in counted
        ],
        expected,
        sorted(accepted),
        expected is not None and all(c.kind != expected for c, _ in counted),
        truth.kinds[expected] if expected else 0.0,
    )
    made.findings = [{k: r[k] for k in ("kind", "severity", "lost_share", "ranks", "confidence")} for r in rows[:6]]
    if about:
        made.first, made.confidence = about[0]["kind"], about[0]["confidence"]
    made.right = made.first in accepted if accepted else made.first is None or about[0]["severity"] == "low"
    if made.first is None and made.natural and made.share < QUIET:
        made.right = True
    culprits = [c for c, _ in counted if made.first == c.kind or made.first in also_accepted(program, c)]
    if made.right and culprits and made.first:
        made.ranks_right = any(
            ranks_right(program, c, made.first, culprits_of(about[0], program.view.devices)) for c in culprits
        )
    if len(counted) > 1:
        named = {r["kind"] for r in about[:CAUSES_WITHIN]}
        made.all_found = all(named & ({c.kind} | also_accepted(program, c)) for c, _ in counted)
    if len(counted) == 1:
        cause, share = counted[0]
        made.true_shares = share, max(share, truth.kinds[cause.kind])
        kinds = {cause.kind} | also_accepted(program, cause)
        found = next((r for r in about if r["kind"] in kinds), None)
        made.stated, made.found_share = found is not None, found["lost_share"] if found else None
    for row in about:
        wants = {"high": 0.05, "medium": 0.015}.get(row["severity"], 0.0)
        real = max(
            [truth.kinds.get(row["kind"], 0.0), *(s for c, s in counted if row["kind"] in also_accepted(program, c))]
        )
        if wants and real < wants:
            made.false_alarms.append(row["kind"])
        if row["lost_share"] is not None and not -1e-9 <= row["lost_share"] <= 1 + 1e-9:
            made.impossible.append(row["kind"])
    return made


def described(program: Program) -> str:
    """A program in a few words."""
    grid, view = program.grid, program.view
    sizes = {"tp": grid.tp, "cp": grid.cp, "dp": grid.dp, "pp": grid.pp, "ep": grid.ep}
    words = [f"{grid.ranks} ranks on {grid.hosts}", " ".join(f"{k}{v}" for k, v in sizes.items() if v > 1)]
    words += [f"zero{program.zero}"] * bool(program.zero) + ["hybrid"] * program.hybrid + ["mpi"] * program.mpi
    words += [f"graphs {view.graphs}"] * (view.graphs != "none") + ["late capture"] * bool(view.late)
    words += [f"{view.devices} devices a process"] * (view.devices > 1)
    words += ["no step ranges"] * (view.step_text is None) + [f"nccl {view.nccl}"]
    return ", ".join(w for w in words if w)


def percent(part: float, whole: float) -> str:
    """Such as `3 of 4 (75.0 %)`; `none` without a whole."""
    return f"{part} of {whole} ({100 * part / whole:.1f} %)" if whole else "none"


def summary(judged: Sequence[Judgement], least: float) -> str:
    """The results as Markdown."""
    answered = [j for j in judged if j.error is None]
    expecting = [j for j in answered if j.expected]
    planted = [j for j in expecting if not j.natural]
    lines = ["| what | result |", "|---|---|", f"| programs answered | {percent(len(answered), len(judged))} |"]
    lines.append(f"| a cause costs {100 * least:g} % or more | {percent(len(expecting), len(answered))} |")
    lines.append(
        f"| first finding has the costliest kind | {percent(sum(j.right for j in expecting), len(expecting))} |"
    )
    lines.append(f"| the same, where that was planted | {percent(sum(j.right for j in planted), len(planted))} |")
    ranked = [j for j in answered if j.ranks_right is not None]
    lines.append(f"| culprits right, kind right | {percent(sum(bool(j.ranks_right) for j in ranked), len(ranked))} |")
    several = [j for j in answered if j.all_found is not None]
    what = f"every kind of several causes in the first {CAUSES_WITHIN} findings"
    lines.append(f"| {what} | {percent(sum(bool(j.all_found) for j in several), len(several))} |")
    lines += _losses(answered)
    healthy = [j for j in answered if not j.planted]
    loud = sum(any(f["severity"] in ("high", "medium") and f["kind"] != NO_LOSS for f in j.findings) for j in healthy)
    lines.append(f"| nothing planted, and a `high` or `medium` finding | {percent(loud, len(healthy))} |")
    wrong = sum(bool(j.false_alarms) for j in healthy)
    lines.append(f"| the same, of a kind that costs less than half of that | {percent(wrong, len(healthy))} |")
    alarms = sum(bool(j.false_alarms) for j in answered)
    lines.append(f"| such a finding in any program | {percent(alarms, len(answered))} |")
    impossible = sum(bool(j.impossible) for j in answered)
    lines.append(f"| a loss below 0 or above 1 | {percent(impossible, len(answered))} |")
    return "\n".join([*lines, "", *_by_kind(answered), "", *_calibration(answered), "", *_worst(judged)])


def _losses(answered: Sequence[Judgement]) -> list[str]:
    """How near losses are to the truth, which is a span if it loses such time without the cause."""
    found = [j for j in answered if j.true_shares and j.stated]
    ratios = []
    for j in found:
        if j.found_share is not None and j.true_shares:
            low, high = j.true_shares
            ratios.append(j.found_share / min(max(j.found_share, low), high))
    lines = [f"| one planted cause, found: loss null | {percent(len(found) - len(ratios), len(found))} |"]
    lines.append(
        f"| loss within {100 * CLOSE:g} % of the truth |"
        f" {percent(sum(abs(r - 1) <= CLOSE for r in ratios), len(ratios))} |"
    )
    if ratios:
        ratios.sort()
        low, high = ratios[len(ratios) // 10], ratios[-1 - len(ratios) // 10]
        lines.append(
            f"| loss found / true: median, and where 80 % are | {median(ratios):.2f}, {low:.2f} to {high:.2f} |"
        )
    return lines


def _by_kind(answered: Sequence[Judgement]) -> list[str]:
    """Recall: of programs that lose most by a kind. Precision: of first findings of a kind."""
    lines = ["| kind | costliest in | found | named first in | rightly | instead of it |", "|---|---|---|---|---|---|"]
    kinds = sorted({j.expected for j in answered if j.expected} | {j.first for j in answered if j.first})
    for kind in [*kinds, None]:
        have = [j for j in answered if j.expected == kind]
        named = [j for j in answered if j.first == kind]
        instead = Counter(j.first or "nothing" for j in have if not j.right)
        shown = ", ".join(f"{k} {n}" for k, n in instead.most_common(3))
        right, rightly = sum(j.right for j in have), sum(j.right for j in named)
        lines.append(f"| {kind or 'nothing'} | {len(have)} | {right} | {len(named)} | {rightly} | {shown} |")
    return lines


def _calibration(answered: Sequence[Judgement]) -> list[str]:
    sure = [(j.confidence, j.right) for j in answered if j.confidence is not None]
    lines = ["| confidence of the first finding | programs | right |", "|---|---|---|"]
    for tenth in range(10):
        within = [right for c, right in sure if tenth / 10 <= c < (tenth + 1) / 10 or (tenth == 9 and c >= 1)]
        if within:
            lines.append(
                f"| {tenth / 10:.1f} to {(tenth + 1) / 10:.1f} | {len(within)} |"
                f" {100 * sum(within) / len(within):.0f} % |"
            )
    right = [c for c, r in sure if r]
    wrong = [c for c, r in sure if not r]
    pairs = sum(r > w for r in right for w in wrong)
    lines.append(f"| pairs in which the right one has more | | {percent(pairs, len(right) * len(wrong))} |")
    lines.append(f"| right ones with 0.9 or more | | {percent(sum(c >= 0.9 for c in right), len(right))} |")
    return lines


def _worst(judged: Sequence[Judgement], count: int = 10) -> list[str]:
    """The programs with the worst diagnosis: by the cost of the true cause and the confidence of the wrong one."""
    wrong = [j for j in judged if j.error or not j.right]
    wrong.sort(key=lambda j: (j.error is None, -(0.02 + j.share) * (0.3 + (j.confidence or 0.0)), j.seed))
    lines = ["| seed | program | truth | findings |", "|---|---|---|---|"]
    for j in wrong[:count]:
        planted = "; ".join(
            f"{p['kind']} {p['variant']} {100 * p['share']:.1f} % ranks {p['ranks'][:8]}" for p in j.planted
        )
        truth = f"{j.expected} {100 * j.share:.1f} %" + (f" (planted: {planted})" if planted else "")
        found = "; ".join(
            f"{f['kind']} {'null' if f['lost_share'] is None else format(100 * f['lost_share'], '.1f')} %"
            f" {f['ranks'][:8]}"
            for f in j.findings[:3]
        )
        lines.append(f"| {j.seed} | {j.program} | {truth} | {j.error or found or 'none'} |")
    return lines

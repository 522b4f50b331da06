"""How sure a finding is: what its detector saw, weighed by what loss, replay and communicators say of it."""

import math
from collections.abc import Sequence

from alltrace.recipes.questions.diagnose.all_rank_facts import AllRankFacts
from alltrace.recipes.questions.diagnose.finding import DOUBTFUL, LEAST_SHARE
from alltrace.recipes.questions.diagnose.ranking import Ranked
from alltrace.recipes.questions.diagnose.recovered_time import MOST_ERROR

_PLAIN = 20.0  # the odds of a finding with a detector confidence of `_SURE`, without evidence for or against it

_SURE = 0.9

_OF_NOBODY_KNOWN = 0.05
"""The factor for the odds if it is unknown who waits for whom, or if a wait for a rank without a report can look the
same."""

_CEILING = 0.4  # the same if no replay says what the job gets back, but a ceiling

_USUAL = 8 * LEAST_SHARE
"""The share of the judged time from which on a loss speaks for its finding; a smaller one speaks against it."""

_MOST_BY_SIZE, _LEAST_BY_SIZE = 1.5, 0.6


_FAR, _MARGIN_POWER = 3.0, 1.5
"""A loss that is this many times the largest smaller loss of another kind is clear of it. Closer ones are in doubt, by
this power of the ratio: losses are uncertain by a third, so either cause may be the larger, and one cause that is seen
as two kinds has two losses that are alike."""


def confidence_of(ranked: Ranked, all_ranks: AllRankFacts, rows: Sequence[Ranked]) -> float:
    """How sure the kind and the culprits are, 0 to 1.

    Odds are multiplied, as evidence that is independent is (a naive Bayes estimate). The numbers are fitted to random
    programs of known truth (`benchmarks.truth --split dev`), where findings with a replayed loss were nearly always
    right:

    * the detector's own odds, by their square root: its margin, and how often what it looks for comes back;
    * the size of the loss, by its fourth root, and its margin over the largest smaller one of another kind (`_FAR`);
    * no replay, or one that is away from the run; communicators that are not sure, by the square of their score;
    * nothing known of who waits for whom, or a wait for communication while ranks have no report, unless the waits for
      these are a finding; of a loss of which only the kind is unknown, one kind is as likely as the other;
    * what the culprits' reports do not show, and a loss that its own classes do not hold.
    """
    finding, loss = ranked.finding, ranked.finding.loss
    if not loss.classes or finding.opportunity is not None:
        return finding.confidence
    own = min(max(finding.confidence, 0.01), 0.99)
    odds = _PLAIN * math.sqrt(own / (1 - own) / (_SURE / (1 - _SURE)))
    claim = ranked.claim_ns / ranked.span_ns if ranked.span_ns else 0.0
    odds *= min(max(math.sqrt(math.sqrt(claim / _USUAL)), _LEAST_BY_SIZE), _MOST_BY_SIZE)
    others = (r.claim_ns for r in rows if r.finding.kind != finding.kind)
    smaller = [claim_ns for claim_ns in others if claim_ns <= ranked.claim_ns]
    following = max([*smaller, int(LEAST_SHARE * ranked.span_ns), 1])
    odds *= (min(max(ranked.claim_ns / following, 1.0), _FAR) / _FAR) ** _MARGIN_POWER
    of_unknown_kind = loss.unknown is not None and 0 < loss.estimate_ns <= loss.least_ns
    if loss.unknown is not None and not of_unknown_kind:
        odds *= _OF_NOBODY_KNOWN
    elif loss.basis != "replay":
        odds *= _CEILING
    else:
        odds *= 1 - 0.5 * min((all_ranks.replay_error or 0.0) / MOST_ERROR, 1.0)
    if all_ranks.alignment is not None and len(all_ranks.ranks) > 1:
        score = all_ranks.alignment.matching_score
        odds *= 1.0 if score is None else max(score, 0.01) ** 2
        waits = "communication" in loss.classes and finding.kind != "missing-rank"
        if waits and all_ranks.alignment.run.manifest.missing_ranks:
            absent = (r for r in rows if r.finding.kind == "missing-rank" and r.lost_ns)
            if all(confidence_of(other, all_ranks, rows) < DOUBTFUL for other in absent):
                odds *= _OF_NOBODY_KNOWN
    if loss.estimate_ns > loss.own_ns:
        odds *= max(loss.own_ns / loss.estimate_ns, 0.5)
    odds *= max(all_ranks.covered_share(finding.ranks), 0.5)
    odds = min(odds, 1.0) if of_unknown_kind else odds
    return round(float(odds / (1 + odds)), 3)

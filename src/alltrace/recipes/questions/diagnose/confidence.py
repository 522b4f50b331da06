"""How sure a finding is: what its detector saw, weighed by what the loss, the replay and the communicators say of it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from alltrace.recipes.questions.diagnose.finding import LEAST_SHARE
from alltrace.recipes.questions.diagnose.recovered_time import MOST_ERROR

if TYPE_CHECKING:
    from alltrace.recipes.questions.diagnose.all_rank_facts import AllRankFacts
    from alltrace.recipes.questions.diagnose.ranking import Ranked

_PLAIN = 8 * LEAST_SHARE
"""The share of the judged time from which on a loss speaks for its finding; a smaller one speaks against it."""

_MOST_WEIGHT = 4.0
"""The loss alone weighs at most so much, and at least the inverse of it."""


def confidence_of(ranked: Ranked, all_ranks: AllRankFacts) -> float:
    """How sure the kind and the culprits are, 0 to 1.

    Odds are multiplied, as evidence that is independent is (a naive Bayes estimate). The detector's own are those of its margin and
    of how often what it looks for comes back. A loss that is large beside the judged time raises them. What lowers them: a loss
    that its own classes do not hold, but only those that it shares with other causes; a replay that is away from the run, or none;
    communicators that are not sure; and what the culprits' reports do not show.
    """
    finding, loss = ranked.finding, ranked.finding.loss
    if not loss.classes:
        return finding.confidence
    own = min(max(finding.confidence, 0.01), 0.99)
    odds = own / (1 - own)
    claim = ranked.claim_ns / ranked.span_ns if ranked.span_ns else 0.0
    odds *= min(max(claim / _PLAIN, 1 / _MOST_WEIGHT), _MOST_WEIGHT)
    if loss.estimate_ns > loss.own_ns:
        odds *= max(loss.own_ns / loss.estimate_ns, 1 / _MOST_WEIGHT)
    error = all_ranks.replay_error if loss.basis == "replay" else None
    odds *= 0.5 if error is None else 1 - 0.5 * min(error / MOST_ERROR, 1.0)
    score = None if all_ranks.alignment is None or len(all_ranks.ranks) < 2 else all_ranks.alignment.matching_score
    if score is not None:
        odds *= max(score, 0.01)
    odds *= all_ranks.covered_share(finding.ranks)
    return round(odds / (1 + odds), 3)

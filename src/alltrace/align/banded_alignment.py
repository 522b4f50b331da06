"""Two sequences aligned within a band."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from alltrace.core import sequences as core

if TYPE_CHECKING:
    from numpy.typing import NDArray


class Alignment(NamedTuple):
    """The best alignment of n operations and some calls.

    Attributes:
        call: The call of each operation, -1 without one: int64 array of n.
        sure: Whether every alignment in which the operation has a call of another kind scores less by a margin: bool array of n.
        score: The score of the whole.
    """

    call: NDArray[np.int64]
    sure: NDArray[np.bool_]
    score: float


def align_within_band(
    op: Any,
    size: Any,
    duration: Any,
    lane: Any,
    call_op: Any,
    call_size: Any,
    kind: Any,
    kind_duration: Any,
    kind_lane: Any,
    first: int,
    band: int,
    alike: float,
    margin: float,
) -> Alignment:
    """Align the operations of a trace with the calls of a log.

    A match scores 1, more where sizes, durations and lanes agree and less where they do not; skipping costs. Operations before
    the first call and after the last cost nothing.

    Args:
        op: Operation numbers, int64 array of n.
        size: Sizes, int64, -1 if not known.
        duration: Logarithms of durations, float64, NaN if not known.
        lane: Streams, int64, -1 if not known.
        call_op: Operation numbers of the calls, int64 array of m.
        call_size: Their sizes, int64, -1 if not known.
        kind: Kind of each call, int64.
        kind_duration: For each kind the usual logarithm of its durations, float64, NaN if not known.
        kind_lane: For each kind its usual lane, int64, -1 if not known.
        first: The call that is expected at the first operation.
        band: How far from there a match may be.
        alike: How far logarithms of equal durations are apart.
        margin: By how much other alignments must score less for a match to be sure.
    """
    ops, sizes, durations, lanes, call_ops, call_sizes, kinds, kind_durations, kind_lanes = (
        np.ascontiguousarray(c) for c in (op, size, duration, lane, call_op, call_size, kind, kind_duration, kind_lane)
    )
    n, m, width = len(ops), len(call_ops), 2 * band + 1
    scores, prefix, suffix = np.empty((n, width)), np.empty((n + 1, width + 1)), np.zeros((n + 1, width + 1))
    core.match_scores(ops, sizes, durations, lanes, call_ops, call_sizes, kinds, kind_durations, kind_lanes, first, alike, scores)
    core.prefix_scores(scores, m, first, prefix)
    core.suffix_scores(scores, m, first, suffix)
    call, sure = np.full(n, -1, np.int64), np.zeros(n, np.bool_)
    core.best_path(scores, prefix, m, first, call)
    core.certain_matches(scores, prefix, suffix, call, kinds, first, margin, sure)
    return Alignment(call, sure, float(prefix[-1].max()))

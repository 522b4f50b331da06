"""Messages: which send is received where, over all ranks; the k-th send of a pair and tag is met by the k-th receive."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    Int64 = NDArray[np.int64]


@dataclass
class Ends:
    """n sends, or n receives.

    Attributes:
        keys: int64 array (k, n): what a send and its receive have in common: source, destination, and a tag or communicator.
        tasks: int64 array of n tasks, 0-based.
        tracks: int64 array of n tracks.
        starts: int64 array of n starts, ns.
        ends: int64 array of n ends, ns.
        sizes: int64 array of n sizes, bytes.
    """

    keys: Int64
    tasks: Int64
    tracks: Int64
    starts: Int64
    ends: Int64
    sizes: Int64

    @staticmethod
    def joined(parts: Sequence[Ends], keys: int) -> Ends:
        """All of `parts`, which have that many keys."""
        empty = np.empty(0, np.int64)
        names = ("tasks", "tracks", "starts", "ends", "sizes")
        rest: Any = [np.concatenate([empty, *(getattr(p, n) for p in parts)]) for n in names]
        return Ends(np.concatenate([np.empty((keys, 0), np.int64), *(p.keys for p in parts)], axis=1), *rest)


def pair(sends: Ends, receives: Ends) -> tuple[Int64, Int64]:
    """The rows of the sends that were received, and of their receives."""
    both = np.concatenate((sends.keys, receives.keys), axis=1)
    if not both.shape[1]:
        return np.empty(0, np.int64), np.empty(0, np.int64)
    codes = np.unique(both, axis=1, return_inverse=True)[1].reshape(-1)
    count = len(sends.starts)
    one = codes[:count] << 32 | _turns(codes[:count], sends.starts)
    other = codes[count:] << 32 | _turns(codes[count:], receives.starts)
    _, at, to = np.intersect1d(one, other, assume_unique=True, return_indices=True)
    return at, to


def _turns(codes: Int64, times: Int64) -> Int64:
    """The place of each row among those of its code, in the order of time."""
    order = np.lexsort((times, codes))
    sorted_ = codes[order]
    new = np.append(True, sorted_[1:] != sorted_[:-1]) if len(codes) else np.empty(0, bool)
    first = np.maximum.accumulate(np.where(new, np.arange(len(codes)), 0)) if len(codes) else np.empty(0, np.int64)
    turns = np.empty(len(codes), np.int64)
    turns[order] = np.arange(len(codes)) - first
    return turns

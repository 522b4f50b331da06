"""Messages: which send is received where, over all ranks; the k-th send of a pair and tag meets the k-th receive."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

import numpy as np

from alltrace.trace.arrays import Int64


class Ends(NamedTuple):
    """n sends, or n receives."""

    # int64 array (4, n): what a send and its receive have in common: source, destination, communicator, and MPI's tag
    keys: Int64
    objects: Int64  # n objects
    starts: Int64
    ends: Int64
    sizes: Int64  # n sizes, bytes


def joined(parts: Iterable[Ends]) -> Ends:
    none = Ends(np.empty((4, 0), np.int64), *[np.empty(0, np.int64)] * 4)
    return Ends(*(np.concatenate(columns, axis=-1) for columns in zip(none, *parts, strict=True)))


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
    """The index of each row among those with its code, in the order of time."""
    order = np.lexsort((times, codes))
    turns = np.empty(len(codes), np.int64)
    turns[order] = np.arange(len(codes)) - np.searchsorted(codes[order], codes[order])
    return turns

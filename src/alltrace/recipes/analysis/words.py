"""Columns of words of which few are distinct."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Collection

    from numpy.typing import NDArray


def coded(column: Any) -> tuple[NDArray[np.int64], list[str]]:
    """A dictionary column of n rows as codes (int64 array of n, -1 for null) and its words."""
    encoded = column.combine_chunks()
    return encoded.indices.fill_null(-1).to_numpy(zero_copy_only=False).astype(np.int64), encoded.dictionary.to_pylist()


def is_one_of(column: Any, words: Collection[str]) -> NDArray[np.bool_]:
    """Whether each row of a dictionary column has one of `words`."""
    encoded = column.combine_chunks()
    chosen = np.array([*(word in words for word in encoded.dictionary.to_pylist()), False])
    found: NDArray[np.bool_] = chosen[encoded.indices.fill_null(-1).to_numpy(zero_copy_only=False)]  # -1 is the last
    return found

"""Names of ranges as recipes add them up: without the counters in them (`alltrace.trace.name_stems`)."""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from alltrace.run.rank import Rank
from alltrace.trace.arrays import Int64
from alltrace.trace.distinct import distinct
from alltrace.trace.name_stems import stems

_FEW_NAMES = 1_000
"""The most names of a table that are remembered."""


def stems_of(rank: Rank, ids: Any) -> tuple[Int64, list[str | None]]:
    """The stems of range names: for each id the row of its stem, and the stems, each once, None for no name."""
    kinds, places = distinct(ids)
    names = rank.texts(pa.array(kinds, pa.int64()))
    codes, words = _known_stems(tuple(names.to_pylist())) if len(names) <= _FEW_NAMES else _stems(names)
    return codes[places], list(words)


@lru_cache(256)
def _known_stems(names: tuple[str | None, ...]) -> tuple[Int64, tuple[str | None, ...]]:
    """`_stems`, remembered: most ranks have the same names."""
    return _stems(pa.array(names, pa.string()))


def _stems(names: Any) -> tuple[Int64, tuple[str | None, ...]]:
    encoded = pc.dictionary_encode(stems(names), null_encoding="encode")
    codes: Int64 = encoded.indices.to_numpy(zero_copy_only=False).astype(np.int64)
    return codes, tuple(encoded.dictionary.to_pylist())

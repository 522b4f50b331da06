"""Names of ranges as recipes add them up: without the counters in them (`alltrace.trace.name_stems`)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from alltrace.trace.distinct import distinct
from alltrace.trace.name_stems import stems

if TYPE_CHECKING:
    from alltrace.recipes.base import RankTables
    from alltrace.trace.arrays import Int64


def stems_of(rank: RankTables, ids: Any) -> tuple[Int64, list[str | None]]:
    """The stems of ranges' names.

    Args:
        rank: The rank.
        ids: The ids of the names, an array of n whole numbers; an id without a name counts as none.

    Returns:
        Of each (n, int64) the row of its stem in the list; the stems, each once, None for no name.
    """
    kinds, places = distinct(ids)
    encoded = pc.dictionary_encode(stems(rank.texts(pa.array(kinds, pa.int64()))), null_encoding="encode")
    rows: Int64 = encoded.indices.to_numpy(zero_copy_only=False).astype(np.int64)[places]
    return rows, encoded.dictionary.to_pylist()

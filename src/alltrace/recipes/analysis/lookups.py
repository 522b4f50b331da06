"""Values of a rank's dictionary tables at row numbers, and texts at name ids."""

from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from alltrace.recipes.base import RunFacts
from alltrace.run.rank import Rank
from alltrace.trace.arrays import Int64


def column(table: Any, name: str) -> Any:
    """One column of a table as a single Arrow array."""
    return table.column(name).combine_chunks()


def look_up(table: Any, name: str, rows: Any) -> Any:
    """Values of a dictionary's column at row numbers, which its first column holds; null if there is none."""
    at = pc.index_in(
        pc.cast(rows, pa.int32()), pc.cast(column(table, table.column_names[0]), pa.int32()), skip_nulls=True
    )
    return pc.take(column(table, name), at)


def as_text(ids: Any, texts: RunFacts | Rank) -> Any:
    """A dictionary array of the strings of an Arrow array of name ids."""
    encoded = pc.dictionary_encode(ids)
    return pa.DictionaryArray.from_arrays(encoded.indices, texts.texts(encoded.dictionary))


def texts_of(rank: Rank, ids: Int64) -> dict[int, str]:
    """The texts of name ids; empty if there is none."""
    distinct = np.unique(ids)
    texts = rank.texts(pa.array(distinct, mask=distinct == -1))
    return {i: t or "" for i, t in zip(distinct.tolist(), texts.to_pylist(), strict=True)}

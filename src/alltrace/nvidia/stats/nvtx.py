"""What the NVTX reports share: names and durations of ranges."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc

from alltrace.nvidia.stats.base import Cell

if TYPE_CHECKING:
    from alltrace.recipes.base import RankTables, RunFacts

STYLE = Cell("Style", "text", "PushPop or StartEnd.")
STYLES = {"pushpop": "PushPop", "startend": "StartEnd"}


def range_labels(domain: Any, name: Any, texts: RunFacts | RankTables) -> Any:
    """The names of ranges: `domain:text`, or the text alone in the default domain; null if there is no text.

    Args:
        domain: Name ids of the domains, an Arrow array.
        name: Name ids of the ranges.
        texts: Knows the strings.
    """
    text = texts.texts(name)
    return pc.coalesce(pc.binary_join_element_wise(texts.texts(domain), text, ":", null_handling="emit_null"), text)


def is_kind(kinds: Any, kind: str) -> Any:
    """Whether ranges are of a kind: for the column `kind` of `ranges` a chunked array of booleans, null if it is null."""
    chunks = [pc.take(pa.array([word == kind for word in c.dictionary.to_pylist()], pa.bool_()), c.indices) for c in kinds.chunks]
    return pa.chunked_array(chunks, pa.bool_())


def style_labels(kind: Any) -> Any:
    """`PushPop` or `StartEnd` for the words of `ranges.kind`, a string array."""
    words = pc.cast(kind, pa.string())
    for word, style in STYLES.items():
        words = pc.if_else(pc.equal(words, word), style, words)
    return words

"""What the NVTX reports share: how ranges are called and how long they are."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar

import pyarrow as pa
import pyarrow.compute as pc

from alltrace.recipes.analysis.collecting import in_pieces
from alltrace.recipes.analysis.distribution import VALUE
from alltrace.recipes.stats.base import Cell, SumReport

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from alltrace.recipes.base import RankTables, RunFacts

STYLE = Cell("Style", "text", "PushPop or StartEnd.")
STYLES = {"pushpop": "PushPop", "startend": "StartEnd"}


def range_labels(domain: Any, name: Any, texts: RunFacts | RankTables) -> Any:
    """What ranges are called: `domain:text`, or the text alone in the default domain; null where there is no text.

    Args:
        domain: Name ids of the domains, an Arrow array.
        name: Name ids of the ranges.
        texts: Knows the strings.
    """
    text = texts.texts(name)
    return pc.coalesce(pc.binary_join_element_wise(texts.texts(domain), text, ":", null_handling="emit_null"), text)


def is_kind(kinds: Any, kind: str) -> Any:
    """Whether ranges are of a kind: for the column `kind` of `ranges` a chunked array of booleans, null where it is null."""
    chunks = [pc.take(pa.array([word == kind for word in c.dictionary.to_pylist()], pa.bool_()), c.indices) for c in kinds.chunks]
    return pa.chunked_array(chunks, pa.bool_())


def style_labels(kind: Any) -> Any:
    """`PushPop` or `StartEnd` for the words of `ranges.kind`, a string array."""
    words = pc.cast(kind, pa.string())
    for word, style in STYLES.items():
        words = pc.if_else(pc.equal(words, word), style, words)
    return words


class RangeSum(SumReport):
    """A report with a row of statistics per name of a range.

    A range that was still open ends at the latest time of any range or mark of the rank.

    Attributes:
        kind: The kind of ranges wanted; None for all, told apart in the column `Style`.
    """

    kind: ClassVar[str | None]
    tables: ClassVar = {"ranges": ("start", "end", "name", "domain", "kind"), "marks": ("time",)}
    requires: ClassVar = ("ranges",)
    keys: ClassVar[tuple[str, ...]] = ("kind", "domain", "name")
    hidden = ("unnamed",)
    ties: ClassVar[tuple[str, ...]] = ("Range", "unnamed")

    def rows(self, rank: RankTables, options: Mapping[str, Any]) -> Iterable[Any]:
        """The ranges."""
        still_open, latest = [], []
        for ranges in in_pieces(rank, "ranges", self.tables["ranges"]):
            ends = ranges.column("end")
            latest += [pc.max(ranges.column("start")).as_py(), pc.max(ends).as_py()]
            if ends.null_count:
                still_open.append(pc.filter(ranges, pc.is_null(ends)))
                ranges = pc.filter(ranges, pc.is_valid(ends))
            yield self._timed(ranges, ranges.column("end"))
        if still_open:
            from alltrace.recipes.analysis.nvtx_projection import close_ends

            marks = [rank.table("marks", ["time"]).column("time")] if rank.has("marks") else []
            ranges = pa.concat_tables(still_open)
            yield self._timed(ranges, close_ends(ranges, pa.array(latest, pa.int64()), *marks))

    def _timed(self, ranges: Any, ends: Any) -> Any:
        """The ranges of the wanted kind, with how long they are."""
        ranges = ranges.append_column(VALUE, pc.subtract(ends, ranges.column("start")))
        return ranges if self.kind is None else pc.filter(ranges, is_kind(ranges.column("kind"), self.kind))

    def labels(self, keys: Any, run: RunFacts, options: Mapping[str, Any]) -> Sequence[Any]:
        """The range, and its style where all are listed; ranges without a text are apart from those with an empty one."""
        keys = keys.combine_chunks()
        named = range_labels(keys.column("domain").combine_chunks(), keys.column("name").combine_chunks(), run)
        unnamed = pc.if_else(pc.is_null(named), "", "named")
        return [*([] if self.kind is not None else [style_labels(keys.column("kind").combine_chunks())]), named, unnamed]

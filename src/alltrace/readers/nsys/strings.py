"""The strings of an export: from the ids of `StringIds`, and from text in place, to ids of interned names."""

from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from alltrace.readers.nsys.mapping import find_table
from alltrace.readers.nsys.small import raw_type
from alltrace.readers.nsys.source import RawSource
from alltrace.trace.names import name_id, text_of_bytes

_MOST_RECENT = 1 << 16  # inline texts with cached ids
_DENSE_SLACK = 1 << 20  # ids up to this far above the number of strings are looked up in a plain array


class Strings:
    """Interns the strings that rows refer to; those of `StringIds`, perhaps millions, are stored once, in Arrow."""

    def __init__(self, source: RawSource) -> None:
        self._source = source
        self._values: Any = None
        self._texts: dict[int, str] = {}
        self._recent: dict[str, int] = {}

    def _load(self) -> None:
        ids: list[Any] = []
        values: list[Any] = []
        table = find_table(self._source.tables, "StringIds")
        if table is not None:
            types = self._source.tables[table]
            if "id" in types and "value" in types:
                for batch in self._source.batches(table, {"id": pa.int64(), "value": raw_type(types["value"])}):
                    ids.append(pc.fill_null(batch.column(0), -1).to_numpy(zero_copy_only=False))
                    values.append(pc.cast(_as_text(batch.column(1)), pa.large_string()))
        self._values = pa.chunked_array(values, pa.large_string()).combine_chunks()
        if isinstance(self._values, pa.ChunkedArray):
            self._values = pa.array([], pa.large_string())
        keys = np.concatenate(ids) if ids else np.empty(0, np.int64)
        count = len(keys)
        top = int(keys.max(initial=-1))
        self._dense: Any = None
        self._sorted: Any = None
        if top < 4 * count + _DENSE_SLACK:
            # the last place is for ids too large
            self._dense = np.full(top + 2, -1, np.int32 if count < 2**31 else np.int64)
            good = keys >= 0
            self._dense[keys[good]] = np.flatnonzero(good)
            self._hash_of = np.zeros(len(self._dense), np.int64)  # by id, after its first use
            self._asked = np.zeros(len(self._dense), np.bool_)
        else:
            self._order = np.argsort(keys, kind="stable")
            self._sorted = keys[self._order]
        self._hashes = np.zeros(count + 1, np.int64)
        self._known = np.zeros(count + 1, np.bool_)
        self._known[count] = True  # the place of ids that are not there

    def _places(self, ids: Any) -> Any:
        """The rows of `StringIds` that hold the ids; one past the last if none does."""
        missing = len(self._hashes) - 1
        if self._dense is not None:
            places = self._dense[self._within(ids)]
            return np.where(places < 0, missing, places) if (places < 0).any() else places
        if not len(self._sorted):
            return np.full(len(ids), missing, np.int64)
        at = np.minimum(np.searchsorted(self._sorted, ids), len(self._sorted) - 1)
        return np.where(self._sorted[at] == ids, self._order[at], missing)

    def _within(self, ids: Any) -> Any:
        """The ids, with the last place of `_dense` for those it lacks; negative ones are too large, unsigned."""
        return np.minimum(ids.view(np.uint64), np.uint64(len(self._dense) - 1)).view(np.int64)

    def from_ids(self, ids: Any) -> Any:
        """Interned ids for an int64 Arrow array of `StringIds.id`; null if the id is null or not there."""
        if self._values is None:
            self._load()
        if ids.null_count == len(ids):
            return pa.nulls(len(ids), pa.int64())
        numbers = (pc.fill_null(ids, -1) if ids.null_count else ids).to_numpy(zero_copy_only=False)
        if self._dense is None:
            places = self._places(numbers)
            there = places < len(self._hashes) - 1
            hashes = self._interned(places)
        else:
            at = self._within(numbers)
            there = self._asked[at]
            if not there.all():  # usually all were used before
                new = pc.unique(pa.array(at[~there])).to_numpy()
                new = new[self._dense[new] >= 0]
                self._hash_of[new], self._asked[new] = self._interned(self._dense[new]), True
                there = self._asked[at]
            hashes = self._hash_of[at]
        return pa.array(hashes, mask=None if there.all() else ~there)

    def _interned(self, places: Any) -> Any:
        """The ids of the strings in some rows of `StringIds`, which get one at their first use."""
        known = self._known[places]
        if not known.all():
            new = pc.unique(pa.array(places[~known]))
            self._hashes[new.to_numpy()] = [name_id(t or "") for t in pc.take(self._values, new).to_pylist()]
            self._known[new.to_numpy()] = True
        return self._hashes[places]

    def text(self, string_id: int) -> str | None:
        """The string with the id, or None."""
        if self._values is None:
            self._load()
        place = int(self._places(np.array([string_id], np.int64))[0])
        return self._values[place].as_py() if place < len(self._values) else None

    def from_texts(self, texts: Any) -> Any:
        """Interned ids for an Arrow array of strings; null if the text is."""
        if texts.null_count == len(texts):
            return pa.nulls(len(texts), pa.int64())
        encoded = pc.dictionary_encode(_as_text(texts))
        ids = pa.array(list(map(self._id_of, encoded.dictionary.to_pylist())), pa.int64())
        return pc.take(ids, encoded.indices)

    def _id_of(self, text: str | None) -> int | None:
        if text is None:
            return None
        key = self._recent.get(text)  # every batch has most of the texts of the one before
        if key is None:
            if len(self._recent) >= _MOST_RECENT:
                self._recent.clear()
            key = self._recent[text] = self.add(text)
        return key

    def add(self, text: str) -> int:
        """Intern one string; its id."""
        key = name_id(text)
        self._texts[key] = text
        return key

    def table(self) -> Any:
        """The dictionary `names` of all strings interned so far."""
        ids = pa.array(self._texts.keys(), pa.int64())
        values = pa.array(self._texts.values(), pa.large_string())
        if self._values is not None:
            places = np.flatnonzero(self._known[:-1])
            ids = pa.concat_arrays([ids, pa.array(self._hashes[places])])
            values = pa.concat_arrays([values, pc.fill_null(pc.take(self._values, pa.array(places)), "")])
            _, first = np.unique(ids.to_numpy(), return_index=True)  # a string can be there under two ids
            keep = pa.array(np.sort(first))
            ids, values = pc.take(ids, keep), pc.take(values, keep)
        return pa.table({"id": ids, "value": pc.cast(pa.chunked_array([values]), pa.string())})


def _as_text(values: Any) -> Any:
    """An Arrow array as strings: bytes, of a column that is declared so, with what is not UTF-8 escaped."""
    if pa.types.is_string(values.type):
        return values
    if pa.types.is_binary(values.type):
        return pa.array([None if v is None else text_of_bytes(v) for v in values.to_pylist()], pa.string())
    return pc.cast(values, pa.string())

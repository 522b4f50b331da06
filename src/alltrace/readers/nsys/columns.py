"""Makes batches of a canonical table from batches of an export's table, as the mapping declares."""

from collections.abc import Iterator, Sequence
from functools import lru_cache
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from alltrace.readers.nsys.entities import Entities
from alltrace.readers.nsys.mapping import Field, Source
from alltrace.readers.nsys.small import raw_type
from alltrace.readers.nsys.source import RawSource
from alltrace.readers.nsys.strings import Strings
from alltrace.trace.arrays import either, unpacked
from alltrace.trace.schema import TABLES

_INVALID = 0xFFFF_FFFF
_ORDER = {"thread": 0, "process": 1, "device": 2}


def _having(batch: Any, column: str, number: int) -> Any:
    """The rows of a batch with `number` in `column`."""
    keep = pc.fill_null(pc.equal(as_integers(batch.column(column)), number), False)
    return batch if pc.all(keep, min_count=0).as_py() else pc.filter(batch, keep)


def timed(batch: Any, table: str, left_out: dict[str, int], *columns: Any) -> Any:
    """The rows of a batch of `table` with a number in each of `columns`; how many have none is added to `left_out`."""
    for column in columns:
        numbers = as_integers(batch.column(column))
        if numbers.null_count:
            left_out[table] = left_out.get(table, 0) + numbers.null_count
            batch = pc.filter(batch, pc.is_valid(numbers))
    return batch


class Columns:
    """What all tables share: the export, its strings, and its processes, threads and devices."""

    def __init__(self, source: RawSource, strings: Strings, entities: Entities, left_out: dict[str, int]) -> None:
        self.source = source
        self.strings = strings
        self.entities = entities
        self._left_out = left_out

    def stream(self, table: str, mapping: Source) -> Iterator[Any]:
        """The rows of one table of the export as batches of the canonical table of `mapping`."""
        types = self.source.tables[table]
        target = TABLES[mapping.table]
        wanted: dict[str, Any] = {}
        for name, field in mapping.fields.items():
            for column in self._columns(field, types):
                wanted[column] = _wider(
                    wanted.get(column), self._raw_type(field, types[column], target.column(name).type)
                )
        if target.order and target.order in mapping.fields and not self._columns(mapping.fields[target.order], types):
            return  # without a time there is nothing to place
        only = mapping.only if mapping.only is not None and mapping.only[0] in types else None
        if only is not None:
            wanted[only[0]] = _wider(wanted.get(only[0]), raw_type(types[only[0]]))
        fields = sorted(mapping.fields.items(), key=lambda item: _ORDER.get(item[1].how, 3))
        plan = [(name, field, target.column(name).type) for name, field in fields]
        for batch in self.source.batches(table, wanted):
            batch = batch if only is None else _having(batch, *only)
            if target.order in mapping.fields:
                batch = timed(batch, table, self._left_out, mapping.fields[target.order].column)
            converted = self._convert(batch, mapping, plan)
            if converted.num_rows:
                yield converted

    @staticmethod
    def _columns(field: Field, types: Any) -> list[str]:
        return [c for c in (field.column, field.otherwise_column) if c in types and c is not None]

    @staticmethod
    def _raw_type(field: Field, declared: str, kind: str) -> Any:
        narrow = {"int8": pa.int8(), "int16": pa.int16(), "int32": pa.int32()}
        if declared == "int64" and field.how == "copy" and kind in narrow:
            return narrow[kind]
        return raw_type(declared)

    def _convert(self, batch: Any, mapping: Source, plan: Sequence[tuple[str, Field, str]]) -> Any:
        columns: dict[str, Any] = {}
        for name, field, kind in plan:
            columns[name] = self._make(batch, field, kind, columns)
        return record_batch(mapping.table, columns, batch.num_rows)

    def _make(self, batch: Any, field: Field, kind: str, columns: dict[str, Any]) -> Any:
        count = batch.num_rows
        if field.how == "constant":
            return words_array(np.full(count, field.words.index(field.word or ""), np.int32), field.words)
        if field.how == "string":
            return self._string(batch, field)
        if field.column not in batch.schema.names:
            return None
        values = batch.column(field.column)
        if field.how == "text":
            return self.strings.from_texts(values)
        if field.how in {"copy", "loose", "id"}:
            return _number(values, field.how, kind)
        return self._derived(as_integers(values), field, columns)

    def _derived(self, values: Any, field: Field, columns: dict[str, Any]) -> Any:
        if field.how == "words":
            return words_from(values, field.words)
        if field.how == "flag":
            numbers, nothing = unpacked(values)
            return pa.array(numbers != 0, mask=nothing)
        if field.how == "thread":
            return self.entities.thread_rows(values)
        if field.how == "process":
            if "thread" in columns and columns["thread"] is not None:
                return self.entities.process_of_threads(columns["thread"])
            return self.entities.process_rows(values)
        return self.entities.device_rows(columns.get("process"), values)

    def _string(self, batch: Any, field: Field) -> Any:
        result = None
        if field.column in batch.schema.names:
            result = self.strings.from_ids(as_integers(batch.column(field.column)))
        other = field.otherwise_column
        if other in batch.schema.names and (result is None or result.null_count):
            labels = pc.cast(words_from(as_integers(batch.column(other)), field.otherwise), "string")
            interned = self.strings.from_texts(
                labels if result is None else pc.if_else(pc.is_null(result), labels, None)
            )
            result = interned if result is None else pc.coalesce(result, interned)
        return result


def _wider(one: Any, other: Any) -> Any:
    # one that is not a number has the same width for any use
    return other if one is None or (pa.types.is_integer(one) and one.bit_width < other.bit_width) else one


@lru_cache(maxsize=16)  # a table has several columns of one type, and batches of one length, which may share them
def nulls(count: int, kind: Any) -> Any:
    """`count` nulls of any type, dictionaries included."""
    if pa.types.is_dictionary(kind):
        return pa.DictionaryArray.from_arrays(pa.nulls(count, kind.index_type), pa.array([], kind.value_type))
    return pa.nulls(count, kind)


def record_batch(table: str, columns: dict[str, Any], count: int) -> Any:
    """A batch of a canonical table of the columns made; the others are null."""
    schema = TABLES[table].arrow_schema()
    arrays = [nulls(count, f.type) if columns.get(f.name) is None else columns[f.name] for f in schema]
    return pa.RecordBatch.from_arrays(arrays, schema=schema)


def as_integers(values: Any) -> Any:
    """An Arrow array as int64; null if a value is not an integer."""
    if values.type == pa.int64():
        return values
    if pa.types.is_integer(values.type) or pa.types.is_null(values.type):
        return pc.cast(values, pa.int64())
    numbers = []
    for value in values.to_pylist():
        try:
            number = int(value)
        except (TypeError, ValueError, OverflowError):
            number = None
        numbers.append(number if number is not None and -(2**63) <= number < 2**63 else None)
    return pa.array(numbers, pa.int64())


@lru_cache(maxsize=256)
def _word_list(words: tuple[str, ...]) -> Any:
    return pa.array(words, pa.string())


def words_array(codes: Any, words: tuple[str, ...], nothing: Any = None) -> Any:
    """Codes as an Arrow dictionary array of words; null if `nothing`."""
    return pa.DictionaryArray.from_arrays(pa.array(codes, pa.int32(), mask=nothing), _word_list(words))


def words_from(values: Any, words: tuple[str, ...]) -> Any:
    """Numbers as words; a number that has none is `unknown`, or null if that is not a word of them."""
    codes, nothing = unpacked(values)
    strange = (codes < 0) | (codes >= len(words))
    if strange.any():
        if "unknown" in words:
            codes = np.where(strange, words.index("unknown"), codes)
        else:
            codes = np.where(strange, 0, codes)
            nothing = either(nothing, strange)
    return words_array(codes.astype(np.int32), words, nothing)


def _number(values: Any, how: str, kind: str) -> Any:
    from alltrace.trace.columns import arrow_type

    wanted = arrow_type("int64" if kind == "time" else kind)
    if wanted == pa.float64():
        return pc.cast(values, wanted) if not pa.types.is_string(values.type) else pa.nulls(len(values), wanted)
    if values.type == wanted:
        return pc.if_else(pc.not_equal(values, _INVALID), values, None) if how == "id" else values
    values = as_integers(values)
    try:
        return pc.cast(values, wanted)
    except pa.ArrowInvalid:
        numbers, nothing = unpacked(values)
        limits = np.iinfo(str(wanted))
        strange = (numbers < limits.min) | (numbers > limits.max)
        return pa.array(np.where(strange, 0, numbers), wanted, mask=either(nothing, strange))

"""The form of rows in memory while a table is written: plain columns, with words for enums and no all-null columns.

A held batch has the table's columns in order. An enum column holds int32 codes of one dictionary per table, because
every batch from a reader may have its own; a column that is null throughout has Arrow's null type, which takes no
memory.
"""

from collections.abc import Sequence

import pyarrow as pa
import pyarrow.compute as pc

from alltrace.trace.schema import Table


class HeldColumns:
    """Turns batches of a table into held batches and back."""

    def __init__(self, table: Table) -> None:
        self.schema: pa.Schema = table.arrow_schema()  # the table's own schema
        self._table = table
        # the schema of complete held batches
        self.plain: pa.Schema = pa.schema(
            [
                f.with_type(pa.int32()) if c.type == "enum" else f
                for f, c in zip(self.schema, table.columns, strict=True)
            ]
        )
        self._words: dict[int, dict[str, int]] = {i: {} for i, c in enumerate(table.columns) if c.type == "enum"}
        self._seen: dict[int, tuple[pa.Array, pa.Array]] = {}
        self._nulls: dict[pa.DataType, pa.Array] = {}

    def hold(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """The held form of a batch. Raises `ValueError`: the batch has not the columns of the table."""
        if batch.schema.names != self.schema.names:
            raise ValueError(f"{self._table.name}: expected columns {self.schema.names}, got {batch.schema.names}")
        arrays = []
        for position, (field, array) in enumerate(zip(self.schema, batch.columns, strict=True)):
            enum = position in self._words
            if array.type != field.type and not (enum and pa.types.is_dictionary(array.type)):
                raise ValueError(f"{self._table.name}.{field.name}: expected {field.type}, got {array.type}")
            if array.null_count == len(array):
                arrays.append(pa.nulls(len(array)))
            elif enum:
                arrays.append(self._codes(position, array))
            else:
                arrays.append(array)
        return pa.RecordBatch.from_arrays(arrays, names=self.schema.names)

    def full(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """A held batch, or some columns of one, with types for all-null columns, so that all have one schema."""
        fields = [self.plain.field(name) for name in batch.schema.names]
        arrays = [
            self.nulls(field.type, batch.num_rows) if pa.types.is_null(array.type) else array
            for field, array in zip(fields, batch.columns, strict=True)
        ]
        return pa.RecordBatch.from_arrays(arrays, schema=pa.schema(fields))

    def release(self, batches: Sequence[pa.RecordBatch]) -> pa.Table:
        """Full batches as a table of the table's own schema."""
        table = pa.Table.from_batches(batches, self.plain).combine_chunks()
        for position in self._words:
            words = pa.array(list(self._words[position]), pa.string())
            codes = table.column(position)
            chunks = [pa.DictionaryArray.from_arrays(c, words) for c in codes.chunks]
            table = table.set_column(
                position, self.schema.field(position), pa.chunked_array(chunks, self.schema.field(position).type)
            )
        return table

    def code(self, column: str, word: str) -> int | None:
        """The code that `word` has in the enum `column`; None when no row had it."""
        return self._words[self.schema.get_field_index(column)].get(word)

    def nulls(self, kind: pa.DataType, count: int) -> pa.Array:
        """`count` nulls of a type; they share memory."""
        shared = self._nulls.get(kind)
        if shared is None or len(shared) < count:
            shared = self._nulls[kind] = pa.nulls(count, kind)
        return shared.slice(0, count)

    def _codes(self, position: int, array: pa.DictionaryArray) -> pa.Array:
        seen = self._seen.get(position)
        if seen is None or not (seen[0] is array.dictionary or seen[0].equals(array.dictionary)):
            words = self._words[position]
            codes = [None if w is None else words.setdefault(w, len(words)) for w in array.dictionary.to_pylist()]
            seen = self._seen[position] = (array.dictionary, pa.array(codes, pa.int32()))
        return pc.take(seen[1], array.indices)

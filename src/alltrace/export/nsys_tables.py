"""Writes the tables of an export of Nsight Systems as they are, in the forms of `nsys export`: Parquet and Arrow."""

import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

import pyarrow as pa
import pyarrow.parquet as pq

from alltrace.readers.nsys.source import RawSource
from alltrace.readers.nsys.sqlite import open_sqlite
from alltrace.trace.errors import UsageError

Kind = Literal["parquetdir", "arrowdir", "arrow"]
ENDINGS: Mapping[str, str] = {"parquetdir": "parquet", "arrowdir": "arrow"}

_UNSIGNED = frozenset({"globalTid", "globalPid", "globalVid", "endGlobalTid", "commHandle", "objectId", "globalId"})
_HIDDEN = "META_DATA_CAPTURE"  # the environment of the program, tokens included
_TYPES = {"int64": pa.int64(), "float64": pa.float64(), "string": pa.string(), "binary": pa.binary()}
_ROWS = 1 << 16
# what a basic regular expression takes as it is, and Python does not
_PLAIN = frozenset("+?|(){}")


# `patterns`: basic regular expressions; a table is written if its whole name matches one, in any case. None for all.
class NsysTables:
    """The tables of an export."""

    def __init__(self, path: Path, patterns: Sequence[str] = ()) -> None:
        wanted = [_pattern(text) for text in patterns]
        self._source: RawSource = open_sqlite(path)
        self.names: list[str] = [
            name
            for name in self._source.tables
            if name != _HIDDEN and (not wanted or any(w.fullmatch(name) for w in wanted))
        ]

    def close(self) -> None:
        self._source.close()

    def schema(self, table: str) -> pa.Schema:
        columns = self._source.tables[table]
        fields = [
            pa.field(n, pa.uint64() if n in _UNSIGNED and t == "int64" else _TYPES[t]) for n, t in columns.items()
        ]
        return pa.schema(fields, metadata={"table_name": table})

    def batches(self, table: str) -> Iterator[pa.RecordBatch]:
        """The rows of a table. Raises `InputError`: the file is damaged."""
        schema = self.schema(table)
        columns = {name: _TYPES[kind] for name, kind in self._source.tables[table].items()}
        for batch in self._source.batches(table, columns, _ROWS):
            arrays = [
                a.view(pa.uint64()) if f.type == pa.uint64() else a for a, f in zip(batch.columns, schema, strict=True)
            ]
            yield pa.RecordBatch.from_arrays(arrays, schema=schema)

    def write(self, kind: Kind, place: Path) -> None:
        # `kind`: `parquetdir` or `arrowdir`, a folder with a file for each table; `arrow`, one file with a stream after
        # the other. `place`: the folder, which is there, or the file. Raises `InputError`: the export is damaged.
        if kind == "arrow":
            with place.open("wb") as file:
                for table in self.names:
                    self._stream(table, file)
            return
        for table in self.names:
            self.write_table(kind, table, place / f"{table}.{ENDINGS[kind]}")

    def write_table(self, kind: Kind, table: str, path: Path) -> None:
        if kind == "parquetdir":
            with pq.ParquetWriter(path, self.schema(table), compression="zstd") as writer:
                for batch in self.batches(table):
                    writer.write_batch(batch)
            return
        with path.open("wb") as file:
            self._stream(table, file)

    def _stream(self, table: str, file: Any) -> None:
        with pa.ipc.new_stream(file, self.schema(table)) as writer:
            for batch in self.batches(table):
                writer.write_batch(batch)


def _pattern(text: str) -> re.Pattern[str]:
    r"""A basic regular expression as one of Python's: `\(` groups, `(` is itself."""
    out, escaped, inside = [], False, False
    for letter in text:
        if escaped:
            out.append(letter if letter in _PLAIN else f"\\{letter}")
            escaped = False
        elif letter == "\\" and not inside:
            escaped = True
        else:
            out.append(f"\\{letter}" if letter in _PLAIN and not inside else letter)
            inside = letter == "[" or (inside and letter != "]")
    try:
        return re.compile("".join(out), re.IGNORECASE)
    except re.error as error:
        raise UsageError(f"--tables has {text!r}, which is not a regular expression ({error})") from error

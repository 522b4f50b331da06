"""Arrow files followed by a checksum of their bytes, with the signature of what they were derived from."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import fields, is_dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from alltrace.run.checksums import checked_content, with_checksum
from alltrace.run.derived import draft_of
from alltrace.trace.errors import DamageError

# Files of plain objects, for data derived from a run on demand: dataclasses of numbers, texts and arrays. An object is
# a tree in JSON, in the metadata of an Arrow file with the arrays as rows. Reading makes objects of the classes that
# the reader names and no others, and nothing in a file is executed.

_TREE = b"alltrace.object"
_SCHEMA = pa.schema([("dtype", pa.string()), ("shape", pa.list_(pa.int64())), ("values", pa.large_binary())])
_KINDS = "biuf"  # the kinds of NumPy's types that are kept: truth values and numbers


def write_object(path: Path, value: Any, signature: str) -> None:
    """Write dataclasses, mappings, lists, tuples, texts, numbers, None and arrays, nested, completely or not at all."""
    arrays: list[np.ndarray[Any, Any]] = []
    tree = json.dumps(_packed(value, arrays))
    columns = [[a.dtype.str for a in arrays], [list(a.shape) for a in arrays], [a.tobytes() for a in arrays]]
    table = pa.table([pa.array(c, f.type) for c, f in zip(columns, _SCHEMA, strict=True)], schema=_SCHEMA)
    write_table(path, table.replace_schema_metadata({_TREE: tree.encode()}), signature)


def read_object(path: Path, signature: str, classes: Sequence[type]) -> Any:
    """What `write_object` wrote; None of another `signature`. Raises `DamageError`; `ValueError`: not of `classes`."""
    table = read_signed(path, signature)
    if table is None:
        return None
    tree = (table.schema.metadata or {}).get(_TREE, b"")
    if table.schema.remove_metadata() != _SCHEMA:
        raise ValueError(f"{path} has other columns")
    arrays = [_array(*(column[row].as_py() for column in table.columns)) for row in range(table.num_rows)]
    try:
        return _unpacked(json.loads(tree), arrays, {c.__name__: c for c in classes})
    except (KeyError, IndexError, TypeError, AttributeError) as error:
        raise ValueError(f"{path} does not hold an object of these classes") from error


def _packed(value: Any, arrays: list[np.ndarray[Any, Any]]) -> Any:
    """What JSON can write of a value, with the numbers of its arrays in their place."""
    if isinstance(value, np.ndarray):
        if value.dtype.kind not in _KINDS:
            raise TypeError(f"an array of {value.dtype} cannot be kept")
        arrays.append(value)
        return {"array": len(arrays) - 1}
    if isinstance(value, np.generic):
        return value.item()
    if is_dataclass(value) and not isinstance(value, type):
        return {
            "object": type(value).__name__,
            "fields": {f.name: _packed(getattr(value, f.name), arrays) for f in fields(value)},
        }
    if isinstance(value, Mapping):
        return {"map": [[_packed(k, arrays), _packed(v, arrays)] for k, v in value.items()]}
    if isinstance(value, tuple):
        return {"tuple": [_packed(v, arrays) for v in value]}
    if isinstance(value, list):
        return [_packed(v, arrays) for v in value]
    if value is None or isinstance(value, bool | int | float | str):
        return value
    raise TypeError(f"a {type(value).__name__} cannot be kept")


def _unpacked(tree: Any, arrays: Sequence[np.ndarray[Any, Any]], classes: Mapping[str, type]) -> Any:
    if isinstance(tree, list):
        return [_unpacked(t, arrays, classes) for t in tree]
    if not isinstance(tree, dict):
        return tree
    if "array" in tree:
        return arrays[tree["array"]]
    if "tuple" in tree:
        return tuple(_unpacked(t, arrays, classes) for t in tree["tuple"])
    if "map" in tree:
        return {_unpacked(k, arrays, classes): _unpacked(v, arrays, classes) for k, v in tree["map"]}
    return classes[tree["object"]](**{name: _unpacked(t, arrays, classes) for name, t in tree["fields"].items()})


def _array(dtype: str, shape: list[int], values: bytes) -> np.ndarray[Any, Any]:
    kind = np.dtype(dtype)
    if kind.kind not in _KINDS:
        raise ValueError(f"an array of {dtype} is not kept")
    return np.frombuffer(values, kind).reshape(shape).copy()


_SIGNATURE = b"alltrace.signature"


def write_table(path: Path, table: pa.Table, signature: str = "") -> None:
    """Write a compressed Arrow file followed by its checksum, completely or not at all."""
    table = table.replace_schema_metadata({**(table.schema.metadata or {}), _SIGNATURE: signature.encode()})
    options = pa.ipc.IpcWriteOptions(compression=pa.Codec("zstd", 3))
    memory = pa.BufferOutputStream()  # it is small, and a call for each of its buffers takes longer
    with pa.ipc.new_file(memory, table.schema, options=options) as writer:
        writer.write_table(table)
    with draft_of(path) as draft, draft.open("wb") as file:
        file.writelines(with_checksum(memory.getvalue()))


def read_table(path: Path) -> pa.Table:
    """What `write_table` wrote, with its metadata. Raises `DamageError`: the file is missing, or not as written."""
    return _read(_opened(path))


def read_signed(path: Path, signature: str) -> pa.Table | None:
    """The same; None if it has another signature."""
    file = _opened(path)
    return _read(file) if _signature(file) == signature else None


def has_signature(path: Path, signature: str) -> bool:
    """Whether the file is as it was written, with `signature`."""
    try:
        return _signature(_opened(path)) == signature
    except DamageError:
        return False


def _opened(path: Path) -> pa.RecordBatchFileReader:
    return pa.ipc.open_file(checked_content(path))


def _signature(file: pa.RecordBatchFileReader) -> str:
    return str((file.schema.metadata or {}).get(_SIGNATURE, b"").decode())


def _read(file: pa.RecordBatchFileReader) -> pa.Table:
    table = file.read_all()
    facts = {name: fact for name, fact in (table.schema.metadata or {}).items() if name != _SIGNATURE}
    return table.replace_schema_metadata(facts or None)

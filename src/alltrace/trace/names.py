"""Interned strings: a string's id is a hash of its bytes.

Ids that depend on nothing but the string let many processes intern in parallel, let an interrupted import resume, and
are equal in every run, so runs can be compared without matching names first. The hash is the first 8 bytes of BLAKE2b:
64 bits make an accidental clash among a billion names improbable (about 3 percent), and the reader of a run checks for
one.
"""

from hashlib import blake2b
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc


def name_id(text: str) -> int:
    """The id of `text`: a signed 64-bit integer, equal in every run."""
    digest = blake2b(text.encode("utf-8", "surrogatepass"), digest_size=8).digest()
    return int.from_bytes(digest, "little", signed=True)


def text_of_bytes(raw: bytes) -> str:
    """The text of bytes that should be UTF-8; those that are not are shown escaped, so that no two names become one."""
    return raw.decode("utf-8", "backslashreplace")


def intern(texts: Any) -> tuple[Any, Any]:
    """Intern the strings of an Arrow array."""
    # `texts`: a `pyarrow.StringArray` (or chunked, or dictionary-encoded) of n strings, with nulls. Returns two Arrow
    # objects: an int64 array of n ids, null if the text is; and a table `names` (`id`, `value`) of the distinct strings
    # among them.
    if isinstance(texts, pa.ChunkedArray):
        texts = texts.combine_chunks()
        if isinstance(texts, pa.ChunkedArray):  # zero chunks
            texts = pa.array([], texts.type)
    encoded = texts if pa.types.is_dictionary(texts.type) else pc.dictionary_encode(texts)
    values = encoded.dictionary
    ids = pa.array([None if t is None else name_id(t) for t in values.to_pylist()], pa.int64())
    taken = pc.take(ids, encoded.indices)
    return taken, pa.table({"id": ids, "value": pc.cast(values, pa.string())})

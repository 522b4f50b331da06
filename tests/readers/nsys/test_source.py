"""The size of batches."""

from __future__ import annotations

import pyarrow as pa

from alltrace.readers.nsys.source import BATCH_BYTES, rows_per_batch


def test_wide_rows_make_short_batches():
    wide = {f"c{i}": pa.int64() for i in range(32)}
    assert rows_per_batch(wide) == BATCH_BYTES // 256 + 1
    assert rows_per_batch({**wide, "text": pa.string()}) == BATCH_BYTES // 288 + 1


def test_narrow_rows_make_no_endless_batches():
    assert rows_per_batch({"c": pa.int8()}) == 65_536

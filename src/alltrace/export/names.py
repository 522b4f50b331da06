"""Names of a run as pieces of text in a pool, looked up once each."""

from collections.abc import Callable

import numpy as np

from alltrace.export.record_bytes import Pool
from alltrace.run.store import Run
from alltrace.trace.arrays import Int64


# `pool`: where the text is put. `written`: how a name is written; a null id is `?`.
class NameCodes:
    """Numbers in a pool for ids of names."""

    def __init__(self, run: Run, pool: Pool, written: Callable[[str], str | bytes]) -> None:
        self._run = run
        self._pool = pool
        self._written = written
        self._ids = np.empty(0, np.int64)
        self._codes = np.empty(0, np.int64)

    def of(self, ids: Int64) -> Int64:
        import pyarrow as pa

        unique = np.unique(ids)
        new = np.setdiff1d(unique, self._ids, assume_unique=True)
        if len(new):
            texts = self._run.texts(pa.array(new)).to_pylist()
            codes = self._pool.add_all(self._written("?" if t is None else t) for t in texts)
            ids_, codes_ = np.concatenate((self._ids, new)), np.concatenate((self._codes, codes))
            order = np.argsort(ids_)
            self._ids, self._codes = ids_[order], codes_[order]
        numbers: Int64 = self._codes[np.searchsorted(self._ids, ids)]
        return numbers

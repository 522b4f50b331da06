"""Parents of interleaving push/pop ranges against a real Nsight Systems."""

from __future__ import annotations

import csv
import io
import random
import shutil
import sqlite3
import subprocess
from typing import TYPE_CHECKING

import numpy as np
import pytest

from alltrace.trace import nesting

if TYPE_CHECKING:
    from pathlib import Path


@pytest.mark.oracle
@pytest.mark.corpus
@pytest.mark.parametrize("seed", [1, 2, 3])
def test_parents_are_those_of_nsys(corpus: Path, nsys: Path, tmp_path: Path, seed: int) -> None:
    """Random ranges in a real export; of lengths that all differ, because nsys leaves ties open and drops equal ranges."""
    export = tmp_path / "ranges.sqlite"
    shutil.copyfile(corpus / "nsys" / "schema3.1_nsys2023.1.sqlite", export)
    export.chmod(0o600)
    rng = random.Random(seed)
    database = sqlite3.connect(export)
    rows = [r[0] for r in database.execute("SELECT rowid FROM NVTX_EVENTS WHERE eventType = 59")]
    lengths = rng.sample(range(1, 400), len(rows))
    for row, length in zip(rows, lengths, strict=True):
        start = 10**6 + rng.randrange(500)
        database.execute("UPDATE NVTX_EVENTS SET start = ?, end = ? WHERE rowid = ?", (start, start + length, row))
    database.commit()
    database.close()
    command = [str(nsys), "stats", "-q", "-r", "nvtx_pushpop_trace", "-f", "csv", "--force-export=false", str(export)]
    printed = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    theirs = list(csv.DictReader(io.StringIO(printed)))
    assert len(theirs) == len(rows)
    theirs.sort(key=lambda r: (int(r["Start (ns)"]), -int(r["End (ns)"])))
    starts = np.array([int(r["Start (ns)"]) for r in theirs])
    ends = np.array([int(r["End (ns)"]) for r in theirs])
    depths, parents = nesting.nest(np.zeros(len(theirs), np.int64), starts, ends)
    ids = [r["RangeId"] for r in theirs]
    assert ["" if p < 0 else ids[p] for p in parents] == [r["ParentId"] for r in theirs]
    assert depths.tolist() == [int(r["Lvl"]) for r in theirs]
    assert ((starts[1:] < ends[:-1]) & (ends[1:] > ends[:-1])).any()  # some interleave

from __future__ import annotations

import numpy as np
import pyarrow as pa

from alltrace.trace.grouping import group


def test_groups_of_nulls_and_of_many_combinations():
    codes, first = group([pa.array([1, None, 1, None]), pa.array(["x", "x", "y", "x"])])
    assert codes[1] == codes[3]
    assert len(set(codes.tolist())) == 3
    assert [codes[i] for i in first] == [0, 1, 2]
    codes, first = group([pa.nulls(3, pa.int64())])
    assert codes.tolist() == [0, 0, 0]
    assert len(first) == 1
    n = 300
    columns = [pa.array(np.roll(np.arange(n), i)) for i in range(9)]
    codes, first = group(columns)
    assert sorted(codes.tolist()) == list(range(n))
    assert sorted(first.tolist()) == list(range(n))

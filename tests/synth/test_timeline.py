import numpy as np

from alltrace.synth.timeline import Names, Rows, Timeline, covered_ns


def test_rows_are_sorted_names_numbered_and_parts_taken():
    rows = Rows("start", "value")
    rows.add(5, 50)
    rows.add_block(np.array([7, 1]), 9)
    assert len(rows) == 3
    assert rows["start"].tolist() == [1, 5, 7]
    rows.add(0, 8)
    assert rows["value"].tolist() == [8, 9, 50, 9]
    assert len(rows) == 4
    assert Rows("start")["start"].tolist() == []
    starts, ends = np.array([10, 0, 2, 30]), np.array([12, 5, 3, 30])
    assert covered_ns(starts, ends) == 7
    assert covered_ns(np.array([0, 1, 6]), np.array([10, 2, 12])) == 12
    assert covered_ns(np.array([], np.int64), np.array([], np.int64)) == 0
    names = Names()
    assert [names.number(text) for text in ("b", "a", "b")] == [0, 1, 0]
    assert names.texts == ["b", "a"]
    line = Timeline()
    for start in (3, 1, 2):
        line.kernels.add(start, start + 1, 7, start, 0)
    line.api.add(0, 9, 0, 1, 0)
    part = line.keep(lambda name, rows: rows["start"] > 1 if name == "kernels" else None)
    assert (part.kernels["correlation"].tolist(), len(part.api), len(line.kernels)) == ([2, 3], 1, 3)
    assert part.names is line.names
    moved = line.kernels.changed("end", np.array([5, 6, 7]))
    assert (moved["end"].tolist(), line.kernels["end"].tolist()) == ([5, 6, 7], [2, 3, 4])
    assert line.bounds == (0, 9)
    assert Timeline().bounds == (0, 1)

import re

import pytest
from tests.making import kernel, make_run

from alltrace.tiles.events import EventReader
from alltrace.tiles.search import MARKS, search
from alltrace.trace.errors import UsageError


def test_a_search_finds_names_and_where_they_are(view):
    found = search(view.events, "(?i)GEMM|^forw", [0, 1])
    assert set(found["names"]) >= {"gemm_kernel", "forward"}
    events = found["events"]
    assert sorted(zip(events["rank"], events["table"], strict=True)) == [
        (0, "kernels"),
        (0, "ranges"),
        (1, "kernels"),
        (1, "ranges"),
    ]
    assert (found["complete"], found["total"], found["by_rank"]) == (True, 4, {"0": 2, "1": 2})
    assert events["start"] == sorted(events["start"])


def test_all_are_counted_where_some_are_told(tmp_path):
    """Against the rows that the run was made from."""
    rows = {r: [kernel(1000 * i, 1000 * i + 10, f"k{(i * (r + 1)) % 5}") for i in range(3000)] for r in range(3)}
    reader = EventReader(make_run(tmp_path / "run", {r: {"kernels": k} for r, k in rows.items()}))
    found = search(reader, "^k[13]$", [0, 1, 2], most=40)
    expected = {r: [k["start"] for k in k if re.fullmatch("k[13]", k["name"])] for r, k in rows.items()}
    assert found["by_rank"] == {str(r): len(s) for r, s in expected.items()}
    assert (found["total"], found["complete"]) == (sum(map(len, expected.values())), False)
    assert (len(found["events"]["row"]), found["ranks_asked"], found["ranks_done"]) == (40, 3, 3)
    width = reader.run.span_ns[1] // MARKS
    for rank, marks in found["marks"].items():
        starts = expected[int(rank)]
        assert set(marks) <= set(starts)
        assert {m // width for m in marks} == {s // width for s in starts}
        assert len(marks) <= MARKS + 1
    for rank, row, start in zip(*(found["events"][c] for c in ("rank", "row", "start")), strict=True):
        assert reader.run.rank(rank).table("kernels", ["start"])["start"][row].as_py() == start


def test_after_some_seconds_what_was_found_is_told(view, monkeypatch):
    monkeypatch.setattr("alltrace.tiles.search.MOST_SECONDS", -1)
    found = search(view.events, "gemm", [0, 1])
    assert (found["ranks_asked"], found["ranks_done"], found["complete"], found["total"]) == (2, 1, False, 1)


def test_nothing_found_and_no_expression(view):
    assert search(view.events, "no such", [0])["events"]["row"] == []
    with pytest.raises(UsageError, match="is not a valid regular expression"):
        search(view.events, "(", [0])

from __future__ import annotations

import pytest

COLUMNS = (
    "(start, end, eventType, category, color, text TEXT, globalTid, endGlobalTid, textId, domainId, uint64Value,"
    " int64Value, doubleValue REAL, floatValue REAL, jsonTextId, jsonText TEXT)"
)
NVTX = f"NVTX_EVENTS{COLUMNS}"


def event(start, end, kind, tid, **more):
    given = {"start": start, "end": end, "eventType": kind, "globalTid": tid, "domainId": 0, **more}
    names = [c.split()[0] for c in COLUMNS.strip("()").split(",")]
    return tuple(given.get(n) for n in names)


def test_kinds_of_events(export, read, tid):
    t, other = tid(9, 9), tid(9, 10)
    rows = [
        event(1, 5, 59, t, text="push"),
        event(2, None, 59, t, text="open"),
        event(3, 9, 60, t, textId=1, endGlobalTid=other),
        event(4, None, 34, t, text="mark", category=3, color=255),
        event(4, None, 33, t, text="category"),
        event(5, 6, 70, t, text="from a text file"),
        event(7, 8, 71, t, text="start/end of a text file"),
        event(8, None, 39, other, text="worker"),
        event(None, 8, 59, t, text="without a start"),
    ]
    got = read(export({NVTX: rows}, strings={1: "registered"}))
    assert [(r["start"], r["end"], r["name"], r["kind"]) for r in got.rows("ranges")] == [
        (1, 5, "push", "pushpop"),
        (2, None, "open", "pushpop"),
        (3, 9, "registered", "startend"),
        (5, 6, "from a text file", "pushpop"),
        (7, 8, "start/end of a text file", "startend"),
    ]
    assert got.column("ranges", "source_row") == [1, 2, 3, 6, 7]
    assert [(r["time"], r["name"], r["category"], r["color"]) for r in got.rows("marks")] == [(4, "mark", 3, 255)]
    tids = got.column("threads", "tid")
    assert [None if e is None else tids[e] for e in got.column("ranges", "end_thread")] == [None, None, 10, None, None]
    assert dict(zip(tids, got.column("threads", "name"), strict=True)) == {9: None, 10: "worker"}
    assert not {"category", "without a start"} & set(got.texts.values())


def test_marks_alone_and_nvtxt_events_of_a_table_of_their_own(export, read, tid):
    rows = [event(1, None, 34, tid(9, 9), text="mark"), event(2, 3, 59, tid(9, 9), text="range")]
    more = [event(5, 6, 70, tid(9, 9), text="text file")]
    path = export({NVTX: rows, f"NVTXT_EVENTS{COLUMNS}": more})
    assert read(path, ("marks",)).column("marks", "name") == ["mark"]
    assert read(path).column("ranges", "name") == ["range", "text file"]


def test_a_domain_is_named_by_its_first_creation_in_its_process(export, read, tid):
    one, two = tid(8, 8), tid(9, 9)
    rows = [
        event(1, 2, 59, one, text="before its domain", domainId=5),
        event(0, None, 75, one, text="first", domainId=5),
        event(0, None, 75, one, text="second", domainId=5),
        event(0, None, 75, two, textId=1, domainId=5),
        event(3, 4, 59, two, text="other process", domainId=5),
        event(5, 6, 59, two, text="never created", domainId=6),
        event(7, 8, 59, two, text="default"),
        event(9, 9, 59, two, text="no id", domainId=None),
    ]
    got = read(export({NVTX: rows}, strings={1: "NCCL"}))
    assert dict(zip(got.column("ranges", "name"), got.column("ranges", "domain"), strict=True)) == {
        "before its domain": "first",
        "other process": "NCCL",
        "never created": None,
        "default": None,
        "no id": None,
    }


def test_the_default_domain_may_have_a_name(export, read, tid):
    rows = [event(0, None, 75, tid(9, 9), text="named", domainId=0), event(1, 2, 59, tid(9, 9), text="r")]
    assert read(export({NVTX: rows})).column("ranges", "domain") == ["named"]


@pytest.mark.slow
def test_a_domain_created_in_a_later_batch(export, read, tid):
    t = tid(9, 9)
    rows = [event(i, i + 1, 59, t, text=f"r{i % 3}", domainId=2) for i in range(131_080)]
    rows.append(event(0, None, 75, t, text="late", domainId=2))
    got = read(export({NVTX: rows}))
    assert got.tables["ranges"].num_rows == 131_080
    assert set(got.column("ranges", "domain")) == {"late"}


def test_payloads_as_text(export, read, tid):
    t = tid(9, 9)
    rows = [
        event(1, 2, 59, t, uint64Value=-1),
        event(2, 3, 59, t, int64Value=-7),
        event(3, 4, 59, t, doubleValue=2.5),
        event(4, 5, 59, t, floatValue=0.10000000149011612),
        event(5, 6, 59, t, jsonText='{"a":1}', int64Value=3),
        event(6, 7, 59, t, jsonTextId=1),
        event(7, 8, 59, t),
    ]
    got = read(export({NVTX: rows}, strings={1: '{"b":2}'}))
    assert got.column("ranges", "payload") == ["18446744073709551615", "-7", "2.5", "0.1", '{"a":1}', '{"b":2}', None]


def test_exports_without_payload_and_end_columns(export, read, tid):
    got = read(export({"NVTX_EVENTS(start, end, eventType, text TEXT, globalTid)": [(1, 2, 59, "r", tid(9, 9))]}))
    assert got.column("ranges", "name") == ["r"]
    assert got.column("ranges", "payload") == [None]
    assert got.column("ranges", "domain") == [None]


def test_text_that_is_not_utf8(export, read, tid, tmp_path):
    import sqlite3

    path = export({NVTX: [event(1, 2, 59, tid(9, 9), text="x")]})
    connection = sqlite3.connect(path)
    connection.execute("update NVTX_EVENTS set text = cast(? as TEXT)", (b"\xd0\xff",))
    connection.commit()
    connection.close()
    assert read(path).column("ranges", "name") == ["\\xd0\\xff"]


def test_columns_declared_as_text(export, read, tid):
    declared = "NVTX_EVENTS(start TEXT, end TEXT, eventType TEXT, text TEXT, globalTid TEXT, domainId TEXT)"
    rows = [("1", "2", "59", "r", str(tid(9, 9)), "3"), ("x", "2", "59", "no start", str(tid(9, 9)), "3")]
    got = read(export({declared: rows}))
    first = got.rows("ranges")[0]
    assert (first["start"], first["end"], first["name"], first["thread"]) == (1, 2, "r", 0)

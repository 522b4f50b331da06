import pytest
from tests.making import kernel, make_run
from tests.tiles.conftest import ranges, rank_rows

from alltrace.tiles.details import event_details, instance_of, neighbour
from alltrace.tiles.events import EventReader
from alltrace.trace.errors import UsageError

US = 1000


def test_a_kernel_and_its_call_know_each_other(view):
    found = event_details(view.events, 0, "kernels", 0)
    assert (found["name"], found["track"], found["host"]) == ("gemm_kernel", "gpu/0/0/7", "host0")
    assert {k: found["columns"][k] for k in ("start", "end", "duration_ns", "kind")} == {
        "start": 40 * US,
        "end": 80 * US,
        "duration_ns": 40 * US,
        "kind": "compute",
    }
    assert "registers" not in found["columns"], "null columns are left out"
    # of the nested calls the outermost
    assert (found["call"]["row"], found["call"]["track"]) == (0, "api/0")
    assert found["call"]["columns"]["name"] == "cudaLaunchKernel_v7000"
    assert [(r["name"], r["start"], r["end"]) for r in found["ranges"]] == [
        ("step 0", 0, 130 * US),
        ("forward", 10 * US, 35 * US),
    ]
    found = event_details(view.events, 0, "api", 0)
    assert found["launched"] == [{"table": "kernels", "row": 0, "track": "gpu/0/0/7", "start": 40 * US, "end": 80 * US}]
    assert [r["name"] for r in found["ranges"]] == ["step 0", "forward"]


def test_what_a_call_launched_may_have_no_end(tmp_path):
    rows = rank_rows()
    rows["kernels"][0]["end"] = None  # as in a damaged export
    found = event_details(EventReader(make_run(tmp_path / "run", {0: rows})), 0, "api", 0)
    assert [(w["start"], w["end"]) for w in found["launched"]] == [(40 * US, 40 * US)]


def test_a_range_is_not_around_itself(view):
    assert [r["name"] for r in event_details(view.events, 0, "ranges", 1)["ranges"]] == ["step 0"]


def test_a_collective_knows_every_member_and_who_was_last(waiting):
    (row,) = [r for r in range(5) if event_details(waiting.events, 0, "kernels", r)["columns"]["start"] == 130 * US]
    operation = event_details(waiting.events, 0, "kernels", row)["collective"]
    found = instance_of(waiting.events, 0, operation)
    assert (found["last_rank"], found["last_arrival"], found["end"]) == (1, 135 * US, 150 * US)
    waits = {m["rank"]: (m["start"], m["end"], m["wait_ns"]) for m in found["members"]}
    assert waits == {0: (130 * US, 150 * US, 5 * US), 1: (135 * US, 150 * US, 0)}
    assert [m["certain"] for m in found["members"]] == [True, False]
    assert found["perhaps_last"] == [1]
    assert instance_of(waiting.events, 0, 99) is None


@pytest.mark.parametrize(
    ("error", "component", "clock", "least"),
    [(4000, 0, 1, 5000), (4001, 0, 1, 5001), (None, 0, 1, None), (1, 1, 1, None), (None, 0, 0, 0)],
)
def test_a_wait_is_a_fact_from_what_the_clocks_may_be_off_on(waiting, error, component, clock, least):
    waiting.run.overlay.facts["errors_ns"] = {"0": 3000, "1": error}
    waiting.run.overlay.facts["shared"] = {"0": 0, "1": clock}
    waiting.run.overlay.facts["components"] = {"0": 0, "1": component}
    (row,) = [r for r in range(5) if event_details(waiting.events, 0, "kernels", r)["columns"]["start"] == 130 * US]
    operation = event_details(waiting.events, 0, "kernels", row)["collective"]
    found = instance_of(waiting.events, 0, operation)
    members = {m["rank"]: (m["wait_ns"], m["least_ns"], m["certain"]) for m in found["members"]}
    sure = least is not None and least <= 5000
    assert members == {0: (5000, least, sure), 1: (0, 0, False)}
    assert found["perhaps_last"] == ([1] if sure else [0, 1])


def test_without_an_alignment_nothing_is_matched(tmp_path):
    from alltrace.tiles.events import EventReader

    assert instance_of(EventReader(make_run(tmp_path / "one", {0: rank_rows()})), 0, 0) is None


def test_the_next_and_previous_event_of_a_name(waiting):
    reader = waiting.events
    starts = [event_details(reader, 1, "kernels", r)["columns"]["start"] // US for r in range(5)]
    first = starts.index(30)
    found = neighbour(reader, 1, "kernels", first, forward=True)
    assert (found["start"], found["track"]) == (135 * US, "gpu/0/0/20")
    back = neighbour(reader, 1, "kernels", found["row"], forward=False)
    assert back["start"] == 30 * US
    assert neighbour(reader, 1, "kernels", first, forward=False) is None
    assert neighbour(reader, 1, "kernels", starts.index(0), forward=True) is None


def test_neighbours_start_together_or_are_not_there(tmp_path):
    rows = [
        {"start": s, "end": e, "name": "f", "kind": "pushpop"}
        for s, e in ((0, 5), (10, 99), (10, 50), (10, 20), (60, 90))
    ]
    reader = EventReader(make_run(tmp_path / "run", {0: {"ranges": rows}}))
    for forward, first in ((True, 0), (False, 4)):
        row, met = {"row": first}, []
        while row is not None and len(met) < 9:
            met.append(row["row"])
            row = neighbour(reader, 0, "ranges", row["row"], forward=forward)
        assert met == (list(range(5)) if forward else list(range(4, -1, -1)))
    rows = {"syncs": [{"start": 0, "end": 5, "kind": "event"}], "ranges": ranges([(0, 5, "f", 0)])}
    reader = EventReader(make_run(tmp_path / "2" / "run", {0: rows}))
    assert event_details(reader, 0, "syncs", 0)["columns"]["kind"] == "event"
    with pytest.raises(UsageError, match="unknown table with events"):
        neighbour(reader, 0, "syncs", 0, forward=True)


@pytest.mark.parametrize(
    ("table", "row", "message"),
    [("kernels", 99, "no row 99"), ("kernel", 0, "did you mean kernels"), ("names", 0, "unknown table")],
)
def test_what_is_not_there_is_refused(view, table, row, message):
    with pytest.raises(UsageError, match=message):
        event_details(view.events, 0, table, row)


def call(start, name, correlation, process=0):
    return {"start": start * US, "end": (start + 2) * US, "name": name, "correlation": correlation, "process": process}


def wait(start, correlation, record, **more):
    return {"start": start * US, "end": (start + 1) * US, "correlation": correlation, "kind": "stream-wait",
        "stream": 9} | {
        "event": 3, "record_correlation": record, "record_stream": None if record is None else 7, **more
    }  # fmt: skip


def rows():
    """Stream 7 runs a and b, event 3 is recorded behind b, stream 9 waits for it twice and then runs d."""
    return {
        "kernels": [
            kernel(10 * US, 20 * US, "a", correlation=1),
            kernel(20 * US, 90 * US, "b", correlation=2),
            kernel(90 * US, 95 * US, "c", correlation=7),
            kernel(91 * US, 99 * US, "d", correlation=6, stream=9),
            kernel(5 * US, 8 * US, "before", correlation=3, stream=9),
        ],
        "api": [
            call(0, "cudaEventRecord_v3020", 4),
            call(3, "cudaStreamWaitEvent_v3020", 5),
            call(4, "cuStreamWaitEvent", 5),
            call(6, "cudaLaunchKernel_v7000", 6),
            call(9, "cudaEventSynchronize_v3020", 8),
            call(12, "cudaStreamWaitEvent_v3020", 9, process=1),
        ],
        "syncs": [wait(3, 5, 4), wait(9, 8, 4, stream=None), wait(12, 9, 4, process=1), wait(30, 40, None)],
    }


@pytest.fixture
def reader(tmp_path):
    return EventReader(make_run(tmp_path / "run", {0: rows()}))


def row_called(reader, name, number=0):
    found = [r for r in range(6) if event_details(reader, 0, "api", r)["name"] == name]
    return found[number]


def test_waits_for_events_lead_to_records_and_back(reader):
    found = event_details(reader, 0, "api", row_called(reader, "cudaStreamWaitEvent_v3020"))["awaits"]
    assert (found["event"], found["stream"]) == (3, 7)
    assert (found["record"]["columns"]["name"], found["record"]["track"]) == ("cudaEventRecord_v3020", "api/0")
    assert found["record"]["row"] == row_called(reader, "cudaEventRecord_v3020")
    assert (found["before"]["name"], found["before"]["end"], found["before"]["track"]) == ("b", 90 * US, "gpu/0/0/7")
    assert (found["behind"]["name"], found["behind"]["start"], found["behind"]["track"]) == ("d", 91 * US, "gpu/0/0/9")
    found = event_details(reader, 0, "api", row_called(reader, "cudaEventSynchronize_v3020"))["awaits"]
    assert (found["before"]["name"], found["behind"]) == ("b", None)
    found = event_details(reader, 0, "api", row_called(reader, "cudaEventRecord_v3020"))
    assert [w["columns"]["name"] for w in found["waited_by"]] == [
        "cudaStreamWaitEvent_v3020",
        "cudaEventSynchronize_v3020",
    ]
    assert "awaits" not in found
    found = event_details(reader, 0, "api", row_called(reader, "cudaLaunchKernel_v7000"))
    assert not {"awaits", "waited_by"} & set(found)
    other = event_details(reader, 0, "api", row_called(reader, "cudaStreamWaitEvent_v3020", 1))
    assert "awaits" not in other, "the record of another process is not meant"


def test_of_several_devices_the_work_is_not_guessed(tmp_path):
    devices = [{"device": d, "ordinal": d, "uuid": f"GPU-{d}", "name": "H200"} for d in (0, 1)]
    reader = EventReader(make_run(tmp_path / "run", {0: rows() | {"devices": devices}}))
    found = event_details(reader, 0, "api", row_called(reader, "cudaStreamWaitEvent_v3020"))["awaits"]
    assert (found["record"]["columns"]["correlation"], found["before"], found["behind"]) == (4, None, None)

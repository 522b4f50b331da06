from __future__ import annotations

import pytest
from tests.making import kernel, make_run

from alltrace.tiles.details import event_details
from alltrace.tiles.events import EventReader

US = 1000


def call(start, name, correlation, process=0):
    return {"start": start * US, "end": (start + 2) * US, "name": name, "correlation": correlation, "process": process}


def wait(start, correlation, record, **more):
    return {"start": start * US, "end": (start + 1) * US, "correlation": correlation, "kind": "stream-wait", "stream": 9} | {
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


def test_a_wait_leads_to_the_record_of_its_event_and_to_the_work_on_both_sides(reader):
    found = event_details(reader, 0, "api", row_called(reader, "cudaStreamWaitEvent_v3020"))["awaits"]
    assert (found["event"], found["stream"]) == (3, 7)
    assert (found["record"]["columns"]["name"], found["record"]["track"]) == ("cudaEventRecord_v3020", "api/0")
    assert found["record"]["row"] == row_called(reader, "cudaEventRecord_v3020")
    assert (found["before"]["name"], found["before"]["end"], found["before"]["track"]) == ("b", 90 * US, "gpu/0/0/7")
    assert (found["behind"]["name"], found["behind"]["start"], found["behind"]["track"]) == ("d", 91 * US, "gpu/0/0/9")


def test_a_wait_of_the_host_holds_no_stream_back(reader):
    found = event_details(reader, 0, "api", row_called(reader, "cudaEventSynchronize_v3020"))["awaits"]
    assert (found["before"]["name"], found["behind"]) == ("b", None)


def test_a_record_knows_the_calls_of_its_process_that_wait_for_it(reader):
    found = event_details(reader, 0, "api", row_called(reader, "cudaEventRecord_v3020"))
    assert [w["columns"]["name"] for w in found["waited_by"]] == ["cudaStreamWaitEvent_v3020", "cudaEventSynchronize_v3020"]
    assert "awaits" not in found


def test_another_call_has_nothing_to_do_with_events(reader):
    found = event_details(reader, 0, "api", row_called(reader, "cudaLaunchKernel_v7000"))
    assert not {"awaits", "waited_by"} & set(found)
    other = event_details(reader, 0, "api", row_called(reader, "cudaStreamWaitEvent_v3020", 1))
    assert "awaits" not in other, "the record of another process is not meant"


def test_of_several_devices_the_work_is_not_guessed(tmp_path):
    devices = [{"device": d, "ordinal": d, "uuid": f"GPU-{d}", "name": "H200"} for d in (0, 1)]
    reader = EventReader(make_run(tmp_path / "run", {0: rows() | {"devices": devices}}))
    found = event_details(reader, 0, "api", row_called(reader, "cudaStreamWaitEvent_v3020"))["awaits"]
    assert (found["record"]["columns"]["correlation"], found["before"], found["behind"]) == (4, None, None)

"""When the operations of a rank ran, and which can be members of an instance."""

from __future__ import annotations

import pyarrow as pa

from alltrace.align.timelines import MATCHED_COLUMNS, decoded

TEXTS = {"evidence"}


def table_of(*rows):
    """A table with `MATCHED_COLUMNS`; columns that are not given are null, names are numbers."""
    columns = {
        name: pa.array([row.get(name) for row in rows], pa.string() if name in TEXTS else pa.int64())
        for name in MATCHED_COLUMNS
    }
    return pa.table(columns)


OF_DEVICE = {"start": 10, "end": 30, "op": 1, "evidence": "kernel", "communicator": 4}
OF_HOST = {"api_start": 40, "api_end": 70, "op": 1, "evidence": "mpi", "communicator": 4}


def operations_of(table):
    return decoded(table, lambda sizes: sizes, lambda tags: tags)


def test_operations_have_the_times_of_their_device_and_those_of_mpi_of_their_calls():
    times = operations_of(table_of(OF_DEVICE | {"api_start": 1, "api_end": 2}, OF_HOST | {"start": 3, "end": 4}))
    assert (times.start.tolist(), times.end.tolist()) == ([10, 40], [30, 70])
    assert (times.row.tolist(), times.calls_only) == ([0, 1], 0)


def test_operations_without_name_times_or_others_are_no_members():
    rows = [
        OF_DEVICE | {"op": None},
        OF_DEVICE | {"end": None},
        OF_DEVICE | {"start": None, "api_start": 1, "api_end": 2},
        OF_DEVICE | {"group_size": 1},
        OF_DEVICE | {"group_size": 1, "end": None},
        OF_DEVICE | {"group_size": 2},
        OF_HOST | {"api_end": None},
        OF_HOST | {"tag": 3},
        OF_HOST | {"tag": 3, "communicator": None},
        OF_HOST | {"communicator": None},
        OF_DEVICE | {"communicator": None},
    ]
    times = operations_of(table_of(*rows))
    assert sorted(times.row.tolist()) == [5, 7, 9, 10]
    assert times.calls_only == 4


def test_sequence_numbers_are_those_of_traces_and_logs():
    rows = [OF_DEVICE | {"evidence": e, "sequence": 7} for e in ("trace", "log", "nvtx+kernel", "kernel")]
    assert operations_of(table_of(*rows, OF_HOST | {"sequence": 7})).sequence.tolist() == [7, 7, -1, -1, -1]

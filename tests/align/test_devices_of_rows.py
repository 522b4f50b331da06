"""What each device of a process has, on rows."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pyarrow as pa

from alltrace.align.devices import _owners, _shares, _sharing, _worked_with


def test_rows_are_of_the_device_or_of_the_thread_that_launches_to_it():
    places, owners = {4: 0, 6: 1, 9: 2}, {1: np.array([True, False, False]), 2: np.array([False, True, True])}

    def shares(name, **columns):
        return [np.flatnonzero(rows).tolist() for rows in _shares(name, pa.table(columns), places, owners)]

    assert shares("kernels", device=[6, 4, 5, None, 9], thread=[1] * 5) == [
        [1, 2, 3],
        [0],
        [4],
    ]  # what is on no device is the first's
    assert shares("ranges", thread=[1, 2, 3, None]) == [[0, 2, 3], [1, 2, 3], [1, 2, 3]]
    assert shares("syncs", device=[4, 6]) == [[0, 1]] * 3
    assert shares("samples", value=[1, 2]) == [[0, 1]] * 3
    assert shares("kernels", device=pa.array([], pa.int64())) == [[]] * 3
    assert shares("ranges", thread=pa.array([], pa.int64())) == [[]] * 3


def test_devices_that_one_thread_launches_to_share_it():
    owners = {
        1: np.array([True, True, False, False]),
        2: np.array([False, True, False, True]),
        3: np.array([False, False, True, False]),
    }
    assert _sharing(owners, 4) == [[0, 1, 3]]
    assert _sharing({3: owners[3]}, 4) == []


def rank_of(**tables):
    def file_table(name, columns):
        rows = tables.get(name, {})
        return pa.table({c: pa.array(rows.get(c, []), pa.int64()) for c in columns})

    return SimpleNamespace(file_table=file_table)


def test_a_thread_owns_the_devices_that_it_launches_to_but_for_exceptions():
    # thread 5 launches ten kernels to device 0 and one to device 1, thread 6 twenty to device 1 and one to device 0
    thread = [5] * 11 + [6] * 21 + [7]
    device = [0] * 10 + [1] + [1] * 20 + [0]
    call = list(range(len(thread)))
    api = {"process": [1] * 33, "correlation": call, "thread": thread, "start": call, "end": call}
    kernels = {"process": [1] * 32, "correlation": call[:32], "device": device}
    owners = _owners(rank_of(api=api, kernels=kernels), {0: 0, 1: 1})
    assert {t: its.tolist() for t, its in owners.items()} == {5: [True, True], 6: [False, True]}
    assert _owners(rank_of(api=api), {0: 0, 1: 1}) == {}
    elsewhere = {**kernels, "device": [3] * 32}
    assert _owners(rank_of(api=api, kernels=elsewhere), {0: 0, 1: 1}) == {}


def test_a_device_with_few_kernels_is_not_worked_with():
    devices = tuple(SimpleNamespace(device=n) for n in range(3))
    rank = rank_of(kernels={"device": [0] * 100 + [1] * 5 + [2] * 4}, graphs={"device": [1] * 1})
    run = SimpleNamespace(rank=lambda number: rank)
    assert [d.device for d in _worked_with(run, SimpleNamespace(rank=0, devices=devices))] == [0, 1]
    assert _worked_with(run, SimpleNamespace(rank=0, devices=devices[2:])) == list(devices[2:])

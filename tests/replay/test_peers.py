"""What the peers take, of arrays made by hand."""

from __future__ import annotations

from time import process_time
from types import SimpleNamespace

import numpy as np
import pyarrow as pa

from alltrace.replay.peers import _transfers


def exchanges(sizes, members=8):
    """Instances of these sizes, with a transfer of each member."""
    instance = np.repeat(np.arange(len(sizes)), members)
    table = pa.table(
        {
            "instance": instance,
            "op": pa.array(["AllToAll"] * len(instance)).dictionary_encode(),
            "bytes": np.repeat(sizes, members),
            "members": np.full(len(instance), members),
        }
    )
    return instance.astype(np.int32), table


def test_a_transfer_takes_the_median_of_its_like():
    _, members = exchanges([64, 128, 64], members=2)
    arcs = np.array([2, 0, -1, 1, 2, 0, 1])
    work = np.array([30, 10, 99, 5, 40, 20, 8])
    found = _transfers(SimpleNamespace(instance=arcs, work_ns=work), members)
    assert found.tolist() == [25, 25, 0, 6, 25, 25, 6]


def test_as_many_sizes_as_instances_cost_no_look_at_all_for_each():
    # as of an exchange of experts' tokens; each kind was looked for among all transfers
    instance, members = exchanges(np.arange(40_000))
    work = np.arange(len(instance))
    begin = process_time()
    found = _transfers(SimpleNamespace(instance=instance, work_ns=work), members)
    assert process_time() - begin < 8
    assert (found == 8 * instance.astype(np.int64) + 3).all()

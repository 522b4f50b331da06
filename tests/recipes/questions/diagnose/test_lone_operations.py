"""What a rank says of its own operations: those without a partner, its messages, and those of no named communicator."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pyarrow as pa

from alltrace.recipes.questions.diagnose.lone_operations import lone_operations
from alltrace.trace.names import name_id


def test_operations_without_a_partner_are_summed_and_messages_of_any_size_are_counted():
    rows = [  # start, end, op, communicator, bytes, group_size
        (0, 10, "AllReduce", 5, 64, 2),
        (10, 30, "AllReduce", 5, 64, 2),
        (30, 40, "SendRecv", None, None, None),  # of unknown size, so not compared
        (40, 45, "AllReduce", 5, 64, 2),  # matched
        (50, 60, "Send", 6, 64, 2),  # matched
        (70, 80, "Broadcast", None, 8, None),  # of a communicator that is unknown
        (500, 510, "Recv", None, 64, None),  # in no judged step
    ]
    start, end, op, communicator, size, group = zip(*rows, strict=True)
    table = pa.table(
        {
            "start": start,
            "end": end,
            "op": [name_id(text) for text in op],
            "communicator": pa.array(communicator, pa.int64()),
            "bytes": pa.array(size, pa.int64()),
            "group_size": pa.array(group, pa.int64()),
        }
    )
    facts = SimpleNamespace(steps=np.array([7, 8]), regions=np.array([[0, 45], [45, 100]]), waits=np.array([[5, 20]]))
    lone = lone_operations(SimpleNamespace(table=lambda *_: table), np.array([3, 4]), facts)
    assert [v.tolist() for v in (lone.step, lone.op, lone.communicator, lone.size, lone.group_size)] == [
        [7, 8],
        [name_id("AllReduce"), name_id("Broadcast")],
        [5, 0],
        [64, 8],
        [2, -1],
    ]
    assert [v.tolist() for v in (lone.count, lone.took_ns, lone.waited_ns)] == [[2, 1], [30, 10], [15, 0]]
    assert (lone.messages.tolist(), lone.alone.tolist(), lone.unnamed) == ([1, 1], [1, 0], 3)

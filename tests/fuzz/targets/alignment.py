"""Alignment of operations with calls within a band: any numbers, not-a-number among the durations."""

from __future__ import annotations

from random import Random

import numpy as np

from alltrace.align.log_call_matching import align_within_band
from tests.fuzz.fields import Fields

_MOST = 60
_KINDS = 4


def corpus() -> list[bytes]:
    """Equal sequences, shifted ones, others, none."""
    draw = Random(1)
    found = [bytes(12)]
    for count, calls in ((1, 1), (5, 5), (20, 22), (30, 10)):
        head = b"".join(n.to_bytes(2, "little") for n in (count, calls, draw.randrange(5), draw.randrange(8)))
        columns = [bytes(draw.randrange(3) for _ in range(count + calls)) for _ in range(2)]
        found.append(head + b"".join(columns) + np.array([draw.random() for _ in range(count)], "<f8").tobytes())
        found.append(head + draw.randbytes(10 * count + 4 * calls))
    return found


def run(data: bytes) -> None:
    """The alignment of the sequences in `data`."""
    fields = Fields(data)
    count, calls = 1 + fields.number(_MOST), 1 + fields.number(_MOST)
    first, band = fields.number(2 * _MOST) - _MOST, fields.number(_MOST)
    ops, sizes = fields.small(count + calls) % 5, fields.small(count + calls) - 1
    taken = fields.int64(count).view(np.float64)
    lanes, kinds = fields.small(count) % 4 - 1, fields.small(calls) % _KINDS
    typical = fields.int64(_KINDS).view(np.float64)
    usual = fields.small(_KINDS) % 4 - 1
    with np.errstate(all="ignore"):
        call, sure, _score = align_within_band(
            ops[:count],
            sizes[:count],
            taken,
            lanes,
            ops[count:],
            sizes[count:],
            kinds,
            typical,
            usual,
            first,
            band,
            0.1,
            0.5,
        )
    chosen = call[call >= 0]
    assert len(call) == len(sure) == count
    assert (chosen < calls).all()
    assert (np.diff(chosen) > 0).all()
    assert (ops[:count][call >= 0] == ops[count:][chosen]).all()

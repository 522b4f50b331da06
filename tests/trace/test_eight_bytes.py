from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from alltrace.trace.eight_bytes import load, load_big, store
from alltrace.trace.jit import plain_kernel


@plain_kernel("UniTuple(uint64, 2)(uint8[::1], uint64)")
def both(data, at):
    return load(data, at), np.uint64(load_big(data, at))


@plain_kernel("int64(uint8[::1], uint64)")
def signed(data, at):
    return load_big(data, at)


@plain_kernel("void(uint8[::1], uint64, uint64)")
def put(data, at, number):
    store(data, at, number)


@given(st.binary(min_size=8, max_size=40), st.integers(0, 2**64 - 1), st.data())
def test_eight_bytes_are_one_number_wherever_they_lie(content, number, drawn):
    at = drawn.draw(st.integers(0, len(content) - 8))
    data, eight = np.frombuffer(bytearray(content), np.uint8), content[at : at + 8]
    assert tuple(int(x) for x in both(data, np.uint64(at))) == (int.from_bytes(eight, "little"), int.from_bytes(eight, "big"))
    assert signed(data, np.uint64(at)) == int.from_bytes(eight, "big", signed=True)
    put(data, np.uint64(at), np.uint64(number))
    assert data.tobytes() == content[:at] + number.to_bytes(8, "little") + content[at + 8 :]

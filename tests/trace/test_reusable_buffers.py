"""Blocks of memory are lent, come back when nothing uses them, and are never lent twice at once."""

import gc
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pyarrow as pa

from alltrace.trace.reusable_buffers import Blocks


def _address(block):
    return block.bytes.ctypes.data


def test_blocks_are_lent_again_within_bounds():
    blocks = Blocks(8 << 20)
    block = blocks.lend(80_000)
    address = _address(block)
    block.bytes[:80_000].view(np.int64)[:] = np.arange(10_000)
    array = pa.Array.from_buffers(pa.int64(), 10_000, [None, block.buffer(0, 80_000)])
    del block
    gc.collect()
    other = blocks.lend(80_000)
    assert _address(other) != address
    other.bytes[:] = 255
    assert array.to_pylist() == list(range(10_000))
    part = array.slice(9_990)
    del array
    assert _address(blocks.lend(80_000)) != address
    assert part.to_pylist() == list(range(9_990, 10_000))
    del part
    held = [blocks.lend(80_000), blocks.lend(80_000)]
    assert address in {_address(b) for b in held}
    large = blocks.lend(200_000)
    address = _address(large)
    del large
    small = blocks.lend(99_999)
    assert len(small.bytes) == 99_999
    assert _address(small) != address
    assert _address(blocks.lend(100_000)) == address
    blocks = Blocks(200_000)
    held = [blocks.lend(80_000) for _ in range(5)]
    del held
    assert sum(len(m) for m in blocks._free) == 160_000


def test_few_large_blocks_wait_and_threads_share_none():
    blocks = Blocks(8 << 20)
    block = blocks.lend(65_535)
    assert (
        pa.Array.from_buffers(pa.int8(), 3, [None, block.buffer(1, 3)]).to_pylist()
        == block.bytes[1:4].view(np.int8).tolist()
    )
    del block
    assert not blocks._free
    held = [blocks.lend(65_536) for _ in range(100)]
    del held
    assert len(blocks._free) == 64
    large = blocks.lend(200_000)  # none fits, none is lost
    assert len(large.bytes) == 200_000
    assert len(blocks._free) == 64

    def work(number):
        for _ in range(100):
            block = blocks.lend(70_000)
            block.bytes[:] = number
            if not (block.bytes == number).all():
                return False
            del block
        return True

    with ThreadPoolExecutor(4) as pool:
        assert all(pool.map(work, range(4)))

"""The allocators of an import."""

from __future__ import annotations

import pyarrow as pa
import pytest

from alltrace.run.memory import lean_memory


def test_arrow_uses_the_system_allocator_inside_and_its_own_after():
    before = pa.default_memory_pool().backend_name
    with lean_memory():
        inside = pa.default_memory_pool().backend_name
    assert (inside, pa.default_memory_pool().backend_name) == ("system", before)


def fail():
    with lean_memory():
        raise KeyError


def test_an_error_inside_leaves_the_allocator_as_it_was():
    before = pa.default_memory_pool().backend_name
    with pytest.raises(KeyError):
        fail()
    assert pa.default_memory_pool().backend_name == before

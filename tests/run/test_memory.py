"""The allocators of an import."""

from __future__ import annotations

import ctypes
import subprocess
import sys

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


FAULTS = """
import resource
import numpy as np
from alltrace.run.memory import keep_freed_memory, lean_memory

def faults():
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    np.ones(3 << 19, np.uint8)  # too small for a page of 2 MiB
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before

if KEEPS:
    keep_freed_memory()
with lean_memory():
    faults()
    inside = faults()
faults()
print(inside, faults())
"""


@pytest.mark.skipif(not hasattr(ctypes.CDLL(None), "mallopt"), reason="not glibc")
@pytest.mark.parametrize("keeps", [False, True])
def test_what_was_freed_is_kept_outside_of_imports_alone(keeps):
    """Memory that was given back is cleared anew for the next who asks: a fault for each of its pages, 384 of 4 KiB."""
    code = FAULTS.replace("KEEPS", str(keeps))
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    inside, outside = map(int, done.stdout.split())
    assert inside > 350
    assert outside < 50 if keeps else outside > 350

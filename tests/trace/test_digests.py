from __future__ import annotations

import hashlib
import subprocess
import sys

from alltrace.trace.digests import blake2b


def test_the_hash_is_that_of_hashlib():
    for size in 4, 8, 16:
        assert blake2b(b"rank 7", digest_size=size).digest() == hashlib.blake2b(b"rank 7", digest_size=size).digest()


def test_a_python_that_has_it_elsewhere_hashes_alike():
    code = (
        "import hashlib, sys; sys.modules['_blake2'] = None; from alltrace.trace.digests import blake2b;"
        "print(blake2b(b'rank 7', digest_size=8).hexdigest())"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == blake2b(b"rank 7", digest_size=8).hexdigest()

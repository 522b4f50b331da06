"""The hash of names and contents: BLAKE2b, without the library of all other hashes, which takes 3 ms to load."""

from __future__ import annotations

try:
    from _blake2 import blake2b as blake2b  # the module that `hashlib` has it from, in CPython
except ImportError:
    from hashlib import blake2b as blake2b

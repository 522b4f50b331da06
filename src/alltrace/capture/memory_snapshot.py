"""Snapshots of PyTorch's allocator of device memory, of the steps that are recorded.

Source: PyTorch's documentation, "Understanding CUDA Memory Usage", which names the two functions for it.
"""

from __future__ import annotations

import os
import sys
from typing import Any

from alltrace.capture.variables import MEMORY

_MOST_ENTRIES = 200_000
"""Some 40 MB of a snapshot; the latest are kept."""


def begin_history() -> bool:
    """Have the allocator record its history, if requested; returns whether it does."""
    if MEMORY not in os.environ:
        return False
    torch: Any = sys.modules.get("torch")
    if torch is None or not torch.cuda.is_available():
        sys.stderr.write(
            "alltrace: --memory-snapshot needs PyTorch with a GPU, which this process does not have; no snapshot is"
            " written\n"
        )
        return False
    # so PyTorch's documentation calls it
    torch.cuda.memory._record_memory_history(max_entries=_MOST_ENTRIES)  # noqa: SLF001
    return True


def end_history(name: str) -> None:
    """Write the snapshot, and have the allocator write down no more."""
    # `name`: what distinguishes it from others of the rank.
    import torch  # which the program has loaded, as the history has begun

    memory: Any = torch.cuda.memory
    path = f"{os.environ[MEMORY]}{name}.pickle"
    try:
        memory._dump_snapshot(path)  # noqa: SLF001  so PyTorch's documentation calls it
    except OSError as error:
        sys.stderr.write(f"alltrace: {path}: {error.strerror}; no snapshot of memory is written\n")
    memory._record_memory_history(enabled=None)  # noqa: SLF001

"""Snapshots of PyTorch's allocator of device memory (`torch.cuda.memory._dump_snapshot`): pickles of plain data."""

from pathlib import Path

from alltrace.readers.heads import head_of

SUFFIXES = (".pickle", ".pkl")
_HEAD_BYTES = 1 << 10
_PROTOCOL = b"\x80"


def is_report(path: Path) -> bool:
    """Whether `path` has one of the suffixes and begins like such a pickle: with the key of its segments."""
    if not path.name.lower().endswith(SUFFIXES):
        return False
    head = head_of(path, _HEAD_BYTES)
    return head.startswith(_PROTOCOL) and b"segments" in head

"""Reader of the files of NCCL Inspector; as a report, of verbose files that are named.

In a folder of reports such a file is not a report: it describes the same operations as the profiler's report of its
process.
"""

from pathlib import Path

from alltrace.readers.heads import head_of

_HEAD_BYTES = 1 << 12


def is_report(path: Path) -> bool:
    """Whether `path` begins like a file of NCCL Inspector, uncompressed."""
    head = head_of(path, _HEAD_BYTES)
    return head.lstrip()[:1] == b"{" and b'"inspector_output_format_version"' in head

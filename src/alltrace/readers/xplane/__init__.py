"""XProf (experimental): traces of JAX's and TensorFlow's profiler as they are written on each host, `.xplane.pb`."""

from pathlib import Path

from alltrace.readers.heads import head_of

SUFFIX = ".xplane.pb"
_PLANE = b"\x0a"


def is_report(path: Path) -> bool:
    """Whether `path` has the name of one and begins with a plane."""
    return path.name.lower().endswith(SUFFIX) and head_of(path, 1) == _PLANE

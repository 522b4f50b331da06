"""The fuzz targets, by name."""

NAMES = (
    "alignment",
    "graph",
    "intervals",
    "kineto",
    "nccl_log",
    "ncu",
    "paraver",
    "readers",
    "sqlite",
    "text",
    "xplane",
)
TARGETS = {name: f"tests.fuzz.targets.{name}" for name in NAMES}
"""The module of each target."""

"""The fuzz targets, by name."""

NAMES = tuple("alignment graph intervals kineto nccl_log ncu paraver readers sqlite text xplane".split())
TARGETS = {name: f"tests.fuzz.targets.{name}" for name in NAMES}
"""The module of each target."""

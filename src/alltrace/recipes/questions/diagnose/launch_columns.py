"""The columns of `kernels` that say how a kernel was launched."""

from __future__ import annotations

LAUNCH = ("grid_x", "grid_y", "grid_z", "block_x", "block_y", "block_z", "dynamic_shared_memory")
"""What launches of one kernel must have in common to be the same work."""

RESOURCES = ("registers", "static_shared_memory")  # what a launch uses of a multiprocessor in addition to `LAUNCH`

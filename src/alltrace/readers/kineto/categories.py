"""What kind of event a category is, under the names that versions of the profiler and of ROCm's gave it."""

from __future__ import annotations

KERNEL, COPY, FILL, RUNTIME, DRIVER, WAIT, ANNOTATION, OPERATOR, PYTHON, OVERHEAD, FRAME = range(1, 12)
OTHER = 0
"""`FRAME` is a `PYTHON` event that stands for no module of the model."""

ROLES = {
    "kernel": KERNEL, "gpu_memcpy": COPY, "memcpy": COPY, "gpu_memset": FILL, "memset": FILL,
    "mtia_ccp_events": KERNEL, "hpu_op": KERNEL,
    "cuda_runtime": RUNTIME, "runtime": RUNTIME, "hip_runtime": RUNTIME, "privateuse1_runtime": RUNTIME,
    "xpu_runtime": RUNTIME, "mtia_runtime": RUNTIME, "glow_runtime": RUNTIME,
    "cuda_driver": DRIVER, "hip_driver": DRIVER, "xpu_driver": DRIVER, "privateuse1_driver": DRIVER, "cuda_sync": WAIT,
    "user_annotation": ANNOTATION, "cpu_op": OPERATOR, "operator": OPERATOR, "python_function": PYTHON, "overhead": OVERHEAD,
}  # fmt: skip
"""Category in lower case to role (libkineto/src/ActivityType.cpp of pytorch/kineto, and what older versions wrote)."""

PROJECTED = "gpu_user_annotation"
"""The projection of a range, which is worked out anew; every other category of events on a device that has no role is told."""

ON_GPU = (KERNEL, COPY, FILL, WAIT)
ON_HOST = (RUNTIME, DRIVER, ANNOTATION, OPERATOR, PYTHON)


def role_of(category: str) -> int:
    """The role of a category; `OTHER` where its events are not read."""
    return ROLES.get(category.lower(), OTHER)

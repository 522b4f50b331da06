"""What kind of event a category is, under the names that versions of the profiler and of ROCm's gave it."""

KERNEL, COPY, FILL, RUNTIME, DRIVER, WAIT, ANNOTATION, OPERATOR, PYTHON, OVERHEAD, FRAME, COUNTERS = range(1, 13)
OTHER = 0  # `FRAME` is a `PYTHON` event that is not a module of the model

ROLES = {
    "kernel": KERNEL, "gpu_memcpy": COPY, "memcpy": COPY, "gpu_memset": FILL, "memset": FILL,
    "cuda_runtime": RUNTIME, "runtime": RUNTIME, "hip_runtime": RUNTIME, "privateuse1_runtime": RUNTIME,
    "xpu_runtime": RUNTIME, "mtia_runtime": RUNTIME, "hpu_op": RUNTIME, "glow_runtime": RUNTIME,
    "cuda_driver": DRIVER, "hip_driver": DRIVER, "privateuse1_driver": DRIVER, "xpu_driver": DRIVER, "cuda_sync": WAIT,
    "mtia_ccp_events": KERNEL,
    "user_annotation": ANNOTATION, "cpu_op": OPERATOR, "operator": OPERATOR, "python_function": PYTHON,
    "overhead": OVERHEAD, "cuda_profiler_range": COUNTERS,
}  # fmt: skip
"""Category in lower case to role, as Kineto's ActivityType.cpp has them, and their older names."""

IGNORED = frozenset(
    """
    gpu_user_annotation ac2g async fwdbwd async_cpu_to_gpu async_gpu external_correlation cpu_instant_event cuda_event
    trace
    """.split()
)
"""Categories with redundant events: projections of ranges, arrows, and the profiler's own spans."""

ON_GPU = (KERNEL, COPY, FILL, WAIT)
ON_HOST = (RUNTIME, DRIVER, ANNOTATION, OPERATOR, PYTHON)


def role_of(category: str) -> int:
    """The role of a category; `OTHER` if its events are not read."""
    return ROLES.get(category.lower(), OTHER)


def is_unknown(category: str) -> bool:
    """Whether a category is unknown, so that its events must be classified by their content."""
    return category.lower() not in ROLES and category.lower() not in IGNORED

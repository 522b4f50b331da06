"""CUDA's own switch for profilers, through PyTorch if the program has it, else through the runtime's library."""

import ctypes
import functools
import sys
from contextlib import suppress

_CUDART = ("libcudart.so", "libcudart.so.12", "libcudart.so.13", "libcudart.so.11.0")


def synchronise() -> None:
    """Wait for the device, if the process uses one."""
    torch = sys.modules.get("torch")
    if torch is not None:
        if torch.cuda.is_available() and torch.cuda.is_initialized():
            torch.cuda.synchronize()
        return
    runtime = _runtime()
    if runtime is not None:
        runtime.cudaDeviceSynchronize()


def switch(what: str) -> bool:
    """Call cudaProfilerStart or cudaProfilerStop (`what` is `Start` or `Stop`); whether there is CUDA."""
    torch = sys.modules.get("torch")
    if torch is not None and torch.cuda.is_available():
        getattr(torch.cuda.cudart(), f"cudaProfiler{what}")()
        return True
    runtime = _runtime()
    if runtime is not None:
        getattr(runtime, f"cudaProfiler{what}")()
    return runtime is not None


@functools.cache
def _runtime() -> ctypes.CDLL | None:
    for name in _CUDART:
        with suppress(OSError):
            return ctypes.CDLL(name)
    return None

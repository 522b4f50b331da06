"""Clock, throttling and errors of the GPU that a process uses, by NVML: the evidence for why a rank is slow."""

import sys
from importlib import import_module
from time import monotonic
from typing import Any, NamedTuple

_SAMPLE_S = 10.0
_HARMLESS = 0x1 | 0x2 | 0x100  # idle, clocks set by an application, display: nothing is wrong
_REASONS = {
    0x4: "its power cap",
    0x8: "hardware",
    0x10: "another GPU of its group",
    0x20: "heat",
    0x40: "heat",
    0x80: "a power brake",
}


class GpuState(NamedTuple):
    clock_mhz: int = 0  # of the SMs; 0 if unknown
    most_mhz: int = 0  # the highest that it can have
    throttle: int = 0  # the reasons for a lower one, as NVML's bits
    xid: int = 0  # the last error; 0 for none


def gpu_words(state: GpuState) -> str:
    """What is wrong with a GPU, as a part of a sentence; empty if nothing is."""
    parts = [f"its GPU has Xid {state.xid}"] if state.xid else []
    reasons = dict.fromkeys(words for bit, words in _REASONS.items() if state.throttle & ~_HARMLESS & bit)
    if reasons:
        parts.append(
            f"its GPU runs at {state.clock_mhz:,} of {state.most_mhz:,} MHz, held back by {' and '.join(reasons)}"
        )
    return ", ".join(parts)


class GpuSampler:
    """Asks NVML at most every 10 s; knows nothing where there is no pynvml, no driver, or no GPU in use."""

    def __init__(self) -> None:
        self._next = 0.0
        self._nvml: Any = None
        self._handle: Any = None
        self._events: Any = None
        self.state = GpuState()

    def sample(self) -> GpuState:
        """The state, asked anew if the last answer is older than 10 s."""
        now = monotonic()
        if now < self._next:
            return self.state
        self._next = now + _SAMPLE_S
        if self._handle is None and not self._open():
            self._next = float("inf")
            return self.state
        nvml, handle = self._nvml, self._handle
        try:
            clock = nvml.nvmlDeviceGetClockInfo(handle, nvml.NVML_CLOCK_SM)
            most = nvml.nvmlDeviceGetMaxClockInfo(handle, nvml.NVML_CLOCK_SM)
            throttle = nvml.nvmlDeviceGetCurrentClocksThrottleReasons(handle)
            self.state = GpuState(int(clock), int(most), int(throttle), self._last_xid())
        except nvml.NVMLError:
            self._next = float("inf")  # such as a GPU that is lost
        return self.state

    def _open(self) -> bool:
        torch: Any = sys.modules.get("torch")
        if torch is None or not torch.cuda.is_available() or not torch.cuda.is_initialized():
            return False
        try:
            pynvml: Any = import_module("pynvml")
        except ImportError:
            return False
        self._nvml = pynvml
        try:
            pynvml.nvmlInit()
            uuid = str(torch.cuda.get_device_properties(torch.cuda.current_device()).uuid)
            self._handle = pynvml.nvmlDeviceGetHandleByUUID(f"GPU-{uuid.removeprefix('GPU-')}")
            self._events = pynvml.nvmlEventSetCreate()
            pynvml.nvmlDeviceRegisterEvents(self._handle, pynvml.nvmlEventTypeXidCriticalError, self._events)
        except pynvml.NVMLError:
            self._events = None
        return self._handle is not None

    def _last_xid(self) -> int:
        xid = self.state.xid
        try:
            while self._events is not None:
                xid = int(self._nvml.nvmlEventSetWait_v2(self._events, 0).eventData)
        except self._nvml.NVMLError:  # there is no further event
            pass
        return xid

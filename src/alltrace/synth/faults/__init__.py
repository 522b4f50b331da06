"""What can be wrong with a run, one small class for each kind.

To add one, write a frozen dataclass with a `kind`, override the hooks of `Fault` that it needs, and list it in `_ALL`.
"""

from __future__ import annotations

from alltrace.synth.faults.base import Fault
from alltrace.synth.faults.capture import CutShort, DroppedEvents, HiddenByGraphs, LateStart, MissingRank, NoRanges
from alltrace.synth.faults.compute import Imbalance, SlowHost, SlowRank
from alltrace.synth.faults.host import Allocation, DataStall, HostPause, IdleGap, LaunchBound, NeedlessSync
from alltrace.synth.faults.transfers import (
    ExposedCommunication,
    LowBandwidth,
    PageableCopy,
    SerializedCommunication,
    SlowCommunicator,
    SyncCopy,
)

_ALL = (
    SlowRank, SlowHost, Imbalance, SlowCommunicator, ExposedCommunication, SerializedCommunication, LaunchBound,
    NeedlessSync, HostPause, DataStall, IdleGap, Allocation, PageableCopy, SyncCopy, LowBandwidth, MissingRank,
    CutShort, LateStart, DroppedEvents, NoRanges, HiddenByGraphs,
)  # fmt: skip

FAULTS: dict[str, type[Fault]] = {fault.kind: fault for fault in _ALL}
"""Every kind of fault by its name."""

__all__ = ["FAULTS", "Fault"]

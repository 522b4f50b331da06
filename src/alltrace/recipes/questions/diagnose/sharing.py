"""Devices that several ranks or processes share, and slices of devices: what limits what can be said of them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from alltrace.trace.number_text import number_ranges

if TYPE_CHECKING:
    from alltrace.recipes.base import RunFacts


def notes(run: RunFacts) -> list[str]:
    """What a reader must know where a device is not one rank's alone, each one sentence."""
    users: dict[tuple[str, str], list[int]] = {}
    several, sliced = [], []
    for rank in run.ranks:
        for device in rank.devices:
            # without a UUID or a bus id two devices of a host may have the same number
            if device.uuid or device.bus_id:
                users.setdefault(device.identity, []).append(rank.rank)
        if len(rank.devices) == 1 and len(rank.pids) > 1:
            several.append(rank.rank)
        if any((d.uuid or "").startswith("MIG-") or " MIG " in f" {d.name} " for d in rank.devices):
            sliced.append(rank.rank)
    found = [
        f"ranks {number_ranges(ranks)} share a device, so one of them may wait for the other's work"
        for ranks in users.values()
        if len(set(ranks)) > 1
    ]
    if several:
        found.append(
            f"rank {number_ranges(several)}: several processes use its device; their work is judged together, "
            "and host activity is that of all"
        )
    if sliced:
        found.append(f"rank {number_ranges(sliced)}: its device is a slice (MIG), which shares the link to the host with others")
    return found

"""Runs made by hand on devices that give each process a slice of time in turn."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from tests.making import collective, kernel, make_run

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from pathlib import Path
    from typing import Any

    from alltrace.api import OpenRun

US = 1000
NAMES = ("void softmax_kernel(int)", "void gelu_kernel(int)", "void layer_norm_kernel(int)", "void dropout_kernel(int)",
         "ampere_bf16_s16816gemm_bf16_128x128_ldg8_f2f_stages_32x5_nn", "void flash_fwd_kernel(int)")  # fmt: skip
KERNELS = tuple(zip(NAMES, (60, 90, 140, 220, 310, 430), strict=True)) * 4
"""Name and usual time in us of the kernels of a step."""

OTHERS_NS = 2_500 * US
"""The slice of the other process."""


@dataclass
class Device:
    """A device that another process gets for `others_ns` whenever the rank had it for `own_ns`; 0 for none."""

    own_ns: int = 1_930 * US
    others_ns: int = OTHERS_NS

    def __post_init__(self) -> None:
        self._left = self.own_ns

    def end(self, start: int, took: int) -> int:
        """When a kernel ends that takes so long undisturbed."""
        at = start
        while self.others_ns and took > self._left:
            at += self._left + self.others_ns
            took -= self._left
            self._left = self.own_ns
        self._left -= took
        return at + took


def run_of(
    folder: Path,
    devices: Mapping[int, Device],
    took: Callable[[int, int, int], int] = lambda _step, _place, usual: usual,
    *,
    steps: int = 10,
    tables: Mapping[int, Mapping[str, list[dict[str, Any]]]] | None = None,
) -> OpenRun:
    """Steps of `KERNELS` that are all launched before the first begins; several ranks meet at the end of each.

    Args:
        folder: Where to make the run.
        devices: Each rank's device.
        took: The time of a kernel without interruption, ns, by its step, its place in it and its usual time.
        steps: How many there are.
        tables: Other tables of ranks.
    """
    made: dict[int, dict[str, list[dict[str, Any]]]] = {r: {"kernels": [], "api": [], "ranges": []} for r in devices}
    begin = steps * 50 * US
    for step in range(steps):
        host, arrivals = step * 50 * US, {}
        for rank, device in devices.items():
            rows, at = made[rank], begin

            def call(rank: int = rank, rows: Mapping[str, list[dict[str, Any]]] = rows, host: int = host) -> int:
                number = len(rows["api"])
                start = host + number % 100 * 100
                rows["api"].append(
                    {"start": start, "end": start + 90, "name": "cudaLaunchKernel", "correlation": number}
                )
                return number

            for place, (name, usual) in enumerate(KERNELS):
                end = device.end(at + US, took(step, place, usual * US))
                shape = {"grid_x": usual, "grid_y": 1, "grid_z": 1, "block_x": 256}
                rows["kernels"].append(kernel(at + US, end, name, correlation=call(), **shape))
                at = end
            arrivals[rank] = at
            rows["ranges"].append({"start": host, "end": host + 40 * US, "name": f"step {step}"})
        begin = max(arrivals.values()) + 50 * US
        for rank, at in arrivals.items() if len(devices) > 1 else ():
            number = len(made[rank]["api"])
            start = host + 30 * US
            made[rank]["api"].append(
                {"start": start, "end": start + 90, "name": "cudaLaunchKernel", "correlation": number}
            )
            made[rank]["kernels"].append(collective(at, begin, correlation=number))
    return make_run(folder, {r: {**rows, **(tables or {}).get(r, {})} for r, rows in made.items()})


def undisturbed_ns(steps: int = 10) -> int:
    """The time that kernels take without interruption."""
    return steps * sum(usual for _, usual in KERNELS) * US

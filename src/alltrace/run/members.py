"""The devices of processes that have several, each numbered as a rank of its own, and how sentences name them."""

import re
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

from alltrace.run.manifest import Device, RankRecord
from alltrace.trace.number_text import named_devices

_NAMED = re.compile(r"\b(ranks?) (\d+(?:-\d+)?(?:, \d+(?:-\d+)?)*)(?![\w=]|-\d|, \d|\.\d)", re.IGNORECASE)
"""How sentences name ranks: `rank 3`, `ranks 0-3, 7`."""


class Member(NamedTuple):
    """A device of a process."""

    rank: int  # the process, as the job numbers it
    device: int | None = None  # the device's row in the rank's `devices`; None if it is not known
    # what a sentence calls it: its CUDA ordinal, or that row if the ordinal is not known; None if the process has no
    # other
    gpu: int | None = None
    host: str | None = None  # its host; None for a rank without a report


class Members:
    """The device and process of each number of a run by devices; `sharing`: those that one thread launches to."""

    def __init__(self, members: Sequence[Member], sharing: Iterable[Sequence[int]] = ()) -> None:
        self.sharing = tuple(map(tuple, sharing))
        self._members = tuple(members)
        self._of_rank: dict[int, list[int]] = {}
        for number, member in enumerate(members):
            self._of_rank.setdefault(member.rank, []).append(number)

    def __getitem__(self, number: int) -> Member:
        return self._members[number]

    def numbers(self, ranks: Iterable[int]) -> list[int]:
        """The numbers of all devices of some processes, ascending."""
        return sorted(number for rank in ranks for number in self._of_rank.get(rank, ()))

    def ranks(self, numbers: Iterable[int]) -> list[int]:
        """The processes with these devices, ascending."""
        return sorted({self[number].rank for number in numbers})

    def devices(self, numbers: Iterable[int]) -> list[dict[str, Any]]:
        """The devices with these numbers, for a column `devices`."""
        return [self[number]._asdict() for number in sorted(numbers)]

    def words(self, numbers: Iterable[int]) -> str:
        """Devices in a sentence; see `named_devices`."""
        return named_devices(self.devices(set(numbers)))

    def in_words(self, sentence: str) -> str:
        """A sentence about numbers, with the devices in their place."""
        return _NAMED.sub(self._replaced, sentence)

    def _replaced(self, match: re.Match[str]) -> str:
        numbers: list[int] = []
        for piece in match[2].split(", "):
            first, _, last = piece.partition("-")
            numbers += range(int(first), int(last or first) + 1)
        if max(numbers) >= len(self._members):
            return match[0]
        words = self.words(numbers)
        return words[:1].upper() + words[1:] if match[1][0].isupper() else words


def gpu_names(ranks: Iterable[RankRecord]) -> dict[str, str]:
    """Short names of the devices of a run, by the texts that columns `gpu` have: `GPU 3`.

    The number is the CUDA ordinal; where several devices of a host have one, as each rank sees only its own, it is the
    place among the devices of the host that ranks work with, by bus id. A device of neither has no short name.
    """
    of_host: dict[str, dict[str, Device]] = {}
    for device in (d for rank in ranks for d in rank.devices):
        of_host.setdefault(device.host, {}).setdefault(device.identity[1], device)
    names: dict[str, set[int | None]] = {}
    for devices in of_host.values():
        numbers = {text: device.ordinal for text, device in devices.items()}
        if len(set(numbers.values())) < len(numbers):
            order = sorted(devices, key=lambda text: devices[text].bus_id or "")
            have_bus_ids = all(device.bus_id for device in devices.values())
            numbers = {text: place if have_bus_ids else None for place, text in enumerate(order)}
        for text, number in numbers.items():
            names.setdefault(text, set()).add(number)
    return {text: f"GPU {number}" for text, (number, *others) in names.items() if number is not None and not others}

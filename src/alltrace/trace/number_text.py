"""Numbers in sentences."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any


def counted(number: int, thing: str, things: str | None = None) -> str:
    """A number of things as text: `1 rank`, `1,024 ranks`."""
    # `number`: how many. `thing`: the name of one. `things`: the name of several; None for `thing` with an s.
    return f"{number:,} {thing if number == 1 else things or thing + 's'}"


def number_ranges(numbers: Sequence[int]) -> str:
    """Numbers as text: `0-3, 7` for 0, 1, 2, 3, 7, in any order; `none` for none."""
    if not numbers:
        return "none"
    parts: list[list[int]] = []
    for n in sorted(numbers):
        if parts and n == parts[-1][1] + 1:
            parts[-1][1] = n
        else:
            parts.append([n, n])
    return ", ".join(str(a) if a == b else f"{a}-{b}" for a, b in parts)


def named_devices(devices: Iterable[Mapping[str, Any]]) -> str:
    """Rows of a column `devices` in a sentence: `rank 0, GPU 3`, `ranks 0-1, GPUs 0-3 and rank 2, GPU 1`."""
    gpus: dict[int, list[int]] = {}
    for device in devices:
        gpus.setdefault(device["rank"], []).extend(() if device["gpu"] is None else [device["gpu"]])
    alike: dict[tuple[int, ...], list[int]] = {}
    for rank, its in gpus.items():
        alike.setdefault(tuple(sorted(its)), []).append(rank)
    counts = [numbered("rank", ranks) + (f", {numbered('GPU', its)}" if its else "") for its, ranks in alike.items()]
    return " and ".join([", ".join(counts[:-1]), counts[-1]] if len(counts) > 1 else counts)


def numbered(word: str, numbers: Sequence[int]) -> str:
    """Things by their numbers: `rank 3`, `ranks 0-2, 5`."""
    return f"{word}{'s' * (len(numbers) > 1)} {number_ranges(numbers)}"

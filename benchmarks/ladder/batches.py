"""Batches of random data: made beforehand, or by a data loader that has work with each sample."""

from __future__ import annotations

import itertools
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch
from torch.nn import functional
from torch.utils.data import DataLoader

if TYPE_CHECKING:
    from collections.abc import Iterator

    from benchmarks.ladder.causes import Settings
    from benchmarks.ladder.models import Size


def transformed(image: Any, passes: int) -> Any:
    """A (3, side, side) image of bytes as numbers from 0 to 1, smoothed a number of times."""
    image = image.float() / 255
    for _ in range(passes):
        image = functional.avg_pool2d(image, 3, stride=1, padding=1)
    return image


@dataclass(frozen=True)
class Images:
    """Labelled images, each made on demand: what `DataLoader` calls a map-style data set."""

    samples: int
    size: Size
    passes: int

    def __len__(self) -> int:
        return self.samples

    def __getitem__(self, index: int) -> tuple[Any, int]:
        """The sample of that number: (3, side, side) numbers, and a label."""
        source = torch.Generator().manual_seed(index)
        pixels = torch.randint(0, 256, (3, self.size.pixels, self.size.pixels), dtype=torch.uint8, generator=source)
        return transformed(pixels, self.passes), index % self.size.classes


def host_batch(model: str, size: Size) -> tuple[Any, Any]:
    """Inputs and labels of one batch, in pageable memory."""
    source = torch.Generator().manual_seed(1)
    if model == "transformer":
        words = torch.randint(0, size.classes, (size.batch, size.tokens), generator=source)
        return words, words.roll(-1, dims=1)
    images = torch.rand((size.batch, 3, size.pixels, size.pixels), generator=source)
    return images, torch.randint(0, size.classes, (size.batch,), generator=source)


def make_batches(settings: Settings, size: Size, steps: int, *, cuda: bool) -> Iterator[tuple[Any, Any]]:
    """At least `steps` batches in host memory; page-locked if the settings request it and there is a GPU."""
    pinned = settings.pinned and cuda
    if settings.workers is None:
        inputs, labels = host_batch(settings.model, size)
        return itertools.repeat((inputs.pin_memory(), labels.pin_memory()) if pinned else (inputs, labels))
    loader = DataLoader(
        Images(steps * size.batch, size, settings.passes),
        batch_size=size.batch,
        num_workers=settings.workers,
        pin_memory=pinned,
    )
    return iter(loader)

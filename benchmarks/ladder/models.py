"""The two models, written out so that only PyTorch is needed, and their sizes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import nn
from torch.nn import functional


@dataclass(frozen=True)
class Size:
    """How large a model and its batches are.

    Attributes:
        batch: Samples of a batch.
        layers: Blocks of the transformer; residual blocks of each stage of the ResNet.
        width: Channels of the transformer, or of the first stage of the ResNet, which doubles with each of the four
            stages.
        heads: Of attention.
        tokens: Of a sequence.
        pixels: Side of an image.
        classes: Words of the vocabulary, or kinds of images.
    """

    batch: int
    layers: int
    width: int
    classes: int
    heads: int = 0
    tokens: int = 0
    pixels: int = 0


SIZES = {
    ("transformer", "usual", "cuda"): Size(batch=8, layers=4, width=2048, classes=4096, heads=16, tokens=1024),
    ("transformer", "tiny", "cuda"): Size(batch=4, layers=8, width=128, classes=256, heads=4, tokens=64),
    ("resnet", "usual", "cuda"): Size(batch=64, layers=2, width=64, classes=1000, pixels=160),
    ("resnet", "large", "cuda"): Size(batch=256, layers=2, width=64, classes=1000, pixels=224),
    ("transformer", "usual", "cpu"): Size(batch=2, layers=2, width=64, classes=256, heads=2, tokens=64),
    ("transformer", "tiny", "cpu"): Size(batch=2, layers=2, width=32, classes=64, heads=2, tokens=16),
    ("resnet", "usual", "cpu"): Size(batch=8, layers=1, width=8, classes=10, pixels=32),
}
"""By model, size and device. Where launches are not the cause, the device has more work than the host takes to launch
it under a profiler, also with a fast device and a slow host; otherwise every run would be bound by launches first."""


class Block(nn.Module):  # type: ignore[misc]
    """Attention and two linear layers, each after a normalisation and with a shortcut."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.attention_norm, self.linear_norm = nn.LayerNorm(width), nn.LayerNorm(width)
        self.projections, self.output = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x: Any) -> Any:
        """`x`: (batch, tokens, width), as the answer."""
        batch, tokens, width = x.shape
        shape = (batch, tokens, 3, self.heads, width // self.heads)
        query, key, value = self.projections(self.attention_norm(x)).view(shape).permute(2, 0, 3, 1, 4)
        seen = functional.scaled_dot_product_attention(query, key, value, is_causal=True)
        x = x + self.output(seen.transpose(1, 2).reshape(batch, tokens, width))
        return x + self.down(functional.gelu(self.up(self.linear_norm(x))))


class Transformer(nn.Module):  # type: ignore[misc]
    """A stack of blocks between an embedding and a classifier."""

    def __init__(self, size: Size) -> None:
        super().__init__()
        self.embedding = nn.Embedding(size.classes, size.width)
        self.blocks = nn.Sequential(*(Block(size.width, size.heads) for _ in range(size.layers)))
        self.classifier = nn.Linear(size.width, size.classes)

    def forward(self, words: Any) -> Any:
        """`words`: (batch, tokens); the answer: (batch, classes, tokens)."""
        return self.classifier(self.blocks(self.embedding(words))).transpose(1, 2)


class Residual(nn.Module):  # type: ignore[misc]
    """Two convolutions with a shortcut."""

    def __init__(self, inputs: int, outputs: int, stride: int) -> None:
        super().__init__()
        self.body = nn.Sequential(
            nn.Conv2d(inputs, outputs, 3, stride, 1, bias=False),
            nn.BatchNorm2d(outputs),
            nn.ReLU(),
            nn.Conv2d(outputs, outputs, 3, 1, 1, bias=False),
            nn.BatchNorm2d(outputs),
        )
        same = inputs == outputs and stride == 1
        self.shortcut = nn.Identity() if same else nn.Conv2d(inputs, outputs, 1, stride, bias=False)

    def forward(self, x: Any) -> Any:
        """`x`: (batch, inputs, height, width)."""
        return functional.relu(self.body(x) + self.shortcut(x))


def resnet(size: Size) -> Any:
    """Four stages of residual blocks, each of twice the channels and half the side of the one before."""
    blocks: list[Any] = []
    channels = size.width
    for stage in range(4):
        for block in range(size.layers):
            outputs = size.width << stage
            blocks.append(Residual(channels, outputs, 2 if stage and not block else 1))
            channels = outputs
    stem = (nn.Conv2d(3, size.width, 7, 2, 3, bias=False), nn.BatchNorm2d(size.width), nn.ReLU(), nn.MaxPool2d(3, 2, 1))
    return nn.Sequential(*stem, *blocks, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(channels, size.classes))


def make_model(name: str, size: Size) -> Any:
    """The model called `name`, with the same weights each time."""
    torch.manual_seed(1)
    return resnet(size) if name == "resnet" else Transformer(size)

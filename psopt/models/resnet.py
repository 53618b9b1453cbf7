"""ResNets for small images (He et al., "Deep residual learning", 2016, table 1 and section 4.2).

The stem is one 3x3 convolution without pooling, as is usual for 32x32 images, instead of the 7x7
one of ImageNet; the four stages are those of table 1. A projection (option B of the paper) joins
stages of different shapes.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from torch import Tensor, nn
from torch.nn import functional


class _Block(nn.Module):
    """y = relu(F(x) + shortcut(x)); a subclass gives F and how much wider it leaves the maps."""

    expansion: ClassVar[int]

    def __init__(self, residual: nn.Module, channels: int, out: int, stride: int) -> None:
        super().__init__()
        self.residual = residual
        self.shortcut: nn.Module = nn.Identity()
        if stride != 1 or channels != out:
            self.shortcut = _convolution(channels, out, 1, stride)

    def forward(self, x: Tensor) -> Tensor:
        return functional.relu(self.residual(x) + self.shortcut(x), inplace=True)


class BasicBlock(_Block):
    """Two 3x3 convolutions (figure 5, left)."""

    expansion = 1

    def __init__(self, channels: int, width: int, stride: int) -> None:
        residual = nn.Sequential(
            _convolution(channels, width, 3, stride),
            nn.ReLU(inplace=True),
            _convolution(width, width, 3, 1),
        )
        super().__init__(residual, channels, width, stride)


class Bottleneck(_Block):
    """1x1, 3x3 and 1x1 convolutions (figure 5, right); the stride is on the 3x3."""

    expansion = 4

    def __init__(self, channels: int, width: int, stride: int) -> None:
        residual = nn.Sequential(
            _convolution(channels, width, 1, 1),
            nn.ReLU(inplace=True),
            _convolution(width, width, 3, stride),
            nn.ReLU(inplace=True),
            _convolution(width, 4 * width, 1, 1),
        )
        super().__init__(residual, channels, 4 * width, stride)


class ResNet(nn.Module):
    """Stem, four stages of blocks, global average pooling, one linear layer.

    Args:
        block: the kind of block.
        blocks: how many of them in each stage.
        input_shape: (channels, height, width) of an image.
        outputs: number of classes.

    Raises:
        ValueError: the input is no image.
    """

    def __init__(
        self,
        block: type[BasicBlock] | type[Bottleneck],
        blocks: Sequence[int],
        *,
        input_shape: tuple[int, ...],
        outputs: int,
    ) -> None:
        super().__init__()
        if len(input_shape) != 3:
            raise ValueError(f"resnet: needs images (channels, height, width), not {input_shape}")
        self.stem = nn.Sequential(_convolution(input_shape[0], 64, 3, 1), nn.ReLU(inplace=True))
        channels = 64
        stages: list[nn.Module] = []
        for stage, count in enumerate(blocks):
            width = 64 * 2**stage
            layers: list[nn.Module] = []
            for number in range(count):
                layers.append(block(channels, width, 2 if stage and not number else 1))
                channels = width * block.expansion
            stages.append(nn.Sequential(*layers))
        self.stages = nn.Sequential(*stages)
        self.output = nn.Linear(channels, outputs)
        for module in self.modules():
            if isinstance(module, nn.Conv2d):
                nn.init.kaiming_normal_(module.weight, mode="fan_out", nonlinearity="relu")

    def forward(self, x: Tensor) -> Tensor:
        """(batch, *input_shape) float to logits (batch, outputs)."""
        features = self.stages(self.stem(x)).mean(dim=(2, 3))
        logits: Tensor = self.output(features)
        return logits


def resnet18(*, input_shape: tuple[int, ...], outputs: int) -> ResNet:
    """18 layers: 11,173,962 parameters for 3x32x32 images of 10 classes."""
    return ResNet(BasicBlock, (2, 2, 2, 2), input_shape=input_shape, outputs=outputs)


def resnet101(*, input_shape: tuple[int, ...], outputs: int) -> ResNet:
    """101 layers: 42,512,970 parameters for 3x32x32 images of 10 classes."""
    return ResNet(Bottleneck, (3, 4, 23, 3), input_shape=input_shape, outputs=outputs)


def _convolution(channels: int, out: int, size: int, stride: int) -> nn.Sequential:
    """Convolution without bias, and the batch normalisation that has it."""
    return nn.Sequential(
        nn.Conv2d(channels, out, size, stride, padding=size // 2, bias=False), nn.BatchNorm2d(out)
    )

"""LeNet-5 (LeCun, Bottou, Bengio, Haffner, Proc. IEEE 86, 1998, section II.B)."""

from __future__ import annotations

from typing import Literal

import torch
from torch import Tensor, nn
from torch.nn import functional

_KERNEL = 5
_PADDING = 2  # the paper's 32x32 input is MNIST's 28x28 with a border of 2


class LeNet5(nn.Module):
    """Two 5x5 convolutions (6, 16 maps), each halved by pooling, then layers of 120, 84, outputs.

    The layers are the paper's C1, S2, C3, S4, C5, F6; here C3 sees all six maps of S2, and pooling
    has no weights. 61,706 parameters for 1x28x28 images of 10 classes.

    Args:
        input_shape: (channels, height, width), height and width >= 12.
        outputs: number of classes.
        activation: "relu", or the paper's "tanh".
        pooling: "max", or the paper's "average".

    Raises:
        ValueError: the input is no image of that size, or an option is unknown.
    """

    def __init__(
        self,
        *,
        input_shape: tuple[int, ...],
        outputs: int,
        activation: Literal["relu", "tanh"] = "relu",
        pooling: Literal["max", "average"] = "max",
    ) -> None:
        super().__init__()
        if len(input_shape) != 3 or min(input_shape[1:]) < 12:
            raise ValueError(
                f"needs images (channels, height >= 12, width >= 12), not {tuple(input_shape)}"
            )
        if activation not in ("relu", "tanh"):
            raise ValueError(f'activation must be "relu" or "tanh", not {activation!r}')
        if pooling not in ("max", "average"):
            raise ValueError(f'pooling must be "max" or "average", not {pooling!r}')
        channels, height, width = input_shape
        self._activate = functional.relu if activation == "relu" else torch.tanh
        self._pool = functional.max_pool2d if pooling == "max" else functional.avg_pool2d
        self.c1 = nn.Conv2d(channels, 6, _KERNEL, padding=_PADDING)
        self.c3 = nn.Conv2d(6, 16, _KERNEL)
        self.c5 = nn.Linear(16 * _pooled_twice(height) * _pooled_twice(width), 120)
        self.f6 = nn.Linear(120, 84)
        self.output = nn.Linear(84, outputs)

    def forward(self, x: Tensor) -> Tensor:
        """(batch, *input_shape) float to logits (batch, outputs)."""
        x = self._maps(self._maps(x, self.c1), self.c3)
        x = self._activate(self.c5(x.flatten(1)))
        x = self._activate(self.f6(x))
        logits: Tensor = self.output(x)
        return logits

    def _maps(self, x: Tensor, layer: nn.Conv2d) -> Tensor:
        """Convolution, activation and 2x2 pooling."""
        return self._pool(self._activate(layer(x)), 2)


def _pooled_twice(size: int) -> int:
    """Height or width after C1, S2, C3, S4."""
    return ((size + 2 * _PADDING - _KERNEL + 1) // 2 - _KERNEL + 1) // 2

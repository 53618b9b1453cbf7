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
        self._average = pooling == "average"
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
        if self._average:
            return functional.avg_pool2d(self._activate(layer(x)), 2)
        # A rising activation commutes with the maximum: apply it to a quarter of the values.
        if x.device.type != "cpu":
            return self._activate(functional.max_pool2d(layer(x), 2))
        if layer is self.c1:
            return self._activate(convolve_and_pool(x, layer.weight, layer.bias, _PADDING))
        # On a CPU only the layout with channels last has a vectorised pooling.
        maps = layer(x).contiguous(memory_format=torch.channels_last)
        return self._activate(functional.max_pool2d(maps, 2))


def convolve_and_pool(x: Tensor, weight: Tensor, bias: Tensor | None, padding: int) -> Tensor:
    """max_pool2d(conv2d(x, weight, bias, padding=padding), 2) as one matrix product, for a CPU.

    A 2x2 pool takes the largest of four convolutions of stride 2, whose kernels are the kernel
    placed at the four corners of a window one wider. With few input channels, one product of the
    four kernels and all windows beats the CPU's convolution, above all in the weights' gradient,
    and the maximum of four contiguous blocks beats its pooling.

    Args:
        x: (batch, channels, height, width).
        weight: (maps, channels, k, k).
        bias: (maps,), or None.
        padding: zeros added on each side of the image.

    Returns:
        (batch, maps, rows, columns), not contiguous.
    """
    maps, channels, size, _ = weight.shape
    window = size + 1
    corners = [
        functional.pad(weight, (right, 1 - right, down, 1 - down))
        for down in (0, 1)
        for right in (0, 1)
    ]
    kernels = torch.cat(corners).reshape(4 * maps, channels * window * window)
    padded = functional.pad(x, (padding, padding, padding, padding))
    windows = padded.unfold(2, window, 2).unfold(3, window, 2)  # batch, channels, rows, columns, .
    batch, _, rows, columns = windows.shape[:4]
    patches = windows.permute(1, 4, 5, 0, 2, 3).reshape(kernels.shape[1], -1)
    # The four corners as the height of one image with channels last: the fast pooling again.
    four = (kernels @ patches).view(1, 4, 1, -1).permute(0, 3, 1, 2)
    pooled = functional.max_pool2d(four, (4, 1)).view(maps, batch, rows, columns).transpose(0, 1)
    return pooled if bias is None else pooled + bias[:, None, None]


def _pooled_twice(size: int) -> int:
    """Height or width after C1, S2, C3, S4."""
    return ((size + 2 * _PADDING - _KERNEL + 1) // 2 - _KERNEL + 1) // 2

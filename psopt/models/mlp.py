"""A multilayer perceptron with ReLU units."""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import pairwise

from torch import Tensor, nn


class Mlp(nn.Module):
    """Linear layers with ReLU, and optionally dropout, between them.

    Args:
        input_shape: of one sample; it is flattened.
        outputs: number of classes, or width of the regression targets.
        hidden: widths of the hidden layers, each >= 1.
        dropout: the chance, in [0, 1), of a hidden unit to be dropped in training.

    Raises:
        ValueError: a width or the dropout is out of its range.
    """

    def __init__(
        self,
        *,
        input_shape: tuple[int, ...],
        outputs: int,
        hidden: Sequence[int] = (256, 128),
        dropout: float = 0.0,
    ) -> None:
        super().__init__()
        if any(width < 1 for width in hidden):
            raise ValueError(f"mlp: hidden widths must be at least 1, not {list(hidden)}")
        if not 0 <= dropout < 1:
            raise ValueError(f"mlp: dropout must be in [0, 1), not {dropout}")
        layers: list[nn.Module] = []
        widths = [math.prod(input_shape), *hidden]
        for narrow, wide in pairwise(widths):
            layers += [nn.Linear(narrow, wide), nn.ReLU(inplace=True)]
            if dropout:
                layers.append(nn.Dropout(dropout))
        self.layers = nn.Sequential(*layers, nn.Linear(widths[-1], outputs))

    def forward(self, x: Tensor) -> Tensor:
        """(batch, *input_shape) float to (batch, outputs)."""
        output: Tensor = self.layers(x.flatten(1))
        return output

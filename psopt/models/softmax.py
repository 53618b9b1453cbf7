"""Softmax (multinomial logistic) regression: one linear layer."""

from __future__ import annotations

import math

from torch import Tensor, nn


class Softmax(nn.Module):
    """Logits = W x + b, starting at zero: convex with the cross-entropy loss.

    Args:
        input_shape: of one sample; it is flattened.
        outputs: number of classes.
    """

    def __init__(self, *, input_shape: tuple[int, ...], outputs: int) -> None:
        super().__init__()
        self.linear = nn.Linear(math.prod(input_shape), outputs)
        nn.init.zeros_(self.linear.weight)
        nn.init.zeros_(self.linear.bias)

    def forward(self, x: Tensor) -> Tensor:
        """(batch, *input_shape) float to logits (batch, outputs)."""
        logits: Tensor = self.linear(x.flatten(1))
        return logits

"""Linear, softmax and logistic regression: one linear layer, which starts at zero."""

from __future__ import annotations

import math

from torch import Tensor, nn


class Linear(nn.Module):
    """W x + b: convex with mse (regression) and with cross_entropy (softmax regression).

    Args:
        input_shape: of one sample; it is flattened.
        outputs: width of the regression targets, or number of classes.
        bias: whether there is a b.
    """

    def __init__(self, *, input_shape: tuple[int, ...], outputs: int, bias: bool = True) -> None:
        super().__init__()
        self.linear = nn.Linear(math.prod(input_shape), outputs, bias=bias)
        for parameter in self.linear.parameters():
            nn.init.zeros_(parameter)

    def forward(self, x: Tensor) -> Tensor:
        """(batch, *input_shape) float to values or logits (batch, outputs)."""
        output: Tensor = self.linear(x.flatten(1))
        return output


def logistic(*, input_shape: tuple[int, ...], outputs: int, bias: bool = True) -> Linear:
    """One logit z = w x + b for two classes, for the loss of the same name: label 1 where z > 0.

    Args:
        input_shape: of one sample; it is flattened.
        outputs: number of classes, which must be 2.
        bias: whether there is a b.

    Raises:
        ValueError: there are more or fewer classes.
    """
    if outputs != 2:
        raise ValueError(
            f"one logit tells two classes apart, and the data set has {outputs} outputs; choose "
            "two with data.classes, or take model softmax"
        )
    return Linear(input_shape=input_shape, outputs=1, bias=bias)

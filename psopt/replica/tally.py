"""What a batch adds to the account: its loss and its correct answers."""

from __future__ import annotations

from torch import Tensor

from psopt.replica.tasks import Tally


def tally(loss: Tensor, output: Tensor, y: Tensor) -> Tally:
    """Sums over a batch from its mean ``loss``; correct answers where ``y`` holds class labels.

    Args:
        loss: 0-d.
        output: logits (batch, classes), or for two classes one logit, (batch, 1) or (batch,): it
            says 1 where it is positive.
        y: labels (batch,) int64, or float targets.
    """
    count = len(y)
    mean = loss.item()
    correct = None
    if not y.is_floating_point():
        if output.shape in ((count,), (count, 1)):
            correct = int(((output.reshape(-1) > 0) == y).sum())
        elif output.ndim == 2:
            correct = int((output.detach().argmax(1) == y).sum())
    return Tally(mean * count, correct, count)

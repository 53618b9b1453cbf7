"""The model zoo, losses, and the flat parameter buffer."""

from __future__ import annotations

from psopt.models.factory import ModelError
from psopt.models.losses import LOSSES, Loss, build_loss, check_loss_kwargs
from psopt.models.zoo import ZOO, build_model, check_kwargs

__all__ = [
    "LOSSES",
    "ZOO",
    "Loss",
    "ModelError",
    "build_loss",
    "build_model",
    "check_kwargs",
    "check_loss_kwargs",
]

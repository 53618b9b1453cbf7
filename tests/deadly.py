"""A model whose process dies at a moment that the environment names: `tests.deadly:model`.

`DIE_AT` is `step N`, `save N` or `gradient N`: the N-th update in the coordinator's journal, once the
checkpoint that is being written is there; the N-th checkpoint (the trial before training aside) once its
bytes are in the temporary file, while training goes on; the N-th gradient of worker 0. The process kills
itself by SIGKILL, so nothing of it has a chance to clean up. A file in `DIED` remembers it: a process that
is started again with the same environment lives on.
"""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

from torch import nn

from psopt.record import checkpoint
from psopt.replica.replica import Replica
from psopt.roles.journal import Journal
from tests.zoo import normed


def model(input_shape: tuple[int, ...], outputs: int, dropout: float = 0.0) -> nn.Module:
    """Batch normalisation and dropout; and death, if the environment says so."""
    where, _, number = os.environ.get("DIE_AT", "").partition(" ")
    if where == "step":
        _arm(Journal, "step", int(number))
    elif where == "save":
        _arm(checkpoint, "verify", int(number) + 1)
    elif where == "gradient":
        _arm(Replica, "gradient", int(number))
    return normed(input_shape, outputs, dropout)


def _arm(owner: Any, name: str, number: int) -> None:
    """Let the `number`-th call of a function end this process."""
    right: Callable[..., Any] = getattr(owner, name)
    if getattr(right, "deadly", False):
        return
    calls = 0

    def deadly(*arguments: Any, **options: Any) -> Any:
        nonlocal calls
        calls += 1
        if calls == number and _first_to_die():
            if owner is Journal:
                let_it_be_written()
            os.kill(os.getpid(), signal.SIGKILL)
        return right(*arguments, **options)

    deadly.deadly = True  # type: ignore[attr-defined]
    setattr(owner, name, deadly)


def let_it_be_written() -> None:
    """Wait for the checkpoint that is under way."""
    for thread in threading.enumerate():
        if thread.name == "checkpoint writer":
            thread.join()


def _first_to_die() -> bool:
    """Only one rank dies."""
    try:
        Path(os.environ["DIED"]).touch(exist_ok=False)
    except FileExistsError:
        return False
    return True

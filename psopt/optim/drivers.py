"""Serial drivers of a solver: the full batch, and epochs of mini-batches.

An oracle evaluates mean loss and mean gradient; with mini-batches it is also told which. No driver
ever forms a pair (s, y), or a conjugate direction, from gradients of two different batches: the
noise of a batch would be taken for curvature.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence, Sized
from typing import TypeVar

from torch import Tensor

from psopt.optim.solver import Solver, Status

Batch = TypeVar("Batch")
Part = TypeVar("Part", bound=Sized)
Evaluation = tuple[float, Tensor]
Oracle = Callable[[Tensor], Evaluation]
BatchOracle = Callable[[Tensor, Batch], Evaluation]

_SPENT = (Status.EVALUATIONS, Status.ITERATIONS)


def minimize(solver: Solver, oracle: Oracle) -> Evaluation:
    """Run ``solver`` to its end.

    Args:
        solver: fresh, or loaded from a state.
        oracle: loss and gradient (n,) at a point (n,) that it leaves as it is.

    Returns:
        The best loss and its point; ``solver.status`` says why it ended there.
    """
    while not solver.done:
        solver.tell(*oracle(solver.ask()))
    return solver.best


def full_overlap_epoch(
    solver: Solver, oracle: BatchOracle[Batch], batches: Iterable[Batch], steps: int = 1
) -> list[float]:
    """Steps on one batch after the other, each pair from two gradients of its own batch.

    At a new batch, loss and gradient are evaluated at the current point; then the searches are
    on that batch, so the point that a step ends at has been evaluated on the old batch for y, and
    is evaluated on the new one for the direction.

    Args:
        solver: any state; a status that is not about its caps only ends the batch that gave it.
        oracle: mean loss and gradient at a point on a batch.
        batches: of one epoch.
        steps: iterations on a batch.

    Returns:
        The loss on each batch before the steps on it.
    """
    losses = []
    for batch in batches:
        if solver.status in _SPENT:
            break
        loss, gradient = oracle(solver.point, batch)
        losses.append(loss)
        solver.rebase(loss, gradient)
        for _ in range(steps):
            _iterate(solver, lambda point, batch=batch: oracle(point, batch))  # type: ignore[misc]
    return losses


def multi_batch_epoch(
    solver: Solver, oracle: BatchOracle[Part], rests: Sequence[Part], overlaps: Sequence[Part]
) -> list[float]:
    """One step a batch, where each batch shares samples with the next (Berahas et al., 2016).

    Berahas, Nocedal & Takac, "A multi-batch L-BFGS method for machine learning", NIPS 2016, sec. 2.
    The batch S_k of step k is made of three disjoint parts::

        S_k = O_{k-1} + R_k + O_k,    O_k = the samples that S_k and S_{k+1} share
        direction                     -H_k g^{S_k}(x_k)
        y_{k+1}                       g^{O_k}(x_{k+1}) - g^{O_k}(x_k)              (eq. 2.6)

    Where the paper takes a constant step, the step here is found on the loss of O_k, by the Wolfe
    search. Its first trial is the full step, and the evaluation of O_k at the new point is the one
    which S_{k+1} needs there: accepted at once, a step costs the gradients of one batch. Where the
    direction does not descend on O_k, it is made from the gradient of O_k.

    Args:
        solver: as for ``full_overlap_epoch``.
        oracle: mean loss and gradient at a point on a part.
        rests: R_1 to R_K.
        overlaps: O_0 to O_K, none of them empty.

    Returns:
        The mean loss on each S_k at x_k.

    Raises:
        ValueError: there is not one overlap more than there are rests.
    """
    if len(overlaps) != len(rests) + 1:
        raise ValueError(
            f"{len(rests)} batches need {len(rests) + 1} overlaps, one on each side of a batch; "
            f"there are {len(overlaps)}"
        )
    losses = []
    before = oracle(solver.point, overlaps[0])
    for k, rest in enumerate(rests):
        if solver.status in _SPENT:
            break
        overlap = overlaps[k + 1]
        after = oracle(solver.point, overlap)
        parts = [(overlaps[k], before), (rest, oracle(solver.point, rest)), (overlap, after)]
        loss, gradient = _mean(parts)
        losses.append(loss)
        solver.rebase(*after, steer=gradient)
        _iterate(solver, lambda point, part=overlap: oracle(point, part))  # type: ignore[misc]
        before = solver.loss, solver.gradient
    return losses


def _iterate(solver: Solver, oracle: Oracle) -> None:
    """One step, or as much as can be done on this batch."""
    target = solver.iterations + 1
    while not solver.done and solver.iterations < target:
        solver.tell(*oracle(solver.ask()))


def _mean(parts: Sequence[tuple[Part, Evaluation]]) -> Evaluation:
    """Loss and gradient over all samples of the parts."""
    count = sum(len(part) for part, _ in parts)
    loss = sum(len(part) / count * loss for part, (loss, _) in parts)
    (first, (_, gradient)), *others = parts
    total = gradient * (len(first) / count)
    for part, (_, gradient) in others:
        total.add_(gradient, alpha=len(part) / count)
    return loss, total

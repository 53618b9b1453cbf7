"""Tasks of the batch methods: slices of a batch, and local problems on shards; see ``tasks.py`` for the others."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from psopt.data.plan import Ticket
from psopt.data.shards import Shard


@dataclass(frozen=True, slots=True)
class Slices:
    """Loss and gradient over slices of a batch, at the named version.

    What slice k adds to the mean over the batch, its gradient times its share of the samples, is
    rounded to a multiple of the quantum. Sums of such multiples are exact, so that who has added
    which slices up, and when, leaves no trace in the bits.

    Attributes:
        tickets: the rows of each slice.
        samples: of the whole batch.
        quanta: powers of two; what one leaves over is rounded to multiples of the next.
        most: a slice with an entry beyond it is left out of the sum; ``Result.largest`` tells.
        alone: the reply carries the sum in quanta (int64, one row a quantum). Otherwise the worker
            adds it to what it has accrued at this version, for ``HandOver`` to ask for.
    """

    version: int
    tickets: tuple[Ticket, ...]
    samples: int
    quanta: tuple[float, ...]
    most: float
    alone: bool = False


@dataclass(frozen=True, slots=True)
class HandOver:
    """Send what was accrued of the slices at the named version, in quanta (int64), and forget it."""

    version: int


@dataclass(frozen=True, slots=True)
class Buffers:
    """Statistics of the buffers (BatchNorm) at the named version, averaged over the tickets in order."""

    version: int
    tickets: tuple[Ticket, ...]


@dataclass(frozen=True, slots=True)
class ShardGradient:
    """Mean loss of a shard at the named version and ``weight`` times its gradient, without the penalty."""

    version: int
    shard: Shard
    weight: float


@dataclass(frozen=True, slots=True)
class LocalMethod:
    """How a local problem is solved.

    Attributes:
        name: ``lbfgs``; ``cg``: linear CG on the quadratic model at the start; ``svrg``; ``sgd``.
        gamma: lbfgs and cg stop when the gradient's norm is at most this part of that at the start.
        passes: most passes over the shard. A Hessian-vector product counts as two.
        lr: step of svrg and sgd.
    """

    name: Literal["lbfgs", "cg", "svrg", "sgd"]
    gamma: float
    passes: int
    lr: float = 0.0


@dataclass(frozen=True, slots=True)
class LocalSolve:
    """Minimise a local problem from the named version's parameters a; ``weight`` times the way w - a comes back.

    ::

        h(w) = f_S(w) + l2/2 |w|^2 - <c, w - a> + mu/2 |w - a|^2

    with f_S the mean loss of the shard.

    Attributes:
        base: version of the same parameters at which the shard's gradient was asked for; it counts no
            second time, also where it has to be computed again; None: it was not asked for.
        eta: c makes the gradient of h at a equal to ``eta`` times the direction that the version
            carries; None: c = 0.
        penalty: with the job's penalty l2; else without.
        part: fraction of the shard's rows that is used, the first ones.
        turn: number of this solve, for the order of batches in svrg and sgd.
    """

    version: int
    shard: Shard
    weight: float
    method: LocalMethod
    base: int | None = None
    mu: float = 0.0
    eta: float | None = None
    penalty: bool = True
    part: float = 1.0
    turn: int = 0


@dataclass(frozen=True, slots=True)
class Probe:
    """Mean loss of a shard at the named version's parameters + step * the direction that it carries.

    Without steps: at the parameters themselves.
    """

    version: int
    shard: Shard
    steps: tuple[float, ...] = ()


BatchTask = Slices | Buffers | ShardGradient | LocalSolve | Probe

"""The memory of L-BFGS: the last m pairs (s, y), in two ring buffers that are written in place.

==========  =====================================================================
s_k         x_{k+1} - x_k, a row of the first buffer (m, n)
y_k         g_{k+1} - g_k of one objective, a row of the second
rho_k       1 / s_k'y_k
gamma_k     s_k'y_k / y_k'y_k of the newest pair, H_k^0 = gamma_k I (eq. 7.20)
H_k         the approximation of the inverse Hessian
==========  =====================================================================

Equations and algorithms: Nocedal & Wright, Numerical Optimization, 2006.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from itertools import pairwise
from typing import Any

import torch
from torch import Tensor

from psopt.optim.inner import add, add_dot, dot, moments, within

_DAMPED = 0.2  # Powell's constant, Nocedal & Wright, procedure 18.2


class Pairs:
    """At most ``memory`` pairs; a row costs memory only once it is written.

    Args:
        memory: m, at least 1.
        like: a vector (n,): size, dtype and device of the rows.
        skip: a pair with s'y <= skip |s| |y| is left out.
        damp: a pair with s'y < 0.2 s'Bs, B = I / gamma, is first brought up to that by Powell's rule.
    """

    def __init__(self, memory: int, like: Tensor, *, skip: float, damp: bool) -> None:
        self._s = torch.empty((memory, like.numel()), dtype=like.dtype, device=like.device)
        self._y = torch.empty_like(self._s)
        self._skip = skip
        self._damp = damp
        self.clear()

    def __len__(self) -> int:
        return len(self._slots)

    def clear(self) -> None:
        """Forget all pairs."""
        self._slots: list[int] = []  # oldest first
        self._rho: list[float] = []
        self._gamma = 1.0

    def add(self, new: Tensor, old: Tensor, new_gradient: Tensor, old_gradient: Tensor) -> bool:
        """Write the pair of a step over the oldest one, in place.

        Returns:
            Whether the pair is kept; one of too little curvature is not, and the others stay. One
            that damping does not help either (numbers near the dtype's smallest) costs the oldest
            pair of a full memory, whose row it was damped in.
        """
        ss, sy, yy = moments(new, old, new_gradient, old_gradient)
        damped = self._damp and bool(self._slots) and sy < _DAMPED * ss / self._gamma
        if not damped and not self._curved(ss, sy, yy):
            return False
        slot = (self._slots[-1] + 1) % len(self._s) if self._slots else 0
        if len(self._slots) == len(self._s):
            del self._slots[0], self._rho[0]
        torch.sub(new, old, out=self._s[slot])
        torch.sub(new_gradient, old_gradient, out=self._y[slot])
        if damped:
            sy, yy = self._dampen(slot, ss, sy)
            if not self._curved(ss, sy, yy):
                return False
        self._slots.append(slot)
        self._rho.append(1.0 / sy)
        self._gamma = sy / yy
        return True

    def _curved(self, ss: float, sy: float, yy: float) -> bool:
        """Whether s'y is large enough, and rho and gamma are numbers."""
        if not (sy > self._skip * math.sqrt(ss) * math.sqrt(yy) and 0.0 < yy < math.inf):
            return False
        return math.isfinite(1.0 / sy) and 0.0 < sy / yy < math.inf

    def _dampen(self, slot: int, ss: float, sy: float) -> tuple[float, float]:
        """Powell's y <- theta y + (1 - theta) B s, after which s'y = 0.2 s'Bs; s'y and y'y."""
        s, y = self._s[slot], self._y[slot]
        sbs = ss / self._gamma
        theta = (1.0 - _DAMPED) * sbs / (sbs - sy)
        y.mul_(theta)
        add(y, s, (1.0 - theta) / self._gamma)
        return dot(s, y), dot(y, y)

    def apply(self, vector: Tensor) -> None:
        """``vector <- H_k vector`` in place: the two-loop recursion (algorithm 7.4)."""
        if not self._slots:
            return
        newest_first = self._slots[::-1]
        shifts = dict.fromkeys(newest_first, 0.0)  # the paper's alpha_i
        rho = dict(zip(self._slots, self._rho, strict=True))
        product = dot(self._s[newest_first[0]], vector)
        for slot, older in pairwise(newest_first):
            shifts[slot] = rho[slot] * product
            product = add_dot(vector, self._y[slot], -shifts[slot], self._s[older])
        oldest = self._slots[0]
        shifts[oldest] = rho[oldest] * product
        add(vector, self._y[oldest], -shifts[oldest])
        vector.mul_(within(self._gamma, vector.dtype))
        product = dot(self._y[oldest], vector)
        for slot, newer in pairwise(self._slots):
            step = shifts[slot] - rho[slot] * product
            product = add_dot(vector, self._s[slot], step, self._y[newer])
        newest = self._slots[-1]
        add(vector, self._s[newest], shifts[newest] - rho[newest] * product)

    def state(self) -> dict[str, Any]:
        """The pairs, oldest first, as live rows, with the slots that they are in."""
        return {
            "slots": list(self._slots),
            "rho": list(self._rho),
            "gamma": self._gamma,
            "s": [self._s[slot] for slot in self._slots],
            "y": [self._y[slot] for slot in self._slots],
        }

    def load(self, state: Mapping[str, Any]) -> None:
        """Copy the newest pairs of ``state``, into their slots where these are in a row here too."""
        size = len(self._s)
        slots = [int(slot) for slot in state["slots"]][-size:]
        if max(slots, default=0) >= size or any((a + 1) % size != b for a, b in pairwise(slots)):
            slots = list(range(len(slots)))  # a ring of another size
        for slot, s, y in zip(slots, state["s"][-size:], state["y"][-size:], strict=True):
            self._s[slot].copy_(s)
            self._y[slot].copy_(y)
        self._slots = slots
        self._rho = [float(rho) for rho in state["rho"]][-size:]
        self._gamma = float(state["gamma"])

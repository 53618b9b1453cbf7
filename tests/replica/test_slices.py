"""The verbs of slices: parts of a sum in whole quanta, accrued and handed over, and statistics."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional

from psopt.data.plan import Ticket
from psopt.models.flat import FlatModel
from psopt.replica.batch_tasks import Buffers, HandOver, Slices
from psopt.replica.memory import Memory
from psopt.replica.replica import Replica
from psopt.replica.tasks import Alone, Evaluate, Fetch, Gradient, Result, Tally, Task
from psopt.schemes.quanta import Scale
from tests.replica.support import MODELS, Setup, bits

SAMPLES = 101
TICKETS = tuple(Ticket(0, k) for k in (0, 3, 12, 7))
QUANTUM = 2.0**-40


def loaded(setup: Setup, dtype: torch.dtype = torch.float32, version: int = 0) -> Replica:
    torch.manual_seed(setup.seed)
    model = FlatModel(MODELS[setup.model]().to(dtype))
    replica = setup.replica(model=model)
    replica.load(version, tuple(vector.clone() for vector in model.vectors))
    return replica


def slices(tickets: tuple[Ticket, ...] = TICKETS, version: int = 0, **changes: Any) -> Slices:
    given = {"quanta": (QUANTUM,), "most": 1e3, "alone": False, **changes}
    return Slices(version, tickets, SAMPLES, **given)


def perform(replica: Replica, task: Task, memory: Memory | None = None) -> Result:
    return replica.perform(task, Alone(), memory or Memory())


def alone(replica: Replica, tickets: tuple[Ticket, ...] = TICKETS, **changes: Any) -> Tensor:
    (vector,) = perform(replica, slices(tickets, alone=True, **changes)).vectors
    return vector


def plain(setup: Setup, dtype: torch.dtype, ticket: Ticket) -> tuple[float, int, Tensor]:
    """Mean loss, correct answers and gradient, by torch alone."""
    torch.manual_seed(setup.seed)
    module, data = MODELS[setup.model]().to(dtype).train(), setup.data().train
    x, y = data.batch(setup.plan(ticket.epoch).rows(ticket.batch))
    output = module(x.to(dtype))
    loss = functional.cross_entropy(output, y)
    loss.backward()
    gradient = torch.cat([p.grad.reshape(-1) for p in module.parameters()])
    return loss.item(), int((output.argmax(1) == y).sum()), gradient


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("model", ["plain", "norm"])
def test_a_sum_is_that_of_a_plain_loop(model: str, dtype: torch.dtype) -> None:
    """Of gradients times their share of the samples, each rounded to a multiple of the quantum."""
    setup = Setup(model)
    result = perform(loaded(setup, dtype), slices(alone=True))
    expected = torch.zeros(result.vectors[0].numel(), dtype=torch.int64)
    for ticket, tally in zip(TICKETS, result.tallies, strict=True):
        loss, correct, gradient = plain(setup, dtype, ticket)
        count = 5 if ticket.batch == 12 else 8
        assert (tally.loss, tally.correct, tally.count) == (loss * count, correct, count)
        expected += (gradient.double() * (count / SAMPLES) / QUANTUM).round().to(torch.int64)
    assert torch.equal(result.vectors[0], expected)
    parts = [plain(setup, dtype, t)[2].abs().max() * (5 if t.batch == 12 else 8) for t in TICKETS]
    assert result.largest == pytest.approx(float(max(parts)) / SAMPLES, rel=1e-6)


def test_two_quanta_keep_a_float64_gradient() -> None:
    """All slices of the set: the mean gradient of all its samples, to float64's precision."""
    setup = Setup("plain")
    replica, scale = loaded(setup, torch.float64), Scale.around(0.1, 13, torch.float64)
    every = tuple(Ticket(0, k) for k in range(13))
    total = alone(replica, every, quanta=scale.quanta, most=scale.limit)
    coarse, fine = total.view(2, -1).double()
    gradient = coarse * scale.quanta[0] + fine * scale.quanta[1]
    expected = torch.zeros_like(gradient)
    for ticket in every:
        expected += plain(setup, torch.float64, ticket)[2] * (5 if ticket.batch == 12 else 8)
    assert torch.allclose(gradient, expected / SAMPLES, rtol=1e-14, atol=1e-17)


def test_accrued_is_the_sum_of_those_alone() -> None:
    """Whatever comes between, and in whatever order."""
    setup = Setup("norm")
    replica, memory = loaded(setup), Memory()
    for tickets in (TICKETS[2:], TICKETS[:1], TICKETS[1:2]):
        assert perform(replica, slices(tickets), memory).vectors == ()
        perform(replica, Gradient(0, Ticket(1, 1)), memory)
        perform(replica, Evaluate(0, 0, 2), memory)
        perform(replica, slices(TICKETS, alone=True), memory)
    (total,) = perform(replica, HandOver(0), memory).vectors
    assert torch.equal(total, alone(replica))


def test_a_hand_over_starts_anew() -> None:
    replica, memory = loaded(Setup("plain")), Memory()
    perform(replica, slices(TICKETS[:2]), memory)
    perform(replica, HandOver(0), memory)
    perform(replica, slices(TICKETS[2:]), memory)
    (total,) = perform(replica, HandOver(0), memory).vectors
    assert torch.equal(total, alone(replica, TICKETS[2:]))


def test_another_version_starts_anew() -> None:
    replica, memory = loaded(Setup("plain")), Memory()
    perform(replica, slices(TICKETS[:2]), memory)
    replica.load(1, replica.model.vectors)
    perform(replica, slices(TICKETS[2:], version=1), memory)
    (total,) = perform(replica, HandOver(1), memory).vectors
    assert torch.equal(total, alone(replica, TICKETS[2:], version=1))


def test_nothing_to_hand_over_is_an_error() -> None:
    replica, memory = loaded(Setup("plain")), Memory()
    with pytest.raises(RuntimeError, match="nothing is accrued at version 0"):
        perform(replica, HandOver(0), memory)
    perform(replica, slices(), memory)
    with pytest.raises(RuntimeError, match="nothing is accrued at version 1"):
        perform(replica, HandOver(1), memory)


def test_slices_that_are_not_finite_are_left_out() -> None:
    """They say so; what is left is handed over, and be it nothing."""
    setup = Setup("plain", poisoned=3)
    plan, replica, memory = setup.plan(0), loaded(setup), Memory()
    (bad,) = (Ticket(0, k) for k in range(len(plan)) if 3 in plan.rows(k))
    good = tuple(ticket for ticket in TICKETS if ticket != bad)
    assert [t.finite for t in perform(replica, slices((bad,)), memory).tallies] == [False]
    assert not perform(replica, HandOver(0), memory).vectors[0].any()
    result = perform(replica, slices((*good, bad)), memory)
    assert [tally.finite for tally in result.tallies] == [True] * len(good) + [False]
    assert math.isfinite(result.largest)
    assert torch.equal(perform(replica, HandOver(0), memory).vectors[0], alone(replica, good))


def test_slices_that_are_too_large_are_left_out() -> None:
    """They are finite all the same, and the reply tells how large they are."""
    replica = loaded(Setup("plain"))
    most = perform(replica, slices(TICKETS[:1])).largest
    by_size = sorted(TICKETS, key=lambda ticket: perform(replica, slices((ticket,))).largest)
    limit = perform(replica, slices((by_size[1],))).largest
    result = perform(replica, slices(most=limit, alone=True))
    assert all(tally.finite for tally in result.tallies)
    assert result.largest > limit or most <= limit
    assert torch.equal(result.vectors[0], alone(replica, tuple(by_size[:2])))


@pytest.mark.parametrize("model", MODELS)
def test_slices_do_not_depend_on_what_came_before(model: str) -> None:
    """Nor does what follows on them: buffers stay those of the version."""
    setup = Setup(model)
    replica, fresh = loaded(setup), loaded(setup)
    expected = bits([alone(fresh)])
    before = bits(perform(replica, Fetch(0)).vectors[1:])
    for task in (Gradient(0, Ticket(0, 1)), Evaluate(0, 0, 3), Buffers(0, TICKETS), slices()):
        perform(replica, task)
        assert bits([alone(replica)]) == expected
    assert bits(perform(replica, Fetch(0)).vectors[1:]) == before
    gradient = perform(replica, Gradient(0, Ticket(0, 4)))
    assert bits(gradient.vectors) == bits(perform(loaded(setup), Gradient(0, Ticket(0, 4))).vectors)


@pytest.mark.parametrize("momentum", [0.1, 0.7, None])
@pytest.mark.parametrize("model", ["norm", "wide", "evaluating"])
def test_statistics_are_those_of_update_bn(model: str, momentum: float | None) -> None:
    setup = Setup(model)
    replica, module = loaded(setup), setup.flat().module.train()
    for net in (replica.model.module, module):
        for layer in net.modules():
            if isinstance(layer, nn.BatchNorm1d):
                layer.momentum = momentum
    data, plan = setup.data().train, setup.plan(0)
    batches = [data.batch(plan.rows(ticket.batch))[0] for ticket in TICKETS]
    torch.optim.swa_utils.update_bn(batches, module)  # type: ignore[arg-type]
    perform(replica, Gradient(0, Ticket(0, 9)))
    result = perform(replica, Buffers(0, TICKETS))
    assert bits(result.vectors) == bits(group.flat for group in FlatModel(module).buffers)
    assert result.tallies == (Tally(0.0, None, 0),)
    momenta = [m.momentum for m in replica.model.module.modules() if isinstance(m, nn.BatchNorm1d)]
    assert momenta == [momentum]


def test_statistics_leave_the_version_as_it_is() -> None:
    setup = Setup("norm")
    replica = loaded(setup)
    before = bits(perform(replica, Fetch(0)).vectors)
    tallies = perform(replica, Evaluate(0, 0, 5)).tallies
    perform(replica, Buffers(0, TICKETS))
    assert bits(perform(replica, Fetch(0)).vectors) == before
    assert perform(replica, Evaluate(0, 0, 5)).tallies == tallies


def test_statistics_of_a_model_without_buffers() -> None:
    assert perform(loaded(Setup("plain")), Buffers(0, TICKETS)).vectors == ()

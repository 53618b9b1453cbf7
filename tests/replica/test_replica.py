"""The task verbs: what comes of one depends on parameters and ticket only."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional

from psopt.data.plan import Ticket
from psopt.models.flat import FlatModel
from psopt.replica.memory import Memory
from psopt.replica.replica import Replica, tally
from psopt.replica.tasks import Alone, Evaluate, Fetch, Gradient, Result, Rounds, Tally, Task
from tests.replica.support import ADAM, CLASSES, FEATURES, MODELS, ONE_CYCLE, Setup, bits


class Noisy(nn.Module):
    """Random in evaluation too, as a variational model is."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(FEATURES, CLASSES)

    def forward(self, x: Tensor) -> Tensor:
        result: Tensor = self.layer(x + torch.randn_like(x))
        return result


def loaded(setup: Setup, version: int = 0) -> Replica:
    replica = setup.replica()
    replica.load(version, tuple(vector.clone() for vector in replica.model.vectors))
    return replica


def perform(replica: Replica, task: Task) -> Result:
    return replica.perform(task, Alone(), Memory())


def content(result: Result) -> Any:
    return result.tallies, bits(result.vectors), result.version


def gradient(epoch: int = 0, batch: int = 0, weight: float = 1.0) -> Gradient:
    return Gradient(0, Ticket(epoch, batch), weight)


def other_gradient(replica: Replica) -> None:
    perform(replica, gradient(1, 2, 0.3))


def evaluation(replica: Replica) -> None:
    perform(replica, Evaluate(0, 0, 5))


def fetch(replica: Replica) -> None:
    perform(replica, Fetch(0))


def user_of_random_numbers(replica: Replica) -> None:
    torch.manual_seed(99)
    torch.rand(17)


def bad_gradient(replica: Replica) -> None:
    """One that is not finite, statistics included."""
    x = replica.data.train.x  # type: ignore[attr-defined]
    kept = x.clone()
    x.fill_(float("nan"))
    assert not perform(replica, gradient(0, 1)).tallies[0].finite
    x.copy_(kept)


def round_and_back(replica: Replica) -> None:
    """A step of its own, and the parameters of before again."""
    state = perform(replica, Fetch(0)).vectors[: len(replica.model.vectors)]
    before = [vector.clone() for vector in state]
    perform(replica, Rounds(0, ((gradient(0, 3).ticket, gradient(0, 4).ticket),)))
    assert replica.version == 1
    replica.load(0, tuple(before))


BEFORE: list[Callable[[Replica], None]] = [
    *(other_gradient, evaluation, fetch, user_of_random_numbers, bad_gradient, round_and_back),
]


@pytest.mark.parametrize("before", BEFORE)
@pytest.mark.parametrize("model", MODELS)
def test_a_gradient_does_not_depend_on_what_came_before(
    model: str, before: Callable[[Replica], None]
) -> None:
    setup, task = Setup(model), gradient(0, 5)
    expected = content(perform(loaded(setup), task))
    replica = loaded(setup)
    for _ in range(2):
        before(replica)
        assert content(perform(replica, task)) == expected


@pytest.mark.parametrize("before", BEFORE)
@pytest.mark.parametrize("model", MODELS)
def test_nor_does_an_evaluation(model: str, before: Callable[[Replica], None]) -> None:
    setup, task = Setup(model), Evaluate(0, 1, 4)
    expected = content(perform(loaded(setup), task))
    replica = loaded(setup)
    before(replica)
    assert content(perform(replica, task)) == expected
    assert content(perform(replica, task)) == expected


def test_masks_are_the_tickets_own() -> None:
    """The same rows with another ticket, or another seed, drop other units."""
    setup = Setup("dropout", samples=8)
    replica = loaded(setup)
    x, y = setup.data().train.range(0, 8)
    outputs = []
    for epoch in range(4):
        perform(replica, gradient(epoch))
        torch.manual_seed(0)  # not from here
        replica.seed_random_layers(epoch, 0)
        outputs.append(functional.cross_entropy(replica.model.module(x), y).item())
    assert len(set(outputs)) == 4
    one, other = loaded(setup), setup.replica(seed=2)
    other.load(0, one.model.vectors)
    assert content(perform(one, gradient())) != content(perform(other, gradient()))


def test_noise_in_evaluation_does_not_depend_on_who_evaluates() -> None:
    setup = Setup()
    replica = setup.replica(model=FlatModel(Noisy()))
    replica.load(0, replica.model.vectors)
    whole = perform(replica, Evaluate(0, 0, 5)).tallies
    parts = [perform(replica, Evaluate(0, chunk, chunk + 1)).tallies for chunk in range(5)]
    assert tuple(tally for part in parts for tally in part) == whole


def test_a_gradient_is_torchs() -> None:
    setup = Setup("norm")
    result = perform(loaded(setup), gradient(0, 12))
    module, data = setup.flat().module, setup.data().train
    x, y = data.batch(setup.plan(0).rows(12))
    assert len(y) == 101 - 12 * 8
    output = module(x)
    loss = functional.cross_entropy(output, y)
    loss.backward()
    flat, statistics, counters = result.vectors
    assert torch.equal(flat, torch.cat([p.grad.reshape(-1) for p in module.parameters()]))
    assert torch.equal(statistics, torch.cat([module[1].running_mean, module[1].running_var]))
    assert counters.tolist() == [1]
    correct = int((output.argmax(1) == y).sum())
    assert result.tallies == (Tally(loss.item() * len(y), correct, len(y)),)


def test_a_weight_multiplies_gradient_and_statistics() -> None:
    replica = loaded(Setup("norm"))
    one = [vector.clone() for vector in perform(replica, gradient()).vectors]
    weighted = perform(replica, gradient(weight=0.3)).vectors
    assert torch.equal(weighted[0], one[0] * 0.3)
    assert torch.equal(weighted[1], one[1] * 0.3)
    assert torch.equal(weighted[2], one[2])


def test_a_counter_reports_its_advance() -> None:
    setup = Setup("norm")
    replica = setup.replica()
    vectors = [vector.clone() for vector in replica.model.vectors]
    vectors[2].fill_(41)
    replica.load(0, tuple(vectors))
    assert perform(replica, gradient()).vectors[2].tolist() == [1]
    assert perform(replica, gradient(0, 1)).vectors[2].tolist() == [1]


def test_a_gradient_that_is_not_finite_says_so() -> None:
    setup = Setup("norm", poisoned=3)
    replica, plan = loaded(setup), setup.plan(0)
    for batch in range(len(plan)):
        (sums,) = perform(replica, gradient(0, batch)).tallies
        assert sums.finite == (3 not in plan.rows(batch))
        assert not sums.refused


def test_a_weight_that_overflows_is_seen() -> None:
    replica = loaded(Setup("plain"))
    assert not perform(replica, gradient(weight=3e38 * 1e3)).tallies[0].finite


def test_chunks_of_the_test_split() -> None:
    """The last one is smaller; layers are in evaluation mode, and back in training afterwards."""
    setup = Setup("norm", tests=45, chunk=10)
    replica = loaded(setup)
    perform(replica, gradient())
    result = perform(replica, Evaluate(0, 3, 5))
    assert result.vectors == ()
    assert [sums.count for sums in result.tallies] == [10, 5]
    module, test = setup.flat().module.eval(), setup.data().test
    for sums, (first, last) in zip(result.tallies, ((30, 40), (40, 45)), strict=True):
        x, y = test.range(first, last)
        output = module(x)
        assert sums.loss == functional.cross_entropy(output, y).item() * (last - first)
        assert sums.correct == int((output.argmax(1) == y).sum())
    assert all(module.training for module in replica.model.module.modules())


def test_an_evaluation_of_nothing() -> None:
    assert perform(loaded(Setup()), Evaluate(0, 2, 2)).tallies == ()


def test_tally_of_a_regression() -> None:
    output, y = torch.ones(3, 2), torch.zeros(3, 2)
    assert tally(functional.mse_loss(output, y), output, y) == Tally(3.0, None, 3)


@pytest.mark.parametrize("model", ["norm", "replacing", "dropout"])
def test_fetched_state_goes_on_elsewhere(model: str) -> None:
    """Parameters, buffers, moments and schedule: bitwise the uninterrupted rounds."""
    setup = Setup(model, optimizer=tuple(ADAM.items()), scheduler=tuple(ONE_CYCLE.items()))
    book = setup.book()
    planned = tuple(book.issue_round(3) for _ in range(8))
    whole = loaded(setup)
    perform(whole, Rounds(0, planned))
    first = loaded(setup)
    assert perform(first, Rounds(0, planned[:4])).version == 4
    home = perform(first, Fetch(4))
    vectors = tuple(vector.clone() for vector in home.vectors)
    sent = bits(vectors)
    second = setup.replica()
    second.load(4, vectors, home.structure)
    perform(second, Evaluate(4, 0, 2))
    perform(second, Rounds(4, planned[4:], install=True))
    perform(first, Rounds(4, planned[4:]))
    expected = perform(whole, Fetch(8))
    for replica in (first, second):
        result = perform(replica, Fetch(8))
        assert content(result) == content(expected)
        assert result.structure == expected.structure
    assert bits(vectors) == sent  # the state was copied


def test_rounds_step_along_the_mean_over_all_samples() -> None:
    """The gradient of two slots of 8 and 5 samples is that of their 13 samples at once."""
    setup = Setup("plain", samples=13, optimizer=(("name", "SGD"), ("lr", 0.5)))
    replica, module = loaded(setup), setup.flat().module
    result = perform(replica, Rounds(0, (setup.book().issue_round(2),)))
    assert [sums.count for sums in result.tallies] == [8, 5]
    x, y = setup.data().train.range(0, 13)
    functional.cross_entropy(module(x), y).backward()
    with torch.no_grad():
        stepped = torch.cat([(p - 0.5 * p.grad).reshape(-1) for p in module.parameters()])
    assert torch.allclose(replica.model.parameters, stepped, atol=1e-6)


def test_a_refused_round_leaves_everything_as_it_is() -> None:
    setup = Setup("norm", poisoned=0)
    replica, plan = loaded(setup), setup.plan(0)
    bad = next(batch for batch in range(len(plan)) if 0 in plan.rows(batch))
    good = (bad + 1) % len(plan)
    before = perform(replica, Fetch(0))
    expected = bits(tuple(vector.clone() for vector in before.vectors))
    slots = (gradient(0, good).ticket, gradient(0, bad).ticket)
    for skip_bad in (False, True):
        result = perform(replica, Rounds(0, (slots,), skip_bad=skip_bad))
        assert [(sums.finite, sums.refused) for sums in result.tallies] == [
            (True, True),
            (False, True),
        ]
        assert result.version == 0
        assert bits(perform(replica, Fetch(0)).vectors) == expected


def test_versions_are_received_in_place() -> None:
    replica = Setup("norm").replica()
    assert replica.version == -1
    assert all(
        mine is given for mine, given in zip(replica.inbox, replica.model.vectors, strict=True)
    )
    for vector in replica.inbox:
        vector.fill_(2)
    replica.load(7, replica.inbox)
    assert perform(replica, gradient()).version == 7
    assert bool((replica.model.parameters == 2).all())


def test_spans_say_what_was_done() -> None:
    replica = loaded(Setup("norm"))
    perform(replica, gradient())
    perform(replica, Evaluate(0, 0, 1))
    perform(replica, Rounds(0, ((gradient().ticket,),)))
    spans = replica.clock.take()
    assert [kind for kind, *_ in spans] == ["compute", "evaluate", "compute", "update"]
    assert all(start <= end for _, start, end in spans)
    assert replica.clock.take() == ()

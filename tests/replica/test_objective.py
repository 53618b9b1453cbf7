"""The objective, mean loss + l2/2 |w|^2: closed forms in float64, finite differences, dtypes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from psopt.data.plan import Ticket
from psopt.models import build_loss, build_model
from psopt.models.flat import FlatModel
from psopt.replica.memory import Memory
from psopt.replica.replica import Replica
from psopt.replica.tally import tally
from psopt.replica.tasks import Alone, Evaluate, Gradient, Result, Rounds, Tally
from tests.replica.support import CLASSES, FEATURES, Data, Rows, Setup, bits, plain

SAMPLES = 8  # one batch
L2 = 0.3


def split(kind: str, count: int, seed: int = 1) -> Rows:
    generator = torch.Generator().manual_seed(seed)
    x = torch.randn(count, FEATURES, generator=generator)
    if kind == "linear":
        return Rows(x, torch.randn(count, 2, generator=generator))
    classes = 2 if kind == "logistic" else CLASSES
    return Rows(x, torch.randint(classes, (count,), generator=generator))


def problem(kind: str, *, l2: float = L2, bias: bool = True, samples: int = SAMPLES) -> Replica:
    """A convex problem in float64, at a random point."""
    loss = {"linear": "mse", "softmax": "cross_entropy", "logistic": "logistic"}[kind]
    outputs = CLASSES if kind == "softmax" else 2
    module = build_model(
        kind, kwargs={"bias": bias}, input_shape=(FEATURES,), outputs=outputs, seed=1
    ).double()
    model = FlatModel(module)
    model.parameters.normal_(generator=torch.Generator().manual_seed(2))
    setup = Setup(samples=samples, batch=SAMPLES)
    data = Data(split(kind, samples), split(kind, 9, seed=3))
    replica = setup.replica(model=model, loss=build_loss(loss), data=data, l2=l2)
    replica.load(0, replica.model.vectors)
    return replica


def perform(replica: Replica, weight: float = 1.0) -> Result:
    return replica.perform(Gradient(0, Ticket(0, 0), weight), Alone(), Memory())


def closed_form(kind: str, x: Tensor, y: Tensor, weight: Tensor, bias: Any) -> tuple[Any, Any]:
    """The mean loss and its gradient with respect to the output (count, width), by hand."""
    z, count = x @ weight.T + bias, len(x)
    if kind == "linear":
        rest = z - y
        return (rest**2).mean(), 2 / rest.numel() * rest
    if kind == "logistic":
        probability = 1 / (1 + torch.exp(-z[:, 0]))
        right = torch.where(y == 1, probability, 1 - probability)
        return -torch.log(right).mean(), ((probability - y) / count)[:, None]
    exponentials = torch.exp(z)
    probability = exponentials / exponentials.sum(1, keepdim=True)
    chosen = torch.eye(CLASSES, dtype=torch.float64)[y]
    return -torch.log((probability * chosen).sum(1)).mean(), (probability - chosen) / count


@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("l2", [0.0, L2])
@pytest.mark.parametrize("kind", ["linear", "softmax", "logistic"])
def test_closed_forms(kind: str, l2: float, bias: bool) -> None:
    replica = problem(kind, l2=l2, bias=bias)
    result = perform(replica)
    weight, offset = replica.model.views if bias else (replica.model.views[0], torch.zeros(()))
    rows = replica.plan(0).rows(0)
    x, y = replica.data.train.batch(rows)
    loss, slope = closed_form(kind, x.double(), y, weight, offset)
    parts = [slope.T @ x.double() + l2 * weight]
    if bias:
        parts.append(slope.sum(0) + l2 * offset)
    expected = torch.cat([part.reshape(-1) for part in parts])
    assert result.vectors[0].dtype == torch.float64
    torch.testing.assert_close(result.vectors[0], expected, rtol=1e-13, atol=1e-14)
    penalty = l2 / 2 * float((replica.model.parameters**2).sum())
    (sums,) = result.tallies
    assert sums.loss / SAMPLES == pytest.approx(loss.item() + penalty, rel=1e-14)
    assert sums.count == SAMPLES
    if kind == "linear":
        assert sums.correct is None
    else:
        z = x.double() @ weight.T + offset
        answers = (z[:, 0] > 0).long() if kind == "logistic" else z.argmax(1)
        assert sums.correct == int((answers == y).sum())
        assert 0 < sums.correct < SAMPLES


@pytest.mark.parametrize("kind", ["linear", "softmax", "logistic"])
def test_finite_differences(kind: str) -> None:
    """The gradient that is sent is that of the loss that is told, along every parameter."""
    replica, step = problem(kind), 1e-6
    gradient = perform(replica).vectors[0].clone()
    slopes = []
    for index in range(len(gradient)):
        values = []
        for sign in (1, -1):
            replica.model.parameters[index] += sign * step
            values.append(perform(replica).tallies[0].loss / SAMPLES)
            replica.model.parameters[index] -= sign * step
        slopes.append((values[0] - values[1]) / (2 * step))
    torch.testing.assert_close(torch.tensor(slopes), gradient.float(), rtol=1e-6, atol=1e-7)
    torch.testing.assert_close(
        torch.tensor(slopes, dtype=torch.float64), gradient, rtol=1e-7, atol=1e-8
    )


def test_a_weight_multiplies_the_penalty_too() -> None:
    replica = problem("softmax")
    whole = perform(replica).vectors[0].clone()
    assert torch.equal(perform(replica, 0.25).vectors[0], whole * 0.25)


def test_the_penalty_counts_once_in_a_round() -> None:
    """Two slots of 8 and 5 samples: one step along the gradient over their 13 samples."""
    replica = problem("softmax", samples=13)
    before, test = replica.model.parameters.clone(), Evaluate(0, 0, 1)
    unpenalised = problem("softmax", samples=13, l2=0.0)
    assert replica.perform(test, Alone(), Memory()) == unpenalised.perform(test, Alone(), Memory())
    slots = (Ticket(0, 0), Ticket(0, 1))
    optimizer = replica.optimizer
    result = replica.perform(Rounds(0, (slots,)), Alone(), Memory())
    plain_result = unpenalised.perform(Rounds(0, (slots,)), Alone(), Memory())
    penalty = L2 / 2 * float((before**2).sum())
    for sums, bare in zip(result.tallies, plain_result.tallies, strict=True):
        assert sums.loss == pytest.approx(bare.loss + sums.count * penalty, rel=1e-14)
    assert [sums.count for sums in result.tallies] == [8, 5]
    assert optimizer is replica.optimizer
    torch.testing.assert_close(
        replica.total - unpenalised.total, L2 * before, rtol=1e-12, atol=1e-13
    )


def test_without_a_penalty_nothing_is_added() -> None:
    one, other = problem("softmax", l2=0.0), Setup("plain").replica(l2=0.0)
    other.load(0, other.model.vectors)
    default = Setup("plain").replica()
    default.load(0, default.model.vectors)
    assert bits(perform(other).vectors) == bits(perform(default).vectors)
    x, y = one.place(*one.data.train.batch(one.plan(0).rows(0)))
    views = one.model.split(torch.empty_like(one.model.parameters))
    loss, _ = one.batch_gradient(x, y, views)
    assert perform(one).tallies[0].loss == loss.item() * SAMPLES


def test_batch_gradient_is_that_of_the_data() -> None:
    replica, bare = problem("logistic"), problem("logistic", l2=0.0)
    flat = torch.full_like(replica.model.parameters, 7)
    x, y = replica.place(*replica.data.train.batch(replica.plan(0).rows(0)))
    loss, output = replica.batch_gradient(x, y, replica.model.split(flat))
    expected = perform(bare)
    assert torch.equal(flat, expected.vectors[0])
    assert tally(loss, output, y) == expected.tallies[0]
    assert loss.shape == ()
    assert output.shape == (SAMPLES, 1)


def test_the_penalty_is_summed_in_float64() -> None:
    """|w|^2 beyond the largest float32 is a number yet; beyond the largest float64 it is refused."""
    replica = Setup("plain").replica(l2=1e-30, loss=lambda output, y: (output * 0).mean())
    replica.load(0, tuple(torch.full_like(v, 1e25) for v in replica.model.vectors))
    (sums,) = perform(replica).tallies
    count = replica.model.parameters.numel()
    assert sums.loss / sums.count == pytest.approx(1e-30 / 2 * count * 1e50, rel=1e-6)
    assert sums.finite
    double = problem("linear")
    double.load(0, (torch.full_like(double.model.parameters, 1e160),))
    result = perform(double)
    assert not result.tallies[0].finite
    assert bool(result.vectors[0].isnan().all())


@pytest.mark.parametrize(
    ("dtype", "wider"),
    [
        (torch.float64, torch.float64),
        (torch.float32, torch.float32),
        (torch.bfloat16, torch.float32),  # as its factory wants it: samples are never narrowed
    ],
)
def test_samples_are_no_narrower_than_the_parameters(
    dtype: torch.dtype, wider: torch.dtype
) -> None:
    replica = Setup("plain").replica(model=FlatModel(plain().to(dtype)))
    x, targets, labels = torch.rand(3, FEATURES), torch.rand(3, 1), torch.arange(3)
    placed, y = replica.place(x, targets)
    assert (placed.dtype, y.dtype) == (wider, wider)
    assert torch.equal(placed, x.to(wider))
    if wider == torch.float32:
        assert placed is x
    assert replica.place(x, labels)[1] is labels


class Seeing(nn.Module):
    """Keeps the dtypes that it was given."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(FEATURES, CLASSES)
        self.seen: list[torch.dtype] = []

    def forward(self, x: Tensor) -> Tensor:
        self.seen.append(x.dtype)
        result: Tensor = self.layer(x)
        return result


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_training_and_test_samples_have_the_dtype_of_the_model(dtype: torch.dtype) -> None:
    module = Seeing().to(dtype)
    replica = Setup().replica(model=FlatModel(module))
    replica.load(0, replica.model.vectors)
    result = perform(replica)
    replica.perform(Evaluate(0, 0, 1), Alone(), Memory())
    assert module.seen == [dtype, dtype]
    assert result.vectors[0].dtype == dtype


@pytest.mark.parametrize("shape", [lambda z: z, lambda z: z[:, None]])
def test_tally_of_one_logit(shape: Callable[[Tensor], Tensor]) -> None:
    """Label 1 where it is positive."""
    z, y = torch.tensor([0.5, -0.5, 3.0, -1.0, 0.0]), torch.tensor([1, 1, 0, 0, 0])
    assert tally(torch.tensor(2.0), shape(z), y) == Tally(10.0, 3, 5)


def test_tally_of_one_sample_of_several_classes() -> None:
    output = torch.tensor([[0.1, 0.9, 0.3]])
    assert tally(torch.tensor(1.0), output, torch.tensor([1])) == Tally(1.0, 1, 1)
    assert tally(torch.tensor(1.0), output, torch.tensor([0])) == Tally(1.0, 0, 1)

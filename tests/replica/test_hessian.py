"""Products with the Hessian of a shard's mean loss."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional

from psopt.data.shards import Shard
from psopt.models import build_model
from psopt.models.flat import FlatModel
from psopt.replica.replica import Replica
from psopt.replica.shards import _Part
from tests.replica.convex import SHARD, problem
from tests.replica.support import CLASSES, FEATURES, Data, Rows, Setup

WHOLE = Shard(0, 1, "iid", 1)


class Tied(nn.Module):
    """Two layers of one weight, a frozen layer between them, and a parameter of no use."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Linear(FEATURES, FEATURES)
        self.frozen = nn.Linear(FEATURES, FEATURES).requires_grad_(False)
        self.second = nn.Linear(FEATURES, FEATURES)
        self.second.weight = self.first.weight
        self.idle = nn.Parameter(torch.ones(3))

    def forward(self, x: Tensor) -> Tensor:
        hidden = torch.tanh(self.frozen(torch.tanh(self.first(x))))
        result: Tensor = self.second(hidden)[:, :CLASSES]
        return result


def of(module: nn.Module, x: Tensor, classes: int, batch: int) -> Replica:
    """A replica in float64 on samples ``x``."""
    y = torch.randint(classes, (len(x),), generator=torch.Generator().manual_seed(4))
    data = Data(Rows(x, y), Rows(x, y))
    setup = Setup(samples=len(x), batch=batch)
    replica = setup.replica(model=FlatModel(module.double()), data=data)
    replica.load(0, replica.model.vectors)
    return replica


def product_of(replica: Replica, shard: Shard = WHOLE) -> Callable[[Tensor], Tensor]:
    return _Part(replica, shard).products()


def random_like(w: Tensor, seed: int = 9) -> Tensor:
    return torch.randn(w.shape, generator=torch.Generator().manual_seed(seed), dtype=w.dtype)


@pytest.mark.parametrize("batch", [1000, 7])
@pytest.mark.parametrize("kind", ["linear", "logistic"])
def test_closed_forms(kind: str, batch: int) -> None:
    given = problem(kind, batch=batch)
    hessian = given.hessian(given.w, *given.rows())
    product = product_of(given.replica, SHARD)
    for seed in range(3):
        v = random_like(given.w, seed)
        torch.testing.assert_close(product(v), hessian @ v, rtol=1e-11, atol=1e-13)


@pytest.mark.parametrize("batch", [1000, 6])
def test_softmax_against_a_dense_hessian(batch: int) -> None:
    x = torch.randn(20, FEATURES, generator=torch.Generator().manual_seed(1))
    module = build_model("softmax", input_shape=(FEATURES,), outputs=CLASSES, seed=1)
    replica = of(module, x, CLASSES, batch)
    rows, y = replica.place(*replica.data.train.batch(range(20)))

    def loss(w: Tensor) -> Tensor:
        weight, bias = replica.model.split(w)
        return functional.cross_entropy(rows @ weight.T + bias, y)

    w = replica.model.parameters.clone()
    hessian = torch.autograd.functional.hessian(loss, w)  # type: ignore[no-untyped-call]
    v = random_like(replica.model.parameters)
    torch.testing.assert_close(product_of(replica)(v), hessian @ v, rtol=1e-11, atol=1e-13)


@pytest.mark.parametrize("batch", [1000, 3])
@pytest.mark.parametrize("name", ["lenet5", "tied", "norm"])
def test_networks_against_finite_differences(name: str, batch: int) -> None:
    torch.manual_seed(3)
    if name == "lenet5":
        module: nn.Module = build_model(
            "lenet5", kwargs={"activation": "tanh"}, input_shape=(1, 12, 12), outputs=4, seed=1
        )
        x = torch.randn(6, 1, 12, 12)
    elif name == "tied":
        module, x = Tied(), torch.randn(6, FEATURES)
    else:
        module = nn.Sequential(
            nn.Linear(FEATURES, 5), nn.BatchNorm1d(5), nn.Tanh(), nn.Linear(5, 3)
        )
        x = torch.randn(6, FEATURES)
    replica = of(module, x, 4 if name == "lenet5" else CLASSES, batch)
    part, w = _Part(replica, WHOLE), replica.model.parameters.clone()
    v = random_like(w)
    product = part.products()(v)
    ends = [torch.empty_like(w), torch.empty_like(w)]
    for sign, out in zip((1, -1), ends, strict=True):
        part.loss_at(w + sign * 1e-5 * v, out)
    torch.testing.assert_close(product, (ends[0] - ends[1]) / 2e-5, rtol=1e-5, atol=1e-7)
    assert float(product.norm()) > 1e-3
    if name == "tied":
        assert replica.model.names == ("idle", "first.weight", "first.bias", "second.bias")
        assert torch.equal(product[:3], torch.zeros(3, dtype=torch.float64))


def test_a_product_again_is_the_same() -> None:
    """The graph of a shard of one batch is kept, and not used up."""
    x = torch.randn(6, FEATURES, generator=torch.Generator().manual_seed(1))
    replica = of(Tied(), x, CLASSES, 10)
    product, v = product_of(replica), random_like(replica.model.parameters)
    assert torch.equal(product(v), product(v))
    torch.testing.assert_close(product(2 * v), 2 * product(v), rtol=1e-12, atol=1e-14)


def test_a_loss_that_is_linear_has_no_curvature() -> None:
    given = problem("linear")
    given.replica.loss = lambda output, y: output.mean()
    assert torch.equal(
        product_of(given.replica)(torch.ones_like(given.w)), torch.zeros_like(given.w)
    )

"""The flat model: one vector, and everything that a torch module may have beside plain parameters."""

from __future__ import annotations

import hashlib
import struct
from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional

from psopt.models.flat import FlatModel, parameters_sha256


class Tied(nn.Module):
    """Input embedding and output layer share their weight."""

    def __init__(self, sparse: bool = False) -> None:
        super().__init__()
        self.embed = nn.Embedding(6, 4, sparse=sparse)
        self.inner = nn.Linear(4, 4)
        self.head = nn.Linear(4, 6)
        self.head.weight = self.embed.weight

    def forward(self, words: Tensor) -> Tensor:
        result: Tensor = self.head(torch.tanh(self.inner(self.embed(words))))
        return result


class Bag(nn.Module):
    def __init__(self, sparse: bool) -> None:
        super().__init__()
        self.embed = nn.Embedding(9, 3, sparse=sparse)
        self.head = nn.Linear(3, 2)

    def forward(self, words: Tensor) -> Tensor:
        result: Tensor = self.head(self.embed(words).sum(1))
        return result


class Buffers(nn.Module):
    """One of each kind."""

    mean: Tensor

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(3))
        self.register_buffer("mean", torch.full((3,), 2.0))
        self.register_buffer("precise", torch.tensor(0.5, dtype=torch.float64))
        self.register_buffer("count", torch.tensor(4))
        self.register_buffer("index", torch.arange(3))
        self.register_buffer("mask", torch.tensor([True, False, True]))
        self.register_buffer("turn", torch.ones(2, dtype=torch.complex64))
        self.register_buffer("cache", torch.full((2,), 9.0), persistent=False)
        self.register_buffer("absent", None)
        self.register_buffer("empty", torch.empty(0))


def seeded(make: Callable[[], nn.Module]) -> nn.Module:
    torch.manual_seed(0)
    return make()


def gradient(model: FlatModel, x: Tensor, y: Tensor) -> Tensor:
    flat = torch.full_like(model.parameters, 7)
    torch.autograd.backward(functional.cross_entropy(model.module(x), y))
    model.gather_gradients(model.split(flat))
    return flat


def norm() -> nn.Module:
    return nn.Sequential(nn.Linear(4, 5), nn.BatchNorm1d(5), nn.Linear(5, 2))


X, Y = torch.linspace(-1, 1, 24).view(6, 4), torch.tensor([0, 1, 1, 0, 1, 0])
WORDS = torch.tensor([0, 3, 3, 5, 1, 2])


def test_parameters_are_views_of_one_vector() -> None:
    module = seeded(norm)
    before = {name: p.detach().clone() for name, p in module.named_parameters()}
    model = FlatModel(module)
    assert model.names == tuple(before)
    assert model.shapes == {name: p.shape for name, p in before.items()}
    assert sum(model.sizes) == model.parameters.numel() == 47
    assert torch.equal(model.parameters, torch.cat([p.reshape(-1) for p in before.values()]))
    model.parameters.fill_(0.25)
    assert all(bool((p == 0.25).all()) for p in module.parameters())
    with torch.no_grad():
        module[0].bias.fill_(3.0)
    assert model.named_parameters()["0.bias"].tolist() == [3.0] * 5
    assert (model.parameters == 3.0).sum() == 5
    assert not model.parameters.requires_grad
    assert all(p.requires_grad and p.is_leaf for p in module.parameters())


def test_a_gradient_is_torchs() -> None:
    model, module = FlatModel(seeded(norm)), seeded(norm)
    flat = gradient(model, X, Y)
    functional.cross_entropy(module(X), Y).backward()
    assert torch.equal(flat, torch.cat([p.grad.reshape(-1) for p in module.parameters()]))
    assert all(p.grad is None for p in model.module.parameters())
    assert torch.equal(gradient(model, X, Y), flat)  # nothing is left of the first


def test_tied_weights_appear_once_and_stay_tied() -> None:
    model = FlatModel(seeded(Tied))
    module = model.module
    assert isinstance(module, Tied)
    assert model.names == ("embed.weight", "inner.weight", "inner.bias", "head.bias")
    assert model.parameters.numel() == 24 + 16 + 4 + 6
    assert model.aliases() == {"head.weight": "embed.weight"}
    assert "head.weight" not in model.named_buffers()
    model.parameters.mul_(2)
    assert module.head.weight is module.embed.weight
    assert module.head.weight.data_ptr() == model.parameters.data_ptr()
    plain = seeded(Tied)
    with torch.no_grad():
        for parameter in plain.parameters():
            parameter.mul_(2)
    functional.cross_entropy(plain(WORDS), Y).backward()
    expected = torch.cat([p.grad.reshape(-1) for p in plain.parameters()])
    assert torch.equal(gradient(model, WORDS, Y), expected)


def test_a_module_used_twice() -> None:
    layer = nn.BatchNorm1d(3)
    model = FlatModel(nn.ModuleDict({"a": layer, "b": layer}))
    assert model.names == ("a.weight", "a.bias")
    assert model.aliases() == {"b.weight": "a.weight", "b.bias": "a.bias"}
    assert sum(group.flat.numel() for group in model.buffers) == 7
    layer.running_mean.add_(1)
    held = model.named_buffers()
    assert torch.equal(held["a.running_mean"], held["b.running_mean"])
    assert held["b.running_mean"].data_ptr() == held["a.running_mean"].data_ptr()


def test_exported_names_load_into_the_plain_module() -> None:
    for make in (Tied, norm, Buffers):
        model = FlatModel(seeded(make))
        parameters = model.named_parameters()
        named = {**parameters, **model.named_buffers()}
        named |= {name: parameters[first] for name, first in model.aliases().items()}
        make().load_state_dict(named, strict=True)


def test_frozen_parameters_stay() -> None:
    module = seeded(norm)
    module[0].requires_grad_(False)
    kept = module[0].weight.detach().clone()
    model = FlatModel(module)
    assert model.names == ("1.weight", "1.bias", "2.weight", "2.bias")
    assert torch.equal(model.named_buffers()["0.weight"], kept)
    gradient(model, X, Y)
    model.parameters.zero_()
    assert torch.equal(module[0].weight, kept)
    assert module[0].weight.grad is None


def test_a_parameter_without_gradient_has_zero() -> None:
    class Partly(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.used, self.unused = nn.Linear(4, 2), nn.Linear(3, 3)

        def forward(self, x: Tensor) -> Tensor:
            result: Tensor = self.used(x)
            return result

    model = FlatModel(seeded(Partly))
    flat = gradient(model, X, Y)
    assert flat[:10].abs().min() > 0
    assert not flat[10:].any()


def test_sparse_embedding_is_as_dense() -> None:
    words, y = torch.tensor([[0, 3, 3], [8, 1, 0]]), torch.tensor([1, 0])
    flats = []
    for sparse in (False, True):
        model = FlatModel(seeded(lambda s=sparse: Bag(s)))
        flats.append(gradient(model, words, y))
    assert torch.equal(*flats)
    assert flats[0][:3].any()


def test_sparse_and_tied() -> None:
    """The embedding's gradient is sparse, the output layer's dense: torch adds them up."""
    flats = [gradient(FlatModel(seeded(lambda s=s: Tied(s))), WORDS, Y) for s in (False, True)]
    assert torch.allclose(*flats, rtol=1e-6)


def test_batch_norm_buffers() -> None:
    model = FlatModel(seeded(norm))
    statistics, counters = model.buffers
    assert (statistics.flat.dtype, counters.flat.dtype) == (torch.float32, torch.int64)
    assert (statistics.counts, counters.counts) == (False, True)
    assert len(model.vectors) == 3
    assert model.vectors[0] is model.parameters
    gradient(model, X, Y)
    gradient(model, X, Y)
    plain = seeded(norm)
    plain(X)
    plain(X)
    assert torch.equal(statistics.flat[:5], plain[1].running_mean)
    assert torch.equal(statistics.flat[5:], plain[1].running_var)
    assert counters.flat.tolist() == [2]
    counters.flat.fill_(41)
    model.module(X)
    assert model.named_buffers()["1.num_batches_tracked"] == 42


def test_what_travels_of_the_buffers() -> None:
    model = FlatModel(Buffers())
    held = {group.flat.dtype: [name for *_, name in group.places] for group in model.buffers}
    assert held == {
        torch.float32: ["mean", "empty"],
        torch.float64: ["precise"],
        torch.int64: ["count", "index"],
    }
    assert [group.counts for group in model.buffers] == [False, False, True]
    assert model.named_buffers().keys() == {
        *("mean", "precise", "count", "index", "mask", "turn", "empty"),
    }


def test_a_replaced_buffer_is_brought_back() -> None:
    module = Buffers()
    model = FlatModel(module)
    module.mean = module.mean + module.weight  # forgot to detach
    assert module.mean.requires_grad
    module.count = torch.tensor(5)
    module.absent = torch.zeros(1)
    model.gather_buffers()
    statistics, _, counters = model.buffers
    assert statistics.flat.tolist() == [3.0] * 3
    assert not statistics.flat.requires_grad
    assert counters.flat.tolist() == [5, 0, 1, 2]
    statistics.flat.fill_(8.0)
    assert module.mean.tolist() == [8.0] * 3
    model.gather_buffers()
    assert module.mean.tolist() == [8.0] * 3


def test_a_buffer_of_two_modules_stays_shared() -> None:
    shared = torch.zeros(3)
    modules = [nn.Linear(2, 2), nn.Linear(2, 2)]
    for module in modules:
        module.register_buffer("table", shared)
    model = FlatModel(nn.Sequential(*modules))
    (group,) = model.buffers
    assert group.flat.numel() == 3
    modules[0].table.add_(1)
    assert modules[1].table.tolist() == [1.0] * 3
    modules[1].table = torch.full((3,), 4.0)
    model.gather_buffers()
    assert group.flat.tolist() == [4.0] * 3
    assert modules[0].table is modules[1].table


def test_half_precision_and_other_dtypes() -> None:
    model = FlatModel(norm().to(torch.bfloat16))
    assert [vector.dtype for vector in model.vectors] == [
        torch.bfloat16,
        torch.bfloat16,
        torch.int64,
    ]


def test_several_dtypes_are_refused() -> None:
    module = norm()
    module[2].double()
    with pytest.raises(ValueError, match=r"several dtypes \(torch.float32, torch.float64\).*to\("):
        FlatModel(module)
    module[2].requires_grad_(False)
    assert FlatModel(module).parameters.dtype == torch.float32


def test_nothing_to_train() -> None:
    for module in (nn.ReLU(), norm().requires_grad_(False)):
        with pytest.raises(ValueError, match="no trainable parameter; check requires_grad"):
            FlatModel(module)


def test_views_of_odd_shapes() -> None:
    module = nn.Module()
    module.scalar = nn.Parameter(torch.tensor(3.0))
    module.nothing = nn.Parameter(torch.empty(0, 5))
    module.turned = nn.Parameter(torch.arange(6.0).view(2, 3).t())
    image = torch.arange(16.0).view(1, 4, 2, 2).contiguous(memory_format=torch.channels_last)
    module.image = nn.Parameter(image)
    model = FlatModel(module)
    assert model.parameters.tolist() == [3, 0, 3, 1, 4, 2, 5, *range(16)]
    assert module.turned.shape == (3, 2)
    assert [view.shape for view in model.views] == list(model.shapes.values())


def state(model: FlatModel) -> tuple[dict[str, Tensor], dict[str, Tensor]]:
    copies = [
        {name: value.clone() for name, value in part.items()}
        for part in (model.named_parameters(), model.named_buffers())
    ]
    return copies[0], copies[1]


@pytest.mark.parametrize("make", [norm, Tied, Buffers])
def test_loaded_by_name(make: Callable[[], nn.Module]) -> None:
    model, other = FlatModel(seeded(make)), FlatModel(make())
    for vector in model.vectors:
        vector.add_(1)
    other.load_named(*state(model))
    for mine, theirs in zip(model.vectors, other.vectors, strict=True):
        assert torch.equal(mine, theirs)


def test_frozen_parameters_are_loaded_too() -> None:
    frozen = norm()
    frozen[0].requires_grad_(False)
    model = FlatModel(frozen)
    parameters, buffers = state(model)
    buffers["0.weight"].fill_(2.5)
    model.load_named(parameters, buffers)
    assert bool((frozen[0].weight == 2.5).all())


def test_a_dtype_that_differs() -> None:
    """Nothing is converted: a run goes on in the dtype that it was started in."""
    model, double = FlatModel(norm()), FlatModel(norm().double())
    before = [vector.clone() for vector in model.vectors]
    message = r"0.weight is torch.float64 there and torch.float32 here"
    with pytest.raises(ValueError, match=message):
        model.load_named(*state(double))
    for vector, kept in zip(model.vectors, before, strict=True):
        assert torch.equal(vector, kept)


def test_names_that_differ() -> None:
    model = FlatModel(norm())
    parameters, buffers = state(model)
    before = model.parameters.clone()
    for wrong in (
        ({**parameters, "3.weight": torch.zeros(1)}, buffers),
        (parameters, {name: v for name, v in buffers.items() if name != "1.running_mean"}),
    ):
        with pytest.raises(ValueError, match=r"names differ \((3.weight|1.running_mean)\)"):
            model.load_named(*wrong)
    assert torch.equal(model.parameters, before)


def test_a_shape_that_differs() -> None:
    model = FlatModel(norm())
    parameters, buffers = state(model)
    before = [vector.clone() for vector in model.vectors]
    parameters = {name: value + 1 for name, value in parameters.items()}
    parameters["2.weight"] = torch.zeros(3, 5)
    with pytest.raises(ValueError, match=r"2.weight has shape \(3, 5\) there and \(2, 5\) here"):
        model.load_named(parameters, buffers)
    for vector, kept in zip(model.vectors, before, strict=True):
        assert torch.equal(vector, kept)


def constant(value: float, persistent: bool) -> nn.Module:
    module = nn.Linear(2, 2)
    module.register_buffer("table", torch.tensor([value]), persistent=persistent)
    return module


def masked(value: bool) -> nn.Module:
    module = nn.Linear(2, 2)
    module.register_buffer("mask", torch.tensor([value]))
    return module


def frozen(value: float) -> nn.Module:
    module = nn.Sequential(nn.Linear(2, 2), nn.Linear(2, 2))
    nn.init.constant_(module[0].weight, value)
    nn.init.constant_(module[0].bias, value)
    module[0].requires_grad_(False)
    return module


def test_signature_covers_what_never_travels() -> None:
    """Names, shapes and dtypes of everything; values of what each rank makes for itself."""
    makes: list[Callable[[], nn.Module]] = [
        norm,
        lambda: nn.Sequential(nn.Linear(4, 5), nn.BatchNorm1d(5), nn.Linear(5, 3)),
        lambda: nn.Sequential(*norm().children(), nn.ReLU(), nn.Linear(2, 2)),
        lambda: nn.ModuleDict({"layer": nn.Linear(2, 2)}),
        lambda: nn.Linear(2, 2),
        lambda: nn.Linear(2, 2).double(),
        lambda: constant(1.0, persistent=True),
        lambda: constant(1.0, persistent=False),
        lambda: constant(2.0, persistent=False),
        lambda: masked(True),
        lambda: masked(False),
        lambda: frozen(0.0),
        lambda: frozen(1.0),
        Tied,
    ]
    signatures = [FlatModel(make()).signature() for make in makes]
    assert len(set(signatures)) == len(signatures)
    assert [FlatModel(make()).signature() for make in makes] == signatures
    travelling = FlatModel(constant(2.0, persistent=True)).signature()
    assert travelling == FlatModel(constant(1.0, persistent=True)).signature()


def test_signature_is_of_the_model_as_it_was_made() -> None:
    """A trial run of the model on one rank may change what it keeps for itself."""
    module = constant(1.0, persistent=False)
    model = FlatModel(module)
    before = model.signature()
    module.table = torch.zeros(7)
    model.parameters.add_(1)
    assert model.signature() == before


def test_sha256_of_known_content() -> None:
    content = struct.pack("<3f", 1.0, -2.5, 0.0)
    expected = hashlib.sha256(content).hexdigest()
    assert parameters_sha256(torch.tensor([1.0, -2.5, 0.0])) == expected
    assert parameters_sha256(torch.tensor([1.0, -2.5, 0.0], dtype=torch.float64)) == expected
    assert parameters_sha256(torch.tensor([1.0, 9.0, -2.5, 9.0, 0.0])[::2]) == expected
    assert parameters_sha256(torch.tensor([1.0, -2.5, -0.0])) != expected
    assert parameters_sha256(torch.empty(0)) == hashlib.sha256().hexdigest()

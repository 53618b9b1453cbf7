"""The server's optimizer against a plain loop of torch over the parameters: the same bits."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

from psopt.config import OptimizerConfig, SchedulerConfig
from psopt.config.torch_options import OPTIMIZERS, SCHEDULERS
from psopt.optim.first_order import ELEMENTWISE, FirstOrder
from psopt.optim.tree import flatten_tree, unflatten_tree
from tests.replica.support import bits

# Odd sizes: a vector's last elements are computed by another path than those before.
SHAPES = {
    "stem.weight": torch.Size([7, 3]),
    "stem.bias": torch.Size([7]),
    "scale": torch.Size([]),
    "body.weight": torch.Size([13, 7, 1]),
    "body.bias": torch.Size([13]),
    "norm.weight": torch.Size([1]),
    "empty": torch.Size([0]),
    "head.weight": torch.Size([5, 13]),
    "head.bias": torch.Size([5]),
}
SIZE = sum(shape.numel() for shape in SHAPES.values())
OPTIONS: dict[str, dict[str, Any]] = {
    "Adadelta": {"weight_decay": 0.01},
    "Adagrad": {"lr_decay": 0.1, "weight_decay": 0.01},
    "Adam": {"amsgrad": True, "weight_decay": 0.01},
    "Adamax": {"weight_decay": 0.01},
    "AdamW": {"amsgrad": True},
    "ASGD": {"t0": 3, "weight_decay": 0.01},
    "NAdam": {"weight_decay": 0.01, "decoupled_weight_decay": True},
    "RAdam": {"weight_decay": 0.01},
    "RMSprop": {"momentum": 0.9, "centered": True, "weight_decay": 0.01},
    "Rprop": {},
    "SGD": {"momentum": 0.9, "nesterov": True, "weight_decay": 0.01},
}
GROUPS = [{"match": "*.bias", "lr": 0.02}, {"match": "*norm*", "lr": 0.3}, {"match": "head.*"}]


def config(name: str, **options: Any) -> OptimizerConfig:
    return OptimizerConfig(**{"name": name, "lr": 0.05, **options})


def schedule(name: str, per: str = "step", **options: Any) -> SchedulerConfig:
    return SchedulerConfig(**{"name": name, "per": per, **options})


def start(dtype: torch.dtype = torch.float32) -> Tensor:
    return torch.randn(SIZE, generator=torch.Generator().manual_seed(1)).to(dtype)


def gradients(steps: int, dtype: torch.dtype = torch.float32) -> list[Tensor]:
    generator = torch.Generator().manual_seed(2)
    return [torch.randn(SIZE, generator=generator).to(dtype) for _ in range(steps)]


def named(flat: Tensor) -> dict[str, Tensor]:
    pieces = torch.split(flat, [shape.numel() for shape in SHAPES.values()])
    return {n: p.view(s) for (n, s), p in zip(SHAPES.items(), pieces, strict=True)}


class Plain:
    """What a user of torch would write: a parameter each, and no flat vector."""

    def __init__(
        self, optimizer: OptimizerConfig, scheduler: SchedulerConfig | None = None
    ) -> None:
        self.parameters = {
            name: torch.nn.Parameter(piece.clone()) for name, piece in named(start()).items()
        }
        rest, groups = dict(self.parameters), []
        for group in optimizer.groups:
            wanted = group.match.strip("*")
            taken = [rest.pop(name) for name in list(rest) if wanted in name]
            groups.append({"params": taken, **group.options})
        if rest:
            groups.insert(0, {"params": list(rest.values())})
        self.optimizer = optimizer.cls(groups, **optimizer.options)
        self.scheduler = scheduler.cls(self.optimizer, **scheduler.options) if scheduler else None

    def step(self, gradient: Tensor, clip: float | None = None) -> None:
        for name, piece in named(gradient).items():
            self.parameters[name].grad = piece.clone()
        if clip is not None:
            torch.nn.utils.clip_grad_norm_(self.parameters.values(), clip)
        self.optimizer.step()

    @property
    def flat(self) -> Tensor:
        return torch.cat([p.detach().reshape(-1) for p in self.parameters.values()])


@pytest.mark.parametrize("groups", [[], GROUPS], ids=["one_group", "groups"])
@pytest.mark.parametrize("defaults", [True, False], ids=["defaults", "options"])
@pytest.mark.parametrize("name", sorted(ELEMENTWISE))
def test_bits_of_the_plain_loop(name: str, defaults: bool, groups: list[dict[str, Any]]) -> None:
    optimizer = config(name, groups=groups, **({} if defaults else OPTIONS[name]))
    flat, plain = start(), Plain(optimizer)
    first_order = FirstOrder(flat, SHAPES, optimizer)
    for epoch, gradient in enumerate(gradients(6)):
        first_order.step(gradient.clone(), epoch=epoch)
        plain.step(gradient)
        assert bits([flat]) == bits([plain.flat])


def test_every_optimizer_is_either_elementwise_or_left_apart() -> None:
    assert set(OPTIMIZERS) >= ELEMENTWISE
    assert set(OPTIMIZERS) - ELEMENTWISE == {"Adafactor", "Muon"}
    assert set(OPTIONS) == ELEMENTWISE


def test_an_optimizer_that_sees_shapes_is_given_them() -> None:
    optimizer = config("Adafactor")
    flat, plain = start(), Plain(optimizer)
    shapes = {name: shape for name, shape in SHAPES.items() if name != "empty"}
    del plain.optimizer.param_groups[0]["params"][list(SHAPES).index("empty")]
    first_order = FirstOrder(flat, shapes, optimizer)
    for gradient in gradients(4):
        first_order.step(gradient.clone(), epoch=0)
        plain.step(gradient)
        assert bits([flat]) == bits([plain.flat])


def test_groups_keep_their_own_options() -> None:
    """SGD without and with momentum, by hand; the first match wins."""
    groups = [{"match": "*.bias", "lr": 0.5, "momentum": 0.0}, {"match": "head.*", "lr": 2.0}]
    flat = torch.zeros(SIZE)
    first_order = FirstOrder(flat, SHAPES, config("SGD", lr=1.0, momentum=0.5, groups=groups))
    for _ in range(2):
        first_order.step(torch.ones(SIZE), epoch=0)
    assert first_order.lr == 1.0
    for name, piece in named(flat).items():
        expected = -1.0 if name.endswith("bias") else -5.0 if name.startswith("head") else -2.5
        assert bool((piece == expected).all()), name


def test_all_parameters_in_groups() -> None:
    flat = torch.zeros(SIZE)
    first_order = FirstOrder(flat, SHAPES, config("SGD", groups=[{"match": "*", "lr": 3.0}]))
    first_order.step(torch.ones(SIZE), epoch=0)
    assert bool((flat == -3).all())
    assert first_order.lr == 3.0


def test_a_group_that_matches_nothing() -> None:
    with pytest.raises(ValueError, match=r"'\*\.gamma' matches no parameter .* stem\.weight, "):
        FirstOrder(start(), SHAPES, config("SGD", groups=[{"match": "*.gamma"}]))
    twice = config("SGD", groups=[{"match": "*"}, {"match": "stem.*"}])
    with pytest.raises(ValueError, match=r"'stem\.\*' matches no parameter that is left"):
        FirstOrder(start(), SHAPES, twice)


def test_only_the_named_gradient_counts() -> None:
    """The gradient may be changed once the step is over."""
    flat = torch.zeros(SIZE)
    first_order = FirstOrder(flat, SHAPES, config("SGD", momentum=0.9))
    gradient = torch.ones(SIZE)
    first_order.step(gradient, epoch=0)
    gradient.fill_(float("nan"))
    first_order.step(torch.zeros(SIZE), epoch=0)
    assert torch.isfinite(flat).all()


@pytest.mark.parametrize("scale", [0.001, 1.0, 1000.0, 0.0])
def test_clipping_is_torchs(scale: float) -> None:
    optimizer = config("SGD", momentum=0.9)
    flat, plain = start(), Plain(optimizer)
    first_order = FirstOrder(flat, SHAPES, optimizer, clip_norm=1.5)
    for gradient in gradients(4):
        first_order.step(gradient * scale, epoch=0)
        plain.step(gradient * scale, clip=1.5)
        assert bits([flat]) == bits([plain.flat])


def test_a_schedule_counts_steps() -> None:
    scheduler = schedule("MultiStepLR", milestones=[2, 3], gamma=0.1)
    first_order = FirstOrder(start(), SHAPES, config("SGD", lr=1.0), scheduler)
    rates = []
    for gradient in gradients(5):
        rates.append(first_order.lr)
        first_order.step(gradient, epoch=7)
    assert rates == pytest.approx([1, 1, 0.1, 0.01, 0.01])


def test_a_schedule_counts_epochs() -> None:
    """Once an epoch, however many steps it has, and none is missed when epochs are."""
    scheduler = schedule("MultiStepLR", "epoch", milestones=[1, 3], gamma=0.1)
    first_order = FirstOrder(start(), SHAPES, config("SGD", lr=1.0), scheduler)
    rates = []
    for epoch, gradient in zip([0, 0, 1, 1, 1, 0, 4], gradients(7), strict=True):
        first_order.step(gradient, epoch=epoch)
        rates.append(first_order.lr)
    assert rates == pytest.approx([1, 1, 0.1, 0.1, 0.1, 0.1, 0.01])


def test_the_first_step_may_come_late() -> None:
    """All of the first epochs were refused: torch's warning is about another mistake."""
    scheduler = schedule("StepLR", "epoch", step_size=1, gamma=0.1)
    first_order = FirstOrder(start(), SHAPES, config("SGD", lr=1.0), scheduler)
    first_order.step(gradients(1)[0], epoch=2)
    assert first_order.lr == pytest.approx(0.01)


@pytest.mark.parametrize("per", ["step", "epoch"])
@pytest.mark.parametrize(
    "make",
    [
        lambda per: schedule("OneCycleLR", per, max_lr=0.5, total_steps=40),
        lambda per: schedule("CosineAnnealingLR", per, T_max=5),
        lambda per: schedule("MultiStepLR", per, milestones=[2, 4]),
        lambda per: schedule("StepLR", per, step_size=2),
    ],
    ids=["one_cycle", "cosine", "multi_step", "step"],
)
def test_a_schedule_is_torchs(make: Callable[[str], SchedulerConfig], per: str) -> None:
    optimizer, scheduler = config("SGD", momentum=0.9, groups=GROUPS), make(per)
    flat, plain = start(), Plain(optimizer, scheduler)
    first_order = FirstOrder(flat, SHAPES, optimizer, scheduler)
    assert plain.scheduler is not None
    for step, gradient in enumerate(gradients(12)):
        first_order.step(gradient.clone(), epoch=step // 3)
        plain.step(gradient)
        if per == "step" or step % 3 == 2:
            plain.scheduler.step()
        assert bits([flat]) == bits([plain.flat])


def test_a_rate_is_for_one_step() -> None:
    """It multiplies the learning rates of all groups, and leaves schedule and momentum alone."""
    groups = [{"match": "*.bias", "lr": 0.5}]
    scheduler = schedule("StepLR", step_size=2, gamma=0.5)
    flat = torch.zeros(SIZE)
    first_order = FirstOrder(flat, SHAPES, config("SGD", lr=1.0, groups=groups), scheduler)
    for rate in (1.0, 0.25, 1.0):
        first_order.step(torch.ones(SIZE), epoch=0, rate=rate)
    assert first_order.lr == 0.5
    pieces = named(flat)
    assert pieces["scale"] == -(1 + 0.25 + 0.5)
    assert bool((pieces["stem.bias"] == -(0.5 + 0.125 + 0.25)).all())


def through_a_checkpoint(state: dict[str, Any]) -> dict[str, Any]:
    """Tensors as copies, everything else as JSON."""
    structure, tensors = flatten_tree(state)
    copies = [tensor.clone() for tensor in tensors]
    result: dict[str, Any] = unflatten_tree(json.loads(json.dumps(structure)), copies)
    return result


NO_SCHEDULE = ("none", {})
SCHEDULES: list[tuple[str, dict[str, Any]]] = [
    NO_SCHEDULE,
    ("ConstantLR", {"total_iters": 4}),
    ("CosineAnnealingLR", {"T_max": 5}),
    ("CosineAnnealingWarmRestarts", {"T_0": 3, "T_mult": 2}),
    ("CyclicLR", {"base_lr": 0.01, "max_lr": 0.2, "step_size_up": 3, "mode": "triangular2"}),
    ("ExponentialLR", {"gamma": 0.9}),
    ("LinearLR", {"total_iters": 8}),
    ("MultiStepLR", {"milestones": [2, 4, 4, 7]}),
    ("OneCycleLR", {"max_lr": 0.5, "total_steps": 12, "three_phase": True}),
    ("PolynomialLR", {"total_iters": 9, "power": 2.0}),
    ("StepLR", {"step_size": 2}),
]


@pytest.mark.parametrize("per", ["step", "epoch"])
@pytest.mark.parametrize(("name", "options"), SCHEDULES, ids=[name for name, _ in SCHEDULES])
def test_a_resume_at_any_step(name: str, options: dict[str, Any], per: str) -> None:
    """The bits of the uninterrupted run, for SGD with momentum and for Adam."""
    scheduler = None if name == "none" else schedule(name, per, **options)
    for optimizer in (config("SGD", momentum=0.9), config("Adam", groups=GROUPS)):
        flat = start()
        first_order = FirstOrder(flat, SHAPES, optimizer, scheduler)
        for step, gradient in enumerate(gradients(10)):
            other = flat.clone()
            resumed = FirstOrder(other, SHAPES, optimizer, scheduler)
            resumed.load(through_a_checkpoint(first_order.state()))
            first_order.step(gradient.clone(), epoch=step // 3)
            resumed.step(gradient.clone(), epoch=step // 3)
            assert bits([other]) == bits([flat])
            mine, theirs = flatten_tree(first_order.state()), flatten_tree(resumed.state())
            assert mine[0] == theirs[0]
            assert bits(mine[1]) == bits(theirs[1])
            flat, first_order = other, resumed


def test_every_schedule_is_resumed_above() -> None:
    assert {name for name, _ in SCHEDULES} - {"none"} == set(SCHEDULERS)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
@pytest.mark.parametrize("name", sorted(OPTIMIZERS.keys() - {"Muon"}))
def test_every_optimizer_resumes(name: str, dtype: torch.dtype) -> None:
    """With the dtypes that its state has, whatever the parameters' dtype."""
    shapes = {name: shape for name, shape in SHAPES.items() if name != "empty"}
    optimizer = config(name, **OPTIONS.get(name, {}))
    flat = start(dtype)
    first_order = FirstOrder(flat, shapes, optimizer)
    before, after = gradients(7, dtype)[:4], gradients(7, dtype)[4:]
    for gradient in before:
        first_order.step(gradient.clone(), epoch=0)
    other = flat.clone()
    resumed = FirstOrder(other, shapes, optimizer)
    resumed.load(through_a_checkpoint(first_order.state()))
    for gradient in after:
        first_order.step(gradient.clone(), epoch=0)
        resumed.step(gradient.clone(), epoch=0)
    assert bits([other]) == bits([flat])
    assert bits(flatten_tree(first_order.state())[1]) == bits(flatten_tree(resumed.state())[1])


def test_loaded_state_is_a_copy() -> None:
    """Two optimizers that loaded one state go separate ways."""
    optimizer = config("Adam")
    first_order = FirstOrder(start(), SHAPES, optimizer)
    first_order.step(gradients(1)[0], epoch=0)
    state = first_order.state()
    before = bits(flatten_tree(state)[1])
    other = FirstOrder(start(), SHAPES, optimizer)
    other.load(state)
    other.step(gradients(1)[0], epoch=0)
    assert bits(flatten_tree(state)[1]) == before


def test_state_of_other_groups_is_refused() -> None:
    state = FirstOrder(start(), SHAPES, config("SGD", groups=GROUPS)).state()
    with pytest.raises(ValueError):
        FirstOrder(start(), SHAPES, config("SGD")).load(state)


def test_state_replaces_what_was_there() -> None:
    optimizer = config("SGD", momentum=0.9)
    fresh = FirstOrder(start(), SHAPES, optimizer).state()
    flat = start()
    first_order = FirstOrder(flat, SHAPES, optimizer)
    first_order.step(gradients(1)[0], epoch=0)
    first_order.load(through_a_checkpoint(fresh))
    assert first_order.state()["state"] == {}

from __future__ import annotations

import subprocess
import sys

import pytest
import torch
from pydantic import ValidationError

from psopt.config import OptimizerConfig, SchedulerConfig
from psopt.config.torch_options import OPTIMIZERS, REFUSED, SCHEDULERS, option_names
from tests.config.support import MINIMAL, Bench

# Options without which a schedule cannot be made.
NEEDED = {
    "CosineAnnealingLR": {"T_max": 10},
    "CosineAnnealingWarmRestarts": {"T_0": 5},
    "CyclicLR": {"base_lr": 0.01, "max_lr": 0.1},
    "ExponentialLR": {"gamma": 0.9},
    "MultiStepLR": {"milestones": [5, 10]},
    "OneCycleLR": {"max_lr": 0.1, "total_steps": 100},
    "StepLR": {"step_size": 5},
}


def with_optimizer(section: str) -> str:
    return MINIMAL.replace("{name: SGD, lr: 0.1}", section)


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_every_optimizer(name: str) -> None:
    section = OptimizerConfig(name=name, lr=0.01)
    assert section.cls is getattr(torch.optim, name)
    assert section.options == {"lr": 0.01}
    section.cls([torch.nn.Parameter(torch.zeros(2, 2))], **section.options)
    assert {"lr", "weight_decay"} <= {*option_names(section.cls), "weight_decay"}


@pytest.mark.parametrize("name", SCHEDULERS)
def test_every_scheduler(bench: Bench, name: str) -> None:
    section = SchedulerConfig(name=name, **NEEDED.get(name, {}))
    assert section.cls is getattr(torch.optim.lr_scheduler, name)
    assert section.options == NEEDED.get(name, {})
    options = "".join(f", {key}: {value}" for key, value in NEEDED.get(name, {}).items())
    text = MINIMAL.replace("0.1", "0.1, momentum: 0.9") + f"scheduler: {{name: {name}{options}}}\n"
    assert bench.load(text).scheduler == section


@pytest.mark.parametrize(
    ("section", "options"),
    [
        ("{name: SGD, lr: 1, momentum: 0.9, nesterov: true}", {"momentum": 0.9, "nesterov": True}),
        ("{name: SGD, lr: 1, momentum: 1, dampening: 0}", {"momentum": 1.0, "dampening": 0.0}),
        ("{name: Adam, lr: 1, betas: [0.9, 0.99]}", {"betas": (0.9, 0.99)}),
        (
            "{name: Adam, lr: 1, betas: [0, 0.99], foreach: ~}",
            {"betas": (0.0, 0.99), "foreach": None},
        ),
        ("{name: Adafactor, lr: 1, eps: [~, 1e-3]}", {"eps": (None, 0.001)}),
        (
            "{name: Muon, lr: 1, adjust_lr_fn: original, ns_steps: 3}",
            {"adjust_lr_fn": "original", "ns_steps": 3},
        ),
    ],
)
def test_options(bench: Bench, section: str, options: dict[str, object]) -> None:
    found = bench.load(with_optimizer(section)).optimizer.options
    assert repr(found) == repr({"lr": 1.0, **options})


@pytest.mark.parametrize(
    ("section", "line"),
    [
        (
            "{name: sgd, lr: 1}",
            "4:19: optimizer.name: unknown optimizer 'sgd'; did you mean 'SGD'?",
        ),
        (
            "{name: AdmaW, lr: 1}",
            "4:19: optimizer.name: unknown optimizer 'AdmaW'; did you mean 'AdamW'?",
        ),
        (
            "{name: Xyzzy, lr: 1}",
            "4:19: optimizer.name: unknown optimizer 'Xyzzy'; valid: ASGD, Adad",
        ),
        ("{name: Optimizer, lr: 1}", "4:19: optimizer.name: unknown optimizer 'Optimizer'"),
        (
            "{name: LBFGS, lr: 1}",
            "4:19: optimizer.name: torch.optim.LBFGS cannot be used: it evaluates",
        ),
        (
            "{name: SparseAdam, lr: 1}",
            "4:19: optimizer.name: torch.optim.SparseAdam cannot be used: it",
        ),
        ("{name: StepLR, lr: 1}", "4:19: optimizer.name: unknown optimizer 'StepLR'"),
        ("{name: 7, lr: 1}", "4:19: optimizer.name: unknown optimizer '7'"),
        ("{name: [], lr: 1}", "4:19: optimizer.name: must be text, not a list"),
        ("{lr: 1}", "4:12: optimizer: required key 'name' is missing"),
        ("{name: SGD}", "4:12: optimizer: required key 'lr' is missing"),
        ("SGD", "4:12: optimizer: must be a mapping of keys, not the text 'SGD'"),
        (
            "{name: SGD, lr: 1, momentun: 1}",
            "4:31: optimizer: unknown key 'momentun'; did you mean 'mom",
        ),
        (
            "{name: SGD, lr: 1, betas: [1, 1]}",
            "4:31: optimizer: unknown key 'betas'; valid: name, lr, gr",
        ),
        ("{name: SGD, lr: 1, params: []}", "4:31: optimizer: unknown key 'params'"),
        ("{name: SGD, lr: 1, self: 1}", "4:31: optimizer: unknown key 'self'"),
        (
            "{name: SGD, lr: 1, momentum: x}",
            "4:41: optimizer.momentum: must be a number, not the text 'x'",
        ),
        (
            "{name: SGD, lr: 1, momentum: true}",
            "4:41: optimizer.momentum: must be a number, not true",
        ),
        (
            "{name: SGD, lr: 1, momentum: .nan}",
            "4:41: optimizer.momentum: must be a finite number, not",
        ),
        (
            "{name: SGD, lr: 1, momentum: 1e999}",
            "4:41: optimizer.momentum: must be a finite number, not",
        ),
        ("{name: SGD, lr: 1, momentum: " + "9" * 350 + "}", "4:41: optimizer.momentum: must be a "),
        (
            "{name: SGD, lr: 1, momentum: {}}",
            "4:41: optimizer.momentum: must be a number, not a mapping",
        ),
        (
            "{name: SGD, lr: 1, nesterov: 1}",
            "4:41: optimizer.nesterov: must be true or false, not 1",
        ),
        (
            "{name: SGD, lr: 1, nesterov: yes}",
            "4:41: optimizer.nesterov: must be true or false, not the",
        ),
        (
            "{name: SGD, lr: 1, nesterov: true}",
            "4:12: optimizer: torch does not take these options of SGD: Nesterov momentum",
        ),
        (
            "{name: SGD, lr: 1, weight_decay: -1}",
            "4:12: optimizer: torch does not take these options",
        ),
        (
            "{name: SGD, lr: 1, foreach: true, fused: true}",
            "4:12: optimizer: torch does not take these",
        ),
        ("{name: Adam, lr: 1, betas: 0.9}", "4:39: optimizer.betas: must be a list, not 0.9"),
        (
            "{name: Adam, lr: 1, betas: [0.9]}",
            "4:39: optimizer.betas: the list is too short: item 2 is",
        ),
        (
            "{name: Adam, lr: 1, betas: [1, 2, 3]}",
            "4:39: optimizer.betas: must be a list of at most 2",
        ),
        (
            "{name: Adam, lr: 1, betas: [0.9, 2]}",
            "4:12: optimizer: torch does not take these options of",
        ),
        (
            "{name: Adam, lr: 1, betas: [0.9, a]}",
            "4:39: optimizer.betas: item 2 must be a number, not th",
        ),
        (
            "{name: Muon, lr: 1, ns_steps: 1.5}",
            "4:42: optimizer.ns_steps: must be a whole number, not 1",
        ),
        (
            "{name: Muon, lr: 1, adjust_lr_fn: x}",
            "4:12: optimizer: torch does not take these options of",
        ),
        ("{name: SGD, lr: 1, groups: {}}", "4:39: optimizer.groups: must be a list, not a mapping"),
        (
            "{name: SGD, lr: 1, groups: [x]}",
            "4:40: optimizer.groups[0]: must be a mapping of keys, not",
        ),
        (
            "{name: SGD, lr: 1, groups: [{lr: 2}]}",
            "4:40: optimizer.groups[0]: required key 'match' is m",
        ),
        (
            "{name: SGD, lr: 1, groups: [{match: x, lrr: 2}]}",
            "4:51: optimizer.groups[0]: unknown key 'lrr'; did you mean 'lr'?",
        ),
        (
            "{name: SGD, lr: 1, groups: [{match: x, lr: y}]}",
            "4:55: optimizer.groups[0].lr: must be a number, not the text 'y'",
        ),
        (
            "{name: SGD, lr: 1, groups: [{match: a}, {match: x, lr: -1}]}",
            "4:52: optimizer.groups[1]: torch does not take these options of SGD: Inv",
        ),
        (
            "{name: SGD, lr: 1, groups: [{match: ''}]}",
            "4:48: optimizer.groups[0].match: must be a text",
        ),
    ],
)
def test_faults_of_an_optimizer(bench: Bench, section: str, line: str) -> None:
    assert bench.error(with_optimizer(section)).startswith(line)


def test_groups(bench: Bench) -> None:
    section = "{name: Adam, lr: 1, groups: [{match: '*.bias', lr: 0, betas: [0, 0.5]}, {match: 7}]}"
    optimizer = bench.load(with_optimizer(section)).optimizer
    assert [group.match for group in optimizer.groups] == ["*.bias", "7"]
    assert optimizer.groups[0].options == {"lr": 0.0, "betas": (0.0, 0.5)}
    assert optimizer.groups[1].options == {}
    assert optimizer.options == {"lr": 1.0}


@pytest.mark.parametrize(
    ("section", "line"),
    [
        (
            "{name: StepLr, step_size: 3}",
            "5:19: scheduler.name: unknown scheduler 'StepLr'; did you mean",
        ),
        ("{name: LRScheduler}", "5:19: scheduler.name: unknown scheduler 'LRScheduler'"),
        ("{name: SGD}", "5:19: scheduler.name: unknown scheduler 'SGD'"),
        (
            "{name: StepLR, step_size: 3, per: batch}",
            "5:46: scheduler.per: must be one of 'step' or 'epo",
        ),
        ("{name: StepLR}", "5:12: scheduler: required key 'step_size' of StepLR is missing"),
        (
            "{name: StepLR, step_size: 3, last_epoch: 1}",
            "5:41: scheduler: unknown key 'last_epoch'",
        ),
        (
            "{name: StepLR, step_size: 1.5}",
            "5:38: scheduler.step_size: must be a whole number, not 1.5",
        ),
        (
            "{name: StepLR, step_size: 0}",
            "5:12: scheduler: torch does not take these options of StepLR",
        ),
        (
            "{name: CosineAnnealingLR, T_max: 0}",
            "5:12: scheduler: torch does not take these options of",
        ),
        ("{name: MultiStepLR, milestones: 3}", "5:44: scheduler.milestones: must be a list, not 3"),
        (
            "{name: MultiStepLR, milestones: [x]}",
            "5:44: scheduler.milestones: item 1 must be a whole nu",
        ),
        (
            "{name: OneCycleLR, max_lr: 1}",
            "5:12: scheduler: torch does not take these options of OneCyc",
        ),
        (
            "{name: OneCycleLR, max_lr: [1, x], total_steps: 9}",
            "5:39: scheduler.max_lr: item 2 must be a",
        ),
        (
            "{name: OneCycleLR, max_lr: x, total_steps: 9}",
            "5:39: scheduler.max_lr: must be a number or a",
        ),
        ("{name: LinearLR, start_factor: 2}", "5:12: scheduler: torch does not take these options"),
        (
            "{name: CyclicLR, base_lr: 1, max_lr: 2, cycle_momentum: false, mode: triangula}",
            "5:81: scheduler.mode: must be one of 'triangular', 'triangular2' or 'exp_range', "
            "not the text 'triangula'; did you mean 'triangular'?",
        ),
        (
            "{name: CyclicLR, base_lr: 1, max_lr: 2, scale_fn: x}",
            "5:52: scheduler: unknown key 'scale_fn'",
        ),
        ("StepLR", "5:12: scheduler: must be a mapping of keys, not the text 'StepLR'"),
    ],
)
def test_faults_of_a_scheduler(bench: Bench, section: str, line: str) -> None:
    assert bench.error(MINIMAL + f"scheduler: {section}\n").startswith(line)


@pytest.mark.parametrize("name", sorted(REFUSED.keys() - {"LBFGS", "SparseAdam"}))
def test_refused_schedulers(bench: Bench, name: str) -> None:
    line = bench.error(MINIMAL + f"scheduler: {{name: {name}}}\n")
    assert (
        line
        == f"5:19: scheduler.name: torch.optim.lr_scheduler.{name} cannot be used: {REFUSED[name]}"
    )


def test_schedule_is_tried_on_the_optimizer_of_the_job(bench: Bench) -> None:
    text = MINIMAL + "scheduler: {name: CyclicLR, base_lr: 0.1, max_lr: 0.2}\n"
    assert bench.load(text).scheduler.name == "CyclicLR"
    assert bench.error(text.replace("SGD", "Adadelta")).startswith(
        "5:12: scheduler: torch does not take these options of CyclicLR: optimizer must support"
    )


def test_sections_from_python() -> None:
    section = OptimizerConfig(name="Adam", lr=0.1, betas=(0.9, 0.99))
    assert section.options == {"lr": 0.1, "betas": (0.9, 0.99)}
    assert OptimizerConfig.model_validate(section) is section
    for wrong in ({"betas": 3}, {"momentum": 1}, {"eps": torch.zeros(1)}, {"lr": -1}):
        with pytest.raises(ValidationError):
            OptimizerConfig(**({"name": "Adam", "lr": 0.1} | wrong))
    with pytest.raises(
        ValidationError, match=r"unknown key 'T_mx'.*per: Input should be 'step' or 'epoch'"
    ):
        SchedulerConfig(name="StepLR", T_mx=3, per="batch")


def test_trials_leave_no_trace() -> None:
    before = torch.random.get_rng_state()
    OptimizerConfig(name="Adam", lr=0.1)
    assert torch.equal(before, torch.random.get_rng_state())


def test_the_compiler_stays_out() -> None:
    """Its import takes longer than all the rest of a small job; no optimizer or schedule asks for it."""
    program = """
import sys, torch
from psopt.config import OptimizerConfig, SchedulerConfig
from psopt.config.torch_options import OPTIMIZERS
from psopt.optim.first_order import FirstOrder
for name in OPTIMIZERS:
    flat = torch.zeros(4)
    made = OptimizerConfig(name=name, lr=0.1)
    schedule = SchedulerConfig(name="StepLR", step_size=1)
    first = FirstOrder(flat, {"a": torch.Size([2, 2])}, made, schedule)
    first.step(torch.ones(4), epoch=0)
    assert flat.any(), name
    first.load(first.state())
sys.exit("torch._dynamo" in sys.modules)
"""
    words = [sys.executable, "-W", "error", "-c", program]
    done = subprocess.run(words, check=False, capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, "")


def test_a_job_that_was_tried_is_not_tried_again() -> None:
    text = '{"name": "SGD", "lr": 0.1, "momentum": 0.9}'
    program = (
        "import sys; from psopt.config import TRIED, OptimizerConfig; "
        f"made = OptimizerConfig.model_validate_json('{text}', context=TRIED); "
        "assert made.options == {'lr': 0.1, 'momentum': 0.9}; "
        "sys.exit('torch._dynamo' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", program], check=False).returncode == 0

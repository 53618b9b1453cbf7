from __future__ import annotations

import pytest

from psopt.config.outline import keys_at
from psopt.config.suggest import nearest, unknown
from tests.config.support import Job


@pytest.mark.parametrize(
    ("written", "valid", "meant"),
    [
        ("lerning_rate", ["name", "lr"], "lr"),
        ("learning-rate", ["name", "lr"], "lr"),
        ("LR", ["name", "lr"], "lr"),
        ("batchsize", ["batch_size", "epochs"], "batch_size"),
        ("Batch-Size", ["batch_size", "epochs"], "batch_size"),
        ("n_workers", ["workers"], "workers"),
        ("wsap", ["bsp", "wasp"], "wasp"),
        ("t_max", ["T_max", "eta_min"], "T_max"),
        ("xyzzy", ["lr"], None),
        ("", ["lr"], None),
        ("lr", [], None),
    ],
)
def test_nearest(written: str, valid: list[str], meant: str | None) -> None:
    assert nearest(written, valid) == meant


def test_unknown() -> None:
    assert unknown("key", "sede", ["seed"]) == "unknown key 'sede'; did you mean 'seed'?"
    assert unknown("key", "x", ["seed", "name"]) == "unknown key 'x'; valid: seed, name"
    assert unknown("key", "x", []) == "unknown key 'x'; none is accepted here"


def test_keys_at() -> None:
    assert keys_at(Job, ())[:3] == ["name", "seed", "model"]
    assert keys_at(Job, ("scheme", "bsp")) == ["name", "slices"]
    assert keys_at(Job, ("scheme",)) == ["name", "period", "weights", "label", "bound", "slices"]
    assert keys_at(Job, ("cluster", "compute")) == ["distribution", "mean", "sigma"]
    assert keys_at(Job, ("optimizer", "groups", 0)) == ["match"]
    assert keys_at(Job, ("scheduler",)) == ["name", "per"]
    assert keys_at(Job, ("cluster", "stragglers", 0)) == []

"""The nearest valid name: what people meant when they wrote another."""

from __future__ import annotations

from collections.abc import Iterable
from difflib import get_close_matches

# What other tools call the same thing, in words that no spelling distance would find.
SYNONYMS = {
    "learning_rate": "lr",
    "base_lr": "lr",
    "lr_rate": "lr",
    "step_size": "lr",
    "l2": "weight_decay",
    "regularization": "weight_decay",
    "num_epochs": "epochs",
    "max_epochs": "epochs",
    "n_epochs": "epochs",
    "bs": "batch_size",
    "batchsize": "batch_size",
    "minibatch": "batch_size",
    "minibatch_size": "batch_size",
    "num_workers": "workers",
    "n_workers": "workers",
    "world_size": "workers",
    "ranks": "workers",
    "processes": "workers",
    "random_seed": "seed",
    "algorithm": "scheme",
    "strategy": "scheme",
    "method": "scheme",
    "network": "model",
    "dataset": "data",
    "criterion": "loss",
    "lr_scheduler": "scheduler",
    "schedule": "scheduler",
    "clip_grad_norm": "clip_norm",
    "gradient_clipping": "clip_norm",
    "max_norm": "clip_norm",
    "job_name": "name",
    "type": "name",
    "walltime": "seconds",
    "time": "seconds",
    "max_steps": "steps",
    "iterations": "steps",
}


def nearest(name: str, valid: Iterable[str]) -> str | None:
    """Return the valid name that is meant most probably, or None where none is near."""
    valid = list(valid)
    if name.lower() in SYNONYMS and SYNONYMS[name.lower()] in valid:
        return SYNONYMS[name.lower()]
    spelt = {v.lower(): v for v in reversed(valid)}
    for other, meant in SYNONYMS.items():
        if meant in valid:
            spelt.setdefault(other, meant)
    found = get_close_matches(name.lower().replace("-", "_"), spelt, n=1, cutoff=0.6)
    return spelt[found[0]] if found else None


def unknown(kind: str, name: str, valid: Iterable[str]) -> str:
    """`unknown key 'x'; did you mean 'y'?`, or the valid ones where none is near."""
    valid = list(valid)
    meant = nearest(name, valid)
    if meant is not None:
        return f"unknown {kind} {name!r}; did you mean {meant!r}?"
    if not valid:
        return f"unknown {kind} {name!r}; none is accepted here"
    return f"unknown {kind} {name!r}; valid: {', '.join(valid)}"

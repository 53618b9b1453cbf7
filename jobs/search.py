"""Bayesian search by Optuna's ask and tell: python jobs/search.py configs/lenet5_wasp.yaml OUT 20 [KEY=VALUE ...].

A trial is a run on virtual workers whose test accuracy Optuna is told; OUT/journal.log keeps them for a second call.
"""

import json
import subprocess
import sys
from pathlib import Path

import optuna
from optuna.storages import JournalStorage, journal
from optuna.trial import Trial, TrialState


def accuracy(trial: Trial, config: str, out: Path, fixed: list[str]) -> float | None:
    """Of a run with what the trial proposes; None if it failed or diverged."""
    lr = trial.suggest_float("lr", 1e-3, 1.0, log=True)
    momentum = trial.suggest_float("momentum", 0, 0.95)
    run = out / f"trial-{trial.number:04}"
    changes = [*fixed, f"optimizer.lr={lr}", f"optimizer.momentum={momentum}"]
    words = ["run", config, "--simulate", "--out", str(run), *(f"--set={each}" for each in changes)]
    if subprocess.run([sys.executable, "-m", "psopt", *words], check=False).returncode:
        return None
    return json.loads((run / "summary.json").read_bytes())["test_accuracy"]


if __name__ == "__main__":
    out = Path(sys.argv[2])
    out.mkdir(parents=True, exist_ok=True)
    trials = JournalStorage(journal.JournalFileBackend(str(out / "journal.log")))
    study = optuna.create_study(
        storage=trials, study_name="search", load_if_exists=True, direction="maximize"
    )
    for _ in range(int(sys.argv[3])):
        trial = study.ask()
        found = accuracy(trial, sys.argv[1], out, sys.argv[4:])
        study.tell(trial, found, state=TrialState.FAIL if found is None else None)
    for best in study.best_trials:  # none where all have failed
        print(f"best: test accuracy {best.values[0]:.4f}, {best.params}, trial {best.number}")

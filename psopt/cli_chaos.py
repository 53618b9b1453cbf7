"""``psopt chaos``: what a job survives on this cluster, before it is trusted with a long one."""

from __future__ import annotations

import shlex
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console

if TYPE_CHECKING:
    from psopt.config import JobConfig
    from psopt.schemes.base import Scheme

_EXIT_USAGE = 2


def chaos(
    config: Annotated[Path, typer.Argument(help="A job's YAML file; a short job will do.")],
    ranks: Annotated[int, typer.Option("-n", help="Ranks: a coordinator and n - 1 workers.")] = 4,
    runs: Annotated[int, typer.Option(min=1, help="Runs, or courses with --simulate.")] = 12,
    faults: Annotated[
        str,
        typer.Option(
            help="Which take turns: kill, message (killed while it sends), stop (until it is evicted, "
            "then woken), slow (short stops), damage (a message), poison (NaN)."
        ),
    ] = "kill,message,stop,slow,damage,poison",
    seed: Annotated[
        int, typer.Option(min=0, help="Of what happens; the first, with --simulate.")
    ] = 1,
    out: Annotated[Path | None, typer.Option(help="Where the runs are kept.")] = None,
    patience: Annotated[
        float, typer.Option(min=1.0, help="Seconds after which a run counts as hung.")
    ] = 600.0,
    simulate: Annotated[
        bool, typer.Option("--simulate", help="On virtual workers, with all invariants checked.")
    ] = False,
    overrides: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="KEY=VALUE", help="Override a key; may be repeated."),
    ] = None,
) -> None:
    """Run a job again and again while its workers are killed, stopped, slowed and corrupted.

    Prints a scoreboard. Exit status 0 when every run ended as it should: complete, every sample
    accounted for, and a synchronous scheme with the bits of the run without faults.
    """
    from psopt import job
    from psopt.chaos.real import KINDS
    from psopt.config import ConfigError

    kinds = [kind.strip() for kind in faults.split(",")]
    if unknown := [kind for kind in kinds if kind not in KINDS]:
        raise _refused(f"--faults: {unknown[0]!r} is none of {', '.join(KINDS)}")
    chosen = list(overrides or ())
    try:
        loaded = job.load(config, chosen)
    except ConfigError as error:
        raise _refused(str(error)) from error
    if "poison" in kinds and loaded.scheme.among_themselves:
        kinds.remove("poison")
        print("poison is left out: it does not reach what workers exchange among themselves")
    if not kinds:
        raise _refused("--faults: nothing is left to try")
    asked = _Asked(config, loaded, chosen, seed, runs)
    if simulate:
        raise typer.Exit(_simulated(asked))
    if ranks < 3:
        raise _refused("-n: take at least 3 ranks, so that a worker is left when one is lost")
    if out is not None and out == Path():
        raise _refused("--out: name a directory")
    folder = out or Path("runs") / f"chaos-{time.strftime('%Y%m%d-%H%M%S')}"
    raise typer.Exit(_real(asked, ranks, folder, kinds, patience))


@dataclass(frozen=True)
class _Asked:
    """The job, and how often."""

    path: Path
    config: JobConfig[Scheme]
    overrides: list[str]
    seed: int
    runs: int

    def again(self, seed: int) -> str:
        """The command that runs one simulated course again."""
        words = ["psopt", "chaos", str(self.path), "--simulate", "--runs", "1", "--seed", str(seed)]
        return shlex.join([*words, *(f"--set={text}" for text in self.overrides)])


def _simulated(asked: _Asked) -> int:
    from psopt import job
    from psopt.chaos.board import of_simulated
    from psopt.chaos.simulated import Bench

    job.set_threads(asked.config.device.threads, 1)
    trials = []
    for trial in Bench(asked.config).trials(asked.seed, asked.runs):
        trials.append(trial)
        if trial.end == "broken":
            print(f"broken: {trial.problem}; again: {asked.again(trial.seed)}", flush=True)
    Console().print(of_simulated(trials))
    return int(any(trial.end == "broken" for trial in trials))


def _real(asked: _Asked, ranks: int, folder: Path, kinds: list[str], patience: float) -> int:
    from psopt.chaos.board import of_real
    from psopt.chaos.real import IN_ONE_JOB, Runs, right, stragglers_of
    from psopt.launch.flavour import MpirunError
    from psopt.launch.survival import how_to_go_on
    from psopt.schemes.asynchronous import Asynchronous

    on_loss: str = asked.config.cluster.on_loss
    if on_loss == "abort":
        try:
            on_loss = how_to_go_on()
        except MpirunError as error:
            raise _refused(str(error)) from error
        print(f"cluster.on_loss={on_loss} (the job says abort)", flush=True)
    if on_loss == "restart":
        kinds = [kind for kind in kinds if kind not in IN_ONE_JOB] or ["kill"]
    stragglers = stragglers_of(asked.config, ranks - 1)
    overrides = [*asked.overrides, f"cluster.on_loss={on_loss}", stragglers]
    trials = Runs(asked.path, ranks, folder, overrides, patience)
    calm, outcomes = trials.calm, []
    if calm.status != 0:
        raise _refused(f"the job fails without any fault, too: see {folder / 'none.log'}")
    print(
        f"without faults: {calm.seconds:.1f} s, of which training {calm.training:.1f} s", flush=True
    )
    synchronous = not isinstance(asked.config.scheme, Asynchronous)
    for number, outcome in enumerate(trials.trials(kinds, asked.seed, asked.runs)):
        wrong = right(outcome, calm, synchronous=synchronous)
        outcomes.append((outcome, wrong))
        notice = "" if outcome.notice is None else f", noticed after {outcome.notice:.2f} s"
        what = f"run {number}: {outcome.fault} of worker {outcome.worker}"
        print(f"{what}: {wrong or 'right'}, {outcome.seconds:.1f} s{notice}", flush=True)
    Console().print(of_real(outcomes))
    print(f"runs are kept in {folder}")
    return int(any(wrong for _, wrong in outcomes))


def _refused(problem: str) -> typer.Exit:
    print(f"psopt: {problem}", file=sys.stderr, flush=True)
    return typer.Exit(_EXIT_USAGE)

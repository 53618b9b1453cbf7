"""``psopt cancel`` and ``psopt logs``, and how ``psopt resume`` goes on with a batch job."""

from __future__ import annotations

import contextlib
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from psopt.record import Words

_EXIT_FAILED, _EXIT_USAGE = 1, 2
_NAP = 0.5  # seconds between looks at a log
_ASK = 10.0  # seconds between questions to the queue


def resume_batch_job(directory: Path, ranks: int | None) -> bool:
    """Submit the job of a run anew, and print its number; False for a run that was not submitted."""
    from psopt.launch.asking import SubmitError
    from psopt.launch.life import resubmit
    from psopt.record import NotARun, RunExists, Submission, SweepDirectory

    if SweepDirectory(directory).is_one():
        raise _refused(f"{directory}: is a sweep; `psopt sweep` goes on with what is missing")
    try:
        if (submission := Submission.read(directory)) is None:
            return False
        if ranks is not None:
            raise _refused(f"{directory}: a batch job has the ranks of its script: leave out -n")
        again, answer = resubmit(directory.absolute(), submission)
    except SubmitError as error:
        raise _refused(str(error), error.status) from error
    except (NotARun, RunExists) as error:
        raise _refused(str(error)) from error
    except OSError as error:
        raise _refused(f"{error}; see to the run directory's permissions and space") from error
    print(answer.err, end="", file=sys.stderr, flush=True)
    where = again.site + (f", cluster {again.cluster}" if again.cluster else "")
    _note(f"job {again.job} ({where}), run directory: {directory.absolute()}")
    print(again.job)
    return True


def cancel(
    directory: Annotated[Path, typer.Argument(help="The directory of a run or of a sweep.")],
) -> None:
    """End a run: its batch job, or the processes on this host; of a sweep all jobs.

    On this host a checkpoint is saved first. Exit status 1 when nothing runs there.
    """
    from psopt.launch.asking import SubmitError
    from psopt.launch.life import cancel_run, cancel_sweep
    from psopt.record import NotARun, NotASweep, SweepDirectory

    try:
        sweep = SweepDirectory(directory)
        if sweep.is_one():
            for run, seen in cancel_sweep(sweep, _note):
                print(f"cancelled: job {seen.job} ({seen.reason}): {run}")
        else:
            _check_is_run(directory)
            print(f"cancelled: {cancel_run(directory)}")
    except SubmitError as error:
        raise _refused(str(error), error.status) from error
    except (NotARun, NotASweep) as error:
        raise _refused(str(error)) from error


def logs(
    directory: Annotated[Path, typer.Argument(help="A run directory.")],
    lines: Annotated[
        int, typer.Option(min=0, max=100_000, help="How many of the last lines.")
    ] = 20,
    follow: Annotated[
        bool, typer.Option("--follow", help="Go on with what comes, until the run has ended.")
    ] = False,
) -> None:
    """The last words of a run: of its batch jobs in their order, else of its launcher, else its own."""
    from psopt.record import NotARun, SweepDirectory, Words, logs_of

    if SweepDirectory(directory).is_one():
        raise _refused(
            f"{directory}: is a sweep; `psopt status {directory}` has the log of each run"
        )
    try:
        _check_is_run(directory)
        words = Words(directory)
        _print(words.last(lines))
        if follow:
            _follow(directory, words)
        elif not logs_of(directory):
            raise _refused(f"{directory}: has no log yet; --follow waits for it", _EXIT_FAILED)
    except NotARun as error:
        raise _refused(str(error)) from error


def _follow(directory: Path, words: Words) -> None:
    """Print what comes until nothing of the run goes on any more, or Ctrl-C."""
    from psopt.record import is_held

    asked, over = -_ASK, False
    with contextlib.suppress(KeyboardInterrupt):
        while not over:
            if not is_held(directory) and time.monotonic() - asked >= _ASK:
                asked, over = time.monotonic(), not _is_queued(directory)
            time.sleep(_NAP)  # the last line of a run comes when it has let go of its directory
            while some := words.more(whole=not over):
                _print(some)


def _is_queued(directory: Path) -> bool:
    """Whether the run is a batch job that waits or runs, as far as the queue can be asked."""
    from psopt.launch.queue import going
    from psopt.record import NotARun, Phase, Submission

    with contextlib.suppress(NotARun):
        if (submission := Submission.read(directory)) is not None:
            (seen,) = going([submission])
            return seen.phase is not Phase.FORGOTTEN
    return False


def _check_is_run(directory: Path) -> None:
    """See that there is a run, or one that is about to be.

    Raises:
        NotARun: there is none.
    """
    from psopt.record import BatchFiles, RunDirectory

    beforehand = (BatchFiles(directory).submission, directory / "job.yaml")
    if not any(path.is_file() for path in beforehand):
        RunDirectory.open(directory)


def _print(lines: list[str]) -> None:
    """What others have written does not command the terminal."""
    from psopt.config import one_line

    for line in lines:
        print("\t".join(map(one_line, line.split("\t"))))
    sys.stdout.flush()


def _note(text: str) -> None:
    print(f"psopt: {text}", file=sys.stderr, flush=True)


def _refused(problem: str, status: int = _EXIT_USAGE) -> typer.Exit:
    print(problem if ": " in problem else f"psopt: {problem}", file=sys.stderr, flush=True)
    return typer.Exit(status)

"""Courses of every scheme under drawn faults: what must hold, holds; and what does not is seen."""

from __future__ import annotations

import itertools
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from psopt.chaos.audit import AuditedBook, Broken, Course
from psopt.chaos.draw import schedule
from psopt.chaos.simulated import Bench
from psopt.config.faults import FaultsConfig
from psopt.crew.base import Tally
from psopt.crew.roster import Roster
from psopt.schemes.base import Update
from tests.commands import call
from tests.training import configured, job_file, tiny, train

SCHEMES: dict[str, dict[str, Any]] = {
    "asp": {"name": "asp"},
    "wasp": {"name": "wasp", "sync_every": 5},
    "snapshot": {"name": "wasp", "sync_every": 5, "sync": "snapshot"},
    "bsp": {"name": "bsp"},
    "collective": {"name": "bsp", "exchange": "collective"},
    "dane": {"name": "dane", "shards": 4, "mu": 1.0, "local": {"passes": 2}},
    "admm": {"name": "admm", "shards": 4, "local": {"passes": 2}},
    "sandblaster": {"name": "sandblaster"},
    "lbfgs_static": {"name": "lbfgs_static"},
    "cg": {"name": "cg"},
}
WORKERS = 4


@pytest.fixture(scope="module")
def benches(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Bench]:
    folder = tmp_path_factory.mktemp("chaos")
    data = tiny(folder, rows=42)
    return {name: bench(data, scheme) for name, scheme in SCHEMES.items()}


def bench(data: Path, scheme: dict[str, Any]) -> Bench:
    return Bench(
        configured(
            data,
            scheme=scheme,
            cluster={"workers": WORKERS},
            train={"epochs": 3, "batch_size": 4},
        )
    )


ids = st.integers(0, WORKERS - 1)
moments = st.floats(0.0, 1.0)
chances = st.floats(0.0, 1.0)
stops = st.lists(st.fixed_dictionaries({"at": moments, "seconds": moments}), max_size=3)
faults = st.builds(
    FaultsConfig,
    deaths=st.dictionaries(ids, moments),
    deaths_in_message=st.dictionaries(ids, st.integers(1, 30)),
    stops=st.dictionaries(ids, stops),
    delayed=chances,
    delay=st.floats(0.0, 0.3),
    doubled=chances,
    damaged=st.dictionaries(ids, st.floats(0.0, 0.3)),
    poisoned=st.dictionaries(ids, chances),
    seed=st.integers(0, 1000),
)


@settings(
    max_examples=15, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@pytest.mark.parametrize("name", SCHEMES)
@given(faults=faults)
def test_whatever_happens(name: str, benches: dict[str, Bench], faults: FaultsConfig) -> None:
    trial = benches[name].play(0, faults)
    assert trial.end != "broken", trial.problem


@pytest.mark.parametrize("name", SCHEMES)
def test_drawn_schedules(name: str, benches: dict[str, Bench]) -> None:
    """Most are completed, losses or not; the same seed gives the same course."""
    trials = list(benches[name].trials(100, 20))
    ends = [trial.end for trial in trials]
    assert set(ends) <= {"completed", "all lost"}
    assert ends.count("completed") >= 12
    assert any(trial.lost and trial.end == "completed" for trial in trials)
    assert sum(trial.late for trial in trials) > 0 or name == "collective"
    assert benches[name].trial(107) == trials[7]


def test_schedules_differ() -> None:
    drawn = [schedule(seed, WORKERS, 10.0) for seed in range(50)]
    assert schedule(7, WORKERS, 10.0) == drawn[7]
    assert all(one != other for one, other in itertools.pairwise(drawn))
    for kind in ("deaths", "stops", "damaged", "poisoned", "deaths_in_message", "doubled"):
        assert any(getattr(faults, kind) for faults in drawn), kind


def test_a_crew_that_takes_a_reply_twice_is_found_out(
    benches: dict[str, Bench], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A roster that forgets to take the dead's tasks off them: they are done here and there."""

    def bury(roster: Roster, gone: Any, why: str) -> bool:
        dead = [worker for worker in roster.workers if worker in gone]
        for worker in dead:
            roster.fates[worker] = why
            roster.losses.append((worker, list(roster.open[worker])))
        return bool(dead)

    monkeypatch.setattr(Roster, "bury", bury)
    faults = FaultsConfig(stops={1: [{"at": 0.05, "seconds": 10.0}]})  # type: ignore[list-item]
    assert benches["asp"].play(0, faults).end == "broken"


def test_other_bits_are_found_out(
    benches: dict[str, Bench], monkeypatch: pytest.MonkeyPatch
) -> None:
    bench = benches["bsp"]
    calm = bench.calm
    monkeypatch.setattr(bench, "calm", type(calm)(-1, "completed", sha="0", seconds=calm.seconds))
    trial = bench.play(0, FaultsConfig())
    assert (trial.end, trial.problem) == (
        "broken",
        "the parameters are not those of the run without faults",
    )


def test_the_account_is_checked() -> None:
    book = AuditedBook(1, 8, 4, 1)
    ticket = book.issue()
    assert ticket is not None
    book.check(complete=False)
    with pytest.raises(Broken, match="tickets are left"):
        book.check(complete=True)
    book.issues += 1
    with pytest.raises(Broken, match="2 tickets issued, 0 applied or refused, 0 lost, 1 open"):
        book.check(complete=False)
    book.issues -= 1
    book.applied(ticket)
    book._open.add(ticket)
    with pytest.raises(Broken, match="was used twice"):
        book.applied(ticket)


def update(version: int, staleness: int = 0) -> Update:

    return Update(version, Tally(1.0, 1, 1), 0.0, staleness)


def test_the_course_is_checked() -> None:
    course = Course(3)
    course.see([update(1), update(2, 3)], 2)
    with pytest.raises(Broken, match="staleness 4; the bound is 3"):
        course.see([update(3, 4)], 3)
    with pytest.raises(Broken, match="version 1 after 3"):
        course.see([update(1)], 3)
    with pytest.raises(Broken, match="went back to 2 from 3"):
        course.see([], 2)


def test_command(tmp_path: Path) -> None:
    path = job_file(tmp_path, tiny(tmp_path), scheme={"name": "asp"}, cluster={"workers": 3})
    status, text, _ = call("chaos", path, "--simulate", "--runs", 5, "--seed", 3)
    assert status == 0
    assert [line.split() for line in text.splitlines() if "courses  " in line] == [["courses", "5"]]
    assert "late replies refused" in text


def test_command_says_how_to_run_it_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = job_file(tmp_path, tiny(tmp_path), scheme={"name": "asp"}, cluster={"workers": 3})

    def wrong(course: Course, updates: Any, version: int) -> None:
        raise Broken("made up")

    monkeypatch.setattr(Course, "see", wrong)
    given = ("--simulate", "--runs", 1, "--seed", 7, "--set", "train.epochs=1")
    # The course without faults is broken, too: nothing can be compared with it.
    status, text, _ = call("chaos", path, *given)
    assert status == 1
    again = f"again: psopt chaos {path} --simulate --runs 1 --seed 7 --set=train.epochs=1"
    assert again in text.replace("\n", "")


def test_the_job_s_own_end_counts(tmp_path: Path) -> None:
    """A course ends with the steps of `stop`, with the sha of a run that does; whoever is lost."""
    data = tiny(tmp_path, rows=42)
    scheme = {"name": "dane", "shards": 4, "mu": 1.0, "local": {"passes": 2}}
    options: dict[str, Any] = {"scheme": scheme, "cluster": {"workers": WORKERS}}
    long = {"epochs": 1000, "batch_size": 4}
    bench = Bench(configured(data, train=long, stop={"steps": 3}, **options))
    done = train(
        configured(data, train=long, stop={"steps": 3}, **options), tmp_path / "run", workers=4
    )
    assert bench.calm.sha == done.sha
    assert {trial.end for trial in bench.trials(0, 20)} <= {"completed", "all lost"}


@pytest.mark.parametrize(
    ("arguments", "said"),
    [(("--faults", "kill,flood"), "'flood' is none of"), (("-n", 2), "take at least 3 ranks")],
)
def test_wrong_usage(arguments: tuple[Any, ...], said: str, tmp_path: Path) -> None:
    path = job_file(tmp_path, tiny(tmp_path), scheme={"name": "asp"})
    status, _, err = call("chaos", path, *arguments)
    assert status == 2
    assert said in err

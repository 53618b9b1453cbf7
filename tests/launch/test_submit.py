"""What the launcher says to a batch system, and makes of its answers."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from psopt.config import CommandsConfig
from psopt.launch.asking import JobId, SubmitError, job_id, outside
from psopt.launch.flavour import Flavour
from psopt.launch.placement import check_batch, place
from psopt.launch.site import find_site, sites
from psopt.launch.submit import check_flags
from tests.launch.goldens import prepared


@pytest.mark.parametrize(
    ("answer", "number", "cluster"),
    [
        ("123\n", "123", None),
        ("123;north\n", "123", "north"),
        ("Submitted batch job 123\n", "123", None),
        ("Submitted batch job 123 on cluster north\n", "123", "north"),
        ("sbatch: Warning: 2 nodes are down\nSubmitted batch job 123\n", "123", None),
        ("Welcome to login 7\n123\n", "123", None),
        ("123", "123", None),
    ],
)
def test_number_in_an_answer(answer: str, number: str, cluster: str | None) -> None:
    assert job_id(answer) == JobId(number, cluster)


@pytest.mark.parametrize("answer", ["", "\n", "job 123", "12 3", "-1", "123;a b", "12a"])
def test_answer_without_a_number(answer: str) -> None:
    assert job_id(answer) is None


@pytest.mark.parametrize(
    "flags",
    [
        [],
        ["--exclusive"],
        ["-p", "work"],
        ["--partition", "work", "-N2"],
        ["--comment=$(touch x) `touch x`; touch x"],
        ["--dependency=afterok:1", "--hold"],
    ],
)
def test_flags_go_as_they_are(flags: list[str]) -> None:
    check_flags(flags)


@pytest.mark.parametrize(
    ("flags", "said"),
    [
        (["job.sh"], "'job.sh' is no option"),
        (["-p", "work", "job.sh"], "'job.sh' is no option"),
        (["--comment=a", "job.sh"], "'job.sh' is no option"),
        (["--"], "'--' is no option"),
        (["-"], "'-' is no option"),
        (["--wrap=touch x"], "psopt writes the script"),
        (["--array", "1-4"], "would share one run directory"),
        (["-a1-4"], "would share one run directory"),
        (["-o/etc/passwd"], "the log is kept in the run directory"),
        (["--chdir=/"], "a job runs where it is submitted"),
        (["--test-only"], "say it to `psopt submit`"),
    ],
)
def test_flags_that_are_none_or_are_set(flags: list[str], said: str) -> None:
    with pytest.raises(SubmitError) as caught:
        check_flags(flags)
    assert said in str(caught.value)


def test_environment_of_another_job_stays_outside() -> None:
    given = {
        "SLURM_JOB_ID": "1",
        "SLURM_CPUS_PER_TASK": "8",
        "SLURM_CONF": "/etc/s",
        "SBATCH_QOS": "q",
    }
    assert outside(given) == {"SLURM_CONF": "/etc/s", "SBATCH_QOS": "q"}


class TestSites:
    def test_the_three(self) -> None:
        assert list(sites()) == ["slurm", "tianhe2", "tianhexy"]
        assert sites()["slurm"].commands.control == "scontrol"
        assert sites()["tianhe2"].commands.submit == "yhbatch"
        assert [site.needs_partition for site in sites().values()] == [False, True, True]

    def test_mpi(self) -> None:
        mpi = sites()["slurm"].mpi
        assert [mpi.of(flavour) for flavour in Flavour] == ["pmi2", "pmix", "pmi2"]

    def test_own_commands(self) -> None:
        site = sites()["slurm"].with_commands(CommandsConfig(submit="/opt/sbatch"))
        assert (site.name, site.commands.submit, site.commands.launch) == (
            "slurm",
            "/opt/sbatch",
            "srun",
        )
        assert sites()["slurm"].commands.submit == "sbatch"

    @pytest.mark.parametrize(
        ("programs", "found"),
        [
            ((), None),
            (("srun",), None),
            (("sbatch",), "slurm"),
            (("yhbatch",), "tianhe2"),
            (("sbatch", "yhbatch"), "tianhe2"),
        ],
    )
    def test_found_by_commands(
        self,
        fake_program: Callable[[str, str], Path],
        tmp_path: Path,
        monkeypatch: pytest.MonkeyPatch,
        programs: tuple[str, ...],
        found: str | None,
    ) -> None:
        for name in programs:
            fake_program(name, "")
        monkeypatch.setenv("PATH", f"{tmp_path}/bin")
        site = find_site()
        assert (site and site.name) == found


class TestPlacement:
    @pytest.mark.parametrize(
        ("overrides", "tasks", "nodes"),
        [
            ((), 3, None),
            (("batch.tasks_per_node=2",), 3, 2),
            (("batch.tasks_per_node=4",), 3, 1),
            (("cluster.workers=95", "batch.tasks_per_node=12"), 96, 8),
            (("batch.nodes=3",), 3, 3),
            (("cluster.workers=8", "batch.tasks_per_node=4", "batch.heterogeneous=true"), 8, 2),
        ],
    )
    def test_ranks_and_nodes(
        self, overrides: tuple[str, ...], tasks: int, nodes: int | None
    ) -> None:
        config, _ = prepared("batch.site=slurm", *overrides)
        placed = place(config)
        assert (placed.tasks, placed.nodes) == (tasks, nodes)
        assert [*check_batch(config)] == []

    @pytest.mark.parametrize(
        ("overrides", "path", "said"),
        [
            (
                ("batch.site=north",),
                "site",
                "there is no site 'north': use one of slurm, tianhe2, tianhexy",
            ),
            (("batch.site=tianhe2",), "partition", "tianhe2 wants a partition from every job"),
            (("batch.site=tianhexy",), "partition", "tianhexy wants a partition from every job"),
            (
                ("batch.site=slurm", "batch.nodes=4"),
                "nodes",
                "2 workers and a coordinator leave some of 4 nodes empty",
            ),
            (
                ("batch.site=slurm", "batch.nodes=2", "batch.tasks_per_node=8"),
                "nodes",
                "2 workers and a coordinator at 8 tasks a node need 1, not 2; or set cluster.workers to 15",
            ),
            (
                ("batch.site=slurm", "batch.nodes=1", "batch.tasks_per_node=2"),
                "nodes",
                "2 workers and a coordinator at 2 tasks a node need 2, not 1; or set cluster.workers to 1 to fill them",
            ),
            (
                ("batch.site=slurm", "batch.gpus_per_node=4"),
                "gpus_per_node",
                "say on how many nodes",
            ),
            (
                ("batch.site=slurm", "batch.heterogeneous=true"),
                "heterogeneous",
                "say where the workers go",
            ),
        ],
    )
    def test_what_does_not_fit(self, overrides: tuple[str, ...], path: str, said: str) -> None:
        config = prepared()[0]
        config = (
            prepared(*overrides)[0]
            if "north" not in overrides[0]
            else config.model_copy(
                update={"batch": config.batch.model_copy(update={"site": "north"})}
            )
        )
        (problem,) = check_batch(config)
        assert problem.path == ("batch", path)
        assert said in problem.message

"""The section of the batch system: what `psopt submit` asks it for."""

from __future__ import annotations

from typing import Literal, Self

from pydantic import Field, model_validator

from psopt.config.batch_text import (
    Account,
    ExtraOption,
    ModuleName,
    MpiName,
    NodeRange,
    Partition,
    PreambleLine,
    Program,
    Qos,
    SiteName,
)
from psopt.config.problems import Problem, SectionError
from psopt.config.section import Section
from psopt.config.values import ByteCount, Duration


class CommandsConfig(Section):
    """Commands of the batch system that differ from the site's."""

    submit: Program | None = Field(default=None, description="Submits a script: sbatch.")
    launch: Program | None = Field(default=None, description="Starts the ranks in a job: srun.")
    queue: Program | None = Field(default=None, description="Lists jobs that wait or run: squeue.")
    cancel: Program | None = Field(default=None, description="Ends a job: scancel.")
    account: Program | None = Field(default=None, description="Tells of jobs that ended: sacct.")
    control: Program | None = Field(default=None, description="Shows and requeues jobs: scontrol.")


class BatchConfig(Section):
    """What `psopt submit` asks the batch system for; `psopt run` does not look at it."""

    site: SiteName | None = Field(
        default=None,
        description="The cluster's profile: slurm, tianhe2 or tianhexy; null: by the commands on PATH.",
    )
    commands: CommandsConfig = Field(
        default=CommandsConfig(), description="Commands that differ from the site's."
    )
    nodes: int | None = Field(
        default=None,
        ge=1,
        le=1_000_000,
        description="Number of nodes; null: as many as tasks_per_node makes of `cluster.workers` and the "
        "coordinator, or what Slurm chooses. With `heterogeneous` those of the workers.",
    )
    tasks_per_node: int | None = Field(
        default=None, ge=1, le=100_000, description="Most ranks on a node; null: Slurm chooses."
    )
    gpus_per_node: int | None = Field(
        default=None, ge=1, le=1024, description="GPUs on each node; null: none."
    )
    cpus_per_task: int = Field(
        default=1, ge=1, le=4096, description="Cores of each rank; OMP_NUM_THREADS follows it."
    )
    memory: ByteCount | None = Field(
        default=None,
        description="Memory on each node (bytes, or '16 GiB'; 0: all of it); null: what Slurm gives.",
    )
    time: Duration | None = Field(
        default=None,
        description="Time limit (seconds, or text such as '24:00:00', '2d'); null: the partition's.",
    )
    partition: Partition | None = Field(default=None, description="Partition, or several by ','.")
    account: Account | None = Field(default=None, description="Account that pays for the job.")
    qos: Qos | None = Field(default=None, description="Quality of service.")
    exclude: list[NodeRange] = Field(
        default=[], description="Nodes to keep off, such as 'cn7' or 'cn[10-12]'."
    )
    modules: list[ModuleName] | None = Field(
        default=None, description="Environment modules to load, in order; null: the site's."
    )
    preamble: list[PreambleLine] = Field(
        default=[],
        description="Commands of the shell before the ranks start, one an item, such as 'export A=b' or "
        "'source env.sh'.",
    )
    extra: list[ExtraOption] = Field(
        default=[], description="More options of sbatch, one an item, such as '--exclusive'."
    )
    mpi: MpiName | None = Field(
        default=None,
        description="How srun starts MPI ranks (--mpi); null: the site's for this MPI.",
    )
    signal: Literal["USR1", "USR2", "TERM", "INT", "HUP"] = Field(
        default="USR2", description="Signal that warns the ranks before the time limit."
    )
    signal_seconds: int = Field(
        default=120, ge=1, le=65535, description="How long before the limit it comes (seconds)."
    )
    requeue: bool = Field(
        default=True,
        description="A job that was warned, or whose node failed, goes on in the queue.",
    )
    heterogeneous: bool = Field(
        default=False,
        description="The coordinator has a node of its own without GPUs, beside those of the workers; "
        "false: it shares the first node with workers.",
    )
    coordinator_partition: Partition | None = Field(
        default=None,
        description="With `heterogeneous`: partition of the coordinator; null: that of the workers.",
    )

    @model_validator(mode="after")
    def _fits_together(self) -> Self:
        problems = []
        if self.time is not None and self.signal_seconds >= self.time:
            message = (
                f"the warning must come later than the start: the job has {self.time:g} s only"
            )
            problems.append(Problem(("signal_seconds",), message))
        if self.requeue and self.signal == "TERM":
            message = "a job that is cancelled gets TERM too, and would come back: use USR2, or 'requeue: false'"
            problems.append(Problem(("signal",), message))
        if self.coordinator_partition is not None and not self.heterogeneous:
            message = "it has one with 'heterogeneous: true' only"
            problems.append(Problem(("coordinator_partition",), message))
        if problems:
            raise SectionError(problems)
        return self

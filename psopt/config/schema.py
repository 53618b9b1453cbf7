"""The schema of a job file: one frozen section a topic, every key described with its unit."""

from __future__ import annotations

from typing import Any, Generic, Literal, Self, TypeVar

from pydantic import ConfigDict, Field, ValidationInfo, model_validator

from psopt.config.batch import BatchConfig
from psopt.config.cluster import ClusterConfig
from psopt.config.optimizers import OptimizerConfig, SchedulerConfig, was_tried
from psopt.config.problems import Problem, SectionError
from psopt.config.section import Section, only_one
from psopt.config.values import ByteCount, Classes, Duration, FiniteFloat, ImportPath, JobName

SchemeT = TypeVar("SchemeT")
ModelName = Literal["linear", "softmax", "logistic", "mlp", "lenet5", "resnet18", "resnet101"]
LossName = Literal["cross_entropy", "mse", "logistic"]


class ModelConfig(Section):
    """The model: one of the zoo by `name`, or your own by `factory`."""

    name: ModelName | None = Field(default=None, description="A model of the zoo.")
    factory: ImportPath | None = Field(
        default=None, description="'package.module:callable' that returns a torch.nn.Module."
    )
    kwargs: dict[str, Any] = Field(
        default={}, description="Keyword arguments of the model or of the factory."
    )
    dtype: Literal["float32", "float64"] = Field(
        default="float32",
        description="Type of the parameters; float32 leaves a model as it is built.",
    )

    @model_validator(mode="after")
    def _one_source(self) -> Self:
        if (self.name is None) == (self.factory is None):
            raise ValueError("give exactly one of 'name' (a model of the zoo) and 'factory'")
        return self


class LossConfig(Section):
    """The loss, averaged over the samples of a batch."""

    name: LossName | None = Field(default="cross_entropy", description="A built-in loss.")
    factory: ImportPath | None = Field(
        default=None, description="'package.module:callable' that returns loss(output, target)."
    )
    kwargs: dict[str, Any] = Field(
        default={}, description="Keyword arguments of the loss or of the factory."
    )
    l2: FiniteFloat = Field(
        default=0.0,
        ge=0,
        le=1e30,
        description="Adds l2/2 * |w|^2 over all trained parameters to the objective.",
    )

    @model_validator(mode="before")
    @classmethod
    def _factory_replaces_name(cls, values: Any) -> Any:
        return only_one(values, "name", "factory")

    @model_validator(mode="after")
    def _one_source(self) -> Self:
        if (self.name is None) == (self.factory is None):
            raise ValueError("give exactly one of 'name' (a built-in loss) and 'factory'")
        return self


class DataConfig(Section):
    """The data set and how much of it is used."""

    path: str = Field(
        default="sample",
        min_length=1,
        description="HDF5 file, or 'sample' for the small set of digits that comes with psopt.",
    )
    classes: Classes | None = Field(
        default=None,
        description="Use the samples of these labels only, renumbered from 0 in this order.",
    )
    train_limit: int | None = Field(
        default=None, ge=1, description="Use the first rows only: number of training samples."
    )
    test_limit: int | None = Field(
        default=None, ge=1, description="Use the first rows only: number of test samples."
    )
    cache_bytes: ByteCount = Field(
        default=2 * 2**30,
        description="A set that fits within this size is kept in memory (bytes, or '2 GiB').",
    )
    normalise: bool = Field(
        default=True,
        description="Subtract the stored mean and divide by the stored deviation, in float32 (bytes are "
        "scaled to [0, 1] first); false: values as they are stored. The objective is that of these "
        "samples.",
    )


class TrainConfig(Section):
    """How long and in what portions the data is used."""

    epochs: int = Field(default=1, ge=1, description="Passes over the training data.")
    batch_size: int = Field(default=64, ge=1, description="Samples in one ticket (a batch).")
    clip_norm: FiniteFloat | None = Field(
        default=None, gt=0, description="Scale a longer gradient down to this Euclidean norm."
    )


class StopConfig(Section):
    """What ends a run before its last epoch; the first condition met counts."""

    test_accuracy: FiniteFloat | None = Field(
        default=None, gt=0, le=1, description="Stop at this test accuracy (a fraction, 0 to 1)."
    )
    test_loss: FiniteFloat | None = Field(
        default=None, description="Stop at this test loss or below (mean over samples)."
    )
    objective: FiniteFloat | None = Field(
        default=None,
        description="Stop at this objective or below (mean training loss plus penalty), with schemes "
        "that measure it.",
    )
    seconds: Duration | None = Field(
        default=None,
        description="Stop after this training time (seconds, or text such as '24:00:00', '90m').",
    )
    steps: int | None = Field(default=None, ge=1, description="Stop after this many server steps.")


class EvaluateConfig(Section):
    """When the test set is evaluated; it is always evaluated at the end."""

    every_epochs: FiniteFloat | None = Field(
        default=1.0, gt=0, description="Interval in epochs (a fraction is fine)."
    )
    every_steps: int | None = Field(
        default=None, ge=1, description="Interval in server steps, instead of 'every_epochs'."
    )
    batch_size: int = Field(default=500, ge=1, description="Samples evaluated at once.")

    @model_validator(mode="before")
    @classmethod
    def _steps_replace_epochs(cls, values: Any) -> Any:
        return only_one(values, "every_epochs", "every_steps")

    @model_validator(mode="after")
    def _one_interval(self) -> Self:
        if self.every_epochs is not None and self.every_steps is not None:
            raise ValueError("give 'every_epochs' or 'every_steps', not both")
        return self


class CheckpointConfig(Section):
    """When the state of the run is saved; it is always saved at the end."""

    every_steps: int | None = Field(default=None, ge=1, description="Interval in server steps.")
    keep: int = Field(default=3, ge=1, description="Number of newest checkpoints kept.")


class LogConfig(Section):
    """What is recorded of the steps."""

    every_steps: int = Field(default=1, ge=1, description="Interval of metric rows, in steps.")
    timeline_events: int = Field(
        default=100_000, ge=0, description="Most events in the timeline; 0 records none."
    )


class DeviceConfig(Section):
    """Where the tensors of a worker live."""

    kind: Literal["auto", "cpu", "cuda"] = Field(
        default="auto", description="Device of the replicas; auto takes a GPU where there is one."
    )
    threads: int | None = Field(
        default=None,
        ge=1,
        le=1024,
        description="CPU threads of each rank; its share of the cores otherwise.",
    )


class JobConfig(Section, Generic[SchemeT]):
    """One training job of psopt: everything that decides its result, and how it is run."""

    model_config = ConfigDict(title="psopt job")

    name: JobName = Field(description="Name of the job: run directory and queue listings.")
    seed: int = Field(
        default=1, ge=0, le=2**63 - 1, description="Seed of initial parameters and batch order."
    )
    model: ModelConfig = Field(description="The model that is trained.")
    data: DataConfig = Field(default=DataConfig(), description="The data set.")
    scheme: SchemeT = Field(description="The parallel optimisation method, by its `name`.")
    optimizer: OptimizerConfig | None = Field(
        default=None,
        validate_default=True,  # whether it may be missing is for the scheme to say
        description="The update rule of the server; schemes that bring their own do without one.",
    )
    scheduler: SchedulerConfig | None = Field(
        default=None, description="The learning-rate schedule; constant without one."
    )
    loss: LossConfig = Field(default=LossConfig(), description="The loss that is minimised.")
    train: TrainConfig = Field(default=TrainConfig(), description="Epochs and batches.")
    stop: StopConfig = Field(default=StopConfig(), description="Conditions that end the run.")
    evaluate: EvaluateConfig = Field(default=EvaluateConfig(), description="Test evaluations.")
    checkpoint: CheckpointConfig = Field(default=CheckpointConfig(), description="Checkpoints.")
    log: LogConfig = Field(default=LogConfig(), description="Metrics and timeline.")
    cluster: ClusterConfig = Field(
        default=ClusterConfig(), description="Workers, real or simulated."
    )
    device: DeviceConfig = Field(default=DeviceConfig(), description="Device of each rank.")
    batch: BatchConfig = Field(
        default=BatchConfig(), description="What `psopt submit` asks the batch system for."
    )
    on_bad_update: Literal["abort", "skip"] = Field(
        default="abort",
        description="On an update that is not finite: end the run, or refuse, count and go on.",
    )
    bad_update_factor: FiniteFloat | None = Field(
        default=None,
        gt=1,
        description="A gradient is bad, too, whose norm is so many times the median of the last 51; with "
        "schemes whose server takes in gradients of batches (null: any finite one is good).",
    )

    @model_validator(mode="after")
    def _schedule_fits_optimizer(self, info: ValidationInfo) -> Self:
        if self.scheduler is None or self.optimizer is None or was_tried(info):
            return self
        problems = self.scheduler.check_on(self.optimizer)
        if problems:
            raise SectionError([Problem(("scheduler",), problem.message) for problem in problems])
        return self

"""The YAML schema of a job and its strict loader."""

from __future__ import annotations

from psopt.config.batch import BatchConfig, CommandsConfig
from psopt.config.cluster import ClusterConfig, ComputeConfig
from psopt.config.dump import canonical_json, dump_job, value_json
from psopt.config.jsonschema import job_schema
from psopt.config.loader import Check, load_job, read_texts
from psopt.config.optimizers import TRIED, GroupConfig, OptimizerConfig, SchedulerConfig
from psopt.config.problems import (
    ConfigError,
    Located,
    Place,
    Problem,
    SectionError,
    one_line,
)
from psopt.config.schema import (
    CheckpointConfig,
    DataConfig,
    DeviceConfig,
    EvaluateConfig,
    JobConfig,
    LogConfig,
    LossConfig,
    ModelConfig,
    StopConfig,
    TrainConfig,
)
from psopt.config.section import STRICT, Section
from psopt.config.values import ByteCount, Classes, Duration, FiniteFloat, ImportPath, JobName

__all__ = [
    "STRICT",
    "TRIED",
    "BatchConfig",
    "ByteCount",
    "Check",
    "CheckpointConfig",
    "Classes",
    "ClusterConfig",
    "CommandsConfig",
    "ComputeConfig",
    "ConfigError",
    "DataConfig",
    "DeviceConfig",
    "Duration",
    "EvaluateConfig",
    "FiniteFloat",
    "GroupConfig",
    "ImportPath",
    "JobConfig",
    "JobName",
    "Located",
    "LogConfig",
    "LossConfig",
    "ModelConfig",
    "OptimizerConfig",
    "Place",
    "Problem",
    "SchedulerConfig",
    "Section",
    "SectionError",
    "StopConfig",
    "TrainConfig",
    "canonical_json",
    "dump_job",
    "job_schema",
    "load_job",
    "one_line",
    "read_texts",
    "value_json",
]

"""The YAML schema of a job and its strict loader."""

from __future__ import annotations

from psopt.config.batch import BatchConfig, CommandsConfig
from psopt.config.cluster import ClusterConfig, ComputeConfig
from psopt.config.dump import (
    assignment_text,
    canonical_json,
    dump_job,
    flow_text,
    json_values,
    short_text,
    value_json,
)
from psopt.config.jsonschema import job_schema, sweep_schema
from psopt.config.loader import Check, build, load_job, read_texts, read_tree
from psopt.config.nodes import ListNode, MapNode, Node, ScalarNode, value_of
from psopt.config.optimizers import TRIED, GroupConfig, OptimizerConfig, SchedulerConfig
from psopt.config.overrides import Override
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
from psopt.config.sweep import SEED, Distribution, SweepConfig, load_sweep
from psopt.config.values import ByteCount, Classes, Duration, FiniteFloat, ImportPath, JobName

__all__ = [
    "SEED",
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
    "Distribution",
    "Duration",
    "EvaluateConfig",
    "FiniteFloat",
    "GroupConfig",
    "ImportPath",
    "JobConfig",
    "JobName",
    "ListNode",
    "Located",
    "LogConfig",
    "LossConfig",
    "MapNode",
    "ModelConfig",
    "Node",
    "OptimizerConfig",
    "Override",
    "Place",
    "Problem",
    "ScalarNode",
    "SchedulerConfig",
    "Section",
    "SectionError",
    "StopConfig",
    "SweepConfig",
    "TrainConfig",
    "assignment_text",
    "build",
    "canonical_json",
    "dump_job",
    "flow_text",
    "job_schema",
    "json_values",
    "load_job",
    "load_sweep",
    "one_line",
    "read_texts",
    "read_tree",
    "short_text",
    "sweep_schema",
    "value_json",
    "value_of",
]

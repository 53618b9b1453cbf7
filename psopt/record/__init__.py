"""The files of one run: directory, metrics, timeline, checkpoints. Rank 0 is their only writer."""

from __future__ import annotations

from psopt.record.allowance import TreeError
from psopt.record.checkpoint import CheckpointError, CheckpointStore, CheckpointWarning
from psopt.record.directory import EXITS, Hold, NotARun, RunDirectory, RunExists
from psopt.record.environment import environment
from psopt.record.export import ExportError, export
from psopt.record.files import RecordError, to_json, write_atomic
from psopt.record.metrics import MetricsError, MetricsWriter, read_metrics
from psopt.record.submission import BatchFiles, Commands, Submission
from psopt.record.timeline import Timeline, read_timeline
from psopt.record.tree import Tree
from psopt.record.writer import CheckpointWriter

__all__ = [
    "EXITS",
    "BatchFiles",
    "CheckpointError",
    "CheckpointStore",
    "CheckpointWarning",
    "CheckpointWriter",
    "Commands",
    "ExportError",
    "Hold",
    "MetricsError",
    "MetricsWriter",
    "NotARun",
    "RecordError",
    "RunDirectory",
    "RunExists",
    "Submission",
    "Timeline",
    "Tree",
    "TreeError",
    "environment",
    "export",
    "read_metrics",
    "read_timeline",
    "to_json",
    "write_atomic",
]

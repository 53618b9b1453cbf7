"""The files of one run: directory, metrics, timeline, checkpoints. Rank 0 is their only writer."""

from __future__ import annotations

from psopt.record.allowance import TreeError
from psopt.record.checkpoint import CheckpointError, CheckpointStore, CheckpointWarning
from psopt.record.directory import BEFOREHAND, EXITS, NotARun, RunDirectory, RunExists
from psopt.record.environment import batch_job, environment
from psopt.record.export import ExportError, export
from psopt.record.files import RecordError, read_object, to_json, write_atomic
from psopt.record.hold import Hold, holder, is_held
from psopt.record.logs import OUTPUT, Words, last_words, log_of, logs_of
from psopt.record.metrics import MetricsError, MetricsWriter, read_metrics
from psopt.record.requeued import hold_again
from psopt.record.standing import (
    Ended,
    Phase,
    Seen,
    Standing,
    State,
    forget_ended,
    read_ended,
    standing_of,
    with_queue,
    write_ended,
)
from psopt.record.submission import BatchFiles, Commands, Submission
from psopt.record.sweeps import NotASweep, SweepDirectory, SweepEntry, SweepRecord
from psopt.record.timeline import Timeline, read_timeline
from psopt.record.tree import Tree
from psopt.record.writer import CheckpointWriter

__all__ = [
    "BEFOREHAND",
    "EXITS",
    "OUTPUT",
    "BatchFiles",
    "CheckpointError",
    "CheckpointStore",
    "CheckpointWarning",
    "CheckpointWriter",
    "Commands",
    "Ended",
    "ExportError",
    "Hold",
    "MetricsError",
    "MetricsWriter",
    "NotARun",
    "NotASweep",
    "Phase",
    "RecordError",
    "RunDirectory",
    "RunExists",
    "Seen",
    "Standing",
    "State",
    "Submission",
    "SweepDirectory",
    "SweepEntry",
    "SweepRecord",
    "Timeline",
    "Tree",
    "TreeError",
    "Words",
    "batch_job",
    "environment",
    "export",
    "forget_ended",
    "hold_again",
    "holder",
    "is_held",
    "last_words",
    "log_of",
    "logs_of",
    "read_ended",
    "read_metrics",
    "read_object",
    "read_timeline",
    "standing_of",
    "to_json",
    "with_queue",
    "write_atomic",
    "write_ended",
]

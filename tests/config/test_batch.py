"""The `batch` section: what it takes, and that no text of it becomes more than it is."""

from __future__ import annotations

import json

import pytest

from psopt.config import dump_job
from tests.config.support import MINIMAL, Bench

FULL = """\
batch:
  site: tianhe2
  commands: {submit: /opt/slurm/bin/yhbatch}
  nodes: 2
  tasks_per_node: 4
  gpus_per_node: 4
  cpus_per_task: 6
  memory: 16 GiB
  time: 24:00:00
  partition: work,short_1
  account: nsfc.2024@x
  qos: high
  exclude: [cn7, 'cn[10-12,20]', 'r[1-2]n[0-9]-ib']
  modules: [mpich/4.1.2-gcc, CUDA/12.1]
  preamble: ['export DATA="$HOME/my data"', 'source "a b/env.sh"']
  extra: [--exclusive, '--constraint=[rack1*2&rack2*4]', '--mail-user=a.b@c.d', '--comment=two words', -H]
  mpi: pmix_v4
  signal: USR1
  signal_seconds: 300
  requeue: false
  heterogeneous: true
  coordinator_partition: cpu
"""

# Key of the section, what somebody puts there, and what the error says of it.
HOSTILE = [
    ("site", "../slurm", "is not a site"),
    ("site", "slurm; touch x", "is not a site"),
    ("partition", "work; touch x", "is not a partition"),
    ("partition", "$(touch x)", "is not a partition"),
    ("partition", "`touch x`", "is not a partition"),
    ("partition", "work\ntouch x", "is not a partition"),
    ("partition", "work\n", "is not a partition"),
    ("partition", "--wrap=touch x", "is not a partition"),
    ("partition", "-p", "is not a partition"),
    ("partition", "a b", "is not a partition"),
    ("partition", "a,", "is not a partition"),
    ("partition", "", "is not a partition"),
    ("account", 'me" --wrap="touch x', "is not an account"),
    ("account", "me'", "is not an account"),
    ("account", "a|b", "is not an account"),
    ("qos", "high\u2028low", "is not a quality of service"),
    ("qos", "hoch\u00e9", "is not a quality of service"),
    ("qos", "high #", "is not a quality of service"),
    ("mpi", "pmi2 --pty", "is not a value of srun --mpi"),
    ("mpi", "$IFS", "is not a value of srun --mpi"),
    ("coordinator_partition", "cpu\\", "is not a partition"),
    ("exclude", ["cn1 cn2"], "is not a node"),
    ("exclude", ["cn[1-$(touch x)]"], "is not a node"),
    ("exclude", ["-w"], "is not a node"),
    ("modules", ["mpich; touch x"], "is not a module"),
    ("modules", ["-f"], "is not a module"),
    ("modules", ["mpich\n"], "is not a module"),
    ("modules", ["$(touch x)"], "is not a module"),
    ("preamble", ["export A=$(touch x)"], "a command in $( )"),
    ("preamble", ["export A=`touch x`"], "a command in backticks"),
    ("preamble", ["true; touch x"], "a second command after ';'"),
    ("preamble", ["true && touch x"], "it has '&'"),
    ("preamble", ["cat <<EOF"], "it has '<'"),
    ("preamble", ["echo x > x"], "it has '>'"),
    ("preamble", ["yes | touch x"], "it has '|'"),
    ("preamble", ["true\ntouch x"], "write one command an item"),
    ("preamble", ["true\rtouch x"], "write one command an item"),
    ("preamble", [" "], "write one command an item"),
    ("preamble", ["export A='open"], "a quote is not closed"),
    ("preamble", ["export A=b \\"], "it ends in a backslash"),
    ("preamble", ["if true"], "'if' is no simple command"),
    ("preamble", ["{ touch x"], "'{' is no simple command"),
    ("preamble", ["(touch x)"], "is no simple command"),
    ("preamble", ["exit 0"], "'exit' is no simple command"),
    ("extra", ["--comment=$(touch x)"], "is not an option"),
    ("extra", ["--comment=a;touch x"], "is not an option"),
    ("extra", ['--comment="a"'], "is not an option"),
    ("extra", ["--comment=a # b"], "is not an option"),
    ("extra", ["--comment=a\n#SBATCH --wrap=x"], "is not an option"),
    ("extra", ["--comment=a\\"], "is not an option"),
    ("extra", ["job.sh"], "is not an option"),
    ("extra", ["--exclusive --wrap=x"], "is not an option"),
    ("extra", [""], "is not an option"),
    ("extra", ["--wrap=touch x"], "cannot be set: psopt writes the script"),
    ("extra", ["--output=/etc/passwd"], "cannot be set: the log is kept in the run directory"),
    ("extra", ["--array=1-4"], "would share one run directory"),
    ("extra", ["-a"], "would share one run directory"),
    ("extra", ["--comment=hetjob"], "use 'heterogeneous: true'"),
    ("extra", ["--partition=work"], "use the key 'batch.partition' instead"),
    ("extra", ["-t"], "use the key 'batch.time' instead"),
    ("extra", ["--ntasks=7"], "use the key 'cluster.workers' instead"),
]


def test_all_keys(bench: Bench) -> None:
    batch = bench.load(MINIMAL + FULL).batch
    assert batch.time == 86400.0
    assert batch.memory == 16 * 2**30
    assert batch.commands.submit == "/opt/slurm/bin/yhbatch"
    assert batch.commands.launch is None
    assert batch.exclude == ["cn7", "cn[10-12,20]", "r[1-2]n[0-9]-ib"]
    assert batch.preamble == ['export DATA="$HOME/my data"', 'source "a b/env.sh"']


@pytest.mark.parametrize("section", ["", FULL])
def test_written_and_read_again(bench: Bench, section: str) -> None:
    job = bench.load(MINIMAL + section)
    assert bench.load(dump_job(job)) == job


def test_without_the_section(bench: Bench) -> None:
    batch = bench.load().batch
    assert (batch.site, batch.nodes, batch.cpus_per_task, batch.time) == (None, None, 1, None)
    assert (batch.signal, batch.signal_seconds, batch.requeue) == ("USR2", 120, True)


@pytest.mark.parametrize(("key", "value", "said"), HOSTILE)
def test_hostile_value_is_refused_at_its_place(
    bench: Bench, key: str, value: object, said: str
) -> None:
    written = f"batch: {{{key}: {json.dumps(value)}}}\n"
    error = bench.error(MINIMAL + written)
    column = written.index(f"{key}: ") + len(key) + 3 + isinstance(value, list)
    assert error.startswith(f"5:{column}: batch.{key}{'[0]' if isinstance(value, list) else ''}: ")
    assert said in error


def test_command_is_one_word(bench: Bench) -> None:
    error = bench.error(MINIMAL + "batch: {commands: {submit: 'sbatch --wrap=x'}}\n")
    assert error.startswith("5:28: batch.commands.submit: 'sbatch --wrap=x' is not a command: ")
    assert bench.error(MINIMAL + "batch: {commands: {submitt: sbatch}}\n").endswith(
        "did you mean 'submit'?"
    )


def test_all_faults_are_reported_at_once(bench: Bench) -> None:
    errors = bench.errors(
        MINIMAL + "batch:\n  partition: -p\n  account: a b\n  signal: KILL\n  partitions: x\n"
    )
    assert [error.partition(" ")[0] for error in errors] == ["6:14:", "7:12:", "8:11:", "9:3:"]


def test_a_warning_that_a_cancelled_job_gets_too(bench: Bench) -> None:
    error = bench.error(MINIMAL + "batch: {signal: TERM}\n")
    assert "5:17: batch.signal: a job that is cancelled gets TERM too" in error
    assert not bench.load(MINIMAL + "batch: {signal: TERM, requeue: false}\n").batch.requeue


def test_warning_before_the_start(bench: Bench) -> None:
    error = bench.error(MINIMAL + "batch: {time: 60, signal_seconds: 60}\n")
    assert error == (
        "5:35: batch.signal_seconds: the warning must come later than the start: the job has 60 s only"
    )


def test_coordinator_alone(bench: Bench) -> None:
    error = bench.error(MINIMAL + "batch: {coordinator_partition: cpu}\n")
    assert error.endswith("it has one with 'heterogeneous: true' only")


@pytest.mark.parametrize("key", ["modules", "nodes", "partition", "time"])
def test_key_without_its_section(bench: Bench, key: str) -> None:
    assert bench.error(MINIMAL + f"{key}: x\n").startswith(
        f"5:1: unknown key {key!r}; did you mean 'batch.{key}'?"
    )

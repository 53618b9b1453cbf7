"""A real Slurm of emulated nodes on this host, and its end with all that it has started.

It needs root and Debian's packages slurm-wlm and munge. Everything of it is in one folder, its sockets and
keys too, and its ports are free ones, so that it meets no other Slurm.
"""

from __future__ import annotations

import contextlib
import os
import re
import secrets
import shutil
import socket
import subprocess
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

ROOT = Path(__file__).parents[2]
DEADLINE = 240.0
SBIN = "/usr/sbin:/sbin"
GOING_ON = ("PENDING", "REQUEUED", "CONFIGURING", "RUNNING", "COMPLETING")
PROGRAMS = ("munged", "slurmctld", "slurmd", "sbatch", "scontrol", "scancel")
CONFIGURATION = """\
ClusterName=psopt
SlurmctldHost={host}(127.0.0.1)
SlurmUser=root
SlurmdUser=root
AuthType=auth/munge
AuthInfo=socket={folder}/munge/socket
MpiDefault=none
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
JobAcctGatherType=jobacct_gather/none
AccountingStorageType=accounting_storage/none
SelectType=select/cons_tres
SelectTypeParameters=CR_Core
SlurmdParameters=config_overrides
SchedulerParameters=bf_interval=1,sched_interval=1
ReturnToService=2
SlurmdTimeout=5
MaxArraySize=11
KillWait=5
MinJobAge=3600
FirstJobId={first}
SlurmctldPort={ports[0]}
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/slurmd.%n.pid
SlurmdSpoolDir={folder}/spool/%n
TmpFS={folder}/tmp/%n
StateSaveLocation={folder}/state
SlurmctldLogFile={folder}/log/slurmctld.log
SlurmdLogFile={folder}/log/slurmd.%n.log
{nodes}
PartitionName=work Nodes=ALL Default=YES MaxTime=60 DefaultTime=10
"""


@dataclass(frozen=True)
class Cluster:
    """A Slurm that runs; its commands need `environment`."""

    folder: Path
    daemons: dict[str, subprocess.Popen[bytes]] = field(default_factory=dict)
    """Those of the nodes by their names, and the others by their programs'."""

    def start(self, name: str, *words: str) -> None:
        """Start a daemon; words are its command, where it is none of a node."""
        path = f"{os.environ['PATH']}:{SBIN}"
        quiet = subprocess.DEVNULL
        self.daemons[name] = subprocess.Popen(
            words or ["slurmd", "-D", "-N", name],
            env={**self.environment, "PATH": path},
            stdin=quiet,
            stdout=quiet,
            stderr=quiet,
            start_new_session=True,
        )

    def kill(self, node: str) -> None:
        """Kill the daemon of a node, and nothing else that runs there."""
        self.daemons[node].kill()
        self.daemons[node].wait()

    @property
    def environment(self) -> dict[str, str]:
        kept = {k: v for k, v in os.environ.items() if not k.startswith(("SLURM_", "PMI", "OMP_"))}
        return {**kept, "SLURM_CONF": str(self.folder / "slurm.conf")}

    def run(self, *words: str, path: str | None = None) -> subprocess.CompletedProcess[str]:
        """Run a command that asks this Slurm, where psopt is; on another PATH if one is given."""
        return subprocess.run(
            words,
            cwd=ROOT,
            env={**self.environment, **({} if path is None else {"PATH": path})},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=DEADLINE,
            check=False,
        )

    def call(self, *words: str) -> str:
        """The output of a command that does not fail."""
        done = self.run(*words)
        assert done.returncode == 0, f"{words}: {done.stdout}{done.stderr}{self.logs()}"
        return done.stdout

    def state(self, job: str) -> str:
        """What Slurm says of a job: PENDING, RUNNING, COMPLETED, ..."""
        shown = self.call("scontrol", "show", "job", "--oneliner", job)
        return re.findall(r"JobState=(\w+)", shown)[0]

    def wait(self, job: str, log: Path) -> str:
        """The state in which a job ends."""
        deadline = time.monotonic() + DEADLINE
        while (state := self.state(job)) in GOING_ON:
            said = log.read_text() if log.exists() else "no log"
            assert time.monotonic() < deadline, f"job {job} is {state}:\n{said}\n{self.logs()}"
            time.sleep(0.2)
        return state

    def logs(self) -> str:
        """The last words of the daemons."""
        paths = sorted((self.folder / "log").iterdir())
        return "\n".join(f"-- {path.name}\n{path.read_text()[-8000:]}" for path in paths)


@contextlib.contextmanager
def cluster(folder: Path, nodes: int = 4, cpus: int = 4) -> Iterator[Cluster]:
    """Start a cluster, and end it with its jobs; a node that gives no answer for 5 s is down."""
    assert os.geteuid() == 0, "Slurm's daemons need root"
    path = f"{os.environ['PATH']}:{SBIN}"
    missing = [name for name in PROGRAMS if shutil.which(name, path=path) is None]
    assert not missing, f"apt-get install slurm-wlm munge: not on PATH: {missing}"
    _write(folder, nodes, cpus)
    running = Cluster(folder)
    key, munge = folder / "munge" / "key", folder / "munge"
    key.write_bytes(secrets.token_bytes(128))
    key.chmod(0o400)
    own = {"socket": "socket", "key-file": "key", "pid-file": "pid", "seed-file": "seed"}
    options = [f"--{option}={munge / name}" for option, name in own.items()]
    munged = ["munged", "--foreground", "--force", *options, f"--log-file={folder}/log/munged.log"]
    try:
        running.start("munged", *munged)
        until(running, (munge / "socket").exists)
        running.start("slurmctld", "slurmctld", "-D")
        for number in range(nodes):
            running.start(f"n{number + 1}")
        until(running, lambda: _idle(running) == nodes)
        yield running
        subprocess.run(["scancel", "--user=root"], env=running.environment, check=False)
        until(running, lambda: not _busy(running))
    finally:
        for process in reversed(running.daemons.values()):
            process.terminate()
        for process in reversed(running.daemons.values()):
            try:
                process.wait(10)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()


def _write(folder: Path, nodes: int, cpus: int) -> None:
    for name in ("munge", "state", "log"):
        (folder / name).mkdir(parents=True)
    host = socket.gethostname().partition(".")[0]
    ports = _free_ports(nodes + 1)
    lines = []
    for number in range(1, nodes + 1):
        (folder / "spool" / f"n{number}").mkdir(parents=True)
        (folder / "tmp" / f"n{number}").mkdir(parents=True)
        lines.append(
            f"NodeName=n{number} NodeHostname={host} NodeAddr=127.0.0.1 Port={ports[number]} "
            f"CPUs={cpus} RealMemory=2000"
        )
    # MPICH names shared memory by the job's number, and ranks that are killed leave it behind.
    first = 1 + secrets.randbelow(2**25)
    text = CONFIGURATION.format(
        host=host, folder=folder, ports=ports, nodes="\n".join(lines), first=first
    )
    (folder / "slurm.conf").write_text(text)


def _free_ports(count: int) -> list[int]:
    with contextlib.ExitStack() as stack:
        sockets = [stack.enter_context(socket.socket()) for _ in range(count)]
        for each in sockets:
            each.bind(("127.0.0.1", 0))
        return [each.getsockname()[1] for each in sockets]


def until(running: Cluster, condition: Callable[[], bool]) -> None:
    """Wait for something to be so."""
    deadline = time.monotonic() + DEADLINE
    while not condition():
        assert time.monotonic() < deadline, running.logs()
        time.sleep(0.1)


def _idle(running: Cluster) -> int:
    words = ["sinfo", "--noheader", "--states=idle", "--format=%D"]
    done = subprocess.run(
        words, env=running.environment, capture_output=True, text=True, check=False
    )
    return sum(int(line) for line in done.stdout.split() if line.isdigit())


def _busy(running: Cluster) -> bool:
    return bool(running.call("squeue", "--noheader").strip())

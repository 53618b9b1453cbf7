"""Saves that end badly: the process is killed, the disk is full."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path

import pytest

from psopt.record import CheckpointStore

SAVE = """
import os, sys, time
from pathlib import Path
import torch
from psopt.record import CheckpointError, CheckpointStore
torch.set_num_threads(1)
store = CheckpointStore(Path(sys.argv[1]), keep=2)
tree = lambda step: {"w": torch.full((200_000,), float(step)), "step": step}
store.save(1, tree(1))
"""

KILLED = """
def stop_here(*arguments):
    print("now", flush=True)
    time.sleep(60)
where = sys.argv[2]
if where == "write":
    import psopt.record.tree as module
    module.json_copy = stop_here  # the tensor is written, the rest is not
elif where == "flush":
    os.fsync = stop_here
elif where == "verify":
    import psopt.record.checkpoint_file as module
    module.holds = stop_here
else:
    Path.replace = stop_here
store.save(2, tree(2))
"""

FULL = """
import resource
for limit in sys.argv[2:]:
    resource.setrlimit(resource.RLIMIT_FSIZE, (int(limit), resource.RLIM_INFINITY))
    try:
        store.save(2, tree(2))
    except CheckpointError as error:
        print(error)
resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
assert [path.name for path in Path(sys.argv[1]).iterdir()] == ["step-000000000001.h5"]
assert store.load_latest()[0] == 1
store.save(3, tree(3))
"""


TINY = """
import ctypes
libc, place = ctypes.CDLL(None, use_errno=True), sys.argv[1].encode()
new_mounts, private = 0x20000, 0x44000
mounted = not (
    libc.unshare(new_mounts)
    or libc.mount(b"none", b"/", None, private, None)
    or libc.mount(b"tmpfs", place, b"tmpfs", 0, b"size=1m")
)
if not mounted:  # for want of rights: the disk is made small in another way
    import resource
    resource.setrlimit(resource.RLIMIT_FSIZE, (500_000, resource.RLIM_INFINITY))
cause = "No space left on device" if mounted else "File too large"
from psopt.record import CheckpointWriter
writer = CheckpointWriter(store)
tree = lambda step, size: {"w": torch.full((size,), float(step)), "step": step}
def save(step, size):
    writer.begin(step, tree(step, size), lambda: None)
    return writer.end()
save(1, 100_000)
save(2, 100_000)
for _ in range(2):
    try:
        save(3, 150_000)
        raise SystemExit("there was room")
    except CheckpointError as error:
        assert cause in str(error), error
    names = sorted(path.name for path in Path(sys.argv[1]).iterdir())
    assert names == ["step-000000000001.h5", "step-000000000002.h5"], names
assert store.load_latest()[0] == 2
save(4, 1000)
assert store.load_latest()[0] == 4
"""


def test_a_disk_that_is_really_full(tmp_path: Path) -> None:
    """A small file system of its own, where this process may make one."""
    done = subprocess.run(
        [
            sys.executable,
            "-W",
            "error",
            "-c",
            SAVE.rpartition("store.save")[0] + TINY,
            str(tmp_path),
        ],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.parametrize("where", ["write", "flush", "verify", "rename"])
def test_sigkill_in_the_middle_of_a_save(tmp_path: Path, where: str) -> None:
    process = subprocess.Popen(
        [sys.executable, "-c", SAVE + KILLED, str(tmp_path), where],
        stdout=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    with process.stdout:
        assert process.stdout.readline() == "now\n"
        process.send_signal(signal.SIGKILL)
        assert process.wait(30) == -signal.SIGKILL
    assert any(path.suffix == ".tmp" for path in tmp_path.iterdir())
    store = CheckpointStore(tmp_path, keep=2)
    latest = store.load_latest()
    assert latest is not None
    assert latest[0] == 1
    assert latest[1]["w"].unique().tolist() == [1.0]
    store.save(2, {"step": 2})
    assert sorted(path.name for path in tmp_path.iterdir()) == [
        "step-000000000001.h5",
        "step-000000000002.h5",
    ]


def test_full_disk_is_loud_and_keeps_the_previous_one(tmp_path: Path) -> None:
    limits = ["100", "3000", "300000", "801000", "803000"]  # the file has some 804,000 bytes
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", SAVE + FULL, str(tmp_path), *limits],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
    messages = done.stdout.splitlines()
    assert len(messages) == len(limits)
    for message in messages:
        assert "step-000000000002.h5: step 2 was not saved" in message
        assert "File too large" in message
    latest = CheckpointStore(tmp_path, keep=2).load_latest()
    assert latest is not None
    assert latest[0] == 3

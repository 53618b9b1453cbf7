"""Who holds a directory is found out, and nobody else."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from psopt.record import holder
from psopt.record.hold import lock

HOLDS = """
import sys
from pathlib import Path
from psopt.record.hold import lock
held = lock(Path(sys.argv[1]))
print("held", flush=True)
sys.stdin.read()
"""


def test_another_process(tmp_path: Path) -> None:
    words = [sys.executable, "-c", HOLDS, str(tmp_path)]
    assert holder(tmp_path) is None
    with subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"held\n"
        assert holder(tmp_path) == process.pid
        process.communicate()
    assert holder(tmp_path) is None


def test_who_looks_or_stands_in_a_directory_does_not_hold_it(tmp_path: Path) -> None:
    (tmp_path / "other").mkdir()
    other, looking = lock(tmp_path / "other"), os.open(tmp_path, os.O_RDONLY)
    assert other is not None
    try:
        assert holder(tmp_path) is None
        assert holder(tmp_path / "other") == os.getpid()
    finally:
        os.close(looking)
        other.release()

"""The checks of `psopt doctor` on this machine; each is a small function returning findings."""

from __future__ import annotations

import os
import platform
import re
import shutil
import sys
import tempfile
import warnings
from collections.abc import Mapping
from pathlib import Path

from psopt.launch.finding import Finding, Level

OLDEST_TORCH = (2, 10)
_LITTLE_SPACE = 1 << 30  # bytes: a few checkpoints of a ResNet-101
_LOCKING = "HDF5_USE_FILE_LOCKING"
_LOCKING_VALUES = {
    "TRUE": "on",
    "1": "on",
    "BEST_EFFORT": "best effort",
    "FALSE": "off",
    "0": "off",
}


def check_torch() -> Finding:
    """Is PyTorch there, and new enough?"""
    title = "PyTorch"
    remedy = f"install PyTorch {'.'.join(map(str, OLDEST_TORCH))} or newer: pip install -U torch"
    try:
        import torch
    except (ImportError, OSError) as error:
        return Finding(Level.FAIL, title, f"cannot be imported: {error}", remedy)
    version = str(torch.__version__)
    detail = f"{version}, Python {platform.python_version()} at {sys.executable}"
    if _release(version) < OLDEST_TORCH:
        return Finding(Level.FAIL, title, detail, remedy)
    return Finding(Level.OK, title, detail)


def _release(version: str) -> tuple[int, ...]:
    """The first two numbers of a version such as `2.13.0+cpu` or `2.14a0+git1`."""
    return tuple(int(number) for number in re.findall(r"\d+", version)[:2])


def check_gpus() -> Finding:
    """Does every CUDA device that PyTorch sees compute?"""
    import torch

    title = "GPUs"
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        count = torch.cuda.device_count() if torch.cuda.is_available() else 0
    if count == 0:
        return _no_gpu(title, [str(warning.message) for warning in caught])
    names = []
    for index in range(count):
        properties = torch.cuda.get_device_properties(index)
        names.append(f"cuda:{index} {properties.name} {properties.total_memory / 2**30:.0f} GiB")
        try:
            total = int(torch.arange(4, device=f"cuda:{index}").sum())
        except RuntimeError as error:
            detail = f"{names[-1]} does not compute: {str(error).splitlines()[0]}"
            remedy = "use a PyTorch built for this GPU and driver, or device.kind: cpu"
            return Finding(Level.FAIL, title, detail, remedy)
        if total != 6:
            detail = f"{names[-1]} adds 0 to 3 to {total}"
            return Finding(Level.FAIL, title, detail, "take this device out of use")
    return Finding(Level.OK, title, ", ".join(names))


def _no_gpu(title: str, complaints: list[str]) -> Finding:
    import torch

    if complaints:
        detail = f"PyTorch cannot use CUDA: {' '.join(complaints[0].split())}"
        return Finding(
            Level.WARN, title, detail, "update the NVIDIA driver, or use device.kind: cpu"
        )
    hidden = os.environ.get("CUDA_VISIBLE_DEVICES")
    if Path("/dev/nvidiactl").exists() and hidden is None:
        built = f"for CUDA {torch.version.cuda}" if torch.version.cuda else "without CUDA"
        detail = f"this machine has an NVIDIA driver, but PyTorch (built {built}) sees no device"
        return Finding(Level.WARN, title, detail, "install a CUDA build of PyTorch to use the GPU")
    seen = "" if hidden is None else f" (CUDA_VISIBLE_DEVICES={hidden!r})"
    return Finding(Level.OK, title, f"no CUDA device{seen}: replicas compute on the CPU")


def check_cores(environ: Mapping[str, str], cores: int) -> Finding:
    """Are there as many cores as ranks?

    Args:
        environ: the environment; Slurm's variables tell how many ranks this job has on a node.
        cores: the cores that this process may use.
    """
    title = "cores"
    ranks = _slurm_ranks_per_node(environ)
    if ranks is not None and ranks > cores:
        detail = f"Slurm starts {ranks} ranks on this node, and this process may use {cores} cores"
        remedy = "ask for --cpus-per-task=1 or more, or look at the CPU binding of this step"
        return Finding(Level.WARN, title, detail, remedy)
    machine = os.cpu_count() or cores
    of = "" if machine == cores else f" of {machine}"
    detail = f"{cores}{of}: "
    if cores < 2:
        detail += "all ranks share it; results are right, wall times mean little"
        remedy = "give this process more cores, or time schemes on the virtual cluster"
        return Finding(Level.WARN, title, detail, remedy)
    detail += f"up to {cores} ranks of one thread each have one to themselves"
    return Finding(Level.OK, title, detail)


def _slurm_ranks_per_node(environ: Mapping[str, str]) -> int | None:
    """SLURM_NTASKS_PER_NODE, else SLURM_NTASKS over the nodes; None outside Slurm."""
    per_node = environ.get("SLURM_NTASKS_PER_NODE", "")
    if per_node.isdecimal():
        return int(per_node)
    tasks, nodes = environ.get("SLURM_NTASKS", ""), environ.get("SLURM_JOB_NUM_NODES", "1")
    if tasks.isdecimal() and nodes.isdecimal() and int(nodes) > 0:
        return -(-int(tasks) // int(nodes))
    return None


def check_threads(environ: Mapping[str, str], cores: int) -> Finding:
    """Does OMP_NUM_THREADS fit the cores?"""
    title = "threads"
    text = environ.get("OMP_NUM_THREADS")
    if text is None:
        detail = (
            "OMP_NUM_THREADS is not set; it, or device.threads of a job, fixes a rank's threads"
        )
        return Finding(Level.OK, title, detail)
    # OpenMP allows a list, one number a nesting level; PyTorch uses the first.
    first = text.split(",")[0].strip()
    if not first.isdecimal() or int(first) == 0:
        detail = f"OMP_NUM_THREADS={text!r} is not a number of threads, so it is ignored"
        return Finding(Level.WARN, title, detail, "export OMP_NUM_THREADS=1, or unset it")
    detail = f"OMP_NUM_THREADS={text}: each rank computes with {first} threads on {cores} cores"
    if int(first) > cores:
        return Finding(Level.WARN, title, detail, f"export OMP_NUM_THREADS={cores} or less")
    return Finding(Level.OK, title, detail)


def check_disk(directory: Path) -> Finding:
    """Can run directories be written in `directory`, and is there room?"""
    title = "disk"
    try:
        with tempfile.NamedTemporaryFile(dir=directory, prefix=".psopt-doctor-") as file:
            file.write(b"psopt")
            file.flush()
            os.fsync(file.fileno())
        free = shutil.disk_usage(directory).free
    except OSError as error:
        detail = f"cannot write in {directory}: {error.strerror}"
        return Finding(Level.FAIL, title, detail, "go to a directory that you may write in")
    detail = f"{directory} is writable, {free / 2**30:.1f} GiB free"
    if free < _LITTLE_SPACE:
        return Finding(Level.WARN, title, detail, "checkpoints may not fit: make room")
    return Finding(Level.OK, title, detail)


def check_locking(environ: Mapping[str, str], directory: Path) -> Finding:
    """Can HDF5 files be locked in `directory`?"""
    import h5py

    title = "HDF5 locking"
    value = environ.get(_LOCKING)
    if value is not None and value not in _LOCKING_VALUES:
        detail = f"HDF5 does not know {_LOCKING}={value!r}, so it locks files"
        remedy = f"export {_LOCKING}=FALSE (in capitals) to switch locking off"
        return Finding(Level.WARN, title, detail, remedy)
    try:
        with tempfile.TemporaryDirectory(dir=directory, prefix=".psopt-doctor-") as scratch:
            path = Path(scratch) / "lock.h5"
            with h5py.File(path, "w") as file:
                file["x"] = [1.0]
            # Two readers at once, as two ranks that open one data set.
            with h5py.File(path, "r"), h5py.File(path, "r"):
                pass
    except OSError as error:
        detail = f"an HDF5 file in {directory} cannot be locked or written: {error}"
        return Finding(Level.FAIL, title, detail, f"export {_LOCKING}=FALSE")
    how = "default" if value is None else _LOCKING_VALUES[value]
    return Finding(Level.OK, title, f"works in {directory} ({_LOCKING}: {how})")

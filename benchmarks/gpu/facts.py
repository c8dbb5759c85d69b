"""The machine of the checks, and whether it can run them. Starts nothing on the device."""

from __future__ import annotations

import datetime
import os
import platform
import shutil
import subprocess
import sys

import torch

from benchmarks.gpu import mpi

_LEAST_PYTHON, _LEAST_TORCH = (3, 11), (2, 11)
_QUERY = ["nvidia-smi", "--query-gpu=name,driver_version", "--format=csv,noheader"]
FAKE = "none: a fake one"


def _version(text: str) -> tuple[int, ...]:
    return tuple(int(part) for part in text.partition("+")[0].split(".")[:2])


def _gpus() -> list[tuple[str, str]]:
    """Return the name and driver of each GPU; nothing if there is no driver."""
    if shutil.which(_QUERY[0]) is None:
        return []
    said = subprocess.run(_QUERY, capture_output=True, text=True, timeout=60, check=False).stdout
    found = (tuple(cell.strip() for cell in line.split(",")) for line in said.splitlines())
    return [(cells[0], cells[1]) for cells in found if len(cells) == 2]


def nccl_version() -> tuple[int, ...] | None:
    """Return the version of the NCCL that torch has loaded; None if it has none."""
    if torch.version.cuda is None:
        return None
    found = torch.cuda.nccl.version()
    return found if isinstance(found, tuple) else None


def problems() -> list[str]:
    """Return the reasons why the checks cannot run here, each with its cure."""
    found = []
    if sys.version_info < _LEAST_PYTHON:
        found.append(f"Python {platform.python_version()} is too old: set PYTHON to one from 3.11 on")
    if _version(torch.__version__) < _LEAST_TORCH:
        found.append(f"torch {torch.__version__} is too old: install one from 2.11 on")
    if torch.version.cuda is None:
        found.append(f"torch {torch.__version__} is without CUDA: set PYTHON to one whose torch has it")
    if not _gpus():
        found.append("no NVIDIA GPU: nvidia-smi shows none (--dry-run tries the steps without)")
    if shutil.which("nvcc") is None:
        found.append("no nvcc: put the CUDA toolkit's bin on PATH")
    return found


def facts(dry: bool) -> dict[str, str]:
    """Describe the machine, and the day."""
    gpus = [] if dry else _gpus()
    nccl = nccl_version()
    return {
        "date": datetime.datetime.now(datetime.timezone.utc).isoformat(timespec="seconds"),
        "gpu": ", ".join(name for name, _ in gpus) or FAKE,
        "driver": gpus[0][1] if gpus else "none",
        "torch": torch.__version__,
        "cuda": torch.version.cuda or "none",
        "nccl": ".".join(map(str, nccl)) if nccl else "none",
        "mpi": mpi.which(os.environ)["mpi"] or "none",
        "python": platform.python_version(),
    }

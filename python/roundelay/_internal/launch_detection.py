"""Detects the launcher of this process and how its ranks find each other, from the environment. Pure."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

from roundelay._internal.launcher_variables import names

_MPI_MARKS, _MPI_RANKS, _MPI_SIZES = (names(one, mpi_only=True) for one in ("marks", "rank", "size"))
_MASTER = ("MASTER_ADDR", "MASTER_PORT")
_SLURM_STEP = (
    "SLURM_JOB_ID",
    "SLURM_STEP_ID",
    "SLURM_PROCID",
    "SLURM_STEP_NUM_TASKS",
    "SLURM_STEP_NODELIST",
)
_SLURM_TOPOLOGY = ("SLURM_TOPOLOGY_ADDR", "SLURM_TOPOLOGY_ADDR_PATTERN")
# Slurm assigns no ports. Job and step choose one of these, below those that systems give to connections.
_SLURM_PORTS = range(15000, 30000)
# roundelay/run/starter/local_ranks.py sets these, so that MASTER_PORT is torch.distributed's alone.
_OWN_STORE, _INHERITED_LISTENER = "ROUNDELAY_RUN_STORE", "ROUNDELAY_RUN_LISTENER"


@dataclass(frozen=True)
class Rendezvous:
    """The store where the ranks find each other. csrc/bootstrap/rendezvous.h describes the fields."""

    rank: int
    size: int
    host: str
    port: int
    serve: bool
    listener: int | None
    job: str
    local_rank: int | None
    local_size: int | None


@dataclass(frozen=True)
class Launch:
    """The bootstrap ("mpi", "store" or "single") and the reason for it."""

    bootstrap: str
    why: str
    rendezvous: Rendezvous | None = None  # only for "store"


def detect(environment: Mapping[str, str], asked: str = "auto") -> Launch:
    """Returns how ranks find each other. asked: the value of ROUNDELAY_BOOTSTRAP.

    Raises RuntimeError, one line with the cure, where the environment is incomplete or contradicts itself.
    """
    if asked in ("mpi", "single"):
        return Launch(asked, f"ROUNDELAY_BOOTSTRAP={asked}")
    mark = next((name for name in _MPI_MARKS if name in environment), None)
    ranked = [name for name in ("RANK", "WORLD_SIZE") if name in environment]
    step = _is_slurm_step(environment)
    if asked == "store":
        if ranked:
            return _torch(environment)
        if step:
            return _slurm(environment)
        raise RuntimeError(
            "ROUNDELAY_BOOTSTRAP=store needs RANK, WORLD_SIZE, MASTER_ADDR and MASTER_PORT, or a step of "
            "Slurm, and there is neither: start the program with torchrun or srun"
        )
    if mark is not None:
        _check_same_job(environment, mark, ranked)
        return Launch("mpi", f"{mark} is set: an MPI launcher started this process")
    if ranked:  # a step of Slurm may have started a launcher on each node
        return _single_if_one(_torch(environment))
    if step:
        return _single_if_one(_slurm(environment))
    return Launch("single", "no launcher's variables are set")


def mpi_rank(environment: Mapping[str, str]) -> int | None:
    """Returns the rank that an MPI launcher gave this process; None if none did."""
    return next((_number(environment, name) for name in _MPI_RANKS if name in environment), None)


def _single_if_one(launch: Launch) -> Launch:
    if launch.rendezvous is not None and launch.rendezvous.size == 1:
        return Launch("single", f"{launch.why}, and it is the only one")
    return launch


def _check_same_job(environment: Mapping[str, str], mark: str, ranked: list[str]) -> None:
    """Raises RuntimeError if RANK or WORLD_SIZE has another number than MPI: another launcher set it."""
    for name, sources in (("RANK", _MPI_RANKS), ("WORLD_SIZE", _MPI_SIZES)):
        source = next((source for source in sources if source in environment), None)
        if name not in ranked or source is None or environment[source] == environment[name]:
            continue
        raise RuntimeError(
            f"two launchers' variables are set and disagree: {source}={environment[source]} (an MPI's) and "
            f"{name}={environment[name]} (as torchrun sets it); {mark} or {name} is left from an outer "
            "job: unset it, or set ROUNDELAY_BOOTSTRAP=mpi or store"
        )


def _number(environment: Mapping[str, str], name: str, least: int = 0, most: int = 2**31 - 1) -> int:
    text = environment[name]
    if not (text.isascii() and text.isdigit()) or not least <= int(text) <= most:
        raise RuntimeError(f"{name}={text!r} is not valid: it must be a whole number from {least} to {most}")
    return int(text)


def _optional(environment: Mapping[str, str], name: str) -> int | None:
    return _number(environment, name) if name in environment else None


def _check_rank(rank: int, size: int, rank_name: str, size_name: str) -> None:
    if rank >= size:
        raise RuntimeError(f"{rank_name}={rank} and {size_name}={size}: ranks count from 0 to {size - 1}")


def _torch(environment: Mapping[str, str]) -> Launch:
    """Reads the variables that torchrun sets; Kubeflow, users' own launchers and shells set the same ones."""
    elastic = "TORCHELASTIC_RUN_ID" in environment
    by = "torchrun started this process" if elastic else "RANK and WORLD_SIZE are set"
    for name, other in (("RANK", "WORLD_SIZE"), ("WORLD_SIZE", "RANK")):
        if name not in environment:
            raise RuntimeError(
                f"{other} is set, but {name} is not: set both, with MASTER_ADDR and MASTER_PORT, as torchrun "
                f"does, or unset {other}"
            )
    rank, size = _number(environment, "RANK"), _number(environment, "WORLD_SIZE", least=1)
    _check_rank(rank, size, "RANK", "WORLD_SIZE")
    missing = [name for name in _MASTER if not environment.get(name)]
    if missing and size == 1:
        return Launch("single", f"{by}, and it is the only one")
    if missing:
        raise RuntimeError(
            f"RANK={rank} and WORLD_SIZE={size} are set, but {' and '.join(missing)} not: set them to the "
            "host of rank 0 and a free port there, or start the program with torchrun"
        )
    master_port = _number(environment, "MASTER_PORT", least=1, most=65535)
    own_port = _own_port(environment)
    run = environment.get("TORCHELASTIC_RUN_ID", "env")
    restart = environment.get("TORCHELASTIC_RESTART_COUNT", "0")
    return Launch(
        "store",
        by,
        Rendezvous(
            rank=rank,
            size=size,
            host=environment["MASTER_ADDR"],
            port=master_port if own_port is None else own_port,
            # torch.distributed decides so, too: the agent of torchrun serves, or else rank 0.
            serve=rank == 0 and environment.get("TORCHELASTIC_USE_AGENT_STORE") != "True",
            listener=None if own_port is None else _optional(environment, _INHERITED_LISTENER),
            job=f"{run}/{restart}/{size}",
            local_rank=_optional(environment, "LOCAL_RANK"),
            local_size=_optional(environment, "LOCAL_WORLD_SIZE"),
        ),
    )


def _own_port(environment: Mapping[str, str]) -> int | None:
    """Returns the port of roundelayrun's store; None if somebody has set MASTER_ADDR or MASTER_PORT anew."""
    address, port, master_port = (environment.get(_OWN_STORE, "").split(" ") + [""] * 2)[:3]
    own = (address, master_port) == tuple(environment[name] for name in _MASTER)
    return int(port) if own else None


def _is_slurm_step(environment: Mapping[str, str]) -> bool:
    """Returns whether srun started this process: sbatch's script has a SLURM_PROCID, but is in no step."""
    return "SLURM_STEP_NODELIST" in environment and "SLURM_PROCID" in environment


def _slurm(environment: Mapping[str, str]) -> Launch:
    missing = [name for name in _SLURM_STEP if name not in environment]
    if missing:
        raise RuntimeError(
            f"SLURM_STEP_NODELIST is set, but {' and '.join(missing)} not: start the program with srun, or "
            "set ROUNDELAY_BOOTSTRAP=single"
        )
    rank = _number(environment, "SLURM_PROCID")
    size = _number(environment, "SLURM_STEP_NUM_TASKS", least=1)
    _check_rank(rank, size, "SLURM_PROCID", "SLURM_STEP_NUM_TASKS")
    job, step = _number(environment, "SLURM_JOB_ID"), _number(environment, "SLURM_STEP_ID", most=2**32 - 1)
    return Launch(
        "store",
        "srun started this process, without PMIx",
        Rendezvous(
            rank=rank,
            size=size,
            host=first_host(environment["SLURM_STEP_NODELIST"]),
            port=_SLURM_PORTS[(job * 7 + step) % len(_SLURM_PORTS)],
            serve=rank == 0,
            listener=None,
            job=f"slurm.{job}.{step}/{environment.get('SLURM_RESTART_COUNT', '0')}/{size}",
            local_rank=_optional(environment, "SLURM_LOCALID"),
            local_size=None,
        ),
    )


def rack(environment: Mapping[str, str]) -> str:
    """Returns the rack that the launcher states, as ROUNDELAY_TOPOLOGY names it; empty if it states none.

    Slurm names the switches or blocks around the node of a step, from outside in.
    """
    address, kinds = (environment.get(name, "").split(".") for name in _SLURM_TOPOLOGY)
    if not _is_slurm_step(environment) or len(address) != len(kinds) or kinds[-1] != "node":
        return ""
    return "/".join(address[:-1])


def first_host(nodes: str) -> str:
    """Returns the first name of a list in Slurm's form: ``gpu[007-010,12],login`` gives ``gpu007``."""
    depth, name = 0, ""
    for letter in nodes:
        depth += (letter == "[") - (letter == "]")
        if letter == "," and depth == 0:
            break
        name += letter
    # Each bracket gives its first number, as it is written: a list may have several dimensions.
    return re.sub(r"\[([^\],-]*)[^\]]*\]", r"\1", name)

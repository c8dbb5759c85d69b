"""Finds the job, node and rank of this process, before ``init`` too."""

from __future__ import annotations

import os
import platform
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from roundelay import _core, config
from roundelay._internal import launch_detection, subset
from roundelay._internal.launcher_variables import names
from roundelay.run.agent import member


@dataclass(frozen=True)
class Member:
    """A process of a job. ``job`` and ``node`` are equal in all processes of one job on one node."""

    job: str
    node: str
    rank: int

    @property
    def words(self) -> str:
        """Returns the process's name in messages."""
        return f"rank {self.rank} (process {os.getpid()})"


def node_name() -> str:
    """Returns this node's name: ROUNDELAY_NODE_ID, or the host's name."""
    return config.effective().node_id or platform.node()


def this_process(environment: Mapping[str, str] = os.environ) -> Member:
    """Returns the job, node and rank of this process, from the launcher's variables."""
    worker = member.words_of(environment)
    launch = launch_detection.detect(environment, config.effective().bootstrap)
    if worker is not None:
        rank, job = worker[0], f"elastic job of {worker[2]}"  # ranks that come later are of it, too
    elif launch.bootstrap == "single":
        rank, job = 0, f"process {identity_of(os.getpid())}"
    elif launch.rendezvous is not None:
        store = launch.rendezvous
        rank, job = store.rank, f"{store.job} at {store.host}:{store.port}"
    else:
        named = [f"{name}={environment[name]}" for name in names("job") if name in environment]
        # One launcher's process on each node is the parent of all ranks there.
        job = named[0] if named else f"children of {identity_of(os.getppid())}"
        rank = launch_detection.mpi_rank(environment) or 0
    if _core.is_initialized():
        rank = _core.rank()
        if name := subset.present().name:  # init(comm=) makes several jobs of one launch
            job = f"{job}/{name}"
    return Member(job, node_name(), rank)


def identity_of(pid: int) -> str:
    """Returns a process's id and start time. Ids are used again, both together are not."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return f"{pid} of {fields[19]}"

"""The table of launchers' variables, and what follows from it."""

from __future__ import annotations

from collections import Counter

import pytest

from roundelay._internal import launch_detection, launcher_variables
from roundelay._internal.launcher_variables import LAUNCHERS, TORCH, LauncherVariables
from roundelay.run.starter.local_ranks import without_outer_job
from roundelay.run.system import hosts

_FIELDS = ("rank", "size", "local_rank", "local_size", "job", "allocation")


def test_each_variable_is_in_one_row() -> None:
    every = [name for one in (*LAUNCHERS, TORCH) for field in _FIELDS for name in getattr(one, field)]
    assert [name for name, times in Counter(every).items() if times > 1] == []


@pytest.mark.parametrize("launcher", [one for one in LAUNCHERS if one.is_mpi], ids=lambda one: one.name)
def test_each_mark_of_an_mpi_is_seen_and_left_behind(launcher: LauncherVariables) -> None:
    assert launcher.marks
    for mark in launcher.marks:
        assert launch_detection.detect({mark: "1"}).bootstrap == "mpi"
        assert without_outer_job({mark: "1", "PATH": "/bin"}) == {"PATH": "/bin"}
    for name in (*launcher.rank, *launcher.size):
        assert without_outer_job({name: "1"}) == {}


@pytest.mark.parametrize("launcher", [one for one in LAUNCHERS if one.allocation], ids=lambda one: one.name)
def test_each_allocation_may_have_other_machines(launcher: LauncherVariables) -> None:
    assert not hosts.one_machine([], {launcher.allocation[0]: "1"})
    assert hosts.one_machine([], {})


def test_a_field_has_all_rows_in_their_order_but_torchrun() -> None:
    ranks = launcher_variables.names("rank", mpi_only=True)
    assert ranks == ("OMPI_COMM_WORLD_RANK", "PMIX_RANK", "PMI_RANK", "MV2_COMM_WORLD_RANK")
    assert launcher_variables.names("rank") == (*ranks, "SLURM_PROCID")
    assert not set(TORCH.rank) & set(launcher_variables.names("rank"))

"""Runs the checks of test files on several ranks.

`run_check(check, np)` makes `np` ranks run one check, a function whose name begins with `check_`, with a
barrier after it. `check` is a test's parameter (named_checks.py): each check is a test of its own. A start
costs each rank two seconds of a core, so ranks stay (standing_ranks.py) and run one check after the other,
with one init(), shutdown() and import for all checks of a test with the same other parameters. Ranks that
hang dump their stacks and are killed. With RANKS_DEVICE, that is the default device of tensors
(gpu_device.py).
"""

from __future__ import annotations

from collections.abc import Mapping

import standing_ranks
from mpi_jobs import PATHS, PROGRAMS, ROOT, launch, mpirun
from named_checks import Check, checks_in, needs_ranks
from standing_ranks import Setting, output

__all__ = [
    "PATHS",
    "PROGRAMS",
    "ROOT",
    "Check",
    "launch",
    "mpirun",
    "needs_ranks",
    "output",
    "run_check",
    "run_checks",
    "two_by_two",
]

LIMIT_S = 240.0


def run_check(
    check: Check,
    np: int,
    limit_s: float = LIMIT_S,
    env: Mapping[str, str] | None = None,
    fresh: bool = False,
    each: str = "",
    mpi: bool = True,
) -> None:
    """Runs `check` on `np` ranks. Fails with the ranks' reports and output if it fails on one.

    Args:
        check: the test's parameter.
        np: the number of ranks.
        limit_s: the time in seconds after which ranks dump their stacks and end.
        env: variables of the ranks. Other ones than those of the check before mean another init().
        fresh: starts new processes for this test's checks with the same parameters: some look at memory, at
            threads or at the first init().
        each: assignments of variables by each rank's shell, with new processes.
        mpi: whether mpirun starts the ranks. Otherwise they are new processes under roundelayrun.

    """
    assert check.fits(np), f"{check.id} has nothing to check on {np} ranks: give the test the parameter `np`"
    setting = Setting(np, tuple(sorted((env or {}).items())), fresh, each, mpi)
    standing_ranks.run_check(setting, check.file, check.name, limit_s)


def run_checks(
    file: str,
    np: int,
    limit_s: float = LIMIT_S,
    env: Mapping[str, str] | None = None,
    fresh: bool = False,
) -> None:
    """Runs all checks of `file` as run_check() does: for a test that looks at what they leave behind."""
    for check in checks_in(file):
        if check.fits(np):
            run_check(check, np, limit_s, env, fresh)
    standing_ranks.end_session()


def two_by_two() -> str:
    """Returns `each` for ranks without MPI that take themselves, two by two, for nodes.

    With an odd number the last node has one rank.
    """
    return "ROUNDELAY_NODE_ID=$((RANK / 2)) LOCAL_RANK=$((RANK % 2))"


def one_and_more() -> str:
    """Returns `each` for ranks without MPI that take themselves for two nodes, the first one of one rank."""
    return "ROUNDELAY_NODE_ID=n$((RANK > 0)) LOCAL_RANK=$((RANK - (RANK > 0)))"

"""Runs the checks of a test file on several ranks.

`run_checks(file, np)` makes `np` ranks under mpirun import the file and run all its functions whose names
begin with `check_`, in order, with a barrier after each. A start costs each rank two seconds of a core, so
ranks stay (standing_ranks.py) and run one file after the other, each with its own init() and shutdown(). A
file therefore has many checks, and one test for each number of ranks. Ranks that hang dump their stacks and
are killed. With RANKS_DEVICE, that is the default device of tensors (gpu_device.py).
"""

from __future__ import annotations

import re
import shlex
import sys
from collections.abc import Mapping, Sequence

import standing_ranks
from in_time import TooLateError
from mpi_jobs import PATHS, ROOT, TESTS, launch, launch_without_mpi, mpirun

__all__ = ["CHECKS", "PATHS", "ROOT", "launch", "launch_without_mpi", "mpirun", "run_checks"]

_RANKS_TIMED_OUT = "Timeout ("  # faulthandler's first word
CHECKS = (sys.executable, str(TESTS / "support" / "rank_checks.py"))  # a rank's command; files follow


def run_checks(
    file: str | Sequence[str],
    np: int,
    limit_s: float = 240.0,
    env: Mapping[str, str] | None = None,
    fresh: bool = False,
) -> None:
    """Runs the checks of `file` on `np` ranks. Fails with the ranks' output if a check fails.

    `fresh` starts new processes, for checks that look at memory, threads or the first init().
    """
    files = [file] if isinstance(file, str) else list(file)
    if not fresh:
        answer = standing_ranks.run(files, np, limit_s, env or {})
        _judge(answer.passed, answer.timed_out, np, answer.output)
        return
    run = launch([*CHECKS, *files], np, limit_s, env)
    passed = run.returncode == 0 and run.output.count("all checks passed on rank ") == np
    _judge(passed, run.timed_out or _RANKS_TIMED_OUT in run.output, np, run.output)


def _judge(passed: bool, timed_out: bool, np: int, output: str) -> None:
    """Raises what fits the first complaint: a rank's own, because the others' may follow from it."""
    if passed:
        return
    first = re.search(r"^rank \S+ (failed|was too late) in ", output, re.MULTILINE)
    if first[1] == "was too late" if first is not None else timed_out:
        raise TooLateError(f"{np} ranks\n{output}")
    raise AssertionError(f"{np} ranks\n{output}")


def run_checks_on_pairs(file: str, np: int, theta: str) -> None:
    """Runs the checks of `file` on ranks that take themselves, two by two, for nodes; without MPI.

    theta: ROUNDELAY_THETA. With an odd `np` the last node has one rank.
    """
    node = f"ROUNDELAY_THETA={theta} ROUNDELAY_NODE_ID=$((RANK / 2)) LOCAL_RANK=$((RANK % 2))"
    run = launch_without_mpi(["sh", "-c", f"{node} exec {shlex.join([*CHECKS, file])}"], np)
    assert run.returncode == 0, run.output
    assert run.output.count("all checks passed on rank ") == np, run.output

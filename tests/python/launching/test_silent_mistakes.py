"""Jobs in which each rank trains alone, by mistake: one line says so at the end, and only then."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from core_job import CoreJob, core_job
from launch_job import Job
from programs import training_alone as alone
from rank_here import Rank
from rank_program import program
from ranks import mpirun

__all__ = ["core_job"]

needs_mpirun = pytest.mark.skipif(mpirun() is None, reason="no mpirun")

Body = Callable[[Rank], None]
SAID = "SGD took steps, but this job of 2 ranks has reduced no gradients"


@needs_mpirun
@pytest.mark.parametrize("body", [alone.takes_a_step, alone.takes_a_step_and_shuts_down])
def test_an_optimizer_that_was_never_wrapped(core_job: CoreJob, body: Body) -> None:
    end = core_job.conduct(2, program(body))
    assert end.status == 0, end.err
    (line,) = end.err.splitlines()
    assert line.startswith("[rank 0] [roundelay ")
    assert SAID in line
    assert "optimizer = hvd.DistributedOptimizer(optimizer" in line


@needs_mpirun
@pytest.mark.parametrize(
    "body",
    [
        alone.reduces_each_gradient,
        alone.gathers_each_gradient,
        alone.reduces_a_group,
        alone.reduces_in_a_hook,
    ],
)
def test_who_reduces_by_hand_hears_nothing(core_job: CoreJob, body: Body) -> None:
    end = core_job.conduct(2, program(body))
    assert (end.status, end.err) == (0, "")


@needs_mpirun
def test_who_has_wrapped_one_of_two_optimizers_hears_nothing(core_job: CoreJob) -> None:
    end = core_job.conduct(2, program(alone.has_wrapped_another_optimizer))
    assert (end.status, end.err) == (0, "")


@needs_mpirun
def test_a_job_that_fails_names_its_own_cause_only(core_job: CoreJob) -> None:
    end = core_job.conduct(2, program(alone.takes_a_step_and_fails))
    assert end.status == 1
    assert SAID not in end.err
    assert end.err.splitlines()[-1].endswith("failed first: exit code 1: KeyError: 'batch'")


@needs_mpirun
def test_one_rank_hears_nothing(core_job: CoreJob) -> None:
    end = core_job.conduct(1, program(alone.takes_a_step))
    assert (end.status, end.err) == (0, "")


# --- no hvd.init() ---


def _no_init_lines(tmp_path: Path, ranks: int, *program: str) -> list[str]:
    command = [sys.executable, "-m", "roundelay.run.cli", "-np", str(ranks), *program]
    ended = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path, check=True)
    return ended.stderr.splitlines()


def test_a_python_program_without_init(tmp_path: Path) -> None:
    (line,) = _no_init_lines(tmp_path, 2, sys.executable, "-c", "print(1)")
    assert line.startswith(
        "roundelayrun: no rank called hvd.init(), so the 2 processes ran on their own: call it"
    )


def test_other_programs_and_one_process_hear_nothing(tmp_path: Path) -> None:
    assert not _no_init_lines(tmp_path, 2, "true")
    assert not _no_init_lines(tmp_path, 1, sys.executable, "-c", "print(1)")


def test_one_rank_that_calls_init_is_enough(tmp_path: Path) -> None:
    assert Job(tmp_path).run(2, program(alone.is_one_of_which_rank_0_alone_calls_init)) == (0, "", "")

"""Jobs in which each rank trains alone, by mistake: one line says so at the end, and only then."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from core_job import CoreJob, core_job
from launch_job import Job
from ranks import ROOT, mpirun

__all__ = ["core_job"]

needs_mpirun = pytest.mark.skipif(mpirun() is None, reason="no mpirun")

TRAINING = """
import warnings
model = torch.nn.Linear(2, 1)
hvd.broadcast_parameters(model.state_dict(), root_rank=0)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
hvd.broadcast_optimizer_state(optimizer, root_rank=0)
"""
STEP = """
model(torch.ones(1, 2)).sum().backward()
{between}
optimizer.step()
"""
SAID = "SGD took steps, but this job of 2 ranks has reduced no gradients"


def _training(before: str = "", between: str = "", after: str = "") -> str:
    return TRAINING + before + STEP.format(between=between) + after


@needs_mpirun
@pytest.mark.parametrize("after", ["", "\nhvd.shutdown()"])
def test_an_optimizer_that_was_never_wrapped(core_job: CoreJob, after: str) -> None:
    end = core_job.conduct(2, _training(after=after))
    assert end.status == 0, end.err
    (line,) = end.err.splitlines()
    assert line.startswith("[rank 0] [roundelay ")
    assert SAID in line
    assert "optimizer = hvd.DistributedOptimizer(optimizer" in line


BY_HAND = {
    "an allreduce": "for one in model.parameters(): hvd.allreduce_(one.grad)",
    "an allgather": "for one in model.parameters(): one.grad = hvd.allgather(one.grad[None]).mean(0)",
    "a group": "hvd.grouped_allreduce_([one.grad for one in model.parameters()])",
    "a hook": "def reduce(*_): hvd.allreduce_(model.bias.grad)\noptimizer.register_step_pre_hook(reduce)",
}


@needs_mpirun
@pytest.mark.parametrize("between", BY_HAND.values(), ids=BY_HAND)
def test_who_reduces_by_hand_hears_nothing(core_job: CoreJob, between: str) -> None:
    end = core_job.conduct(2, _training(between=between))
    assert (end.status, end.err) == (0, "")


@needs_mpirun
def test_who_has_wrapped_one_of_two_optimizers_hears_nothing(core_job: CoreJob) -> None:
    other = "\nhvd.DistributedOptimizer(torch.optim.SGD([torch.nn.Parameter(torch.ones(1))], lr=1.0))\n"
    end = core_job.conduct(2, _training(before=other))
    assert (end.status, end.err) == (0, "")


@needs_mpirun
def test_a_job_that_fails_names_its_own_cause_only(core_job: CoreJob) -> None:
    end = core_job.conduct(2, _training(after="\nraise KeyError('batch')"))
    assert end.status == 1
    assert SAID not in end.err
    assert end.err.splitlines()[-1].endswith("failed first: exit code 1: KeyError: 'batch'")


@needs_mpirun
def test_one_rank_hears_nothing(core_job: CoreJob) -> None:
    end = core_job.conduct(1, _training())
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
    body = """
sys.path.insert(0, {path!r})
if rank == 0:
    import roundelay.torch as hvd
    hvd.init(comm=[0])
"""
    assert Job(tmp_path).run(2, body.format(path=str(ROOT / "python"))) == (0, "", "")

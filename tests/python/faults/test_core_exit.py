"""How a process leaves: by an exception, with an exit code, early, without shutdown(), forked."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Literal

import pytest
import torch
from torch.utils.data import DataLoader, TensorDataset

import roundelay.torch as hvd
from core_job import CoreJob, core_job
from idleness import expect_idle
from programs import leaving
from rank_program import program
from ranks import Check, mpirun, run_check

__all__ = ["core_job"]

pytestmark = pytest.mark.skipif(mpirun() is None, reason="no mpirun")

LAUNCHERS = ["roundelayrun", "mpirun"]
LONG_SLEEP = pytest.param("sleep", marks=pytest.mark.nightly)


def test_an_exception_is_shown_and_is_the_cause_that_the_others_raise(core_job: CoreJob) -> None:
    end = core_job.conduct(3, program(leaving.raises_while_others_wait))
    assert end.status == 1
    end.expect_in_time()
    assert "in boom" in end.err
    assert "ValueError: boomé" in end.err
    assert set(end.seen) == {0, 2}
    for seen in end.seen.values():
        assert (seen.type, seen.cause) == ("HorovodInternalError", "rank 1 raised ValueError: boomé")
        assert "(while allreduce of 'x' was" in seen.text or "(allreduce of 'x' was not" in seen.text


@pytest.mark.slow
@pytest.mark.parametrize("launcher", LAUNCHERS)
@pytest.mark.parametrize("work", [LONG_SLEEP, "reduce"])
def test_an_exception_ends_the_job(core_job: CoreJob, launcher: str, work: leaving.Work) -> None:
    end = core_job.conduct(2, program(leaving.raises, work), launcher=launcher)
    assert end.status == 1, end.err
    end.expect_in_time()
    assert "ValueError: boomé" in end.err


@pytest.mark.parametrize("launcher", LAUNCHERS)
@pytest.mark.parametrize("work", [LONG_SLEEP, "reduce"])
def test_an_exit_code_is_the_jobs(core_job: CoreJob, launcher: str, work: leaving.Work) -> None:
    end = core_job.conduct(2, program(leaving.exits_with_3, work), launcher=launcher)
    # Under mpirun who waited raises at once and may be the first to end.
    first_is_known = launcher == "roundelayrun" or work == "sleep"
    assert end.status in ([3] if first_is_known else [1, 3]), end.err
    end.expect_in_time()


@pytest.mark.parametrize(
    ("status", "said", "code"),
    [(3, "sys.exit(3)", 3), ("no data", "sys.exit: no data", 1), (0, None, 1)],
)
def test_sys_exit_is_the_cause_that_the_others_raise(
    core_job: CoreJob, status: int | str, said: str | None, code: int
) -> None:
    end = core_job.conduct(2, program(leaving.exits_while_others_wait, status))
    assert end.status == code, end.err
    left = "rank 1 has called shutdown() or ended, which ends communication for all ranks"
    cause = f"rank 1 ended by {said} (look at its own last lines)" if said else left
    assert end.seen[0].text.startswith(cause), end.seen[0].text


def test_a_sys_exit_that_is_caught_ends_nothing(core_job: CoreJob) -> None:
    end = core_job.conduct(2, program(leaving.catches_an_exit_and_leaves))
    assert end.status == 1, end.err
    assert end.seen[0].text.startswith("rank 1 has called shutdown() or ended")


@pytest.mark.slow
def test_os_exit_names_the_rank(core_job: CoreJob) -> None:
    end = core_job.conduct(2, program(leaving.leaves_by_os_exit))
    assert end.status == 4, end.err
    end.expect_in_time()
    assert "rank 1 is gone" in end.seen[0].text


@pytest.mark.slow
def test_an_exception_in_a_gradient_hook(core_job: CoreJob) -> None:
    end = core_job.conduct(2, program(leaving.raises_in_a_gradient_hook))
    assert end.status == 1, end.err
    end.expect_in_time()
    assert end.seen[1].type == "KeyError"
    assert "rank 1 raised KeyError" in end.seen[0].text


@pytest.mark.parametrize("launcher", LAUNCHERS)
def test_without_shutdown_the_job_ends_well(core_job: CoreJob, launcher: str) -> None:
    end = core_job.conduct(3, program(leaving.ends_without_shutdown), launcher=launcher)
    assert end.status == 0, end.err
    assert not end.err
    end.expect_in_time()


@pytest.mark.slow
@pytest.mark.parametrize("launcher", LAUNCHERS)
def test_who_is_done_waits_for_who_still_works(core_job: CoreJob, launcher: str) -> None:
    end = core_job.conduct(2, program(leaving.rank_0_works_after_shutdown), launcher=launcher)
    assert end.status == 0, end.err
    assert "saved" in end.out


@pytest.mark.slow
def test_leaving_with_operations_of_ones_own(core_job: CoreJob) -> None:
    """All ranks have submitted, and nobody waits for what was submitted."""
    end = core_job.conduct(2, program(leaving.ends_with_operations_under_way))
    assert end.status == 0, end.err
    end.expect_in_time()


def test_leaving_while_others_wait(core_job: CoreJob) -> None:
    end = core_job.conduct(2, program(leaving.rank_1_shuts_down_while_rank_0_waits))
    assert end.status == 1, end.err
    end.expect_in_time()
    assert end.seen[0].type == "HorovodInternalError"
    assert end.seen[0].text.startswith("rank 1 has called shutdown() or ended")
    cure = (
        "give all ranks the same number of steps and the same calls (none under `if hvd.rank() == 0:` alone)"
    )
    assert f": {cure}, or use hvd.join_context (" in end.seen[0].text


def test_one_process_alone_ends_at_once(core_job: CoreJob) -> None:
    end = core_job.conduct(1, program(leaving.raises_alone))
    assert end.status == 1
    assert "ValueError: alone" in end.err
    end.expect_in_time(3.0)


@pytest.mark.parametrize("code", [0, 7])
def test_a_forked_child_may_not_use_it(core_job: CoreJob, code: int) -> None:
    end = core_job.conduct(2, program(leaving.forks_a_child_that_reduces, code))
    assert end.status == 0, end.err
    end.expect_in_time()
    for rank in range(2):
        said = (core_job.folder / f"child.{rank}").read_text()
        assert "forked child" in said
        assert "spawn" in said


@pytest.mark.slow
def test_the_interpreters_own_hook_is_kept(core_job: CoreJob) -> None:
    end = core_job.conduct(2, program(leaving.raises_with_a_hook_of_its_own))
    assert end.status == 1
    assert "own hook ValueError" in end.out


# --- on ranks that live on ---


@pytest.mark.parametrize("np", [pytest.param(1, marks=pytest.mark.nightly), 2, 3])
def test_init_again_after_shutdown(np: int, check: Check) -> None:
    run_check(check, np, fresh=True)


def threads() -> int:
    return len(list(Path("/proc/self/task").iterdir()))


def open_files() -> int:
    return len(list(Path("/proc/self/fd").iterdir()))


def settled(count: int) -> int:
    """The kernel takes a moment to forget a thread that has been joined."""
    deadline = time.monotonic() + 2
    while threads() > count and time.monotonic() < deadline:
        time.sleep(0.01)
    return threads()


def check_twenty_inits_and_shutdowns_leave_no_thread_and_no_file() -> None:
    def live() -> None:
        hvd.init()
        assert hvd.allreduce(torch.ones(5), op=hvd.Sum, name="alive").sum() == 5 * hvd.size()
        hvd.shutdown()
        assert not hvd.is_initialized()

    hvd.shutdown()
    live()
    before = threads(), open_files()
    for _ in range(20):
        live()
    after = settled(before[0]), open_files()
    assert after[0] <= before[0], (before, after)  # a thread of before may have taken its time
    assert after[1] <= before[1], (before, after)
    hvd.init()
    assert threads() > before[0] or hvd.size() == 1


def check_shutdown_twice_and_use_after_it() -> None:
    hvd.shutdown()
    hvd.shutdown()
    with pytest.raises(hvd.HorovodInternalError, match="has not been initialized"):
        hvd.allreduce(torch.ones(1))
    hvd.init()
    hvd.init()


def check_data_loader_workers_fork_and_the_parent_goes_on() -> None:
    data = TensorDataset(torch.arange(16.0))
    for _ in range(2):
        for (batch,) in DataLoader(data, batch_size=4, num_workers=2):
            total = hvd.allreduce(batch, op=hvd.Sum)
            assert torch.equal(total, batch * hvd.size())


def check_an_idle_rank_costs_nothing() -> None:
    hvd.allreduce(torch.ones(1))
    expect_idle(3.0)


@pytest.mark.parametrize("np", [1, 2])
def test_a_daemon_thread_that_reduces_at_exit_ends_quietly(core_job: CoreJob, np: int) -> None:
    end = core_job.conduct(np, program(leaving.ends_while_a_daemon_thread_reduces))
    assert (end.status, end.err) == (0, "")
    end.expect_in_time()


def test_a_daemon_thread_that_waits_at_exit_ends_quietly(core_job: CoreJob) -> None:
    end = core_job.conduct(2, program(leaving.ends_while_a_daemon_thread_waits))
    assert (end.status, end.err) == (0, "")


@pytest.mark.parametrize("call", ["allreduce", "rank"])
def test_a_daemon_threads_own_mistake_is_shown(core_job: CoreJob, call: Literal["allreduce", "rank"]) -> None:
    end = core_job.conduct(1, program(leaving.uses_it_in_a_thread_after_shutdown, call))
    assert end.status == 0
    assert "Horovod has not been initialized" in end.err

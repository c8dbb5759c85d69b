"""How a process leaves: by an exception, with an exit code, early, without shutdown(), forked."""

from __future__ import annotations

import time
from pathlib import Path

import pytest
import torch
from torch.utils.data import DataLoader, TensorDataset

import roundelay.torch as hvd
from core_job import INIT, PRELUDE, CoreJob, core_job
from idleness import expect_idle
from ranks import Check, mpirun, run_check

__all__ = ["core_job"]

pytestmark = pytest.mark.skipif(mpirun() is None, reason="no mpirun")

LAUNCHERS = ["roundelayrun", "mpirun"]
LONG_SLEEP = pytest.param("time.sleep(60)", marks=pytest.mark.nightly)
RAISES = """
def boom():
    time.sleep(0.5); stamp(); raise ValueError("boom\\u00e9")
if rank == 1: boom()
"""


def test_an_exception_is_shown_and_is_the_cause_that_the_others_raise(core_job: CoreJob) -> None:
    end = core_job.conduct(3, RAISES + "with watched(): hvd.allreduce(torch.ones(3), name='x')")
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
@pytest.mark.parametrize("work", [LONG_SLEEP, "while True: hvd.allreduce(torch.ones(1 << 20), name='x')"])
def test_an_exception_ends_the_job(core_job: CoreJob, launcher: str, work: str) -> None:
    end = core_job.conduct(2, RAISES + work, launcher=launcher)
    assert end.status == 1, end.err
    end.expect_in_time()
    assert "ValueError: boomé" in end.err


@pytest.mark.parametrize("launcher", LAUNCHERS)
@pytest.mark.parametrize("work", [LONG_SLEEP, "hvd.allreduce(torch.ones(3), name='x')"])
def test_an_exit_code_is_the_jobs(core_job: CoreJob, launcher: str, work: str) -> None:
    end = core_job.conduct(
        2, f"if rank == 1: time.sleep(0.5); stamp(); sys.exit(3)\n{work}", launcher=launcher
    )
    # Under mpirun who waited raises at once and may be the first to end.
    first_is_known = launcher == "roundelayrun" or "sleep" in work
    assert end.status in ([3] if first_is_known else [1, 3]), end.err
    end.expect_in_time()


@pytest.mark.slow
def test_os_exit_names_the_rank(core_job: CoreJob) -> None:
    body = "if rank == 1: time.sleep(0.5); stamp(); os._exit(4)\nwith watched(): hvd.allreduce(torch.ones(3))"
    end = core_job.conduct(2, body)
    assert end.status == 4, end.err
    end.expect_in_time()
    assert "rank 1 is gone" in end.seen[0].text


@pytest.mark.slow
def test_an_exception_in_a_gradient_hook(core_job: CoreJob) -> None:
    body = """
weight = torch.ones(4, requires_grad=True)
optimizer = hvd.DistributedOptimizer(torch.optim.SGD([weight], lr=1.0))
def hook(gradient):
    if rank == 1:
        stamp(); raise KeyError("in a hook")
weight.register_hook(hook)
with watched():
    weight.sum().backward()
    optimizer.step()
"""
    end = core_job.conduct(2, body)
    assert end.status == 1, end.err
    end.expect_in_time()
    assert end.seen[1].type == "KeyError"
    assert "rank 1 raised KeyError" in end.seen[0].text


@pytest.mark.parametrize("launcher", LAUNCHERS)
def test_without_shutdown_the_job_ends_well(core_job: CoreJob, launcher: str) -> None:
    end = core_job.conduct(3, "hvd.allreduce(torch.ones(3)); stamp()", launcher=launcher)
    assert end.status == 0, end.err
    assert not end.err
    end.expect_in_time()


@pytest.mark.slow
@pytest.mark.parametrize("launcher", LAUNCHERS)
def test_who_is_done_waits_for_who_still_works(core_job: CoreJob, launcher: str) -> None:
    body = "hvd.shutdown()\nif rank == 0: time.sleep(3); print('saved', flush=True); stamp()"
    end = core_job.conduct(2, body, launcher=launcher)
    assert end.status == 0, end.err
    assert "saved" in end.out


@pytest.mark.slow
def test_leaving_with_operations_of_ones_own(core_job: CoreJob) -> None:
    """All ranks have submitted, and nobody waits for what was submitted."""
    body = """
handles = [hvd.allreduce_async(torch.ones(1 << 20), name=f'{i}') for i in range(20)]
folder = Path(sys.argv[1])
(folder / f"submitted.{rank}").touch()
while not all((folder / f"submitted.{other}").exists() for other in range(2)):
    time.sleep(0.001)
stamp()
"""
    end = core_job.conduct(2, body)
    assert end.status == 0, end.err
    end.expect_in_time()


def test_leaving_while_others_wait(core_job: CoreJob) -> None:
    body = """
if rank == 1: time.sleep(0.3); stamp(); hvd.shutdown(); sys.exit(0)
with watched(): hvd.allreduce(torch.ones(3), name='x')
"""
    end = core_job.conduct(2, body)
    assert end.status == 1, end.err
    end.expect_in_time()
    assert end.seen[0].type == "HorovodInternalError"
    assert end.seen[0].text.startswith("rank 1 has called shutdown() or ended")
    assert ": give all ranks as many steps, or use hvd.join_context (" in end.seen[0].text


def test_one_process_alone_ends_at_once(core_job: CoreJob) -> None:
    end = core_job.conduct(1, "hvd.allreduce(torch.ones(3)); stamp(); raise ValueError('alone')")
    assert end.status == 1
    assert "ValueError: alone" in end.err
    end.expect_in_time(3.0)


@pytest.mark.parametrize("code", [0, 7])
def test_a_forked_child_may_not_use_it(core_job: CoreJob, code: int) -> None:
    body = """
faulthandler.cancel_dump_traceback_later()  # its thread is not in the child, which would wait for it
child = os.fork()
if child == 0:
    try:
        hvd.allreduce(torch.ones(1), name="in.child")
    except RuntimeError as error:
        Path(sys.argv[1], f"child.{rank}").write_text(str(error))
    assert not hvd.is_initialized()
    sys.exit(CODE)
assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == CODE
assert hvd.allreduce(torch.ones(1), op=hvd.Sum).item() == 2
stamp()
"""
    end = core_job.conduct(2, f"CODE = {code}" + body)
    assert end.status == 0, end.err
    end.expect_in_time()
    for rank in range(2):
        said = (core_job.folder / f"child.{rank}").read_text()
        assert "forked child" in said
        assert "spawn" in said


@pytest.mark.slow
def test_the_interpreters_own_hook_is_kept(core_job: CoreJob) -> None:
    prelude = PRELUDE + "sys.excepthook = lambda kind, *rest: print('own hook', kind.__name__, flush=True)\n"
    end = core_job.ended(core_job.begin(2, RAISES + "time.sleep(60)", prelude=prelude + INIT))
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


REDUCES = """
sets = [hvd.global_process_set]  # of a set of its own, as the peers leave at another time
if hvd.size() > 1: sets = [hvd.add_process_set([one]) for one in range(hvd.size())]
ones, calls = torch.ones(1000), 0
def work():
    global calls
    while True:
        hvd.allreduce_(ones, process_set=sets[rank])
        calls += 1
threading.Thread(target=work, daemon=True).start()
while calls < 20: time.sleep(0.001)
stamp()
"""


@pytest.mark.parametrize("np", [1, 2])
def test_a_daemon_thread_that_reduces_at_exit_ends_quietly(core_job: CoreJob, np: int) -> None:
    end = core_job.conduct(np, REDUCES)
    assert (end.status, end.err) == (0, "")
    end.expect_in_time()


def test_a_daemon_thread_that_waits_at_exit_ends_quietly(core_job: CoreJob) -> None:
    body = """
begun = threading.Event()
def work():
    handle = hvd.allreduce_async(torch.ones(3), name=f"{rank}")  # no other rank has this name
    begun.set()
    hvd.synchronize(handle)
if rank == 0:
    threading.Thread(target=work, daemon=True).start()
    begun.wait()
hvd.barrier()
if rank == 1:
    while Path("/proc", Path(sys.argv[1], "ready.0").read_text()).exists(): time.sleep(0.01)
stamp()
"""
    end = core_job.conduct(2, body)
    assert (end.status, end.err) == (0, "")


@pytest.mark.parametrize(
    "call", ["hvd.shutdown(); hvd.allreduce(torch.ones(3))", "hvd.shutdown(); hvd.rank()"]
)
def test_a_daemon_threads_own_mistake_is_shown(core_job: CoreJob, call: str) -> None:
    body = f"""
def work(): {call}
thread = threading.Thread(target=work, daemon=True)
thread.start()
thread.join()
"""
    end = core_job.conduct(1, body)
    assert end.status == 0
    assert "Horovod has not been initialized" in end.err

"""Wrong calls and settings: a typed error that names what is wrong, alike on all ranks; the job goes on."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from pathlib import Path

import pytest
import torch

import roundelay.torch as hvd
from core_job import CoreJob, core_job
from in_time import expect_within
from programs import starting
from rank_program import program
from ranks import Check, mpirun, run_check

__all__ = ["core_job"]

pytestmark = pytest.mark.skipif(mpirun() is None, reason="no mpirun")

# From the last rank's call to the error, where the cause is known. A rank may be held up, but not mostly.
SOON_S = 1.0
LATEST_S = 20.0  # less than the stall time
waits: list[float] = []
LAUNCHERS = ["roundelayrun", "mpirun"]


@pytest.mark.parametrize("np", [2, 4])
def test_wrong_calls(np: int, check: Check) -> None:
    run_check(check, np)


def last() -> bool:
    """Whether this rank is the one that calls differently."""
    return hvd.rank() == hvd.size() - 1


def error_of(call: Callable[[], object], kind: type[Exception] = RuntimeError) -> str:
    """The text of the error; all ranks begin together."""
    hvd.barrier()
    begin = time.monotonic()
    with pytest.raises(kind) as caught:
        call()
    waits.append(time.monotonic() - begin)
    expect_within(LATEST_S, waits[-1])
    return str(caught.value)


def same_everywhere(text: str) -> None:
    """And the job goes on."""
    assert hvd.broadcast_object(text, 0) == text
    assert hvd.allreduce(torch.ones(3), op=hvd.Sum).sum() == 3 * hvd.size()


def expect_mismatch(call: Callable[[], object], what: str, first: str, other: str) -> None:
    text = error_of(call)
    # The rank that differs from rank 0, or whoever of the others came first.
    assert text.startswith("Mismatched ")
    assert "of 'wrong'" in text
    assert f"has {what} {first}" in text, text
    assert f"rank {hvd.size() - 1} has {what} {other}" in text, text
    same_everywhere(text)


def check_dtype() -> None:
    tensor = torch.ones(3, dtype=torch.float64 if last() else torch.float32)
    expect_mismatch(lambda: hvd.allreduce(tensor, name="wrong"), "dtype", "float32", "float64")
    assert (tensor == 1).all()


def check_shape() -> None:
    tensor = torch.ones(3, 2 if last() else 4)
    expect_mismatch(lambda: hvd.allreduce_(tensor, name="wrong"), "shape", "[3, 4]", "[3, 2]")
    assert (tensor == 1).all()


def check_reduction() -> None:
    op = hvd.Max if last() else hvd.Min
    expect_mismatch(lambda: hvd.allreduce(torch.ones(3), name="wrong", op=op), "reduction", "Min", "Max")


def check_root() -> None:
    root = 1 if last() else 0
    expect_mismatch(lambda: hvd.broadcast(torch.ones(3), root, name="wrong"), "root rank", "0", "1")


def check_scales() -> None:
    factor = 0.5 if last() else 2.0
    for which in ("prescale", "postscale"):
        arguments = {f"{which}_factor": factor}
        expect_mismatch(
            lambda arguments=arguments: hvd.allreduce(torch.ones(3), name="wrong", **arguments),  # type: ignore[misc]
            f"{which} factor",
            "2",
            "0.5",
        )


def check_operation() -> None:
    def call() -> object:
        if last():
            return hvd.broadcast(torch.ones(3), 0, name="wrong")
        return hvd.allreduce(torch.ones(3), name="wrong")

    expect_mismatch(call, "operation", "allreduce", "broadcast")


def expect_refused_by_the_last(bad: Callable[[], object], good: Callable[[], object], *parts: str) -> None:
    """The last rank's own mistake: a ValueError there, its text on the others at once."""
    text = error_of(bad if last() else good, ValueError if last() else RuntimeError)
    assert all(part in text for part in parts), text
    if not last():
        assert text.startswith(f"rank {hvd.size() - 1}: "), text
    same_everywhere("the job goes on")


def check_an_error_on_one_rank_is_heard_by_all() -> None:
    def good() -> object:
        return hvd.allreduce(torch.ones(3), name="mine")

    sparse = torch.ones(3).to_sparse()
    expect_refused_by_the_last(
        lambda: hvd.allreduce(torch.ones(3, dtype=torch.complex64), name="mine", op=hvd.Max),
        good,
        "'mine'",
        "complex",
    )
    expect_refused_by_the_last(
        lambda: hvd.allreduce(torch.ones(3).to(torch.uint16), name="mine"), good, "'mine'", "supported are"
    )
    expect_refused_by_the_last(lambda: hvd.allreduce(sparse, name="mine"), good, "dense", "to_dense()")
    expect_refused_by_the_last(
        lambda: hvd.allreduce(torch.ones(3), name="mine", op=17), good, "op is 17", "hvd.Average"
    )
    expect_refused_by_the_last(
        lambda: hvd.allreduce(torch.ones(3), name="mine", prescale_factor=float("nan")), good, "finite"
    )
    expect_refused_by_the_last(
        lambda: hvd.broadcast(torch.ones(3), hvd.size(), name="mine"),
        lambda: hvd.broadcast(torch.ones(3), 0, name="mine"),
        f"root_rank is {hvd.size()}",
    )
    expect_refused_by_the_last(
        lambda: hvd.broadcast(torch.ones(3), -1, name="mine"),
        lambda: hvd.broadcast(torch.ones(3), 0, name="mine"),
        "root_rank is -1",
    )


def check_a_name_in_flight_twice() -> None:
    if last():  # the others have not begun: it is in flight for certain
        first = hvd.allreduce_async(torch.ones(3), name="twice", op=hvd.Sum)
        with pytest.raises(ValueError, match=r"'twice'.*still in flight"):
            hvd.allreduce_async(torch.ones(3), name="twice")
        hvd.barrier()
    else:
        hvd.barrier()
        first = hvd.allreduce_async(torch.ones(3), name="twice", op=hvd.Sum)
    result = hvd.synchronize(first)
    assert result is not None
    assert result.sum() == 3 * hvd.size()
    if not last():  # their second use of the name meets the last rank's
        text = error_of_one(lambda: hvd.allreduce(torch.ones(3), name="twice"))
        assert f"rank {hvd.size() - 1}: " in text
        assert "still in flight" in text
    same_everywhere("the job goes on")


def error_of_one(call: Callable[[], object]) -> str:
    with pytest.raises(RuntimeError) as caught:
        call()
    return str(caught.value)


def check_errors_came_soon() -> None:
    assert len(waits) > 10
    expect_within(SOON_S, statistics.median(waits), waits)


def check_handles() -> None:
    for function in (hvd.poll, hvd.synchronize):
        with pytest.raises(ValueError, match="handle 123456789"):
            function(123456789)


# --- settings ---


@pytest.mark.parametrize(
    ("variable", "value", "parts"),
    [
        ("ROUNDELAY_THETA", "-1", ["whole number from 0"]),
        ("HOROVOD_FUSION_THRESHOLD", "64MB", ["whole number"]),
        ("ROUNDELAY_PROGRESS_TIMEOUT", "soon", ["seconds"]),
        ("HOROVOD_CYCLE_TIME", "-3", ["milliseconds"]),
        ("ROUNDELAY_LOG_LEVEL", "loud", ["trace, debug"]),
        ("ROUNDELAY_THETTA", "1", ["ROUNDELAY_THETA"]),
    ],
)
def test_a_bad_setting_is_named(
    monkeypatch: pytest.MonkeyPatch, variable: str, value: str, parts: list[str]
) -> None:
    monkeypatch.setenv(variable, value)
    with pytest.raises(ValueError, match=variable) as caught:
        hvd.init()
    assert all(part in str(caught.value) for part in parts), caught.value
    assert not hvd.is_initialized()
    with pytest.raises(ValueError, match="has not been initialized"):
        hvd.rank()


def test_an_unwritable_timeline_alone(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    path = tmp_path / "none" / "timeline.json"
    monkeypatch.setenv("ROUNDELAY_TIMELINE", str(path))
    with pytest.raises((ValueError, RuntimeError), match=str(path)):
        hvd.init()
    assert not hvd.is_initialized()


def test_settings_that_differ_between_ranks(core_job: CoreJob) -> None:
    end = core_job.conduct(3, program(starting.theta_differs))
    assert end.status == 0, end.err
    texts = {seen.text for seen in end.seen.values()}
    assert len(end.seen) == 3
    assert len(texts) == 1, texts
    text = texts.pop()
    assert "different configurations" in text
    assert 'rank 0 has ROUNDELAY_THETA="1000", rank 1 has ROUNDELAY_THETA="1001"' in text


@pytest.mark.slow
def test_an_unwritable_timeline_is_an_error_on_all_ranks(core_job: CoreJob) -> None:
    path = core_job.folder / "none" / "timeline.json"
    end = core_job.conduct(2, program(starting.timeline_at, str(path)))
    assert end.status == 0, end.err
    texts = {seen.text for seen in end.seen.values()}
    assert len(end.seen) == 2
    assert len(texts) == 1, texts
    assert str(path) in texts.pop()


@pytest.mark.slow
@pytest.mark.parametrize("launcher", LAUNCHERS)
def test_a_bad_setting_on_one_rank_ends_the_job(core_job: CoreJob, launcher: str) -> None:
    end = core_job.conduct(2, program(starting.rank_1_has_a_bad_theta), launcher=launcher)
    assert end.status == 1, end.err
    end.expect_in_time()
    assert 'ROUNDELAY_THETA="-5" is not valid' in end.err

"""Measures an operation on all ranks of a job, for ``roundelay tune`` and for the checks of a GPU."""

from __future__ import annotations

import os
import statistics
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch

import roundelay.torch as hvd

_FEWEST, _MOST = 3, 200  # repetitions
_CPU = torch.device("cpu")


@dataclass(frozen=True)
class Times:
    """What one call takes."""

    seconds: float  # the median; of the slowest rank
    cpu_seconds: float  # of one rank, all threads; the mean


@contextmanager
def job(**variables: str) -> Iterator[None]:
    """Surrounds a job (hvd.init() to hvd.shutdown()) with these ROUNDELAY_ variables."""
    names = {f"ROUNDELAY_{name}": value for name, value in variables.items()}
    before = {name: os.environ.get(name) for name in names}
    os.environ.update(names)
    try:
        hvd.init()
        yield
    finally:
        hvd.shutdown()
        for name, value in before.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value


def own_gpu() -> torch.device:
    """Makes this rank's GPU the current one, and returns it. The job sees one (``_gpu.devices()``)."""
    kind = torch.accelerator.current_accelerator()
    assert kind is not None
    index = hvd.local_rank() % torch.accelerator.device_count()
    torch.accelerator.set_device_index(index)
    return torch.device(kind.type, index)


def until_done(run: Callable[[], object], device: torch.device) -> Callable[[], object]:
    """Returns a call that also waits for the device, where the operation only enqueues."""
    if device == _CPU:
        return run

    def run_and_wait() -> None:
        run()
        torch.accelerator.synchronize(device)

    return run_and_wait


def times_of(run: Callable[[], object] | None, seconds: float, members: int) -> Times:
    """Measures a call for about so many seconds. All ranks call it.

    run: None on ranks that only keep in step. members: the number of ranks that have one.
    """
    call = run if run is not None else _nothing
    call()
    hvd.barrier()
    once = _of_all(_timed(call), hvd.Max)
    repetitions = min(_MOST, max(_FEWEST, int(seconds / max(once, 1e-9))))
    cpu = time.process_time()
    taken = [_timed(call) for _ in range(repetitions)]
    cpu = (time.process_time() - cpu) / repetitions
    slowest = _of_all(statistics.median(taken), hvd.Max)
    return Times(slowest, _of_all(cpu if run is not None else 0.0, hvd.Sum) / members)


def _nothing() -> None:
    """Stands for the operation on ranks that only keep in step."""


def _timed(call: Callable[[], object]) -> float:
    began = time.perf_counter()
    call()
    return time.perf_counter() - began


def _of_all(value: float, how: Any) -> float:
    """Returns the largest, or the sum, of all ranks' values."""
    own = torch.tensor([value], dtype=torch.float64, device=_CPU)
    return float(hvd.allreduce(own, name="tune.agree", op=how).item())

"""Runs an algorithm on all ranks of the job."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

import torch

import roundelay.torch as hvd
from roundelay.algorithms.algorithm import Algorithm, Result, State
from roundelay.algorithms.checkpoint import Checkpoint
from roundelay.algorithms.console import progress_bar
from roundelay.algorithms.exchange import agree, everyone_valid
from roundelay.algorithms.steps import Run
from roundelay.algorithms.transport import join
from roundelay.algorithms.trees import digest

CALL = "algorithms.run"


def run(
    algorithm: Algorithm[State],
    data: Any,
    steps: int,
    *,
    shards: int | None = None,
    until: Callable[[State], Any] | None = None,
    checkpoint: str | os.PathLike[str] | None = None,
    checkpoint_every: int = 100,
    check: bool = False,
    progress: bool = False,
    device: str | torch.device = "cpu",
    transport: str | None = None,
) -> Result[State]:
    """Runs the algorithm, and returns its last state, on every rank; joins the job if need be.

    On CPUs the result has the same bits on any number of ranks. The functions run with one torch thread.

    data: anything with a length and items, the same on every rank. ``evaluate`` gets slices of sequences,
    tensors, arrays and TensorDatasets, and lists of items of other datasets.
    steps: the number of steps at most, counted from the first state, also over a checkpoint.
    shards: their number, a part of the algorithm: with another number sums round differently. Default: 64,
    or one for each item of shorter data.
    until: a function of the state, called before each step; the run ends when it returns true.
    checkpoint: a file, written after every ``checkpoint_every`` steps and at the end. If it exists, the run
    goes on from it, with the same bits as without a break.
    check: calls each function twice, combines in two orders and compares the ranks' data and states; finds
    functions that break their contract.
    progress: shows the steps on stderr of one process.
    device: the device of the tensors. For "cuda" each rank takes the GPU of its local rank.
    transport: the algorithm by which partial results travel over fabrics tcp, mpi and c10d: one of
    "binomial_tree", "pairwise", "pipelined_tree", "recursive_doubling" and "ring". An operation that does not
    have the algorithm takes another. The bits are the same with each. Default: the job's own choice.

    ValueError for wrong arguments, MismatchError if ranks run different programs, AlgorithmError for an error
    of the algorithm's functions: each with the same text on every rank.
    """
    join(transport, CALL)

    def begin() -> Run:
        _check_count("steps", steps, 0)
        _check_count("checkpoint_every", checkpoint_every, 1)
        return Run(algorithm, data, shards, until, check, _place(device))

    this = everyone_valid(begin, CALL)
    numbers = {"items": this.shards.items, "shards": this.shards.count}
    settings: dict[str, Any] = {**numbers, "steps": steps, "check": check, "a criterion": until is not None}
    settings |= {"a checkpoint": checkpoint is not None, "a first state of digest": digest(this.state).hex()}
    settings |= {"data of digest": this.data_digest} if check else {}
    agree(settings, CALL)
    kept = None if checkpoint is None else Checkpoint(checkpoint, checkpoint_every, numbers, this.state)
    if kept is not None:
        everyone_valid(partial(this.resume, kept), CALL)
    with _one_thread(), this.device_context(), progress_bar(progress, steps, this.step) as advance:
        return this.go(steps, kept, advance)


def _check_count(name: str, value: Any, least: int) -> None:
    if not isinstance(value, int) or isinstance(value, bool) or value < least:
        raise ValueError(f"{name} is {value!r}, but must be a whole number from {least} on")


def _place(device: str | torch.device) -> torch.device:
    """Returns this rank's device; makes it the current one if it is no CPU."""
    try:
        place = torch.device(device)
    except (RuntimeError, TypeError) as error:
        raise ValueError(f"device is {device!r}: {error}") from None
    if place.type == "cpu":
        return torch.device("cpu")
    found: torch.device | None = torch.accelerator.current_accelerator()
    if found is None or found.type != place.type:
        raise ValueError(f"device is {device!r}, but PyTorch finds no such device here")
    index: int | None = place.index
    place = torch.device(
        place.type, hvd.local_rank() % torch.accelerator.device_count() if index is None else index
    )
    torch.accelerator.set_device_index(place.index)
    return place


@contextmanager
def _one_thread() -> Iterator[None]:
    """Lets torch compute with one thread, so that sums do not depend on the number of cores."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)

"""Trains two models elastically, as a GAN does, one of them on a process set, and checks both.

Argument: FOLDER. Rank 1 of the first generation, which is in the set, kills itself. The set is a function of
the topology: the first two ranks. Another one, of a list, ends with the generation.
"""

from __future__ import annotations

import os
import signal
import sys
import time
from pathlib import Path
from typing import Any

import torch

import roundelay.torch as hvd
from roundelay.torch._internal.topology import Topology

KILLED = Path(sys.argv[1]) / "killed"
STEPS_BETWEEN_COMMITS, KILLED_AT, MORE = 5, 23, 10


def first_two(topology: Topology) -> list[int]:
    """Return the ranks of the set."""
    return sorted(rank for part in topology.levels[0].parts for rank in part.ranks)[:2]


def make() -> tuple[torch.nn.Parameter, torch.optim.SGD]:
    """Return a model of one weight, and its optimizer."""
    weight = torch.nn.Parameter(torch.zeros(4, dtype=torch.float64))
    return weight, torch.optim.SGD([weight], lr=1 / 64, momentum=0.5)


def backward(weight: torch.nn.Parameter, step: int, rank: int = 0, size: int = 1) -> None:
    """Give every rank other gradients, whose average is exactly that of one process."""
    weight.grad = None
    (weight * (step % 7 + rank - (size - 1) / 2)).sum().backward()


def expected(steps: int) -> torch.Tensor:
    """Return the weight after so many steps of one process."""
    weight, optimizer = make()
    for step in range(steps):
        backward(weight, step)
        optimizer.step()
    return weight.detach()


def check_ended(process_set: hvd.ProcessSet) -> None:
    """Use a set of an earlier generation, which is an error that names both."""
    try:
        hvd.allreduce(torch.ones(1), process_set=process_set)
    except ValueError as error:
        if "process set of ranks [0, 2] has ended with generation" in str(error):
            print("the set of a list has ended", flush=True)


def main() -> None:
    """Train to the end."""
    hvd.init()
    two = hvd.add_process_set(hvd.ProcessSet(first_two))
    listed = [] if KILLED.exists() else [hvd.add_process_set([0, 2])]
    (one, first), (other, second) = make(), make()
    hvd.DistributedOptimizer(second, [("other", other)], process_set=two)  # wrapped first
    hvd.DistributedOptimizer(first, [("one", one)])
    state = hvd.elastic.TorchState(
        torch.nn.ParameterList([one, other]), first=first, second=second, step=0, resets=0, reset_at=0
    )

    def count() -> None:
        state.resets, state.reset_at = state.resets + 1, state.step
        while listed:
            check_ended(listed.pop())

    state.register_reset_callbacks([count])

    def check() -> None:
        for weight in [one, other] if two.included() else [one]:
            torch.testing.assert_close(weight.detach(), expected(state.step), rtol=0, atol=0)

    @hvd.elastic.run
    def train(state: Any) -> None:
        assert two.ranks == [0, 1]
        check()
        while state.resets == 0 or hvd.size() < 3 or state.step < state.reset_at + MORE:
            backward(one, state.step, hvd.rank(), hvd.size())
            first.step()
            if two.included():
                backward(other, state.step, two.rank(), two.size())
                second.step()
            state.step += 1
            if state.resets == 0 and state.step == KILLED_AT and hvd.rank() == 1:
                KILLED.touch()
                os.kill(os.getpid(), signal.SIGKILL)
            if state.step % STEPS_BETWEEN_COMMITS == 0:
                state.commit()
            time.sleep(0.01)  # so that a replacement is there before millions of steps

    train(state)
    check()
    print(f"two optimizers with {hvd.size()} ranks after {state.resets} changes", flush=True)


if __name__ == "__main__":
    main()

"""Trainings of small parameters whose steps differ in what ranks have to agree on."""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from types import FrameType
from typing import Any

import torch

import roundelay
import roundelay.torch as hvd

_SMALL = 64  # elements
_STEPS_A_JOIN = 20
_OURS = str(Path(roundelay.__file__).parent)
Parameters = Sequence[torch.nn.Parameter]
Step = Callable[[int], None]  # takes one training step, of this number


class Calls:
    """Counts the Python functions of Roundelay that are entered in backward(), step() and zero_grad()."""

    def __init__(self) -> None:
        self.counting = False
        self.found: Counter[tuple[str, str]] = Counter()  # keys: the phase, and file:function
        self._phase: str | None = None

    def backward(self, loss: torch.Tensor) -> None:
        """Calls loss.backward(). On a GPU a thread of autograd runs hooks."""
        if self.counting and loss.device.type != "cpu":
            loss.register_hook(self._follow_this_thread)
        self._call("backward", loss.backward)

    def step(self, optimizer: torch.optim.Optimizer) -> None:
        """Calls optimizer.step()."""
        self._call("step", optimizer.step)

    def zero_grad(self, optimizer: torch.optim.Optimizer) -> None:
        """Calls optimizer.zero_grad()."""
        self._call("zero_grad", optimizer.zero_grad)

    def _call(self, phase: str, call: Callable[[], Any]) -> None:
        if not self.counting:
            call()
            return
        self._phase = phase
        sys.setprofile(self._entered)
        call()
        sys.setprofile(None)
        self._phase = None

    def _follow_this_thread(self, _: torch.Tensor) -> None:
        sys.setprofile(self._entered)

    def _entered(self, frame: FrameType, event: str, _: Any) -> None:
        code = frame.f_code
        if event == "call" and self._phase is not None and code.co_filename.startswith(_OURS):
            file = Path(code.co_filename).relative_to(_OURS)
            self.found[self._phase, f"{file}:{code.co_name}"] += 1


def _parameters(number: int) -> list[torch.nn.Parameter]:
    return [torch.nn.Parameter(torch.ones(_SMALL)) for _ in range(number)]


def _sgd(parameters: Parameters) -> torch.optim.Optimizer:
    return torch.optim.SGD(list(parameters), lr=0.0)


def _wrapped(parameters: Parameters, **arguments: Any) -> torch.optim.Optimizer:
    made: torch.optim.Optimizer = hvd.DistributedOptimizer(_sgd(parameters), **arguments)
    return made


def _loss(parameters: Parameters, begin: torch.Tensor | None = None) -> torch.Tensor:
    """Returns the loss of a chain of layers: gradients come one by one, in the same order on all ranks."""
    values = torch.ones(_SMALL) if begin is None else begin
    for parameter in parameters:
        values = values * parameter
    return values.sum()


def _train(calls: Calls, loss: torch.Tensor, *optimizers: torch.optim.Optimizer) -> None:
    for optimizer in optimizers:
        calls.zero_grad(optimizer)
    calls.backward(loss)
    for optimizer in optimizers:
        calls.step(optimizer)


def _one(wrap: Callable[[Parameters], torch.optim.Optimizer]) -> Callable[[int, Calls], Step]:
    """Returns a scenario: one optimizer, and a gradient for each parameter in each step."""

    def made(number: int, calls: Calls) -> Step:
        parameters = _parameters(number)
        optimizer = wrap(parameters)
        return lambda _: _train(calls, _loss(parameters), optimizer)

    return made


def _in_turn(number: int, calls: Calls) -> Step:
    """A half of the parameters has gradients in every second step only."""
    parameters = _parameters(number)
    optimizer = _wrapped(parameters)
    used = (parameters, parameters[: number // 2])
    return lambda step: _train(calls, _loss(used[step % 2]), optimizer)


def _two_optimizers(number: int, calls: Calls) -> Step:
    """Two optimizers share a backward."""
    parameters = _parameters(number)
    optimizers = [_wrapped(parameters[: number // 2]), _wrapped(parameters[number // 2 :])]
    return lambda _: _train(calls, _loss(parameters), *optimizers)


def _gan(number: int, calls: Calls) -> Step:
    """Two optimizers have a backward each; that of the generator gives the discriminator gradients, too."""
    generator, discriminator = _parameters(number // 2), _parameters(number // 2)
    makes, judges = _wrapped(generator), _wrapped(discriminator)

    def step(_: int) -> None:
        fake = torch.ones(_SMALL)
        for parameter in generator:
            fake = fake * parameter
        _train(calls, _loss(discriminator) - _loss(discriminator, fake.detach()), judges)
        _train(calls, _loss(discriminator, fake), makes)

    return step


def _two_sets(number: int, calls: Calls) -> Step:
    """An optimizer of all ranks, and one of a half of them."""
    half = hvd.size() // 2
    halves = [hvd.add_process_set(range(half)), hvd.add_process_set(range(half, hvd.size()))]
    own = next(one for one in halves if one.included())
    parameters = _parameters(number)
    optimizers = [_wrapped(parameters[: number // 2]), _wrapped(parameters[number // 2 :], process_set=own)]
    return lambda _: _train(calls, _loss(parameters), *optimizers)


def _join(number: int, calls: Calls) -> Step:
    """Every few steps rank 0 has no data, and joins while the others are in a step."""
    train = _one(_wrapped)(number, calls)

    def step(index: int) -> None:
        joins = index % _STEPS_A_JOIN == _STEPS_A_JOIN - 1
        if not joins or hvd.rank() != 0:
            train(index)
        if joins:
            hvd.join()

    return step


_CSC = "csc:keep=0.1,chunk_elements=16,momentum=none"
SCENARIOS: dict[str, Callable[[int, Calls], Step]] = {
    "alone": _one(_sgd),
    "dense": _one(_wrapped),
    "csc": _one(lambda parameters: _wrapped(parameters, strategy=_CSC)),
    "in turn": _in_turn,
    "two optimizers": _two_optimizers,
    "gan": _gan,
    "two sets": _two_sets,
    "join": _join,
    "groups": _one(lambda parameters: _wrapped(parameters, groups=4)),
    "pool off": _one(_wrapped),
}

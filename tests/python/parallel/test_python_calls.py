"""In the steady state no Python function of Roundelay is entered for each gradient or for each bucket.

Each training runs with few parameters and with many, in few buckets and in many, and enters the same
functions as often. At the end of a backward at most one is entered for each optimizer.
"""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import Any

import pytest
import torch

import roundelay
import roundelay.torch as hvd
from ranks import Check, run_check
from roundelay.torch._internal.optimizer.distributed import wrapper_of

OURS = str(Path(roundelay.__file__).parent)
FEW, MANY = 6, 24
STEADY = 12  # steps; a pool is in use and nothing is recorded long before
PHASES = ("backward", "step", "zero_grad")
Parameters = list[torch.nn.Parameter]


@pytest.mark.parametrize("np", [2, 4])
def test_python_calls(np: int, check: Check) -> None:
    run_check(check, np, env={"ROUNDELAY_THETA": "256"})


@pytest.mark.slow
def test_python_calls_on_a_gpu(check: Check) -> None:
    run_check(check, 2, env={"ROUNDELAY_THETA": "256", "RANKS_DEVICE": "fakegpu"}, fresh=True)


class Entered:
    """Counts the functions that are entered, by phase: all, and those that no other one of ours called."""

    def __init__(self) -> None:
        self.all: dict[str, Counter[str]] = {phase: Counter() for phase in PHASES}
        self.outermost: dict[str, Counter[str]] = {phase: Counter() for phase in PHASES}
        self._phase: str | None = None

    @contextmanager
    def counting(self, phase: str) -> Iterator[None]:
        self._phase = phase
        sys.setprofile(self.entered)
        try:
            yield
        finally:
            sys.setprofile(None)
            self._phase = None

    def entered(self, frame: FrameType, event: str, _: Any) -> None:
        if event != "call" or self._phase is None or not _is_ours(frame):
            return
        name = f"{Path(frame.f_code.co_filename).name}:{frame.f_code.co_name}"
        self.all[self._phase][name] += 1
        below = frame.f_back
        while below is not None and not _is_ours(below):
            below = below.f_back
        if below is None:
            self.outermost[self._phase][name] += 1


def _is_ours(frame: FrameType) -> bool:
    return frame.f_code.co_filename.startswith(OURS) or frame.f_code is _Own.compress.__code__


class _Own:
    """A compressor of the user's. Python calls it for each gradient."""

    @staticmethod
    def compress(tensor: torch.Tensor) -> tuple[torch.Tensor, None]:
        return tensor, None

    @staticmethod
    def decompress(tensor: torch.Tensor, context: Any) -> torch.Tensor:
        return tensor


class Training:
    """Some optimizers, each with so many parameters."""

    def __init__(self, number: int, optimizers: int = 1, half: bool = False, **arguments: Any) -> None:
        self.parameters: list[Parameters] = []
        self.optimizers: list[torch.optim.Optimizer] = []
        for _ in range(optimizers):
            dtype = torch.bfloat16 if half else torch.float32
            own = [torch.nn.Parameter(torch.ones(16, dtype=dtype)) for _ in range(number)]
            self.parameters.append(own)
            self.optimizers.append(hvd.DistributedOptimizer(torch.optim.SGD(own, lr=0.01), **arguments))

    def step(self, entered: Entered) -> None:
        """Takes a step of all optimizers after one backward."""
        self.zero_grad(entered, *self.optimizers)
        self.backward(entered, *self.parameters)
        self.take_step(entered, *self.optimizers)

    def zero_grad(self, entered: Entered, *optimizers: torch.optim.Optimizer) -> None:
        for optimizer in optimizers:
            with entered.counting("zero_grad"):
                optimizer.zero_grad()

    def backward(self, entered: Entered, *parameters: Parameters) -> None:
        loss = torch.stack([one.sum() for own in parameters for one in own]).sum()
        if loss.device.type != "cpu":  # a thread of autograd runs the hooks
            loss.register_hook(lambda _: sys.setprofile(entered.entered))
        with entered.counting("backward"):
            loss.backward()

    def take_step(self, entered: Entered, *optimizers: torch.optim.Optimizer) -> None:
        for optimizer in optimizers:
            with entered.counting("step"):
                optimizer.step()

    def buckets(self) -> int:
        wrappers = [wrapper_of(optimizer) for optimizer in self.optimizers]
        return sum(one.buckets() for one in wrappers if one is not None)


class _Gan(Training):
    def __init__(self, number: int) -> None:
        super().__init__(number, 2)

    def step(self, entered: Entered) -> None:
        """Takes a step of each optimizer. The second backward has gradients for both."""
        for number, optimizer in enumerate(self.optimizers, 1):
            self.zero_grad(entered, optimizer)
            self.backward(entered, *self.parameters[:number])
            self.take_step(entered, optimizer)


class _TwoBackwards(Training):
    def backward(self, entered: Entered, *parameters: Parameters) -> None:
        """Runs two backwards before the step. The gradients of each are reduced when it ends."""
        for _ in range(2):
            super().backward(entered, *parameters)


def _steady(training: Training) -> Entered:
    """Returns what a step enters."""
    for _ in range(STEADY):
        training.step(Entered())
    entered = Entered()
    training.step(entered)
    return entered


def _few_and_many(make: Callable[[int], Training]) -> tuple[Entered, Entered]:
    few, many = make(FEW), make(MANY)
    found = _steady(few), _steady(many)
    assert few.buckets() * 2 <= many.buckets()
    return found


def _grown(few: Counter[str], many: Counter[str]) -> dict[str, tuple[int, int]]:
    """Returns the functions that are entered more often with more parameters, and how often."""
    return {name: (few[name], many[name]) for name in many if many[name] > few[name]}


def _check(make: Callable[[int], Training], phases: tuple[str, ...] = PHASES) -> None:
    few, many = _few_and_many(make)
    grown = {phase: _grown(few.all[phase], many.all[phase]) for phase in phases}
    assert not any(grown.values()), grown


def check_the_counter_sees_what_is_called_for_each_gradient() -> None:
    few, many = _steady(Training(FEW, compression=_Own)), _steady(Training(MANY, compression=_Own))
    calls = [one.all["backward"]["test_python_calls.py:compress"] for one in (few, many)]
    assert calls == [FEW, MANY]


def check_one_optimizer() -> None:
    _check(Training)


def check_gradients_that_travel_in_a_half_type() -> None:
    _check(lambda number: Training(number, compression=hvd.Compression.bf16))


def check_master_weights() -> None:
    _check(lambda number: Training(number, half=True, master_weights=True))


def check_a_technique_in_backward() -> None:
    """step() asks the strategy which technique each bucket takes next: docs/strategies.md."""
    strategy = "csc:keep=0.3,chunk_elements=4,momentum=none"
    _check(lambda number: Training(number, strategy=strategy), ("backward", "zero_grad"))


def check_two_optimizers_in_one_backward() -> None:
    _check(lambda number: Training(number, 2))


def check_a_gan() -> None:
    _check(_Gan)


def check_a_second_backward_before_the_step() -> None:
    _check(_TwoBackwards)


def check_the_end_of_a_backward() -> None:
    cases: list[tuple[Training, int]] = [
        (Training(MANY), 1),
        (Training(MANY, 2), 2),
        (_Gan(MANY), 3),  # the second backward has gradients of both
        (_TwoBackwards(MANY), 2),
        (Training(MANY, strategy="csc:keep=0.3,chunk_elements=4,momentum=none"), 1),
    ]
    for training, most in cases:
        found = _steady(training).outermost["backward"]
        assert found.total() <= most, found

"""Which stream waits for which where gradients are in a pool on a GPU: on one that is very late."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
import torch

import gpu_device
import roundelay.torch as hvd
from gpu_device import on
from ranks import run_checks
from small_gradients import add_gradients, gradient_of, make_parameters, sum_of_ranks, use_pool, wrapped_sgd

ROUNDS = 8
SIZE = 1 << 10
ON_GPU = {"RANKS_DEVICE": gpu_device.NAME, "FAKE_GPU_DELAY_US": "2000"}


@pytest.mark.parametrize(("np", "seed"), [(1, 1), (2, 2), (2, 3), (4, 4)])
def test_pool_streams(np: int, seed: int) -> None:
    run_checks(__file__, np, env={**ON_GPU, "FAKE_GPU_SEED": str(seed)})


def _pooled(number: int) -> tuple[list[torch.nn.Parameter], torch.optim.SGD]:
    parameters = make_parameters(number, SIZE)
    optimizer = wrapped_sgd(parameters)
    use_pool(optimizer)
    return parameters, optimizer


def _mine(number: int) -> float:
    return (hvd.rank() + 1.0) * (number + 1)


def _expect(parameters: Sequence[torch.nn.Parameter], number: int) -> None:
    for parameter in parameters:
        assert set(gradient_of(parameter)) == {sum_of_ranks() * (number + 1)}, number


def _streams(number: int) -> list[torch.Stream]:
    return [torch.Stream(gpu_device.NAME) for _ in range(number)]


def check_backward_on_a_side_stream() -> None:
    parameters, optimizer = _pooled(4)
    side, *_ = _streams(1)
    main = torch.accelerator.current_stream()
    for number in range(ROUNDS):
        optimizer.zero_grad(set_to_none=number % 2 == 0)
        side.wait_stream(main)
        with on(side):
            add_gradients(*((parameter, _mine(number)) for parameter in parameters))
            _expect(parameters, number)
        main.wait_stream(side)
        optimizer.step()


def check_gradients_of_one_bucket_from_several_streams() -> None:
    """Autograd has each backward on the stream that its forward was on."""
    parameters, optimizer = _pooled(6)
    _train_on_streams(parameters, optimizer)


def check_gradients_of_one_group_from_several_streams() -> None:
    parameters = make_parameters(6, SIZE)
    _train_on_streams(parameters, wrapped_sgd(parameters, groups=[parameters]))


def _train_on_streams(parameters: list[torch.nn.Parameter], optimizer: torch.optim.Optimizer) -> None:
    streams = _streams(3)
    main = torch.accelerator.current_stream()
    for number in range(ROUNDS):
        optimizer.zero_grad()
        losses = []
        for index, parameter in enumerate(parameters):
            stream = streams[(index + number) % len(streams)]
            stream.wait_stream(main)
            with on(stream):
                losses.append((parameter * _mine(number)).sum())
        for stream in streams:
            main.wait_stream(stream)
        torch.stack(losses).sum().backward()
        _expect(parameters, number)
        optimizer.step()


def check_a_step_that_is_given_up_on_another_stream() -> None:
    """Its results may still be on their way into the pool."""
    parameters, optimizer = _pooled(3)
    for number, stream in enumerate(_streams(ROUNDS)):
        with on(stream):
            optimizer.zero_grad()
            add_gradients(*((parameter, _mine(number)) for parameter in parameters))
            if number % 2:
                _expect(parameters, number)

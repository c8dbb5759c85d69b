"""Which stream waits for which where gradients are in a pool on a GPU: on one that is very late."""

from __future__ import annotations

import threading
from collections.abc import Sequence

import pytest
import torch

import gpu_device
import roundelay.torch as hvd
from gpu_device import on
from ranks import Check, run_check
from small_gradients import add_gradients, gradient_of, make_parameters, sum_of_ranks, use_pool, wrapped_sgd

pytestmark = pytest.mark.slow

ROUNDS = 8
SIZE = 1 << 10
ON_GPU = {"RANKS_DEVICE": gpu_device.NAME, "FAKE_GPU_DELAY_US": "5000"}


@pytest.mark.parametrize(("np", "seed"), [(1, 1), (2, 2), (2, 3), (4, 4)])
def test_pool_streams(np: int, seed: int, check: Check) -> None:
    run_check(check, np, env={**ON_GPU, "FAKE_GPU_SEED": str(seed)}, fresh=True)


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
    parameters = make_parameters(2, SIZE)
    arriving = _late_on_its_stream(parameters, rewritten=False)
    optimizer = wrapped_sgd(parameters)
    use_pool(optimizer)
    _train_on_streams(parameters, optimizer, arriving)


def check_gradients_of_one_group_from_several_streams() -> None:
    parameters = make_parameters(2, SIZE)
    arriving = _late_on_its_stream(parameters, rewritten=True)
    _train_on_streams(parameters, wrapped_sgd(parameters, groups=[parameters]), arriving)


def check_memory_of_a_gradient_whose_copy_is_late() -> None:
    """The first gradient is copied on the last one's stream. Its own stream goes on, and takes memory."""
    parameters = last, _ = make_parameters(2, SIZE)
    side, caller = _streams(2)
    taken: list[torch.Tensor] = []

    def hold(_: torch.Tensor) -> None:
        torch.accelerator.synchronize()
        gpu_device.hold_stream(side, True)
        threading.Timer(0.2, gpu_device.hold_stream, (side, False)).start()

    def go_on(_: torch.Tensor) -> None:
        with on(caller):
            taken.extend(torch.full_like(last, -1.0) for _ in range(4))

    last.register_post_accumulate_grad_hook(hold)
    optimizer = wrapped_sgd(parameters, groups=[parameters])
    for number in range(3):
        with on(caller):
            _loss_of_streams(parameters, number, side).backward()
            _expect(parameters, number)
            optimizer.step()
            optimizer.zero_grad()
        if number == 0:  # the optimizer has its hooks now
            last.register_post_accumulate_grad_hook(go_on)
    assert len(taken) == 2 * 4


def _late_on_its_stream(parameters: list[torch.nn.Parameter], rewritten: bool) -> list[torch.Stream]:
    """A list: while it has streams, one that comes with a gradient goes no further for a while, once.

    rewritten: the gradient is right only after that; in a pool its copy is.
    """
    waiting: list[torch.Stream] = []

    def hold(parameter: torch.Tensor) -> None:
        stream, gradient = torch.accelerator.current_stream(), parameter.grad
        if stream not in waiting or gradient is None:
            return
        waiting.clear()
        values = gradient.cpu()
        if rewritten:
            gradient.zero_()
        stream.synchronize()
        gpu_device.hold_stream(stream, True)
        if rewritten:
            gradient.copy_(values)
        threading.Timer(0.2, gpu_device.hold_stream, (stream, False)).start()

    for parameter in parameters:
        parameter.register_post_accumulate_grad_hook(hold)
    return waiting


def _train_on_streams(
    parameters: list[torch.nn.Parameter], optimizer: torch.optim.Optimizer, arriving: list[torch.Stream]
) -> None:
    side, caller = _streams(2)
    with on(caller):
        for number in range(3):
            optimizer.zero_grad()
            loss = _loss_of_streams(parameters, number, side)
            if number:  # the pool is this stream's
                arriving.append(caller)
            loss.backward()
            assert not arriving
            _expect(parameters, number)
            optimizer.step()


def _loss_of_streams(parameters: list[torch.nn.Parameter], number: int, side: torch.Stream) -> torch.Tensor:
    """The gradient that comes first will be on the stream that calls this, the last on the other one."""
    last, first = parameters
    caller = torch.accelerator.current_stream()
    side.wait_stream(caller)
    with on(side):
        loss = (last * _mine(number)).sum()
    caller.wait_stream(side)
    loss = loss + (first * _mine(number)).sum()
    torch.accelerator.synchronize()
    return loss


def check_a_step_that_is_given_up_on_another_stream() -> None:
    """Its results may still be on their way into the pool: the next one's gradients come behind them."""
    parameters, optimizer = _pooled(3)
    streams = _streams(2 * ROUNDS)
    mine = [[torch.full_like(one, _mine(number)) for one in parameters] for number in range(len(streams))]
    torch.accelerator.synchronize()
    for number, stream in enumerate(streams):
        with on(stream):
            optimizer.zero_grad()
            for parameter, gradient in zip(parameters, mine[number], strict=True):
                parameter.grad = gradient
            optimizer.synchronize()  # type: ignore[attr-defined]
            if number % 2:
                _expect(parameters, number)

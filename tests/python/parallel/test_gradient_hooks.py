"""What a gradient's hooks do."""

from __future__ import annotations

import gc
import pickle
import warnings
import weakref
from collections.abc import Sequence
from contextlib import nullcontext
from typing import Any
from unittest import mock

import pytest
import torch
from torch.utils.checkpoint import checkpoint

import roundelay.torch as hvd
from ranks import Check, run_check
from roundelay.torch._internal.optimizer.gradient_sync import GradientSync
from small_gradients import add_gradients, gradient_of, make_parameters, sum_of_ranks, use_pool, wrapped_sgd

NUMBER = 5  # in one bucket


@pytest.mark.parametrize("np", [1, 2, 3])
def test_gradient_hooks(np: int, check: Check) -> None:
    run_check(check, np)


def _pooled(**arguments: Any) -> tuple[list[torch.nn.Parameter], torch.optim.SGD]:
    parameters = make_parameters(NUMBER)
    optimizer = wrapped_sgd(parameters, **arguments)
    use_pool(optimizer, arguments.get("backward_passes_per_step", 1))
    return parameters, optimizer


def _backward(parameters: list[torch.nn.Parameter], indices: Sequence[int] = range(NUMBER)) -> None:
    """The gradients are rank + 1, twice that, and so on."""
    add_gradients(*((parameters[index], (hvd.rank() + 1.0) * (index + 1)) for index in indices))


def _times(parameters: list[torch.nn.Parameter]) -> list[float]:
    """Of what _backward gives all ranks together, what each gradient is."""
    found = []
    for number, parameter in enumerate(parameters, 1):
        values = gradient_of(parameter)
        assert values == [values[0]] * len(values)
        found.append(values[0] / (sum_of_ranks() * number))
    return found


def _ordinary_step(parameters: list[torch.nn.Parameter], optimizer: torch.optim.SGD) -> None:
    optimizer.zero_grad()
    _backward(parameters)
    optimizer.step()
    assert _times(parameters) == [1.0] * NUMBER


def check_python_hears_of_no_gradient() -> None:
    parameters, optimizer = _pooled()
    with mock.patch.object(GradientSync, "agreed", autospec=True) as calls:
        for set_to_none in (True, False, True):
            optimizer.zero_grad(set_to_none=set_to_none)
            _backward(parameters)
            assert not calls.called
            optimizer.step()
            assert _times(parameters) == [1.0] * NUMBER


def check_hooks_of_the_user_before_and_after() -> None:
    """What one that was there before does to .grad is reduced, and what one that came later does, too."""
    parameters = make_parameters(NUMBER)
    active = False

    def double(parameter: torch.Tensor) -> None:
        assert parameter.grad is not None
        if active:
            parameter.grad = parameter.grad * 2

    def triple(parameter: torch.Tensor) -> None:
        assert parameter.grad is not None
        if active:
            parameter.grad.mul_(3)

    parameters[2].register_post_accumulate_grad_hook(double)
    optimizer = wrapped_sgd(parameters)
    parameters[1].register_post_accumulate_grad_hook(double)
    parameters[3].register_post_accumulate_grad_hook(triple)
    use_pool(optimizer)
    active = True
    for _ in range(2):
        optimizer.zero_grad()
        _backward(parameters)
        optimizer.step()
        assert _times(parameters) == [1.0, 2.0, 2.0, 3.0, 1.0]


def check_a_later_hook_on_every_parameter() -> None:
    """It runs before the gradient is in flight: in steps without a pool, and where it fills a bucket."""

    def replace(parameter: torch.Tensor) -> None:
        assert parameter.grad is not None
        parameter.grad = parameter.grad * 2

    def multiply(parameter: torch.Tensor) -> None:
        assert parameter.grad is not None
        parameter.grad.mul_(2)

    for hook in (replace, multiply):
        parameters = make_parameters(NUMBER)
        optimizer = wrapped_sgd(parameters)
        for parameter in parameters:
            parameter.register_post_accumulate_grad_hook(hook)
        for _ in range(6):
            optimizer.zero_grad()
            _backward(parameters)
            assert _times(parameters) == [2.0] * NUMBER
            optimizer.step()


def check_a_second_backward_before_the_step() -> None:
    parameters, optimizer = _pooled()
    for again in (range(NUMBER), (1, 2), (0,)):
        optimizer.zero_grad()
        _backward(parameters)
        _backward(parameters, again)
        optimizer.step()
        assert _times(parameters) == [1.0 + (index in again) for index in range(NUMBER)]


def check_a_bucket_that_comes_in_parts() -> None:
    """Each backward ends by reducing what it brought: the second one's is added."""
    parameters, optimizer = _pooled()
    for _ in range(3):
        optimizer.zero_grad()
        _backward(parameters, (1, 2))
        _backward(parameters)
        optimizer.step()
        assert _times(parameters) == [1.0, 2.0, 2.0, 1.0, 1.0]


def check_passes_and_no_sync() -> None:
    parameters, optimizer = _pooled(backward_passes_per_step=3)
    for _ in range(2):
        optimizer.zero_grad()
        for _ in range(3):
            _backward(parameters)
        optimizer.step()
        assert _times(parameters) == [3.0] * NUMBER
    parameters, optimizer = _pooled()
    wrapped: Any = optimizer
    for _ in range(2):
        optimizer.zero_grad()
        with wrapped.no_sync():
            _backward(parameters)
        _backward(parameters)
        optimizer.step()
        assert _times(parameters) == [2.0] * NUMBER


def check_frozen_in_the_middle() -> None:
    parameters, optimizer = _pooled()
    rest = [parameter for parameter in parameters if parameter is not parameters[2]]
    for _ in range(2):
        optimizer.zero_grad()
        parameters[2].requires_grad_(False)
        add_gradients(*((parameter, hvd.rank() + 1.0) for parameter in rest))
        optimizer.step()
        assert parameters[2].grad is None
        assert [gradient_of(parameter) for parameter in rest] == [[sum_of_ranks()] * 3] * 4
        parameters[2].requires_grad_(True)
        _ordinary_step(parameters, optimizer)


def check_frozen_on_one_rank() -> None:
    """It adds nothing, whatever its part of the pool contains: here the last step's sum."""
    parameters, optimizer = _pooled()
    frozen = parameters[2]
    for _ in range(2):
        _ordinary_step(parameters, optimizer)
        optimizer.zero_grad()
        frozen.requires_grad_(hvd.rank() > 0)
        mine = [parameter for parameter in parameters if parameter.requires_grad]
        add_gradients(*((parameter, hvd.rank() + 1.0) for parameter in mine))
        optimizer.step()
        for parameter in mine:
            assert gradient_of(parameter) == [sum_of_ranks() - (parameter is frozen)] * 3
        frozen.requires_grad_(True)


def check_a_graph_of_a_double_backward_stays() -> None:
    parameters, optimizer = _pooled()
    for parameter in parameters:
        parameter.data.fill_(2.0)
    torch.stack([(parameter**3).sum() for parameter in parameters]).sum().backward(create_graph=True)
    for parameter in parameters:
        assert parameter.grad is not None
        assert parameter.grad.requires_grad
        assert parameter.grad.tolist() == [12.0 * hvd.size()] * 3
    optimizer.zero_grad()


def check_a_backward_that_raises_in_the_middle() -> None:
    parameters, optimizer = _pooled()
    failing = True

    def fail(_: torch.Tensor) -> None:
        if failing:
            raise RuntimeError("a hook of the user's")

    parameters[2].register_post_accumulate_grad_hook(fail)
    with pytest.raises(RuntimeError, match="a hook of the user's"):
        _backward(parameters)
    failing = False
    for _ in range(2):
        _ordinary_step(parameters, optimizer)


def check_backwards_inside_a_backward() -> None:
    parameters, optimizer = _pooled()

    def layer(values: torch.Tensor, number: int) -> torch.Tensor:
        return values + parameters[number] * (hvd.rank() + 1.0) * (number + 1)

    for _ in range(2):
        optimizer.zero_grad()
        values = torch.zeros(3, requires_grad=True)
        for number in range(NUMBER):
            if number in (1, 3):
                values = checkpoint(layer, values, number, use_reentrant=True)
            else:
                values = layer(values, number)
        values.sum().backward()
        optimizer.step()
        assert _times(parameters) == [1.0] * NUMBER


def check_several_optimizers_in_one_backward() -> None:
    sets = [_pooled() for _ in range(3)]
    everything = [parameter for parameters, _ in sets for parameter in parameters]
    for taken_over in (False, True):
        if taken_over:  # the first one's parameters are the new one's
            sets[0] = (sets[0][0], wrapped_sgd(sets[0][0]))
        for _ in range(4):
            for _, optimizer in sets:
                optimizer.zero_grad()
            mine = hvd.rank() + 1.0
            add_gradients(*((p, mine * (index % NUMBER + 1)) for index, p in enumerate(everything)))
            for parameters, optimizer in sets:
                optimizer.step()
                assert _times(parameters) == [1.0] * NUMBER


def check_nothing_is_kept_alive() -> None:
    parameters, optimizer = _pooled()
    _backward(parameters)
    optimizer.step()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        copy = pickle.loads(pickle.dumps(parameters[0]))
    assert copy.shape == parameters[0].shape
    refs = [weakref.ref(parameter) for parameter in parameters]
    of_optimizer = weakref.ref(optimizer)
    del parameters, optimizer, copy
    gc.collect()
    assert of_optimizer() is None
    assert [ref() for ref in refs] == [None] * NUMBER


def check_a_nested_backward_that_ends_in_another_thread() -> None:
    """Nested deeper than 60 levels autograd goes on in another thread, which believes to be the outermost."""
    inner, other = _pooled()
    outer = [torch.nn.Parameter(torch.zeros(3, dtype=torch.float32)) for _ in range(3)]
    outer += [
        torch.nn.Parameter(torch.zeros(3, dtype=torch.float64)) for _ in range(4)
    ]  # a bucket of their own
    optimizer = wrapped_sgd(outer)
    use_pool(optimizer)

    def nested(value: torch.Tensor, depth: int) -> torch.Tensor:
        if depth == 0:
            return value + sum((parameter * 1.0).sum() for parameter in inner)
        result: torch.Tensor = checkpoint(nested, value, depth - 1, use_reentrant=True)
        return result

    factor = hvd.rank() + 1.0
    late = sum((outer[index] * factor).sum() for index in (3, 4, 5))  # and one is not used
    total = nested(torch.zeros((), requires_grad=True) + late, 70)
    for parameter in outer[:3]:
        total = total + (parameter * factor).sum()
    total.backward()
    assert [gradient_of(parameter)[0] for parameter in outer[:6]] == [sum_of_ranks()] * 6
    optimizer.step()
    other.step()


def check_an_error_in_the_last_hook_is_raised() -> None:
    """Last, as it starts a new job."""
    parameters, optimizer = _pooled()
    in_bucket = hvd.size() > 1
    hvd.shutdown()
    with pytest.raises(ValueError, match="not been initialized") if in_bucket else nullcontext():
        add_gradients(*((parameter, 1.0) for parameter in parameters))
    hvd.init()
    for _ in range(4):
        _ordinary_step(parameters, optimizer)

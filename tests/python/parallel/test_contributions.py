"""What DistributedOptimizer takes for a rank's gradient, whoever has put it there. All sums are exact."""

from __future__ import annotations

import threading

import pytest
import torch

import roundelay.torch as hvd
from ranks import Check, run_check
from small_gradients import ALONE, add_gradients, gradient_of, make_parameters, sum_of_ranks, wrapped_sgd


@pytest.mark.parametrize("np", [2, 3])
def test_contributions(np: int, check: Check) -> None:
    run_check(check, np)


def test_contributions_without_a_pool(check: Check) -> None:
    run_check(check, 2, env=ALONE)


def check_a_window_is_complete_when_its_last_backward_returns() -> None:
    used, first, last = make_parameters(3)
    optimizer = wrapped_sgd([used, first, last], backward_passes_per_step=2)
    for _ in range(5):  # alone, and in a pool
        add_gradients((used, 1.0), (first, hvd.rank() + 1.0))
        add_gradients((used, 1.0), (last, hvd.rank() + 1.0))
        assert gradient_of(first) == gradient_of(last) == [sum_of_ranks()] * 3
        optimizer.step()
        optimizer.zero_grad()


def check_several_backwards_of_a_pass() -> None:
    one, other = make_parameters(2)
    optimizer = wrapped_sgd([one, other], backward_passes_per_step=2)
    for _ in range(5):
        for _ in range(2):
            add_gradients((one, hvd.rank() + 1.0))
            add_gradients((other, hvd.rank() + 1.0))
        assert gradient_of(one) == gradient_of(other) == [2 * sum_of_ranks()] * 3
        optimizer.step()
        optimizer.zero_grad()


def check_gradients_that_share_memory_with_others() -> None:
    """Autograd gives `.grad` the memory of a gradient that backward still needs, if a view was used."""
    for number in range(5):
        row, column, rows = (torch.nn.Parameter(torch.zeros(shape)) for shape in ((1, 4), (4, 1), (4, 4)))
        optimizer = wrapped_sgd([row, column, rows])
        for _ in range(number + 1):
            optimizer.zero_grad()
            sums = row.view(4) + column.view(4) + rows @ torch.ones(4)
            (sums * (hvd.rank() + 1.0)).sum().backward()
            for parameter in (row, column, rows):
                assert parameter.grad is not None
                assert parameter.grad.flatten().tolist() == [sum_of_ranks()] * parameter.numel()
            optimizer.step()


def check_gradients_with_a_graph_keep_it() -> None:
    one, other = make_parameters(2)
    optimizer = wrapped_sgd([one, other])
    for _ in range(5):
        optimizer.zero_grad()
        (0.5 * (one.view(3) + other.view(3) + hvd.rank() + 1.0) ** 2).sum().backward(create_graph=True)
        for parameter in (one, other):
            assert parameter.grad is not None
            assert gradient_of(parameter) == [sum_of_ranks()] * 3
            assert (
                torch.autograd.grad(parameter.grad.sum(), [one], retain_graph=True)[0].tolist() == [1.0] * 3
            )


def check_gradients_of_no_backward() -> None:
    usual, by_hand, unused = make_parameters(3)
    optimizer = wrapped_sgd([usual, by_hand, unused])
    unused.grad = torch.full((3,), 7.0)
    optimizer.step()  # all are of no backward
    assert gradient_of(unused) == [7.0 * hvd.size()] * 3
    for _ in range(5):
        usual.grad = by_hand.grad = None
        add_gradients((usual, hvd.rank() + 1.0))
        (by_hand.grad,) = torch.autograd.grad((by_hand * (hvd.rank() + 1.0)).sum(), [by_hand])
        optimizer.step()
        assert gradient_of(by_hand) == gradient_of(usual) == [sum_of_ranks()] * 3
        assert gradient_of(unused) == [7.0 * hvd.size()] * 3  # nobody has touched it


def check_thrown_away_gradients_do_not_come_back() -> None:
    broken, fine = make_parameters(2)
    optimizer = wrapped_sgd([broken, fine])

    def zero_grad() -> None:  # as a model's: the optimizer does not hear of it
        broken.grad = fine.grad = None

    for _ in range(5):
        handle = broken.register_hook(lambda _: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            ((broken + fine.exp().log()) * 100.0).sum().backward()
        handle.remove()
        zero_grad()
        add_gradients((broken, 1.0), (fine, 1.0))
        assert gradient_of(fine) == gradient_of(broken) == [hvd.size()] * 3
        with optimizer.no_sync():  # type: ignore[attr-defined]
            add_gradients((fine, 100.0))
        zero_grad()
        add_gradients((broken, 1.0), (fine, 1.0))
        assert gradient_of(fine) == gradient_of(broken) == [hvd.size()] * 3
        optimizer.step()
        optimizer.zero_grad()


def check_gradients_of_horovods_class_that_share_memory() -> None:
    from roundelay.torch._internal.optimizer.horovod_class import _DistributedOptimizer

    kind = type("SGD", (torch.optim.SGD,), dict(_DistributedOptimizer.__dict__))
    for groups in (None, 1):
        row, column = (torch.nn.Parameter(torch.zeros(shape)) for shape in ((1, 4), (4, 1)))
        optimizer = kind([row, column], op=hvd.Sum, groups=groups)
        optimizer.zero_grad()
        ((row.view(4) + column.view(4)) * (hvd.rank() + 1.0)).sum().backward()
        optimizer.synchronize()
        for parameter in (row, column):
            assert parameter.grad is not None
            assert parameter.grad.flatten().tolist() == [sum_of_ranks()] * 4


def check_two_threads_with_an_optimizer_each() -> None:
    failures: list[BaseException] = []
    every = [make_parameters(4) for _ in range(2)]
    optimizers = [wrapped_sgd(parameters) for parameters in every]

    def train(parameters: list[torch.nn.Parameter], optimizer: torch.optim.SGD) -> None:
        try:
            for _ in range(20):
                optimizer.zero_grad()
                add_gradients(*((parameter, hvd.rank() + 1.0) for parameter in parameters))
                for parameter in parameters:
                    assert gradient_of(parameter) == [sum_of_ranks()] * 3
                optimizer.step()
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=train, args=one) for one in zip(every, optimizers, strict=True)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failures, failures


def check_gradients_of_another_type_than_their_parameter() -> None:
    if not hasattr(torch.Tensor, "grad_dtype"):  # torch 2.13 has it
        return
    parameter = torch.nn.Parameter(torch.ones(1, dtype=torch.bfloat16))
    parameter.grad_dtype = torch.float32
    optimizer = wrapped_sgd([parameter], backward_passes_per_step=2)
    for _ in range(5):
        optimizer.zero_grad()
        parameter.sum().backward()
        (parameter * 2.0**-9).sum().backward()
        assert parameter.grad is not None
        assert parameter.grad.dtype == torch.float32
        assert parameter.grad.item() == hvd.size() * (1 + 2.0**-9)


def check_tensors_of_a_group_that_share_memory() -> None:
    whole = torch.full((6,), hvd.rank() + 1.0)
    for shared in ([whole, whole.view(2, 3)], [whole[:4], whole[2:]]):
        with pytest.raises(ValueError, match="two tensors of the group share memory"):
            hvd.grouped_allreduce_(shared, op=hvd.Sum)
    hvd.grouped_allreduce_([whole[:2], whole[2:4], whole[4:], whole[:0]], op=hvd.Sum)
    assert whole.tolist() == [sum_of_ranks()] * 6


def check_windows_that_a_join_cuts_short() -> None:
    for passes in (1, 2):
        (parameter,) = make_parameters(1)
        optimizer = wrapped_sgd([parameter], backward_passes_per_step=passes)
        for _ in range(3):
            with hvd.join_context(optimizer):
                for number in range(3 if hvd.rank() == 0 else 4):
                    add_gradients((parameter, 1.0))
                    if number == 1:
                        assert gradient_of(parameter) == [2.0 * hvd.size()] * 3
                    if number % 2:
                        optimizer.step()
                        optimizer.zero_grad()

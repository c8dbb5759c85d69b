"""Ranks that order equal parameters differently: what has a name goes by its name. All sums are exact."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
import torch
from torch import nn

import roundelay.torch as hvd
from daso_training import daso, nodes_of
from ordered_training import FORMS, NAMES, ORDERS, Ordered, momentum, on_odd_ranks, on_one_process
from ranks import Check, needs_ranks, run_check
from roundelay.torch.optim import LAMB, LARS
from roundelay.torch.strategies import LocalSGD

warnings.filterwarnings("ignore", "strategy .*all ranks are on one node", RuntimeWarning)

STEPS = 9  # gradients are in buckets from the fourth on


@pytest.mark.parametrize("np", [2, 4, 1])
def test_parameter_order(np: int, check: Check) -> None:
    run_check(check, np, env={"ROUNDELAY_THETA": "128"})  # two buckets


def check_gradients_are_those_of_one_process() -> None:
    expected = on_one_process(STEPS, hvd.size())[hvd.rank()]
    groups = (None, 1, 2, (("a", "c"), ("b",)))
    for order in ORDERS:
        for form in FORMS:
            for group in groups:
                listed = group[:: 1 - 2 * (hvd.rank() % 2)] if isinstance(group, tuple) else group
                training = Ordered(on_odd_ranks(order), form, groups=listed).run(STEPS)
                assert training.values() == expected, (order, form, group)
                assert (training.buckets() > 1) == (group is None and hvd.size() > 1)


def check_positions_of_digits_are_numbers() -> None:
    """Unnamed parameters stay in their places, also the eleventh one."""
    parameters = [nn.Parameter(torch.zeros(2)) for _ in range(12)]
    optimizer = hvd.DistributedOptimizer(torch.optim.SGD(parameters, lr=1.0), op=hvd.Sum, groups=6)
    for step in range(1, 6):
        optimizer.zero_grad()
        torch.stack([(one * number).sum() for number, one in enumerate(parameters)]).sum().backward()
        optimizer.step()
        for number, one in enumerate(parameters):
            assert one.tolist() == [-float(number * step * hvd.size())] * 2


def check_ranks_that_have_joined() -> None:
    """The ranks that go on take nobody's joining for a difference."""
    for order in ORDERS[:2]:
        training = Ordered(on_odd_ranks(order), op=hvd.Sum)
        with hvd.join_context(training.optimizer) as context:
            training.run(4 + hvd.rank())
        hvd.broadcast_parameters(training.parameters, context.last_rank or 0)
        training.steps = 3 + hvd.size()
        same = Ordered(NAMES, op=hvd.Sum)
        with hvd.join_context(same.optimizer) as context:
            same.run(4 + hvd.rank())
        hvd.broadcast_parameters(same.parameters, context.last_rank or 0)
        same.steps = 3 + hvd.size()
        assert training.run(3).values() == same.run(3).values()


def _as_in_one_order(orders: tuple[str, ...], make: Callable[[Any], Ordered], steps: int) -> None:
    """Compares the bits with those of a training whose ranks have one order."""
    expected = make(NAMES).run(steps).values()
    for order in orders:
        assert make(on_odd_ranks(order)).run(steps).values() == expected, order


@needs_ranks(2)
def check_techniques() -> None:
    for strategy in ("csc:keep=0.3,chunk_elements=8,dense_below=6", "topk:density=0.3,dense_below=6"):
        _as_in_one_order(ORDERS[:2], partial(Ordered, shape=(8, 8), strategy=strategy), STEPS)
    with nodes_of(1):
        strategy = "power_sgd:rank=1,dense_below=6"
        _as_in_one_order(ORDERS[:2], partial(Ordered, shape=(8, 8), strategy=strategy), STEPS)


def check_adasum() -> None:
    for form in FORMS:
        _as_in_one_order(ORDERS, partial(Ordered, form=form, op=hvd.Adasum), 4)


def check_local_sgd_is_that_of_one_process() -> None:
    for order in ORDERS:
        for form in FORMS:
            training = Ordered(on_odd_ranks(order), form, strategy="local_sgd:period=2,within_node=period")
            assert training.run(5).values() == on_one_process(5, hvd.size(), 2)[hvd.rank()]


def check_an_outer_optimizer_and_its_state() -> None:
    def make(names: Any) -> Ordered:
        return Ordered(names, strategy=LocalSGD(2, outer=momentum, within_node="period"))

    _as_in_one_order(ORDERS, make, 7)
    if hvd.size() == 1:
        return
    # The job that goes on has another order on each rank than the one that was saved.
    saved = make(on_odd_ranks("bacd")).run(3)
    state = hvd.strategies.of(saved.optimizer).state_dict()
    again = make(on_odd_ranks("dcba"))
    for name, parameter in again.parameters.items():
        parameter.data.copy_(saved.parameters[name].data)
        buffer = saved.optimizer.state[saved.parameters[name]]["momentum_buffer"]
        again.optimizer.state[parameter]["momentum_buffer"] = buffer.clone()
    hvd.strategies.of(again.optimizer).load_state_dict(state)
    again.steps = saved.steps
    assert again.run(4).values() == make(NAMES).run(7).values()


@needs_ranks(2)
def check_daso() -> None:
    with nodes_of(hvd.size() // 2):
        for merge in (False, True):

            def make(names: Any, merge: bool = merge) -> Ordered:
                return Ordered(names, strategy=daso(2, 1, 1, merge_momentum=merge))

            _as_in_one_order(ORDERS[:2], make, 7)


def check_layerwise_optimizers_share_ratios_by_name() -> None:
    for kind in (LARS, LAMB):
        for form in FORMS:

            def make(names: Any, kind: Any = kind, form: str = form) -> Ordered:
                def layerwise(parameters: Any) -> torch.optim.Optimizer:
                    optimizer: torch.optim.Optimizer = kind(parameters, 0.5, distributed_norms=hvd.size() > 1)
                    return optimizer

                return Ordered(names, form, layerwise)

            _as_in_one_order(ORDERS, make, 4)


def _with_momentum(order: list[str], form: str, root: int) -> Any:
    """Returns an optimizer whose momentum is its parameter's letter on the root; elsewhere it has none."""
    parameters = {name: nn.Parameter(torch.zeros(2, dtype=torch.bfloat16)) for name in NAMES}
    pairs = [(name, parameters[name]) for name in order]
    lr = 0.5 + hvd.rank()
    plain: Any = torch.optim.SGD(
        pairs if form == "param_names" else [one for _, one in pairs], lr=lr, momentum=0.5
    )
    if form != "param_names":
        hvd.DistributedOptimizer(plain, pairs, master_weights=form == "masters")
    tensors = dict(zip(order, plain.param_groups[0]["params"], strict=True))
    if hvd.rank() == root:
        for name, tensor in tensors.items():
            plain.state[tensor]["momentum_buffer"] = torch.full_like(tensor, ord(name), requires_grad=False)
    return plain, tensors


def check_state_is_broadcast_by_name() -> None:
    root = hvd.size() - 1
    for form in (*FORMS, "masters"):
        for order in ORDERS:
            mine = on_odd_ranks(order)
            optimizer, tensors = _with_momentum(mine, form, root)
            hvd.broadcast_optimizer_state(optimizer, root)
            for name, tensor in tensors.items():
                buffer = optimizer.state[tensor]["momentum_buffer"]
                assert buffer.tolist() == [ord(name)] * 2
                if form == "masters" and hvd.rank() != root:
                    assert tensor.dtype == torch.float32
            group = optimizer.param_groups[0]
            assert group["lr"] == 0.5 + root
            assert group.get("param_names") in (None, mine)


def check_state_of_unnamed_parameters_goes_by_position() -> None:
    tensors = [nn.Parameter(torch.zeros(2)) for _ in range(12)]
    optimizer = torch.optim.SGD(tensors, lr=1.0, momentum=0.5)
    if hvd.rank() == 0:
        for number, tensor in enumerate(tensors):
            tensor.grad = torch.full_like(tensor, number)
        optimizer.step()
    hvd.broadcast_optimizer_state(optimizer, 0)
    for number, tensor in enumerate(tensors):
        assert optimizer.state[tensor]["momentum_buffer"].tolist() == [number] * 2

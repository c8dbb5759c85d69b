"""Weight decay in the steps that a strategy takes for SGD is SGD's, whichever of the two takes a step."""

from __future__ import annotations

import copy
from itertools import product
from typing import Any

import pytest
import torch

from roundelay.torch._internal.gradients.pool_strides import pool_strides
from roundelay.torch.strategies._lossy.sgd_steps import (
    DECAY_KEY,
    Elements,
    decays_of,
    hide_gradients,
    local_step,
    masked_step,
    show_gradients,
)

SIZES = (40, 9)
STEPS = 40


def ulps(one: torch.Tensor, other: torch.Tensor) -> int:
    return int((one.view(torch.int32) - other.view(torch.int32)).abs().max())


def groups(settings: dict[str, Any]) -> list[dict[str, Any]]:
    """Two groups; the second has another weight decay."""
    torch.manual_seed(5)
    decay = settings.get("weight_decay", 0.01)
    tensors = [torch.nn.Parameter(torch.randn(size)) for size in SIZES]
    return [{"params": [one], "weight_decay": decay * (1 + 2 * n)} for n, one in enumerate(tensors)]


def weights(optimizer: torch.optim.SGD) -> list[torch.Tensor]:
    return [one for group in optimizer.param_groups for one in group["params"]]


def change(optimizer: torch.optim.SGD, step: int) -> None:
    """Schedules of the learning rate and of the decay, which is zero for a while."""
    for group in optimizer.param_groups:
        if step == 12:
            group["lr"] = group["lr"] * 0.25
        if step in (15, 20):
            group["weight_decay"] = 0.0 if step == 15 else 0.03


def own_step(optimizer: torch.optim.SGD, masked: bool) -> None:
    """SGD's own step of all parameters."""
    decays = decays_of(optimizer, set(weights(optimizer))) if masked else []
    optimizer.step()
    masked_step(optimizer, {}, decays)


def part_step(optimizer: torch.optim.SGD, masked: bool, part: float) -> None:
    """The strategy's step of all parameters, of which this part was sent."""
    every = weights(optimizer)
    taken = hide_gradients(optimizer, set(every))
    optimizer.step()
    show_gradients(taken)
    if not masked:
        return local_step(optimizer, set(every))
    elements = {}
    for one in every:
        sent = [n for n in range(one.numel()) if torch.rand(()) < part]
        elements[one] = Elements(pool_strides(one), [range(n, n + 1) for n in sent])
    return masked_step(optimizer, elements)


def modes() -> list[Any]:
    found = []
    for masked, foreach, settings in product(
        (True, False),
        (None, True),
        (
            {"momentum": 0.9},
            {"momentum": 0.9, "nesterov": True},
            {"momentum": 0.9, "maximize": True},
            {"momentum": 0.0},
            {"momentum": 0.9, "weight_decay": 0.0},
        ),
    ):
        every = {**settings, "foreach": foreach}
        found.append(pytest.param(masked, every, id=f"{'masked' if masked else 'local'}-{every}"))
    return found


@pytest.mark.parametrize(("masked", "settings"), modes())
def test_zero_gradients_decay_as_with_sgd(masked: bool, settings: dict[str, Any]) -> None:
    """SGD steps first (a warm-up), then the strategy, and then both in turn; some steps have no gradient."""
    ours = torch.optim.SGD(groups(settings), lr=0.1, **settings)
    theirs = torch.optim.SGD(groups(settings), lr=0.1, **settings)
    before = [one.detach().clone() for one in weights(ours)]
    for step in range(STEPS):
        for optimizer in (ours, theirs):
            change(optimizer, step)
            for number, one in enumerate(weights(optimizer)):
                one.grad = None if step % 7 == 3 and number == 0 else torch.zeros_like(one)
        theirs.step()
        if step < 4 or step % 6 == 5:
            own_step(ours, masked)
        else:
            part_step(ours, masked, (0.0, 0.3, 0.9)[step % 3])
        if step == 25:  # a checkpoint
            ours.load_state_dict(copy.deepcopy(ours.state_dict()))
    for our, their, old in zip(weights(ours), weights(theirs), before, strict=True):
        assert ulps(our.detach(), their.detach()) <= 4
        assert ulps(our.detach(), old) > 1000


@pytest.mark.parametrize("settings", [{}, {"nesterov": True}, {"maximize": True}], ids=str)
def test_the_momentum_of_a_warm_up_goes_on_beside_that_of_the_ranks(settings: dict[str, Any]) -> None:
    """All is sent, and the ranks' momentum is not cleared: the steps are SGD's."""
    ours = torch.optim.SGD(groups({}), lr=0.1, momentum=0.9, **settings)
    theirs = torch.optim.SGD(groups({}), lr=0.1, momentum=0.9, **settings)
    ranks = [torch.zeros(size) for size in SIZES]
    for step in range(STEPS):
        for our, their, rank in zip(weights(ours), weights(theirs), ranks, strict=True):
            gradient = torch.randn(len(our))
            our.grad, their.grad = gradient.clone(), gradient.clone()
            if step >= 4:
                rank.mul_(0.9).add_(gradient)
                our.grad = gradient + 0.9 * rank if settings.get("nesterov") else rank.clone()
        theirs.step()
        if step < 4:
            own_step(ours, masked=False)
        else:
            part_step(ours, masked=False, part=1.0)
    for our, their in zip(weights(ours), weights(theirs), strict=True):
        scale = float(their.detach().abs().max())
        torch.testing.assert_close(our, their, rtol=0, atol=32 * scale * 2.0**-24)


def test_a_checkpoint_without_the_momentum_of_decay_begins_one() -> None:
    """Its momentum_buffer is taken for that of gradients: it waits until an element is sent."""
    optimizer = torch.optim.SGD([torch.nn.Parameter(torch.ones(2))], lr=0.5, momentum=0.5, weight_decay=0.25)
    (one,) = weights(optimizer)
    optimizer.state[one]["momentum_buffer"] = torch.full((2,), 0.5)
    for sent in ([range(1)], [range(2)]):
        one.grad = torch.zeros(2)
        taken = hide_gradients(optimizer, {one})
        optimizer.step()
        show_gradients(taken)
        masked_step(optimizer, {one: Elements((1,), sent)})
        if sent == [range(1)]:
            # Sent: b = 0.5 / 2 + 0.25, w = 1 - b / 2. Not sent: d = 0.25, w = 1 - d / 2, and b = 0.5 + d.
            assert one.tolist() == [0.75, 0.875]
            assert optimizer.state[one]["momentum_buffer"].tolist() == [0.5, 0.75]
            assert optimizer.state[one][DECAY_KEY].tolist() == [0.25, 0.25]
    assert optimizer.state[one]["momentum_buffer"].tolist() == [0.4375, 0.59375]
    assert one.tolist() == [0.53125, 0.578125]

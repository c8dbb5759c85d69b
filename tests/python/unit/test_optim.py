"""LARS and LAMB on one rank: the formulas, torch's conventions, and bad input."""

from __future__ import annotations

import copy
import math
import pickle
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn

from roundelay.torch.optim import LAMB, LARS
from roundelay.torch.optim.norms import norms, shares

SHAPES = ((16, 3, 3, 3), (16,), (40, 33), (40,), (), (7, 1))
STEPS = 4
Make = Callable[..., Any]


def parameters(seed: int = 1) -> list[nn.Parameter]:
    generator = torch.Generator().manual_seed(seed)
    made = [nn.Parameter(torch.randn(shape, generator=generator)) for shape in SHAPES]
    with torch.no_grad():
        made[3].zero_()  # a norm of 0
    return made


def gradients(step: int) -> list[torch.Tensor]:
    generator = torch.Generator().manual_seed(100 + step)
    made = [torch.randn(shape, generator=generator) for shape in SHAPES]
    made[4].zero_()  # another one
    return made


def groups_of(tensors: list[nn.Parameter]) -> list[dict[str, Any]]:
    return [{"params": tensors[:4]}, {"params": tensors[4:], "weight_decay": 0.25}]


def take_steps(optimizer: torch.optim.Optimizer, tensors: list[nn.Parameter], steps: range) -> None:
    for step in steps:
        for tensor, gradient in zip(tensors, gradients(step), strict=True):
            tensor.grad = gradient
        optimizer.step()


def ratio_of(above: torch.Tensor, norm: torch.Tensor, formula: torch.Tensor) -> float:
    return float(formula) if float(above) != 0 and float(norm) != 0 else 1.0


def lars_in_fp64(nesterov: bool) -> list[torch.Tensor]:
    """Plain formulas, layer by layer."""
    lr, momentum, trust, eps = 0.5, 0.9, 0.02, 1e-8
    weights = [tensor.detach().double() for tensor in parameters()]
    buffers = [torch.zeros_like(w) for w in weights]
    for step in range(STEPS):
        for layer, gradient in enumerate(gradients(step)):
            w, g, decay = weights[layer], gradient.double(), 0.01 if layer < 4 else 0.25
            scale = ratio_of(w.norm(), g.norm(), trust * w.norm() / (g.norm() + decay * w.norm() + eps))
            update = scale * (g + decay * w)
            buffers[layer] = momentum * buffers[layer] + update
            moved = update + momentum * buffers[layer] if nesterov else buffers[layer]
            weights[layer] = w - lr * moved
    return weights


def lamb_in_fp64(correction: bool, clamp: tuple[float, float]) -> list[torch.Tensor]:
    lr, (b1, b2), eps = 0.1, (0.8, 0.95), 1e-6
    weights = [tensor.detach().double() for tensor in parameters()]
    m, v = ([torch.zeros_like(w) for w in weights] for _ in range(2))
    for step in range(STEPS):
        for layer, gradient in enumerate(gradients(step)):
            w, g, decay = weights[layer], gradient.double(), 0.01 if layer < 4 else 0.25
            m[layer] = b1 * m[layer] + (1 - b1) * g
            v[layer] = b2 * v[layer] + (1 - b2) * g * g
            one, two = (1 - b1 ** (step + 1), 1 - b2 ** (step + 1)) if correction else (1.0, 1.0)
            update = (m[layer] / one) / ((v[layer] / two).sqrt() + eps) + decay * w
            bounded = w.norm().clamp(*clamp)
            weights[layer] = w - lr * ratio_of(w.norm(), update.norm(), bounded / update.norm()) * update
    return weights


@pytest.mark.parametrize("nesterov", [False, True])
def test_lars_follows_the_formula(nesterov: bool) -> None:
    tensors = parameters()
    made = LARS(groups_of(tensors), 0.5, weight_decay=0.01, trust_coefficient=0.02, nesterov=nesterov)
    take_steps(made, tensors, range(STEPS))
    for tensor, expected in zip(tensors, lars_in_fp64(nesterov), strict=True):
        torch.testing.assert_close(tensor.detach().double(), expected, rtol=3e-6, atol=3e-6)


@pytest.mark.parametrize("clamp", [(0.0, math.inf), (0.5, 3.0)])
@pytest.mark.parametrize("correction", [False, True])
def test_lamb_follows_the_formula(correction: bool, clamp: tuple[float, float]) -> None:
    tensors = parameters()
    made = LAMB(groups_of(tensors), 0.1, betas=(0.8, 0.95), bias_correction=correction, clamp=clamp)
    take_steps(made, tensors, range(STEPS))
    for tensor, expected in zip(tensors, lamb_in_fp64(correction, clamp), strict=True):
        torch.testing.assert_close(tensor.detach().double(), expected, rtol=3e-5, atol=3e-5)


def lars(params: Any, **settings: Any) -> LARS:
    return LARS(params, 0.5, nesterov=True, **settings)


KINDS: list[Make] = [lars, LAMB]


@pytest.mark.parametrize("make", KINDS)
def test_foreach_changes_no_bit(make: Make) -> None:
    results = []
    for foreach in (False, True, None):
        tensors = parameters()
        take_steps(make(groups_of(tensors), foreach=foreach), tensors, range(STEPS))
        results.append(tensors)
    for one, two, three in zip(*results, strict=True):
        assert torch.equal(one, two)
        assert torch.equal(one, three)


@pytest.mark.parametrize("nesterov", [False, True])
@pytest.mark.parametrize("decay", [0.0, 0.01])
def test_without_adapt_it_is_sgd(nesterov: bool, decay: float) -> None:
    mine, theirs = parameters(), parameters()
    made = LARS(mine, 0.1, 0.9, decay, nesterov=nesterov, adapt=False)
    take_steps(made, mine, range(STEPS))
    sgd = torch.optim.SGD(theirs, 0.1, 0.9, weight_decay=decay, nesterov=nesterov)
    take_steps(sgd, theirs, range(STEPS))
    for one, other in zip(mine, theirs, strict=True):
        assert torch.equal(one, other)


@pytest.mark.parametrize("make", KINDS)
@pytest.mark.parametrize("way", ["state_dict", "deepcopy", "pickle"])
def test_copies_and_checkpoints_train_on_to_the_same_bits(make: Make, way: str) -> None:
    """A checkpoint or a copy after two steps leads to the same bits."""
    whole = parameters()
    take_steps(make(groups_of(whole)), whole, range(STEPS))
    tensors = parameters()
    first = make(groups_of(tensors))
    take_steps(first, tensors, range(2))
    if way == "state_dict":
        second = make(groups_of(tensors))
        second.load_state_dict(copy.deepcopy(first.state_dict()))
    else:
        second = copy.deepcopy(first) if way == "deepcopy" else pickle.loads(pickle.dumps(first))
        tensors = [parameter for group in second.param_groups for parameter in group["params"]]
    take_steps(second, tensors, range(2, STEPS))
    for one, other in zip(whole, tensors, strict=True):
        assert torch.equal(one, other)


@pytest.mark.parametrize("make", KINDS)
def test_a_layer_without_gradient_stays(make: Make) -> None:
    tensors = parameters()
    before = [tensor.detach().clone() for tensor in tensors]
    made = make(tensors)
    for index, gradient in enumerate(gradients(0)):
        tensors[index].grad = gradient if index % 2 else None
    made.step()
    assert [torch.equal(*pair) for pair in zip(tensors, before, strict=True)] == [True, False] * 3
    assert all(tensors[index] not in made.state for index in (0, 2, 4))


@pytest.mark.parametrize("make", KINDS)
def test_closure_and_scheduler(make: Make) -> None:
    weight = nn.Parameter(torch.ones(3))
    made = make([weight])
    scheduler = torch.optim.lr_scheduler.StepLR(made, 1)

    def closure() -> torch.Tensor:
        made.zero_grad()
        loss = weight.square().sum()
        loss.backward()
        return loss

    losses = []
    for _ in range(3):
        losses.append(made.step(closure).item())
        scheduler.step()
    assert losses[0] == 3.0
    assert losses[2] < losses[1] < losses[0]
    assert str(made.norms_report()) == "each rank computes all norms: there is one rank"


@pytest.mark.parametrize("make", KINDS)
def test_grad_scaler(make: Make) -> None:
    """Powers of two as scales change no bit, and a step with an infinite gradient is left out."""
    plain, scaled = nn.Parameter(torch.ones(5)), nn.Parameter(torch.ones(5))
    first, second = make([plain]), make([scaled])
    scaler = torch.amp.GradScaler("cpu", init_scale=1024.0)
    for step in range(3):
        values = torch.arange(5.0) + step
        first.zero_grad()
        (plain * values).sum().backward()
        first.step()
        for times in (values, values * math.inf) if step == 1 else (values,):
            second.zero_grad()
            scaler.scale((scaled * times).sum()).backward()
            scaler.step(second)
            scaler.update()
    assert torch.equal(plain, scaled)


@pytest.mark.parametrize(
    ("settings", "text"),
    [
        ({"lr": -1.0}, "lr is -1.0"),
        ({"weight_decay": math.nan}, "weight_decay is nan"),
        ({"momentum": 1.0}, "momentum is 1.0"),
        ({"nesterov": True, "momentum": 0.0}, "needs a momentum"),
        ({"trust_coefficient": 0.0}, "trust_coefficient is 0.0"),
        ({"adapt": 2}, "adapt is 2"),
        ({"foreach": "no"}, "foreach is 'no'"),
        ({"distributed_norms": "yes"}, "distributed_norms is 'yes'"),
        ({"distributed_norms": 1}, "distributed_norms is 1"),
        ({"process_set": 0}, "process_set must be"),
    ],
)
def test_bad_arguments_of_lars(settings: dict[str, Any], text: str) -> None:
    with pytest.raises(ValueError, match=text):
        LARS(parameters(), **{"lr": 0.1, **settings})


@pytest.mark.parametrize(
    ("settings", "text"),
    [({"betas": (0.9, 1.0)}, "beta is 1.0"), ({"clamp": (2.0, 1.0)}, "clamp is"), ({"eps": -1.0}, "eps is")],
)
def test_bad_arguments_of_lamb(settings: dict[str, Any], text: str) -> None:
    with pytest.raises(ValueError, match=text):
        LAMB(parameters(), **settings)


def test_a_bad_group_is_not_added() -> None:
    tensors = parameters()
    made = LARS(tensors[:2], 0.1)
    with pytest.raises(ValueError, match="adapt is 'no'"):
        made.add_param_group({"params": tensors[2:], "adapt": "no"})
    assert len(made.param_groups) == 1


@pytest.mark.parametrize("make", KINDS)
def test_parameters_and_gradients_that_it_refuses(make: Make) -> None:
    for dtype in (torch.float16, torch.bfloat16, torch.complex64):
        half = nn.Parameter(torch.ones(3, dtype=dtype))
        half.grad = torch.ones_like(half)
        with pytest.raises(
            ValueError, match=r"parameter 0 of group 0, shape \(3,\), is .* master_weights=True"
        ):
            make([half]).step()
    words = nn.Embedding(4, 2, sparse=True)
    words(torch.tensor([1])).sum().backward()
    made = make(words.parameters())
    with pytest.raises(ValueError, match="has a sparse gradient"):
        made.step()
    assert not made.state


def test_distributed_norms_need_init() -> None:
    tensors = parameters()
    with pytest.raises(ValueError, match=r"LARS\(distributed_norms=True\) needs hvd.init"):
        take_steps(LARS(tensors, 0.1, distributed_norms=True), tensors, range(1))


def test_shares_are_whole_and_even() -> None:
    sizes = [400, 8, 100, 100, 100, 100, 0, 8]
    divided = shares(sizes, 3)
    assert sorted(number for numbers in divided for number in numbers) == list(range(len(sizes)))
    assert divided[0] == [0]
    assert [sum(sizes[number] for number in numbers) for numbers in divided] == [400, 208, 208]
    assert shares([4], 3) == [[0], [], []]
    assert shares([], 2) == [[], []]


def test_norms_do_not_depend_on_the_list() -> None:
    generator = torch.Generator().manual_seed(5)
    tensors = [torch.randn(size, generator=generator) for size in (1, 100, 99_999, 300_000)]
    tensors += [tensors[2][::2], torch.randn(4, 8, 3, 3).to(memory_format=torch.channels_last)]
    tensors += [torch.randn(1000, dtype=torch.float64), torch.empty(0)]
    together = norms(tensors)
    assert together.dtype == torch.float64
    for number, tensor in enumerate(tensors):
        assert together[number] == norms([tensor])[0]
        torch.testing.assert_close(together[number], tensor.double().norm(), rtol=1e-5, atol=0.0)

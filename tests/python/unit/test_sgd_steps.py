"""SGD's step for a part of the elements has the bits of torch.optim.SGD; the other elements only decay."""

from __future__ import annotations

import copy
from itertools import pairwise
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from roundelay.torch._internal.gradients.pool_strides import pool_strides
from roundelay.torch.strategies import Bucket, Part, Sent
from roundelay.torch.strategies._lossy.sgd_steps import (
    DECAY_KEY,
    Elements,
    check_group,
    hide_gradients,
    local_step,
    masked_step,
    runs_of,
    sent_elements,
    show_gradients,
    within,
)

SETTINGS: list[dict[str, Any]] = [
    {"lr": 0.1},
    {"lr": 0.1, "momentum": 0.9},
    {"lr": 0.05, "momentum": 0.9, "weight_decay": 0.01},
    {"lr": 0.05, "momentum": 0.9, "weight_decay": 0.01, "nesterov": True},
    {"lr": 0.05, "momentum": 0.5, "weight_decay": 0.01, "maximize": True},
    {"lr": torch.tensor(0.1), "momentum": 0.9},
]


def parameters() -> list[torch.nn.Parameter]:
    """Of several strides: one is not dense, one is channels_last, one is a view of a part."""
    torch.manual_seed(3)
    tensors = [
        torch.randn(37),
        torch.randn(5, 7).t(),
        torch.randn(2, 3, 4, 5).to(memory_format=torch.channels_last),
        torch.randn(6, 9)[:, 1:8],
        torch.randn(1, 4, 1),
    ]
    return [torch.nn.Parameter(tensor) for tensor in tensors]


def clones(of: list[torch.nn.Parameter]) -> list[torch.nn.Parameter]:
    """Copies with the same strides, also where these leave gaps."""
    made = []
    for one in of:
        base = torch.empty_strided((one.untyped_storage().nbytes() // 4,), (1,))
        base.copy_(one.detach().as_strided((base.numel(),), (1,), 0))
        view = base.as_strided(one.shape, one.stride(), one.storage_offset())
        made.append(torch.nn.Parameter(view))
    return made


def same_bits(one: torch.Tensor, other: torch.Tensor) -> bool:
    return torch.equal(one.contiguous().view(torch.int32), other.contiguous().view(torch.int32))


def in_pool_order(mask: torch.Tensor, parameter: torch.Tensor) -> torch.Tensor:
    """Returns a flat mask as one of the parameter's shape."""
    return mask.as_strided(parameter.shape, pool_strides(parameter))


def runs(mask: torch.Tensor) -> list[range]:
    found: list[range] = []
    for index in mask.nonzero().flatten().tolist():
        if found and found[-1].stop == index:
            found[-1] = range(found[-1].start, index + 1)
        else:
            found.append(range(index, index + 1))
    return found


def momentum_of(optimizer: torch.optim.SGD, parameter: torch.Tensor, key: str = "momentum_buffer") -> Any:
    buffer: torch.Tensor | None = optimizer.state[parameter].get(key)
    return torch.zeros_like(parameter) if buffer is None else buffer


def decayed(
    plain: torch.optim.SGD, of: torch.Tensor, decay: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor]:
    """The weights and the momentum of decay after SGD's step with a gradient of zeros."""
    weights = torch.nn.Parameter(of.detach().clone())
    weights.grad = torch.zeros_like(weights)
    alone = torch.optim.SGD([{**plain.param_groups[0], "params": [weights]}])
    alone.state[weights]["momentum_buffer"] = decay.clone()
    alone.step()
    return weights.detach(), alone.state[weights]["momentum_buffer"]


@pytest.mark.parametrize("foreach", [None, False, True])
@pytest.mark.parametrize("settings", SETTINGS, ids=str)
def test_what_was_sent_moves_as_with_sgd_and_the_rest_decays(
    settings: dict[str, Any], foreach: bool | None
) -> None:
    ours = parameters()
    theirs = clones(ours)
    masked = torch.optim.SGD(ours, **settings, foreach=foreach)
    plain = torch.optim.SGD(theirs, **settings, foreach=foreach)
    decays = [torch.zeros_like(one) for one in theirs]
    for step in range(6):
        part = (1.0, 0.5, 0.5, 0.0, 1.0, 0.3)[step]
        masks = [torch.rand(one.numel()) < part for one in ours]
        wholes = [in_pool_order(mask, one) for mask, one in zip(masks, ours, strict=True)]
        rest = [decayed(plain, *each) for each in zip(theirs, decays, strict=True)]
        before = [momentum_of(plain, one).clone() for one in theirs]
        for our, their in zip(ours, theirs, strict=True):
            gradient = torch.randn(our.shape)
            our.grad, their.grad = gradient.clone(), gradient.clone()
        plain.step()
        for index, (their, whole) in enumerate(zip(theirs, wholes, strict=True)):
            weights, decay = rest[index]
            waiting = (before[index] - decays[index]) + decay
            their.data.copy_(torch.where(whole, their, weights))
            momentum_of(plain, their).copy_(torch.where(whole, momentum_of(plain, their), waiting))
            decays[index] = decay
        elements: dict[torch.Tensor, Elements] = {
            one: Elements(pool_strides(one), runs(mask)) for one, mask in zip(ours, masks, strict=True)
        }
        gradients = [one.grad for one in ours]
        taken = hide_gradients(masked, elements.keys())
        assert all(one.grad is None for one in ours)
        masked.step()
        show_gradients(taken)
        masked_step(masked, elements)
        assert all(one.grad is gradient for one, gradient in zip(ours, gradients, strict=True))
        for our, their, decay in zip(ours, theirs, decays, strict=True):
            assert same_bits(our, their)
            if settings.get("momentum"):
                assert same_bits(momentum_of(masked, our), momentum_of(plain, their))
                assert same_bits(momentum_of(masked, our, DECAY_KEY), decay)
    decaying = bool(settings.get("momentum") and settings.get("weight_decay"))
    assert all((DECAY_KEY in masked.state.get(one, {})) == decaying for one in ours)


def test_other_parameters_are_left_to_the_optimizer() -> None:
    ours = parameters()
    optimizer = torch.optim.SGD(ours, lr=1.0, momentum=0.9)
    for one in ours:
        one.grad = torch.ones(one.shape)
    ours[2].grad = None
    before = [one.detach().clone() for one in ours]
    elements: dict[torch.Tensor, Elements] = {
        ours[1]: Elements(pool_strides(ours[1]), []),
        ours[2]: Elements((1,), [range(3)]),
    }
    taken = hide_gradients(optimizer, elements.keys())
    assert [id(parameter) for parameter, _ in taken] == [id(ours[1])]
    optimizer.step()
    show_gradients(taken)
    masked_step(optimizer, elements)
    moved = [not torch.equal(one, old) for one, old in zip(ours, before, strict=True)]
    assert moved == [True, False, False, True, True]


def test_tensors_that_the_optimizer_does_not_have_are_an_error() -> None:
    ours = parameters()
    optimizer = torch.optim.SGD(ours[:2], lr=1.0)
    with pytest.raises(ValueError, match="other tensors than those whose gradients were sent in part"):
        hide_gradients(optimizer, {ours[2]})
    with pytest.raises(ValueError, match="give the strategy momentum=None"):
        hide_gradients(optimizer, {ours[0], ours[3]})


@pytest.mark.parametrize("foreach", [False, True])
def test_gradients_with_their_momentum_are_applied_without_more(foreach: bool) -> None:
    ours = parameters()
    theirs = clones(ours)
    optimizer = torch.optim.SGD(ours, lr=0.1, momentum=0.9, nesterov=True, foreach=foreach)
    plain = torch.optim.SGD(theirs, lr=0.1, foreach=foreach)
    handled = set(ours[:3])
    for _ in range(3):
        for our, their in zip(ours, theirs, strict=True):
            our.grad = torch.randn(our.shape)
            their.grad = our.grad.clone()
        taken = hide_gradients(optimizer, handled)
        optimizer.step()
        show_gradients(taken)
        local_step(optimizer, handled)
        plain.step()
    assert all(map(same_bits, ours[:3], theirs[:3]))
    assert not any(map(same_bits, ours[3:], theirs[3:]))
    assert {id(one) for one in optimizer.state} == {id(one) for one in ours[3:]}  # no buffer without decay
    copy.deepcopy(optimizer).load_state_dict(optimizer.state_dict())


@pytest.mark.parametrize("nesterov", [False, True])
def test_momentum_of_earlier_steps_goes_on_until_nothing_of_it_is_left(nesterov: bool) -> None:
    """What would be left are subnormal numbers, with which a processor is many times as slow."""
    ours = parameters()
    theirs = clones(ours)
    settings: dict[str, Any] = {"lr": 0.1, "momentum": 0.9, "nesterov": nesterov}
    optimizer, plain = torch.optim.SGD(ours, **settings), torch.optim.SGD(theirs, **settings)
    for step in range(1200):
        dense = step in (0, 100)  # a later gradient: its momentum goes on as long as the first one's
        for our, their in zip(ours, theirs, strict=True):
            our.grad = torch.full(our.shape, float(dense))
            their.grad = our.grad.clone()
        handled = set() if dense else set(ours)
        taken = hide_gradients(optimizer, handled)
        optimizer.step()
        show_gradients(taken)
        local_step(optimizer, handled)
        plain.step()
        has_momentum = [optimizer.state[one].get("momentum_buffer") is not None for one in ours]
        assert has_momentum == [step < 100 + 165] * len(ours)  # 0.9 ** 165 < 2 ** -25 < 0.9 ** 164
    for our, their in zip(ours, theirs, strict=True):
        torch.testing.assert_close(our, their)
    assert not any(optimizer.state.values())


def test_momentum_of_decay_stays() -> None:
    ours = parameters()
    optimizer = torch.optim.SGD(ours, lr=0.1, momentum=0.1, weight_decay=0.01)
    for _ in range(60):  # 0.1 ** 26 is nothing
        for one in ours:
            one.grad = torch.zeros(one.shape)
        taken = hide_gradients(optimizer, set(ours))
        optimizer.step()
        show_gradients(taken)
        local_step(optimizer, set(ours))
    assert all(optimizer.state[one]["momentum_buffer"].any() for one in ours)
    optimizer.param_groups[0]["weight_decay"] = 0.0
    for _ in range(26):
        local_step(optimizer, set(ours))
    assert not any(optimizer.state.values())


@given(
    st.integers(1, 9),
    st.sets(st.integers(0, 12)),
    st.lists(st.tuples(st.integers(0, 4), st.integers(1, 20)), min_size=1, max_size=6),
)
def test_ranges_are_the_sent_elements_of_each_parameter(
    chunk: int, chunks: set[int], places: list[tuple[int, int]]
) -> None:
    """places: padding before each parameter, and its elements."""
    ranges, end = [], 0
    for padding, count in places:
        ranges.append(range(end + padding, end + padding + count))
        end += padding + count
    numbers = torch.tensor(sorted(chunks), dtype=torch.int32)
    part = Part(chunk, numbers, [0])
    for place in ranges:
        sent = {index - place.start for index in place if index // chunk in chunks}
        found = within(runs_of(part), place)
        assert [index for one in found for index in one] == sorted(sent)
        assert all(later.start > earlier.stop for earlier, later in pairwise(found))
    tensors = [torch.nn.Parameter(torch.zeros(len(place))) for place in ranges]
    cpu = torch.device("cpu")
    names = tuple(map(str, range(len(ranges))))
    bucket = Bucket(0, "bucket", 4 * end, torch.float32, cpu, names, 0, tuple(ranges))
    of = sent_elements([Sent(bucket, tuple(tensors), part), Sent(bucket, tuple(tensors), None)])
    assert tensors[0] not in of  # it went densely
    for tensor, place in zip(tensors[1:], ranges[1:], strict=True):
        whole = all(index // chunk in chunks for index in place)
        assert (tensor not in of) == whole


@pytest.mark.parametrize("wrong", [{"fused": True}, {"differentiable": True}, {"dampening": 0.5}])
def test_settings_that_the_steps_lack_are_refused(wrong: dict[str, Any]) -> None:
    (key,) = wrong
    optimizer = torch.optim.SGD(parameters(), lr=0.1, momentum=0.9, **wrong)
    with pytest.raises(ValueError, match=f"with {key}=.*momentum=None"):
        check_group(optimizer.param_groups[0], "csc:keep=0.1")
    check_group(torch.optim.SGD(parameters(), lr=0.1, dampening=0.5).param_groups[0], "csc")

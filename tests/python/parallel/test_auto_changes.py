"""Auto goes from one lossy technique to another: the flush in between is stepped as for the first one."""

from __future__ import annotations

from unittest import mock

import torch

import roundelay.torch as hvd
from ranks import Check, run_check
from roundelay.torch.strategies._auto.plans import Plans


def test_auto_changes(check: Check) -> None:
    run_check(check, 2)


def _after_a_change(old: str, new: str | None) -> tuple[torch.Tensor, torch.Tensor]:
    """Returns the weights and the momentum when the buckets have got another lossy technique; None: dense."""
    auto = hvd.strategies.Auto((old,) if new is None else (old, new), trial_steps=1)
    weight = torch.nn.Parameter(torch.ones(64, 16))
    optimizer = torch.optim.SGD([weight], lr=0.1, momentum=0.9, weight_decay=0.01)
    hvd.DistributedOptimizer(optimizer, [("weight", weight)], strategy=auto)
    plans, gradients = auto.choices, torch.Generator().manual_seed(hvd.rank())
    assert isinstance(plans, Plans)
    want = plans.want
    with mock.patch.object(plans, "want"):  # the search says nothing
        for number, until in ((None, 6), (1, 12), (2 if new is not None else 0, 24)):
            for step in range(until):
                if number is not None and step == 0 and hvd.rank() == 0:
                    want((number,), False)
                optimizer.zero_grad()
                (weight * torch.rand(64, 16, generator=gradients)).sum().backward()
                optimizer.step()
                if until == 24 and auto.plan == (number,) and plans.since is not None:
                    return weight.detach(), optimizer.state[weight]["momentum_buffer"]
    raise AssertionError(f"no change from {old} to {new}: {auto.plan}")


def check_a_flush_is_stepped_as_the_technique_that_kept_it() -> None:
    kinds = ["csc:keep=0.2,chunk_elements=16,dense_below=0", "topk:density=0.1,dense_below=0"]
    kinds += [f"{one},momentum={other}" for one, other in zip(kinds, ("local", "none"), strict=True)]
    for old in kinds:
        weight, momentum = _after_a_change(old, None)
        for new in (one for one in (*kinds, "power_sgd:rank=1,dense_below=0", "quantised") if one != old):
            for ours, theirs in zip(_after_a_change(old, new), (weight, momentum), strict=True):
                assert torch.equal(ours, theirs), (old, new, (ours - theirs).abs().max())

"""LARS and LAMB on several ranks: both ways have the same bits, and all ranks get the same errors."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn

import roundelay.torch as hvd
from random_values import normal
from ranks import Check, needs_ranks, run_check
from roundelay import _core
from roundelay.errors import HorovodInternalError, MismatchError
from roundelay.torch.optim import LAMB, LARS, NormsReport
from roundelay.torch.optim.trial import PAIRS

TRIAL_STEPS = 1 + 2 * PAIRS
WORLD = hvd.global_process_set
Model = Any  # nn.Sequential, whose items mypy takes for modules or tensors


@pytest.mark.parametrize("np", [1, 2, pytest.param(4, marks=pytest.mark.nightly)])
def test_optim(np: int, check: Check) -> None:
    run_check(check, np)


def make_model(dtype: torch.dtype = torch.float32) -> Model:
    torch.manual_seed(3)
    return nn.Sequential(nn.Linear(6, 40), nn.LayerNorm(40), nn.Tanh(), nn.Linear(40, 3)).to(dtype)


def groups_of(model: Model) -> list[dict[str, Any]]:
    tensors = list(model.parameters())
    return [
        {"params": [one for one in tensors if one.dim() > 1]},
        {"params": [one for one in tensors if one.dim() == 1], "adapt": False, "weight_decay": 0.0},
    ]


def lars(params: Any, **settings: Any) -> LARS:
    return LARS(params, 0.5, **settings)


KINDS: list[Callable[..., Any]] = [lars, LAMB]


def train(model: Model, optimizer: Any, steps: int, ranks: hvd.ProcessSet = WORLD) -> None:
    """Each rank has its own data."""
    generator = torch.Generator().manual_seed(ranks.rank())
    for _ in range(steps):
        optimizer.zero_grad()
        dtype = next(model.parameters()).dtype
        model(normal(generator, 4, 6).to(dtype)).float().square().mean().backward()
        optimizer.step()


def trained(
    make: Callable[..., Any], mode: str | bool, steps: int = 4, **settings: Any
) -> tuple[list[torch.Tensor], NormsReport]:
    model = make_model()
    optimizer = hvd.DistributedOptimizer(make(groups_of(model), distributed_norms=mode, **settings))
    train(model, optimizer, steps)
    return list(model.parameters()), optimizer.norms_report()


def check_both_ways_have_the_same_bits() -> None:
    alone = hvd.size() == 1
    for make in KINDS:
        for steps in (4, TRIAL_STEPS + 2):
            local, report = trained(make, False, steps)
            assert report.shared is False
            shared, report = trained(make, True, steps)
            assert report.shared is not alone
            auto, report = trained(make, "auto", steps)
            for one, two, three in zip(local, shared, auto, strict=True):
                assert torch.equal(one, two)
                assert torch.equal(one, three)
            if not alone:
                assert (report.shared is None) == (steps == 4)
    if alone:
        return
    assert report.local_seconds is not None
    assert report.shared_seconds is not None
    assert report.shared == (report.shared_seconds < report.local_seconds)
    everyone = hvd.allgather_object(report)
    assert all(one == report for one in everyone)


@needs_ranks(2)
def check_a_step_has_one_operation_and_the_cache_knows_it() -> None:
    tensors = [nn.Parameter(torch.ones(5 + index)) for index in range(9)]
    optimizer = LARS(tensors, 0.5, distributed_norms=True)

    def step() -> dict[str, int]:
        before = hvd.stats()
        for tensor in tensors:
            tensor.grad = torch.ones_like(tensor)
        optimizer.step()
        after = hvd.stats()
        return {name: after[name] - before[name] for name in ("operations", "full_requests", "bytes")}

    for _ in range(3):
        step()
    found = step()
    assert found["operations"] == 1
    assert found["full_requests"] == 0
    assert found["bytes"] <= 8 * (9 + hvd.size())


def check_a_layer_without_gradient() -> None:
    """No rank has one for this layer, in some steps."""
    for make in KINDS:
        results = []
        for mode in (False, True):
            model = make_model()
            head = nn.Parameter(torch.full((50, 3), 2.0))
            optimizer = hvd.DistributedOptimizer(make([*model.parameters(), head], distributed_norms=mode))
            train(model, optimizer, 2)
            assert bool((head == 2.0).all())
            optimizer.zero_grad()
            (model(torch.ones(2, 6)) @ head[:3]).sum().backward()
            optimizer.step()
            train(model, optimizer, 1)
            results.append([*model.parameters(), head])
        assert all(torch.equal(*pair) for pair in zip(*results, strict=True))


def check_new_groups_and_checkpoints() -> None:
    """The ranks agree on other layers anew, and a loaded state goes on with the same bits."""
    results = []
    for mode in (False, True):
        model, more = make_model(), make_model()
        optimizer: Any = hvd.DistributedOptimizer(lars(groups_of(model), distributed_norms=mode))
        train(model, optimizer, 2)
        optimizer.add_param_group({"params": more.parameters(), "trust_coefficient": 0.1})
        both = nn.Sequential(model, nn.Linear(3, 6, bias=False).requires_grad_(False), more)
        train(both, optimizer, 2)
        other: Any = lars(optimizer.param_groups, distributed_norms=mode)
        other.load_state_dict(copy.deepcopy(optimizer.state_dict()))
        train(both, hvd.DistributedOptimizer(other), 2)
        hvd.broadcast_optimizer_state(other, 0)
        results.append(list(both.parameters()))
    assert all(torch.equal(*pair) for pair in zip(*results, strict=True))


def check_masters() -> None:
    half = make_model(torch.bfloat16)
    train(
        half,
        hvd.DistributedOptimizer(LAMB(half.parameters(), distributed_norms=True), master_weights=True),
        3,
    )
    assert hvd.allgather_object(half.state_dict())[0]["0.weight"].equal(half[0].weight)
    bare = make_model(torch.bfloat16)
    with pytest.raises(ValueError, match="master_weights=True"):
        train(bare, hvd.DistributedOptimizer(LAMB(bare.parameters(), distributed_norms=True)), 1)


def check_closure() -> None:
    model = make_model()
    optimizer = hvd.DistributedOptimizer(LARS(model.parameters(), 0.5, distributed_norms=True))

    def closure() -> torch.Tensor:
        optimizer.zero_grad()
        loss: torch.Tensor = model(torch.ones(2, 6) + hvd.rank()).square().mean()
        loss.backward()
        return loss

    first = optimizer.step(closure).item()
    assert [optimizer.step(closure).item() for _ in range(9)][-1] < first
    assert len({tuple(one.flatten().tolist()) for one in hvd.allgather_object(model[0].weight.detach())}) == 1


def check_grad_scaler() -> None:
    model = make_model()
    optimizer = hvd.DistributedOptimizer(LARS(model.parameters(), 0.5, distributed_norms=True))
    scaler = torch.amp.GradScaler("cpu", init_scale=256.0)
    for step in range(4):
        before = model[0].weight.detach().clone()
        optimizer.zero_grad()
        infinite = step == 2 and hvd.rank() == 0
        loss = model(torch.ones(2, 6)).sum() * (float("inf") if infinite else 1.0)
        scaler.scale(loss).backward()
        scaler.step(optimizer)
        scaler.update()
        assert torch.equal(model[0].weight, before) == (step == 2)


def raised(optimizer: Any, tensors: list[nn.Parameter], grads: list[torch.Tensor | None]) -> Exception:
    for tensor, gradient in zip(tensors, grads, strict=True):
        tensor.grad = gradient
    with pytest.raises((ValueError, RuntimeError)) as caught:
        optimizer.step()
    return caught.value


def same_text(error: Exception) -> str:
    texts: list[str] = hvd.allgather_object(str(error))
    assert len(set(texts)) == 1, texts
    return texts[0]


@needs_ranks(2)
def check_other_arguments() -> None:
    last = hvd.rank() == hvd.size() - 1
    cases: list[tuple[dict[str, Any], str]] = [
        ({"distributed_norms": False}, "distributed_norms is True on rank 0 and False on rank "),
        ({"momentum": 0.5}, "momentum of group 0 is 0.9 on rank 0 and 0.5 on rank "),
        ({"lr": 0.25}, "lr of group 0 is 0.5 on rank 0 and 0.25 on rank "),
    ]
    for other, text in cases:
        tensor = nn.Parameter(torch.ones(4))
        settings = {"lr": 0.5, "distributed_norms": True, **(other if last else {})}
        optimizer = LARS([tensor], **settings)
        error = raised(optimizer, [tensor], [torch.ones(4)])
        assert isinstance(error, MismatchError)
        assert text in same_text(error)
        assert bool((tensor == 1.0).all())
    tensors = [nn.Parameter(torch.ones(4 + last))]
    error = raised(LAMB(tensors), tensors, [torch.ones(4 + last)])
    assert "parameter 'noname.0.0' of group 0 is torch.float32 of shape (4,)" in same_text(error)


@needs_ranks(2)
def check_a_step_that_fails_changes_nothing() -> None:
    for make in KINDS:
        for steps in (0, 2):
            tensors = [nn.Parameter(torch.ones(4)), nn.Parameter(torch.ones(3))]
            optimizer = make(tensors, distributed_norms=True)
            whole: list[torch.Tensor | None] = [torch.full((4,), 2.0), torch.ones(3)]
            for _ in range(steps):
                for tensor, gradient in zip(tensors, whole, strict=True):
                    tensor.grad = gradient
                optimizer.step()
            before = copy.deepcopy((tensors, optimizer.state_dict()))
            error = raised(optimizer, tensors, [torch.ones(4), None] if hvd.rank() == 1 else whole)
            assert isinstance(error, MismatchError)
            torch.testing.assert_close((tensors, optimizer.state_dict()), before, rtol=0.0, atol=0.0)


@needs_ranks(2)
def check_other_gradients() -> None:
    """In the first step and in a later one; afterwards the job goes on."""
    for mode, first in (("auto", True), (True, True), (True, False)):
        tensors = [nn.Parameter(torch.ones(4)), nn.Parameter(torch.ones(3))]
        optimizer = LARS(tensors, 0.5, distributed_norms=mode)
        whole: list[torch.Tensor | None] = [torch.ones(4), torch.ones(3)]
        if not first:
            for _ in range(2):
                for tensor, gradient in zip(tensors, whole, strict=True):
                    tensor.grad = gradient
                optimizer.step()
        error = raised(optimizer, tensors, [torch.ones(4), None] if hvd.rank() == 1 else whole)
        assert "rank 0 has a gradient for layer 'noname.0.1', rank 1 has none" in same_text(error)
        for tensor in tensors:
            tensor.grad = torch.ones_like(tensor)
        optimizer.step()
    unequal = nn.Parameter(torch.ones(4))
    mine = [torch.full((4,), 1.0 + hvd.rank())]
    text = same_text(raised(LARS([unequal], 0.5, distributed_norms=True), [unequal], [*mine]))
    assert "rank 1 has other trust ratios than rank 0" in text
    local = LARS([unequal], 0.5, distributed_norms="auto")
    local.step()
    assert local.norms_report() == NormsReport(False, "rank 1 has other trust ratios than rank 0")


@needs_ranks(2)
def check_one_rank_has_a_bad_gradient() -> None:
    """The ranks that wait for this one get its error: in the first step, a later one, and a measured one."""
    for mode, steps in ((True, 0), (True, 2), ("auto", 1), ("auto", 2)):
        tensor = nn.Parameter(torch.ones(4, 2))
        optimizer = LARS([tensor], 0.5, distributed_norms=mode)
        for _ in range(steps):
            tensor.grad = torch.ones(4, 2)
            optimizer.step()
        bad = hvd.rank() == 1
        error = raised(optimizer, [tensor], [torch.ones(4, 2).to_sparse() if bad else torch.ones(4, 2)])
        assert isinstance(error, ValueError if bad else HorovodInternalError)
        assert "has a sparse gradient" in str(error)


@needs_ranks(2)
def check_process_sets() -> None:
    """A set's ranks share among themselves; elsewhere the optimizer works alone."""
    ranks = [0, 1] if hvd.size() > 2 else [1]
    some = hvd.add_process_set(ranks)
    model = make_model()
    made = LARS(model.parameters(), 0.5, distributed_norms=True, process_set=some)
    optimizer = hvd.DistributedOptimizer(made, process_set=some)
    if some.included():
        train(model, optimizer, 3, some)
        assert made.norms_report().shared is (len(ranks) > 1)
    else:
        train(model, optimizer, 3)
        assert str(made.norms_report()) == "each rank computes all norms: there is one rank"
    hvd.barrier()
    hvd.remove_process_set(some)


def check_join() -> None:
    """Ranks that have joined bring no ratios; afterwards all agree anew."""
    for mode in (True, "auto"):
        model = make_model()
        optimizer = hvd.DistributedOptimizer(lars(model.parameters(), distributed_norms=mode))
        train(model, optimizer, 3)
        if hvd.rank() == 0:
            train(model, optimizer, 3)
        hvd.join()
        hvd.broadcast_parameters(model.state_dict(), 0)
        hvd.broadcast_optimizer_state(optimizer, 0)
        train(model, optimizer, TRIAL_STEPS + 1)
        assert optimizer.norms_report().shared is not None
        everyone = hvd.allgather_object(model[0].weight.detach())
        assert all(torch.equal(one, everyone[0]) for one in everyone)


def check_init_again() -> None:
    model = make_model()
    optimizer = hvd.DistributedOptimizer(lars(model.parameters(), distributed_norms=True))
    train(model, optimizer, 2)
    hvd.shutdown()
    hvd.init()
    train(model, optimizer, 2)
    assert optimizer.norms_report().shared is (hvd.size() > 1)
    assert _core.size() == hvd.size()

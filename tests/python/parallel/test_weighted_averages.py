"""DistributedOptimizer(weight=): averages over samples. Nearly all checks have exact numbers."""

from __future__ import annotations

import gc
import math
import weakref
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch.utils.data import DataLoader, TensorDataset

import roundelay.torch as hvd
from ranks import Check, needs_ranks, run_check
from roundelay.errors import HorovodInternalError
from small_gradients import add_gradients, gradient_of, make_parameters, use_pool
from some_ranks import process_set_of
from weights import uneven, values, weighted_mean

Parameters = list[torch.nn.Parameter]


@pytest.mark.parametrize("np", [2, 4])
def test_weighted_averages(np: int, check: Check) -> None:
    run_check(check, np)


def _weighted(
    parameters: Parameters, weight: Callable[[], Any], pooled: bool, lr: float = 1.0, **arguments: Any
) -> torch.optim.SGD:
    plain = torch.optim.SGD(parameters, lr=lr)
    optimizer = hvd.DistributedOptimizer(plain, weight=weight, **arguments)
    if pooled:
        use_pool(optimizer, arguments.get("backward_passes_per_step", 1))
    return optimizer


def _the(now: list[Callable[[], Any]]) -> Callable[[], Any]:
    return lambda: now[0]()


class _Weight:
    """Returns ``now``, and counts the calls."""

    def __init__(self, now: float) -> None:
        self.now, self.calls = now, 0
        self.optimizer: Any = None

    def __call__(self) -> float:
        self.calls += 1
        return self.now


def _data(rank: int) -> TensorDataset:
    """13 samples on rank 0, 9 on the others: multiples of 12, whose means over 1 to 4 are exact."""
    samples = 13 if rank == 0 else 9
    chance = torch.Generator("cpu").manual_seed(rank)
    return TensorDataset(12.0 * torch.randint(-40, 41, (samples, 5), generator=chance))


def _batches(rank: int) -> DataLoader[Any]:
    return DataLoader(_data(rank), batch_size=4)


def check_uneven_batches_train_as_one_process() -> None:
    """The last batch of each rank has one sample, and rank 0 goes on for a step longer than the others."""
    model = torch.nn.Linear(5, 1)
    torch.nn.init.zeros_(model.weight)
    torch.nn.init.zeros_(model.bias)
    samples = _Weight(4)
    optimizer = _weighted(list(model.parameters()), samples, True, lr=2.0**-4)
    for _ in range(2):
        with hvd.join_context(optimizer) as context:
            for (batch,) in _batches(hvd.rank()):
                samples.now = len(batch)
                optimizer.zero_grad()
                model(batch).mean().backward()
                optimizer.step()
        assert context.last_rank == 0
        hvd.broadcast_parameters(model.state_dict(), root_rank=0)

    expected = torch.zeros(5)
    every = [list(_batches(rank)) for rank in range(hvd.size())]
    for _ in range(2):
        for step in range(len(every[0])):
            whole = torch.cat([batches[step][0] for batches in every if step < len(batches)])
            expected -= 2.0**-4 * whole.mean(0)
    assert torch.allclose(model.weight[0], expected, rtol=0, atol=2.0**-18)
    assert len({str(one) for one in hvd.allgather_object(model.weight.tolist())}) == 1


def check_every_path_of_a_gradient() -> None:
    """Alone, in a user's group, in a bucket, in a bucket of another type; with an unused one."""
    own, weights = hvd.rank(), uneven()
    expected = weighted_mean()
    for pooled in (False, True):
        for arguments in (
            {},
            {"groups": 1},
            {"compression": hvd.Compression.bf16},
            {"strategy": "allreduce:algorithm=ring"},
            {"gradient_predivide_factor": 2.0},
        ):
            weight = _Weight(8.0)
            used, seldom = make_parameters(2)
            optimizer: Any = _weighted(
                [used, seldom], weight, pooled and "groups" not in arguments, **arguments
            )
            for step in range(6):
                weight.now = weights[own] if step % 2 else 8.0
                mean = expected if step % 2 else sum(values()) / hvd.size()
                optimizer.zero_grad()
                factors = [(used, values()[own])]
                if step != 3 or own == 0:  # rank 0 alone has it in step 3, and its samples count all the same
                    factors.append((seldom, values()[own]))
                add_gradients(*factors)
                assert gradient_of(used) == [mean] * 3, (pooled, arguments, step)
                alone = values()[0] * weights[0] / sum(weights)
                assert gradient_of(seldom) == [alone if step == 3 else mean] * 3, (pooled, arguments, step)
                optimizer.step()


def check_equal_weights_have_the_bits_of_a_plain_average() -> None:
    results = []
    for weight in (None, lambda: 7):
        torch.manual_seed(hvd.rank())
        parameters = make_parameters(3, 100)
        optimizer = hvd.DistributedOptimizer(torch.optim.SGD(parameters, lr=1.0), weight=weight)
        for _ in range(6):
            optimizer.zero_grad()
            torch.stack([(p * torch.randn(100)).sum() for p in parameters]).sum().backward()
            optimizer.step()
        results.append([p.detach().clone() for p in parameters])
    assert all(map(torch.equal, *results))


def check_random_numbers_are_near_one_process() -> None:
    torch.manual_seed(1)
    sizes = [3 + 2 * rank for rank in range(hvd.size())]
    data = torch.randn(sum(sizes), 6)
    models = [
        torch.nn.Sequential(torch.nn.Linear(6, 8), torch.nn.Tanh(), torch.nn.Linear(8, 1)) for _ in "ab"
    ]
    models[1].load_state_dict(models[0].state_dict())
    alone = torch.optim.SGD(models[0].parameters(), lr=0.1)
    optimizer = _weighted(list(models[1].parameters()), lambda: sizes[hvd.rank()], False, lr=0.1)
    mine = data.split(sizes)[hvd.rank()]
    for _ in range(5):
        for model, batch, one in ((models[0], data, alone), (models[1], mine, optimizer)):
            one.zero_grad()
            model(batch).square().mean().backward()
        for a, b in zip(models[0].parameters(), models[1].parameters(), strict=True):
            assert a.grad is not None
            assert b.grad is not None
            torch.testing.assert_close(a.grad, b.grad, rtol=2e-6, atol=2e-7)
        alone.step()
        optimizer.step()


def check_a_window_has_one_weight() -> None:
    """The function tells the samples of the whole window, once."""
    own, weights = hvd.rank(), uneven()
    for pooled in (False, True):
        weight = _Weight(weights[own])
        (parameter,) = make_parameters(1)
        optimizer: Any = _weighted([parameter], weight, pooled, backward_passes_per_step=2)
        for inside in (False, True):
            optimizer.zero_grad()
            weight.calls = 0
            if inside:
                with optimizer.no_sync():
                    add_gradients((parameter, 3.0 * values()[own]))
            else:
                add_gradients((parameter, 3.0 * values()[own]))
            assert weight.calls == 0
            add_gradients((parameter, values()[own]))
            assert gradient_of(parameter) == [4.0 * weighted_mean()] * 3
            assert weight.calls == 1
            optimizer.step()


def check_each_backward_before_a_step_has_its_weight() -> None:
    own, weights = hvd.rank(), uneven()
    for pooled in (False, True):
        weight = _Weight(4.0)
        (parameter,) = make_parameters(1)
        optimizer: Any = _weighted([parameter], weight, pooled)
        for _ in range(3):
            optimizer.zero_grad()
            weight.now = weights[own]
            add_gradients((parameter, values()[own]))
            weight.now = 4.0
            add_gradients((parameter, values()[own]))
            assert gradient_of(parameter) == [weighted_mean() + sum(values()) / hvd.size()] * 3
            optimizer.step()


def check_heavier_steps_while_a_rank_has_joined() -> None:
    """The unit of the others has changed when that rank comes back."""
    own = hvd.rank()
    (parameter,) = make_parameters(1)
    weight = _Weight(1.0)
    optimizer: Any = _weighted([parameter], weight, True)
    with hvd.join_context(optimizer):
        for step in range(3 if own < hvd.size() - 1 else 1):
            weight.now = 4.0 * (step + 1)
            optimizer.zero_grad()
            add_gradients((parameter, 8.0))
            assert gradient_of(parameter) == [8.0] * 3
            optimizer.step()
    weights = uneven()
    weight.now = weights[own]
    for _ in range(2):
        optimizer.zero_grad()
        add_gradients((parameter, values()[own]))
        assert gradient_of(parameter) == [weighted_mean()] * 3
        optimizer.step()


def check_half_wires_overflow_as_little_as_plain_averages() -> None:
    for pooled in (False, True):
        weight = _Weight(1000.0)
        (parameter,) = make_parameters(1)
        optimizer: Any = _weighted([parameter], weight, pooled, compression=hvd.Compression.fp16)
        for _ in range(2):
            optimizer.zero_grad()
            add_gradients((parameter, 16000.0))
            assert gradient_of(parameter) == [16000.0] * 3
            optimizer.step()


def check_masters_and_grad_scaler() -> None:
    own, weights = hvd.rank(), uneven()
    parameter = torch.nn.Parameter(torch.zeros(3, dtype=torch.bfloat16))
    weight = _Weight(weights[own])
    optimizer: Any = _weighted([parameter], weight, False, master_weights=True)
    scaler = torch.amp.GradScaler("cpu", init_scale=16.0)
    for step in range(5):
        optimizer.zero_grad()
        infinite = step == 3 and own == 0
        scaler.scale((parameter * (math.inf if infinite else values()[own])).sum()).backward()
        scaler.step(optimizer)
        scaler.update()
    assert parameter.tolist() == [-4 * weighted_mean()] * 3  # one step was skipped on all ranks


def check_sparse_gradients() -> None:
    own, weights = hvd.rank(), uneven()
    embedding = torch.nn.Embedding(4, 2, sparse=True)
    optimizer: Any = _weighted(list(embedding.parameters()), lambda: weights[own], False)
    for _ in range(2):
        optimizer.zero_grad()
        (embedding(torch.tensor([1])) * values()[own]).sum().backward()
        gradient = embedding.weight.grad
        assert gradient is not None
        assert gradient.is_sparse
        assert gradient.to_dense()[1].tolist() == [weighted_mean()] * 2
        optimizer.step()


@needs_ranks(3)
def check_a_set_of_ranks() -> None:
    with process_set_of([1, 2]) as ranks:
        if ranks.included():
            (parameter,) = make_parameters(1)
            weight = _Weight(8)
            optimizer: Any = _weighted([parameter], weight, True, process_set=ranks)
            weight.now = 3 if hvd.rank() == 1 else 1
            add_gradients((parameter, 8.0 * hvd.rank()))
            assert gradient_of(parameter) == [(3 * 8.0 + 16.0) / 4] * 3
            optimizer.step()


def check_a_rank_with_an_empty_batch() -> None:
    last = hvd.rank() == hvd.size() - 1
    for pooled in (False, True):
        model = torch.nn.Linear(3, 1)
        torch.nn.init.zeros_(model.weight)
        weight = _Weight(4)
        optimizer: Any = _weighted(list(model.parameters()), weight, pooled)
        weight.now = 0 if last else 4
        optimizer.zero_grad()
        model(torch.ones(weight.now, 3)).mean().backward()  # of nothing: NaN
        assert model.weight.grad is not None
        assert model.weight.grad.tolist() == [[1.0] * 3]
        optimizer.step()


def check_wrong_weights_are_an_error_on_all_ranks() -> None:
    last = hvd.rank() == hvd.size() - 1
    name = hvd.size() - 1

    def raises() -> float:
        raise KeyError("no batch")

    for pooled in (False, True):
        weight = _Weight(2.0)
        used, other = make_parameters(2)
        now: list[Callable[[], Any]] = [weight]
        optimizer: Any = _weighted([used, other], _the(now), pooled)
        for wrong, says in (
            (lambda: -1, f"on rank {name} weight= returned -1"),
            (lambda: math.nan, f"on rank {name} weight= returned nan"),
            (lambda: math.inf, f"on rank {name} weight= returned inf"),
            (lambda: "many", f"on rank {name} weight= raised ValueError"),
            (raises, f"on rank {name} weight= raised KeyError"),
        ):
            now[0] = wrong if last else weight
            with pytest.raises(ValueError, match=says):
                add_gradients(*((p, 1.0) for p in ([used] if hvd.rank() == 0 else [used, other])))
            now[0] = weight
            optimizer.zero_grad()
            add_gradients((used, 8.0), (other, 8.0))
            assert gradient_of(used) == [8.0] * 3
            optimizer.step()
        for nothing, says in ((0.0, "are 0"), (1e308, "too large or too small"), (5e-324, "too small")):
            weight.now = nothing
            optimizer.zero_grad()
            with pytest.raises(ValueError, match=says):
                add_gradients((used, 1.0))
        weight.now = 2.0
        before = used.detach().clone()
        optimizer.zero_grad()
        add_gradients((used, 8.0), (other, 8.0))
        optimizer.step()
        assert torch.equal(used, before - 8.0)


def check_a_weight_on_some_ranks_only() -> None:
    (parameter,) = make_parameters(1)
    arguments: dict[str, Any] = {"weight": lambda: 1} if hvd.rank() == 0 else {}
    plain = torch.optim.SGD([parameter], lr=1.0)
    optimizer: Any = hvd.DistributedOptimizer(plain, **arguments)
    for _ in range(2):
        with pytest.raises(HorovodInternalError, match="'dense with weight=', rank 1 'dense'"):
            add_gradients((parameter, 1.0))
        optimizer.zero_grad()


def check_refused_by_name() -> None:
    for strategy in (
        "csc:keep=0.5",
        "topk:density=0.5",
        "power_sgd:rank=2",
        "local_sgd:period=2",
        "daso:total_epochs=90",
        "auto",
    ):
        plain = torch.optim.SGD(make_parameters(1), lr=1.0)
        with pytest.raises(ValueError, match=f"weight= cannot go with strategy {strategy.partition(':')[0]}"):
            hvd.DistributedOptimizer(plain, strategy=strategy, weight=lambda: 1)
    plain = torch.optim.SGD(make_parameters(1), lr=1.0)
    for arguments, says in (
        ({"op": hvd.Sum, "weight": lambda: 1}, "needs op=hvd.Average"),
        ({"op": hvd.Adasum, "weight": lambda: 1}, "needs op=hvd.Average"),
        ({"weight": 3}, "weight is 3, but must be a function"),
    ):
        with pytest.raises(ValueError, match=says):
            hvd.DistributedOptimizer(plain, **arguments)


def check_the_function_may_refer_to_its_optimizer() -> None:
    (parameter,) = make_parameters(1)
    weight = _Weight(1)
    weight.optimizer = _weighted([parameter], weight, False)
    add_gradients((parameter, 8.0))
    assert gradient_of(parameter) == [8.0] * 3
    gone = weakref.ref(weight.optimizer)
    del weight, parameter
    gc.collect()
    assert gone() is None

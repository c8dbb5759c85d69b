"""The strategy CSC on several ranks: what is sent, what is kept, and how weights and momentum move.

Gradients are small whole numbers or dyadic fractions wherever sums are compared, so that these are exact.
"""

from __future__ import annotations

import hashlib
import warnings
from typing import Any

import pytest
import torch
from torch import nn

import roundelay.torch as hvd
from exact_training import Training
from ranks import run_checks
from roundelay.errors import MismatchError
from roundelay.torch.strategies import Sent
from roundelay.torch.strategies.sgd_steps import runs_of

SIZES = (70, 300, 5, 128, 64, 33)
FINE = "chunk_elements=8,dense_below=6"


@pytest.mark.parametrize("np", [2, pytest.param(4, marks=pytest.mark.nightly)])
def test_csc(np: int) -> None:
    run_checks(__file__, np, env={"ROUNDELAY_THETA": "512"})  # several buckets


def step(training: Training) -> list[Sent]:
    """Takes a step. Returns what it has sent, which is known between backward() and step()."""
    training.optimizer.zero_grad()
    training.backward()
    sent = training.techniques.sent()
    training.optimizer.step()
    return sent


def mask_of(sent: Sent, number: int) -> torch.Tensor:
    """The elements of a bucket's parameter that were sent."""
    place = sent.bucket.ranges[number]
    if sent.part is None or number in sent.part.dense:
        return torch.ones(len(place), dtype=torch.bool)
    everything = torch.zeros(max(one.stop for one in sent.bucket.ranges), dtype=torch.bool)
    for run in runs_of(sent.part):
        everything[run.start : run.stop] = True
    return everything[place.start : place.stop]


def masks(training: Training, every: list[Sent]) -> list[torch.Tensor]:
    """The elements that were sent of each parameter, in the optimizer's order."""
    found = {
        parameter: mask_of(sent, number) for sent in every for number, parameter in enumerate(sent.parameters)
    }
    return [found.get(one, torch.ones(one.numel(), dtype=torch.bool)) for one in training.parameters]


def residuals(training: Training) -> list[torch.Tensor]:
    """What this rank keeps back of each parameter: the first part of a bucket's state."""
    found = {id(parameter): torch.zeros_like(parameter) for parameter in training.parameters}
    lossy = [bucket for bucket in training.techniques._buckets if bucket.bucket.technique is not None]
    for bucket, sent in zip(lossy, training.techniques.sent(), strict=True):
        count = max(one.stop for one in sent.bucket.ranges)
        assert bucket.bucket.state is not None
        kept = bucket.bucket.state[: 4 * count].view(torch.float32)
        for parameter, place in zip(sent.parameters, sent.bucket.ranges, strict=True):
            found[id(parameter)] = kept[place.start : place.stop].clone()
    return [found[id(parameter)] for parameter in training.parameters]


def until_buckets(training: Training) -> Training:
    for _ in range(3):
        training.step()
    assert all(sent.part is not None for sent in step(training))
    return training


def check_what_is_sent_and_kept_is_what_came() -> None:
    for settings in ("momentum=none", "norms=previous", "momentum=local"):  # SGD's momentum is zero
        _conserve(until_buckets(Training(f"csc:keep=0.25,{FINE},{settings}", SIZES)))


def _conserve(training: Training) -> None:
    for _ in range(50):
        training.step()
        for parameter, given, kept in zip(
            training.parameters, training.given, residuals(training), strict=True
        ):
            came = hvd.allreduce(torch.stack([given, kept]), op=hvd.Sum)
            assert torch.equal(-parameter.detach() + came[1], came[0])
    training.check_all_came()


def check_every_rank_sends_the_same_chunks_and_as_many_as_asked() -> None:
    training = until_buckets(Training(f"csc:keep=0.2,{FINE}", SIZES))
    shares = []
    for _ in range(20):
        every = step(training)
        assert all(sent.part is not None for sent in every)
        parts = [sent.part for sent in every if sent.part is not None]
        choice = str([(part.chunk, part.chunks.tolist(), sorted(part.dense)) for part in parts])
        digest = hashlib.blake2b(choice.encode()).hexdigest()
        assert len(set(hvd.allgather_object(digest))) == 1
        chunks = sum(-(-max(one.stop for one in sent.bucket.ranges) // 8) for sent in every)
        chosen = sum(len(part.chunks) for part in parts)
        assert abs(chosen - 0.2 * chunks) <= 2  # one for the quota, one for chunks that are dense only
        shares.append([len(part.chunks) for part in parts])
    assert all(map(sum, zip(*shares, strict=True)))  # every bucket has its turn


def check_bytes_on_the_wire() -> None:
    """A rank gives its fabric the norms, the chosen chunks and the dense parameters, and nothing else."""
    training = until_buckets(Training(f"csc:keep=0.25,{FINE}", SIZES))
    for _ in range(5):
        before = hvd.stats()["technique_called_bytes"]
        every = step(training)
        expected = 0
        for sent in every:
            assert sent.part is not None
            count = max(one.stop for one in sent.bucket.ranges)
            runs = [range(one.start, min(one.stop, count)) for one in runs_of(sent.part)]
            dense = sum(len(sent.bucket.ranges[number]) for number in sent.part.dense)
            norms = -(-count // 8)  # also if no chunk is chosen: they show an overflow
            expected += 4 * (sum(map(len, runs)) + dense + norms)
        called = hvd.stats()["technique_called_bytes"] - before
        assert abs(called - expected) <= 4 * 16 * len(every)  # alignment


def check_all_chunks_are_dense_bit_for_bit() -> None:
    def trained(strategy: str, **settings: Any) -> list[torch.Tensor]:
        torch.manual_seed(7)
        model = nn.Sequential(nn.Linear(9, 31), nn.Tanh(), nn.Linear(31, 17), nn.Tanh(), nn.Linear(17, 3))
        plain = torch.optim.SGD(model.parameters(), lr=0.1, weight_decay=0.01, **settings)
        optimizer = hvd.DistributedOptimizer(plain, model.named_parameters(), strategy=strategy)
        chance = torch.Generator("cpu").manual_seed(hvd.rank())
        for _ in range(9):
            optimizer.zero_grad()
            inputs = torch.randn(4, 9, generator=chance, device="cpu").to(torch.get_default_device())
            model(inputs).square().mean().backward()
            optimizer.step()
        states = [optimizer.state[one].get("momentum_buffer") for one in model.parameters()]
        return [one.detach() for one in [*model.parameters(), *states] if one is not None]

    for settings in (
        {"momentum": 0.9, "nesterov": True, "foreach": False},
        {"momentum": 0.9, "foreach": True},
        {},
    ):
        dense = trained("dense", **settings)
        for momentum in ("masked", "none"):
            csc = trained(f"csc:keep=1,{FINE},momentum={momentum}", **settings)
            assert all(
                torch.equal(one.view(torch.int32), other.view(torch.int32))
                for one, other in zip(csc, dense, strict=True)
            )


def check_unsent_elements_stay_as_they_are() -> None:
    for dtype in (torch.float32, torch.bfloat16):
        _leave_unsent_elements(dtype)


def _leave_unsent_elements(dtype: torch.dtype) -> None:
    """Sent ones take SGD's step, with momentum, weight decay and Nesterov; half parameters have masters."""
    settings: dict[str, Any] = {"momentum": 0.5, "weight_decay": 0.25, "nesterov": True}
    training = until_buckets(Training(f"csc:keep=0.25,{FINE}", SIZES, 0.125, dtype, **settings))
    (group,) = training.optimizer.param_groups
    stepped: list[torch.Tensor] = group["params"]
    for _ in range(6):
        parameters = [nn.Parameter(one.detach().clone()) for one in stepped]
        plain = torch.optim.SGD(parameters, lr=0.125, **settings)
        before = []
        for ours, theirs in zip(stepped, parameters, strict=True):
            buffer = training.optimizer.state[ours]["momentum_buffer"].clone()
            plain.state[theirs]["momentum_buffer"] = buffer.clone()
            before.append((theirs.detach().clone(), buffer))
        training.optimizer.zero_grad()
        training.backward()
        norm = torch.nn.utils.clip_grad_norm_(stepped, 1.0)
        assert len(set(hvd.allgather_object(norm.item()))) == 1
        for ours, theirs in zip(stepped, parameters, strict=True):
            assert ours.grad is not None
            theirs.grad = ours.grad.clone()
        gradients = [one.grad for one in stepped]
        every = training.techniques.sent()
        training.optimizer.step()
        assert all(one.grad is gradient for one, gradient in zip(stepped, gradients, strict=True))
        plain.step()
        for ours, theirs, (weights, buffer), mask in zip(
            stepped, parameters, before, masks(training, every), strict=True
        ):
            now = training.optimizer.state[ours]["momentum_buffer"]
            assert torch.equal(ours, torch.where(mask, theirs, weights))
            assert torch.equal(now, torch.where(mask, plain.state[theirs]["momentum_buffer"], buffer))
        assert not all(mask.all() for mask in masks(training, every))
        for parameter, master in zip(training.parameters, stepped, strict=True):
            assert torch.equal(parameter, master.to(dtype))


def check_local_momentum_is_that_of_the_formulas() -> None:
    """mmt = m * mmt + g; vel += mmt; vel is sent, and both are cleared where they were sent."""
    for nesterov in (False, True):
        training = Training(
            f"csc:keep=0.25,{FINE},momentum=local", SIZES, momentum=0.5, nesterov=nesterov, lr=1.0
        )
        while not (training.techniques.stateful):
            training.step()
        mmt = [torch.zeros(size) for size in SIZES]
        vel = [torch.zeros(size) for size in SIZES]
        for number in range(8):
            weights = [one.detach().clone() for one in training.parameters]
            given = [one.clone() for one in training.given]
            every = step(training)
            for index, mask in enumerate(masks(training, every)):
                gradient = training.given[index] - given[index]
                if SIZES[index] < 6:  # it goes densely, and SGD has its momentum
                    continue
                if nesterov:
                    mmt[index] = 0.5 * (mmt[index] + gradient)
                    vel[index] += mmt[index] + gradient
                else:
                    mmt[index] = 0.5 * mmt[index] + gradient
                    vel[index] += mmt[index]
                sent = hvd.allreduce(torch.where(mask, vel[index], 0.0), op=hvd.Sum)
                moved = weights[index] - training.parameters[index].detach()
                assert torch.equal(moved, sent), (number, index)
                mmt[index][mask] = 0.0
                vel[index][mask] = 0.0
            assert not all(mask.all() for mask in masks(training, every))
        moving = [training.optimizer.state.get(one) for one in training.parameters]
        assert [bool(state) for state in moving] == [size < 6 for size in SIZES]


def check_the_rounding_error_of_a_half_wire_is_kept() -> None:
    """1 + 2^-12 is no bf16: after some steps the errors are large enough to be sent."""
    parameter = nn.Parameter(torch.zeros(512))
    plain = torch.optim.SGD([parameter], lr=1.0)
    text = "csc:keep=1,chunk_elements=64,dense_below=0,wire=bf16"
    optimizer = hvd.DistributedOptimizer(plain, op=hvd.Sum, strategy=text)
    steps, gradient = 40, 1 + 2.0**-6 + 2.0**-9
    for _ in range(steps):
        optimizer.zero_grad()
        (parameter * gradient).sum().backward()
        optimizer.step()
    error = (-parameter.detach() - steps * hvd.size() * gradient).abs().max().item()
    assert error <= hvd.size() * 2.0**-7  # that of one step, not of forty
    assert torch.equal(parameter.detach(), hvd.broadcast(parameter.detach(), 0))


def check_passes_and_no_sync() -> None:
    training = Training(f"csc:keep=0.25,{FINE}", SIZES)
    training.optimizer.set_backward_passes_per_step(3)
    for number in range(12):
        training.optimizer.zero_grad()
        for _ in range(3 if number % 4 else 2):  # every fourth window is short
            training.backward()
        training.optimizer.step()
    training.optimizer.set_backward_passes_per_step(1)
    for _ in range(5):
        training.optimizer.zero_grad()
        with training.optimizer.no_sync():
            training.backward()
        training.backward()
        training.optimizer.step()
    assert all(sent.part is not None for sent in step(training))
    training.check_all_came()


def check_the_warm_up_is_dense_and_then_less_and_less_is_sent() -> None:
    training = Training(f"csc:keep=0.1,{FINE},warmup=6/1+14/0.5", SIZES)
    for number in range(24):
        every = step(training)
        used = {technique for _, rows in training.techniques.traffic() for technique, *_ in rows}
        if number < 6:
            assert used <= {"dense"}
        elif number == 12:
            assert any("keep=0.5" in one for one in used)
            assert not any("keep=0.1" in one for one in used)
    assert all(sent.part is not None for sent in every)
    training.check_all_came()


def check_the_loss_scale_changes_without_a_trace() -> None:
    """Powers of two: the weights are those without a scaler, whose every change rescales what is kept."""

    def trained(scaler: torch.amp.GradScaler) -> Training:
        training = Training(f"csc:keep=0.25,{FINE}", SIZES, momentum=0.5)
        for _ in range(14):
            training.optimizer.zero_grad()
            training.backward(scaler=scaler)
            scaler.step(training.optimizer)
            scaler.update()
        return training

    plain = trained(torch.amp.GradScaler("cpu", enabled=False))
    scaler = torch.amp.GradScaler("cpu", init_scale=4.0, growth_interval=2)
    scaled = trained(scaler)
    assert scaler.get_scale() == 4.0 * 2.0**7
    assert all(map(torch.equal, scaled.parameters, plain.parameters))
    factor = scaler.get_scale()
    for ours, theirs in zip(residuals(scaled), residuals(plain), strict=True):
        assert torch.equal(ours, theirs * factor)
    assert any(one.any() for one in residuals(scaled))


def check_an_overflow_is_skipped_by_all() -> None:
    for norms in ("same", "previous"):
        training = until_buckets(Training(f"csc:keep=0.1,{FINE},norms={norms}", SIZES))
        scaler = torch.amp.GradScaler("cpu", init_scale=4.0, growth_interval=1000)
        training.techniques.rescale(4.0)
        weights = [one.detach().clone() for one in training.parameters]
        for overflows in (True, False, False):
            training.optimizer.zero_grad()
            training.backward(scaler=scaler, infinity=overflows and hvd.rank() == 1)
            scaler.step(training.optimizer)
            scaler.update()
            if overflows:
                assert scaler.get_scale() == 2.0
                assert all(map(torch.equal, training.parameters, weights))
        assert scaler.get_scale() == 2.0
        assert not any(map(torch.equal, training.parameters, weights))
        assert all(one.isfinite().all() for one in [*training.parameters, *residuals(training)])
        assert len(set(hvd.allgather_object(str(training.parameters)))) == 1


def check_a_restart_without_the_strategys_state_says_so_once() -> None:
    training = until_buckets(Training(f"csc:keep=0.25,{FINE}", SIZES, momentum=0.5))
    optimizer_state, state = training.optimizer.state_dict(), training.strategy.state_dict()
    for with_state in (False, True):
        again = Training(f"csc:keep=0.25,{FINE}", SIZES, momentum=0.5)
        again.optimizer.load_state_dict(optimizer_state)
        if with_state:
            again.strategy.load_state_dict(state)
        assert again.techniques.keeps_something() == with_state
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            for _ in range(3):
                again.step()
        said = [str(one.message) for one in caught if "nothing kept back" in str(one.message)]
        assert len(said) == int(not with_state and hvd.rank() == 0)


def check_a_sparse_gradient_is_an_error_on_every_rank() -> None:
    embedding = nn.Embedding(30, 4, sparse=True)
    plain = torch.optim.SGD(embedding.parameters(), lr=1.0)
    optimizer = hvd.DistributedOptimizer(plain, strategy=f"csc:keep=0.5,{FINE}")
    with pytest.raises((ValueError, hvd.HorovodInternalError), match="sparse_as_dense=True"):
        embedding(torch.tensor([1, 2])).sum().backward()
    optimizer.zero_grad()
    plain = torch.optim.SGD(embedding.parameters(), lr=1.0)
    optimizer = hvd.DistributedOptimizer(plain, strategy=f"csc:keep=0.5,{FINE}", sparse_as_dense=True)
    for _ in range(5):
        optimizer.zero_grad()
        embedding(torch.tensor([1, 2])).sum().backward()
        optimizer.step()


def check_ranks_with_other_settings_get_both_texts() -> None:
    keep = 0.25 if hvd.rank() == 0 else 0.5
    training = Training(f"csc:keep={keep},{FINE}", SIZES)
    for _ in range(3):  # the buckets are made in the last one
        training.step()
    with pytest.raises(MismatchError, match=r"keep=0\.25.*keep=0\.5|keep=0\.5.*keep=0\.25"):
        training.step()
    training.optimizer.zero_grad()


def check_a_closure_and_another_momentum_are_refused() -> None:
    training = until_buckets(Training(f"csc:keep=0.25,{FINE}", SIZES))
    with pytest.raises(ValueError, match=r"call backward\(\) before step\(\), without a closure"):
        training.optimizer.step(lambda: 0.0)
    training.optimizer.zero_grad()
    training.check_all_came()
    local = until_buckets(Training(f"csc:keep=0.25,{FINE},momentum=local", SIZES, momentum=0.5))
    local.optimizer.param_groups[0]["momentum"] = 0.25
    with pytest.raises(ValueError, match=r"accumulates momentum 0\.5, and the optimizer's is 0\.25"):
        local.step()
    local.optimizer.param_groups[0]["momentum"] = 0.5
    local.optimizer.step()
    local.step()

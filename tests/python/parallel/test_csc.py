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
from csc_training import FINE, SIZES, masks, residuals, step, until_buckets
from exact_training import Training
from ranks import Check, run_check
from roundelay.errors import MismatchError
from roundelay.torch.strategies._lossy.sgd_steps import DECAY_KEY, runs_of
from technique_libraries import CYCLIC


@pytest.mark.parametrize("np", [2, pytest.param(4, marks=pytest.mark.nightly)])
def test_csc(np: int, check: Check) -> None:
    run_check(check, np, env={"ROUNDELAY_THETA": "512"})  # several buckets


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


def check_unsent_elements_only_decay() -> None:
    for dtype in (torch.float32, torch.bfloat16):
        _decay_unsent_elements(dtype)


def _decay_unsent_elements(dtype: torch.dtype) -> None:
    """Sent ones take SGD's step, with momentum, weight decay and Nesterov; half parameters have masters.

    The others take that with gradients of zero and the momentum of their decay.
    """
    settings: dict[str, Any] = {"momentum": 0.5, "weight_decay": 0.25, "nesterov": True}
    training = until_buckets(Training(f"csc:keep=0.25,{FINE}", SIZES, 0.125, dtype, **settings))
    (group,) = training.optimizer.param_groups
    stepped: list[torch.Tensor] = group["params"]
    for _ in range(6):
        parameters, waiting = ([nn.Parameter(one.detach().clone()) for one in stepped] for _ in range(2))
        plain, decay = (torch.optim.SGD(each, lr=0.125, **settings) for each in (parameters, waiting))
        before = []
        for ours, theirs, rest in zip(stepped, parameters, waiting, strict=True):
            state, rest.grad = training.optimizer.state[ours], torch.zeros_like(rest)
            plain.state[theirs]["momentum_buffer"] = state["momentum_buffer"].clone()
            of_decay = state.get(DECAY_KEY, torch.zeros_like(ours))
            decay.state[rest]["momentum_buffer"] = of_decay.clone()
            before.append(state["momentum_buffer"] - of_decay)
        training.optimizer.zero_grad()
        training.backward()
        norm = torch.nn.utils.clip_grad_norm_(stepped, 1.0)
        assert len(set(hvd.allgather_object(norm.item()))) == 1
        for ours, theirs in zip(stepped, parameters, strict=True):
            assert ours.grad is not None
            theirs.grad = ours.grad.clone()
        gradients = [one.grad for one in stepped]
        every = training.techniques.table.sent()
        training.optimizer.step()
        assert all(one.grad is gradient for one, gradient in zip(stepped, gradients, strict=True))
        plain.step()
        decay.step()
        for ours, theirs, rest, gradients_of, mask in zip(
            stepped, parameters, waiting, before, masks(training, every), strict=True
        ):
            now = training.optimizer.state[ours]["momentum_buffer"]
            left = gradients_of + decay.state[rest]["momentum_buffer"]
            assert torch.equal(ours, torch.where(mask, theirs, rest))
            assert torch.equal(now, torch.where(mask, plain.state[theirs]["momentum_buffer"], left))
        assert not all(mask.all() for mask in masks(training, every))
        for parameter, master in zip(training.parameters, stepped, strict=True):
            assert torch.equal(parameter, master.to(dtype))


def check_local_momentum_is_that_of_the_formulas() -> None:
    """mmt = m * mmt + g; vel += mmt; vel is sent, and both are cleared where they were sent.

    Without masking mmt is not. SGD's momentum, from the dense steps before, goes on as with zero gradients.
    """
    for nesterov, masking in ((False, 1), (True, 1), (False, 0), (True, 0)):
        training = Training(
            f"csc:keep=0.25,{FINE},momentum=local,masking={masking}",
            SIZES,
            momentum=0.5,
            nesterov=nesterov,
            lr=1.0,
        )
        while not (training.techniques.stateful):
            training.step()
        mmt = [torch.zeros(size) for size in SIZES]
        vel = [torch.zeros(size) for size in SIZES]
        for number in range(8):
            weights = [one.detach().clone() for one in training.parameters]
            given = [one.clone() for one in training.given]
            ours = [
                0.5 * training.optimizer.state[one]["momentum_buffer"].clone() for one in training.parameters
            ]
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
                assert torch.equal(moved, sent + ours[index] * (0.5 if nesterov else 1.0)), (number, index)
                if masking:
                    mmt[index][mask] = 0.0
                vel[index][mask] = 0.0
            assert not all(mask.all() for mask in masks(training, every))


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
        used = {technique for _, rows in training.techniques.table.traffic() for technique, *_ in rows}
        if number < 6:
            assert used <= {"dense"}
        elif number == 12:
            assert any("keep=0.5" in one for one in used)
            assert not any("keep=0.1" in one for one in used)
    assert all(sent.part is not None for sent in every)
    training.check_all_came()


def check_a_restart_without_the_strategys_state_says_so_once() -> None:
    training = until_buckets(Training(f"csc:keep=0.25,{FINE}", SIZES, momentum=0.5))
    optimizer_state, state = training.optimizer.state_dict(), training.strategy.state_dict()
    for with_state in (False, True):
        again = Training(f"csc:keep=0.25,{FINE}", SIZES, momentum=0.5)
        again.optimizer.load_state_dict(optimizer_state)
        if with_state:
            again.strategy.load_state_dict(state)
        assert again.techniques.may_keep() == with_state
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
    """Before a gradient is used, and also where the core sees no difference: masked and none."""
    ours = f"csc:keep=0.25,{FINE}"
    for others in (f"csc:keep=0.5,{FINE}", f"csc:keep=0.25,{FINE},momentum=none", CYCLIC):
        training = Training(ours if hvd.rank() == 0 else others, SIZES)
        with pytest.raises(MismatchError, match="differ between ranks") as raised:
            training.step()
        for text in (ours, others):
            assert repr(hvd.strategies.parse(text).text) in str(raised.value)
        hvd.DistributedOptimizer(training.optimizer, op=hvd.Sum, strategy=ours)  # the cure
        training.step()
    training = Training(ours if hvd.rank() == 0 else "dense", SIZES)
    with pytest.raises(MismatchError, match="'csc:.*'dense'|'dense'.*'csc:"):
        training.step()


def check_a_step_that_raises_changes_nothing() -> None:
    """A hook that raises between the strategy's two hooks, or zero_grad() after it, loses no gradient."""
    for momentum in ("masked", "local"):
        text = f"csc:keep=0.25,{FINE},momentum={momentum}"
        settings: dict[str, Any] = {"momentum": 0.5, "weight_decay": 0.25}
        training, plain = (until_buckets(Training(text, SIZES, **settings)) for _ in range(2))
        training.optimizer.zero_grad()
        training.backward()
        gradients = [one.grad for one in training.parameters]
        weights = [one.detach().clone() for one in training.parameters]
        failing = training.optimizer.register_step_pre_hook(_fail)
        with pytest.raises(RuntimeError, match="on purpose"):
            training.optimizer.step()
        failing.remove()
        assert all(map(torch.equal, training.parameters, weights))
        assert not all(
            one.grad is gradient for one, gradient in zip(training.parameters, gradients, strict=True)
        )
        training.optimizer.step()
        assert all(one.grad is gradient for one, gradient in zip(training.parameters, gradients, strict=True))
        plain.step()
        assert all(map(torch.equal, training.parameters, plain.parameters))
        for one in (training, plain):
            one.step()
        assert all(map(torch.equal, training.parameters, plain.parameters))
        training.optimizer.zero_grad()
        training.backward()
        failing = training.optimizer.register_step_pre_hook(_fail)
        with pytest.raises(RuntimeError, match="on purpose"):
            training.optimizer.step()
        failing.remove()
        training.optimizer.zero_grad()
        assert all(one.grad is None for one in training.parameters)


def _fail(*_: Any) -> None:
    raise RuntimeError("on purpose")


def check_a_closure_and_another_momentum_are_refused() -> None:
    training = until_buckets(Training(f"csc:keep=0.25,{FINE}", SIZES))
    with pytest.raises(ValueError, match=r"call backward\(\) before step\(\), without a closure"):
        training.optimizer.step(lambda: 0.0)
    training.optimizer.zero_grad()
    training.check_all_came()
    local = until_buckets(Training(f"csc:keep=0.25,{FINE},momentum=local", SIZES, momentum=0.5))
    local.optimizer.param_groups[0]["momentum"] = 0.25
    with pytest.raises(
        ValueError, match=r"accumulates momentum=0\.5, nesterov=False, and the optimizer has momentum=0\.25"
    ):
        local.step()
    local.optimizer.param_groups[0]["momentum"] = 0.5
    local.optimizer.step()
    local.step()

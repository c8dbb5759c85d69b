"""Complex parameters and buffers: training equals that of one process on the whole batch, to the bit."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn

import roundelay.torch as hvd
from ranks import Check, run_check
from roundelay.torch._internal.optimizer.distributed import wrapper_of
from roundelay.torch.functions import broadcast_optimizer_state, broadcast_parameters
from roundelay.torch.strategies import DASO
from technique_libraries import CYCLIC

STEPS = 8


@pytest.mark.parametrize("np", [1, 2, 4])
def test_complex_training(np: int, check: Check) -> None:
    run_check(check, np)


class Rotary(nn.Module):
    """Complex parameters of several layouts beside real ones, and a buffer of rotations."""

    freqs_cis: torch.Tensor

    def __init__(self) -> None:
        super().__init__()
        real = torch.arange(12, dtype=torch.float64)
        self.plain = nn.Parameter(torch.complex(real, 3 - real).reshape(3, 4))
        self.turned = nn.Parameter(torch.complex(real, real).reshape(4, 3).t())
        self.scalar = nn.Parameter(torch.tensor(1 + 2j, dtype=torch.complex128))
        self.real = nn.Parameter(real.clone())
        self.unused = nn.Parameter(torch.zeros(2, dtype=torch.complex128))
        self.register_buffer("freqs_cis", torch.polar(torch.ones(3, 4), torch.arange(12.0).reshape(3, 4)))

    def loss(self, rank: int, step: int, curved: bool = False, lazy: bool = False) -> torch.Tensor:
        """Of one rank's sample. Gradients are whole numbers.

        curved: they depend on the weights, which SGD keeps dyadic. lazy: one is a lazy conjugate, which torch
        takes in few places.
        """
        sample = complex(4 * rank + step % 3, 8 - 2 * rank)
        terms = [
            (self.plain * sample).sum().real,
            (self.turned * sample).sum().imag,
            (self.scalar.conj() * sample if lazy else self.scalar * sample).real,
            (self.real * (rank + 1)).sum(),
        ]
        if curved:
            terms.append(
                torch.view_as_real(self.plain).square().sum() / 4 + self.turned.real.square().sum() / 4
            )
        if rank == step % hvd.size():  # other ranks have no gradient in this step
            terms.append((self.unused * sample).sum().real)
        return torch.stack(terms).sum()


Make = Callable[[Any], torch.optim.Optimizer]


def _sgd(parameters: Any) -> torch.optim.Optimizer:
    return torch.optim.SGD(parameters, lr=0.125, momentum=0.5, foreach=True)


def _adam(parameters: Any) -> torch.optim.Optimizer:
    return torch.optim.AdamW(parameters, lr=0.125, foreach=True, amsgrad=True)


def _never(model: Rotary) -> None:
    """Does nothing to gradients."""


def _clip(model: Rotary) -> None:
    nn.utils.clip_grad_norm_(model.parameters(), 4.0)


def _one_process(
    make: Make, passes: int, change: Callable[[Rotary], None], op: int, *form: bool
) -> tuple[Rotary, Any]:
    model = Rotary()
    optimizer = make(model.parameters())
    divisor = hvd.size() if op == hvd.Average else 1
    for step in range(STEPS):
        for number in range(passes):
            losses = [model.loss(rank, step + number, *form) for rank in range(hvd.size())]
            (torch.stack(losses).sum() / divisor).backward()
        change(model)
        optimizer.step()
        optimizer.zero_grad()
    return model, optimizer


def _check(
    make: Make = _sgd,
    passes: int = 1,
    change: Callable[[Rotary], None] = _never,
    op: int = hvd.Average,
    keep: bool = False,
    groups: Callable[[Rotary], Any] = lambda model: None,
    named: bool = True,
) -> None:
    """keep: zero_grad() keeps the gradients' memory."""
    curved = make is _sgd and change is _never
    form = curved, curved and not keep
    expected, alone = _one_process(make, passes, change, op, *form)
    model = Rotary()
    optimizer: Any = hvd.DistributedOptimizer(
        make(model.parameters()),
        named_parameters=model.named_parameters() if named else None,
        backward_passes_per_step=passes,
        groups=groups(model),
        op=op,
    )
    for step in range(STEPS):
        for number in range(passes):
            model.loss(hvd.rank(), step + number, *form).backward()
        optimizer.synchronize()  # a gradient that came in one of two passes waits for it
        change(model)
        for parameter in model.parameters():
            assert parameter.grad is not None
            assert parameter.grad.dtype == parameter.dtype
            assert parameter.grad.stride() == parameter.stride()
        optimizer.step()
        optimizer.zero_grad(set_to_none=not keep)
    for (name, parameter), other in zip(model.named_parameters(), expected.parameters(), strict=True):
        assert torch.equal(parameter, other), (name, parameter, other)
        assert optimizer.state[parameter].keys() == alone.state[other].keys()
        for key, value in optimizer.state[parameter].items():
            assert torch.equal(torch.as_tensor(value), torch.as_tensor(alone.state[other][key])), (name, key)


def check_training() -> None:
    _check()
    _check(named=False)
    _check(make=_adam)
    _check(op=hvd.Sum)
    _check(keep=True)


def check_accumulation_and_clipping() -> None:
    _check(passes=2)
    _check(change=_clip)
    _check(make=_adam, passes=2, change=_clip)


def check_groups() -> None:
    _check(groups=lambda _: 2)
    _check(groups=lambda model: [[model.plain, model.real], [model.turned, model.scalar]])


def check_others_stay_in_the_pool() -> None:
    model = Rotary()
    optimizer: Any = hvd.DistributedOptimizer(_sgd(model.parameters()))
    for step in range(4):
        model.loss(hvd.rank(), step).backward()
        optimizer.step()
        optimizer.zero_grad()
    wrapper = wrapper_of(optimizer)
    assert wrapper is not None
    assert wrapper.buckets() == int(hvd.size() > 1)


def _refused(text: str, **arguments: Any) -> None:
    model = Rotary()
    plain = torch.optim.SGD(model.parameters(), lr=0.125)
    with pytest.raises(ValueError, match=text) as caught:
        hvd.DistributedOptimizer(plain, model.named_parameters(), **arguments)
    assert "'plain' is complex" in str(caught.value)
    assert "of their own" in str(caught.value)
    assert not hasattr(plain, "synchronize")
    assert hvd.allreduce(torch.ones(1), op=hvd.Sum).item() == hvd.size()


def check_what_cannot_take_them_says_so() -> None:
    for strategy in (
        "csc",
        "topk",
        "power_sgd",
        "local_sgd",
        "daso:total_epochs=9",
        "adasum",
        CYCLIC,
    ):
        _refused(f"strategy {hvd.strategies.parse(strategy).text.partition(':')[0]}", strategy=strategy)
    for strategy in ("dense:wire=bf16", "dense:wire=fp16", "half"):
        _refused("half type", strategy=strategy)
    for compression in (hvd.Compression.fp16, hvd.Compression.bf16):
        _refused("half type", compression=compression)
    for op, name in ((hvd.Min, "Min"), (hvd.Max, "Max"), (hvd.Product, "Product")):
        _refused(f"op=hvd.{name}", op=op)
    _refused("adasum", op=hvd.Adasum)


def check_added_later() -> None:
    """They are not silently left out: reduced as they are, or an error."""
    mean = complex((hvd.size() - 1) / 2, -1)
    for arguments in (
        {"strategy": "csc:keep=0.5"},
        {"strategy": "local_sgd:period=1,within_node=period"},
        {"op": hvd.Max},
        {"op": hvd.Adasum},
    ):
        turning = nn.Parameter(torch.zeros(2, dtype=torch.complex64))
        plain = torch.optim.SGD([nn.Parameter(torch.zeros(2))], lr=1.0)
        optimizer: Any = hvd.DistributedOptimizer(plain, **arguments)
        optimizer.add_param_group({"params": [turning]})

        def train(turning: nn.Parameter = turning, optimizer: Any = optimizer) -> None:
            (turning * complex(hvd.rank(), 1)).sum().real.backward()
            optimizer.step()

        if "strategy" in arguments or hvd.size() == 1:
            train()
            assert turning.tolist() == [-mean] * 2, arguments
            continue
        with pytest.raises(ValueError, match="complex"):
            train()


def check_broadcast_of_models_and_states() -> None:
    model = Rotary()
    expected = copy.deepcopy(model.state_dict())
    with torch.no_grad():
        for tensor in model.state_dict().values():
            tensor.mul_(hvd.rank() + 1)
    broadcast_parameters(model.state_dict(), root_rank=0)
    for name, tensor in model.state_dict().items():
        assert torch.equal(tensor, expected[name]), name
    turned = {"freqs_cis": (model.freqs_cis.clone() * (hvd.rank() + 1)).conj()}
    broadcast_parameters(turned, root_rank=0)
    assert torch.equal(turned["freqs_cis"], expected["freqs_cis"].conj())

    optimizer = _adam(model.parameters())
    model.loss(hvd.rank(), 1).backward()
    optimizer.step()
    model.zero_grad()
    other = Rotary()
    alone = _adam(other.parameters())
    other.loss(0, 1).backward()
    alone.step()
    broadcast_optimizer_state(optimizer, root_rank=0)
    for parameter, theirs in zip(model.parameters(), other.parameters(), strict=True):
        state, wanted = optimizer.state[parameter], alone.state[theirs]
        assert state.keys() == wanted.keys()
        assert all(torch.equal(state[key], wanted[key]) for key in wanted)
        assert state == {} or state["exp_avg"].dtype == parameter.dtype


def check_daso_averages_complex_buffers() -> None:
    buffer = torch.full((3,), complex(hvd.rank(), 1), dtype=torch.complex64)
    weight = nn.Parameter(torch.zeros(2))
    strategy = DASO(total_epochs=9, buffers=lambda: [buffer])
    hvd.DistributedOptimizer(torch.optim.SGD([weight], lr=1.0), strategy=strategy)
    strategy.epoch_ended(1.0)
    mean = (hvd.size() - 1) / 2 if hvd.size() > 1 else 0.0
    assert buffer.tolist() == [complex(mean, 1)] * 3


def check_batch_normalisation_refuses_them() -> None:
    if hvd.size() > 1:
        with pytest.raises(ValueError, match="complex64"):
            hvd.SyncBatchNorm(2)(torch.ones(3, 2, dtype=torch.complex64))

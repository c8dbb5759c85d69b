"""Strategies on several ranks: what is sent, what is called, what cannot be; techniques without state."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn

import roundelay.torch as hvd
from own_strategies import Choosing
from ranks import Check, needs_ranks, run_check
from roundelay.errors import MismatchError
from small_gradients import add_gradients, gradient_of, make_parameters, sum_of_ranks, use_pool
from technique_libraries import CYCLIC, NEGATE, canonical
from techniques_of import techniques_of

NEGATED = canonical(NEGATE)


@pytest.mark.parametrize("np", [1, 2, 4])
def test_strategies(np: int, check: Check) -> None:
    run_check(check, np, env={"ROUNDELAY_THETA": "64"})  # several buckets


def _model() -> nn.Module:
    torch.manual_seed(5)
    return nn.Sequential(nn.Linear(7, 13), nn.Tanh(), nn.Linear(13, 11), nn.Tanh(), nn.Linear(11, 3))


def _train(steps: int = 6, **arguments: Any) -> list[torch.Tensor]:
    """Returns the weights after some steps on each rank's own data."""
    model = _model()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    hvd.DistributedOptimizer(optimizer, model.named_parameters(), **arguments)
    generator = torch.Generator("cpu").manual_seed(hvd.rank())
    device = torch.get_default_device()
    for step in range(steps):
        optimizer.zero_grad(set_to_none=step % 3 != 0)
        model(torch.randn(4, 7, generator=generator, device="cpu").to(device)).square().mean().backward()
        optimizer.step()
    return [parameter.detach().clone() for parameter in model.parameters()]


def _same(these: list[torch.Tensor], those: list[torch.Tensor]) -> bool:
    return all(map(torch.equal, these, those))


def _wrapped(
    choice: Callable[[hvd.strategies.Bucket, int], str | None], number: int = 6, **arguments: Any
) -> tuple[list[nn.Parameter], torch.optim.SGD, Choosing]:
    """Parameters of 64 bytes each, whose gradients are in buckets of their own."""
    parameters = make_parameters(number, 16)
    strategy = Choosing(choice)
    optimizer = torch.optim.SGD(parameters, lr=1.0)
    hvd.DistributedOptimizer(optimizer, op=hvd.Sum, strategy=strategy, **arguments)
    use_pool(optimizer, arguments.get("backward_passes_per_step", 1))
    return parameters, optimizer, strategy


def _techniques(optimizer: torch.optim.Optimizer) -> list[str | None]:
    return [bucket.core.technique for bucket in techniques_of(optimizer).table.buckets]


def _used(optimizer: torch.optim.Optimizer) -> dict[str, int]:
    """Returns the number of operations by technique."""
    used: dict[str, int] = {}
    for _, traffic in techniques_of(optimizer).table.traffic():
        for technique, operations, _, _ in traffic:
            used[technique] = used.get(technique, 0) + operations
    return used


def _step(parameters: list[nn.Parameter], optimizer: torch.optim.Optimizer, factor: float = 1.0) -> None:
    optimizer.zero_grad()
    add_gradients(*((parameter, (hvd.rank() + 1.0) * factor) for parameter in parameters))
    optimizer.step()
    for parameter in parameters:
        assert gradient_of(parameter) == [sum_of_ranks() * factor] * 16


def check_a_wire_is_a_compression() -> None:
    for wire, text, compression in (
        (None, "dense", hvd.Compression.none),
        (torch.float16, "dense:wire=fp16", hvd.Compression.fp16),
        (torch.bfloat16, "dense:wire=bf16", hvd.Compression.bf16),
    ):
        for op, factor in ((hvd.Average, 2.0), (hvd.Sum, 1.0), (hvd.Max, 1.0)):
            arguments: dict[str, Any] = {"op": op, "gradient_predivide_factor": factor}
            expected = _train(compression=compression, strategy="dense", **arguments)
            assert _same(_train(strategy=hvd.strategies.Dense(wire), **arguments), expected)
            assert _same(_train(strategy=text, **arguments), expected)


def check_adasum_is_a_strategy() -> None:
    expected = _train(op=hvd.Adasum)
    assert _same(_train(strategy="adasum"), expected)
    assert _same(_train(op=hvd.Adasum, strategy=hvd.strategies.Adasum()), expected)
    half = _train(op=hvd.Adasum, compression=hvd.Compression.bf16)
    assert _same(_train(strategy="adasum:wire=bf16"), half)
    assert hvd.size() == 1 or not _same(half, expected)


def check_a_technique_for_every_bucket() -> None:
    """The negative of the sum of the negatives has the bits of the sum."""
    for op, factor in ((hvd.Average, 1.0), (hvd.Average, 2.0), (hvd.Sum, 1.0)):
        arguments: dict[str, Any] = {"op": op, "gradient_predivide_factor": factor}
        assert _same(_train(strategy=NEGATE, **arguments), _train(strategy="dense", **arguments))


def check_errors_are_on_every_rank_and_the_job_goes_on() -> None:
    for strategy in ("nothing", "dense:wire=fp8", f"{CYCLIC}:parts=0", 3):
        with pytest.raises(ValueError, match="strategy|wire|parts"):
            _train(strategy=strategy)
    assert hvd.allreduce(torch.ones(1), op=hvd.Sum).tolist() == [hvd.size()]


@needs_ranks(2)
def check_each_bucket_in_each_step() -> None:
    parameters, optimizer, strategy = _wrapped(
        lambda bucket, step: NEGATE if (bucket.index + step) % 2 else None
    )
    assert sorted(strategy.seen) == list(range(6))
    assert [view.bytes for view in strategy.seen.values()] == [64] * 6
    kinds = {(view.dtype, view.device.type) for view in strategy.seen.values()}
    assert kinds == {(torch.float32, torch.get_default_device().type)}
    names = [name for view in strategy.seen.values() for name in view.parameters]
    assert sorted(names) == [f"noname.0.{number}" for number in range(6)]
    strategy.calls.clear()
    for step in range(strategy.steps, strategy.steps + 12):
        expected = [NEGATED if (index + step) % 2 else None for index in range(6)]
        assert _techniques(optimizer) == expected
        _step(parameters, optimizer, float(step))
    assert strategy.calls == ["before", "after"] * 12
    used = _used(optimizer)
    assert used[NEGATED] >= 36
    assert used["dense"] >= 36
    text = hvd.report()
    assert "strategy Choosing" in text
    assert sum("negate" in line for line in text.splitlines()) >= 6


@needs_ranks(2)
def check_a_locked_schedule_with_techniques() -> None:
    """Each change of a technique ends the schedule, and another one forms."""
    parameters, optimizer, _ = _wrapped(lambda bucket, step: NEGATE if step // 30 % 2 else None)
    before = hvd.stats()["locked_operations"]
    for step in range(90):
        _step(parameters, optimizer, float(step % 5))
    assert hvd.stats()["locked_operations"] - before > 0


@needs_ranks(2)
def check_where_a_technique_does_not_apply() -> None:
    """A second backward, a bucket in parts, a window: the sums are those of dense."""
    parameters, optimizer, _ = _wrapped(lambda bucket, step: NEGATE)
    before = _used(optimizer)
    optimizer.zero_grad()
    for factor in (1.0, 2.0):
        add_gradients(*((parameter, (hvd.rank() + 1.0) * factor) for parameter in parameters))
    optimizer.step()
    assert [gradient_of(parameter) for parameter in parameters] == [[sum_of_ranks() * 3.0] * 16] * 6
    assert _used(optimizer)[NEGATED] - before.get(NEGATED, 0) == 6  # only in the first backward
    optimizer.zero_grad()
    add_gradients((parameters[0], 1.0), *([(parameters[1], 2.0)] if hvd.rank() == 0 else []))
    optimizer.step()
    assert gradient_of(parameters[0]) == [1.0 * hvd.size()] * 16
    assert gradient_of(parameters[1]) == [2.0] * 16
    assert parameters[2].grad is None
    _step(parameters, optimizer)


@needs_ranks(2)
def check_while_a_rank_has_joined() -> None:
    """Afterwards all are at the same step again, and take the same techniques."""
    parameters, optimizer, strategy = _wrapped(lambda bucket, step: NEGATE if step % 3 else None)
    first = strategy.steps
    with hvd.join_context(optimizer):
        for _ in range(1 + 2 * hvd.rank()):
            optimizer.zero_grad()
            add_gradients(*((parameter, 1.0) for parameter in parameters))
            optimizer.step()
    assert techniques_of(optimizer).step == first + 2 * hvd.size() - 1
    for step in range(6):
        _step(parameters, optimizer, float(step))


@needs_ranks(2)
def check_proposals_of_rank_0() -> None:
    parameters, optimizer, strategy = _wrapped(lambda bucket, step: None)
    strategy.choice = lambda bucket, step: (
        NEGATE if strategy.heard and step >= strategy.heard[-1][1][0] else None
    )
    strategy.wish = bytes([strategy.steps + 3]) if hvd.rank() == 0 else b"of another rank"
    asked_at = strategy.steps
    for step in range(6):
        _step(parameters, optimizer, float(step))
        assert _techniques(optimizer) == [NEGATED if step >= 2 else None] * 6
    assert strategy.heard == [(asked_at, bytes([asked_at + 3]))]


@needs_ranks(2)
def check_ranks_that_disagree() -> None:
    """Both texts are in the error, which is the same on all ranks; then they agree, and the job goes on."""
    parameters, optimizer, strategy = _wrapped(lambda bucket, step: None)
    strategy.choice = lambda bucket, step: NEGATE if hvd.rank() == 1 and bucket.index == 2 else None
    _step(parameters, optimizer)
    strategy.choice = lambda bucket, step: None
    optimizer.zero_grad()
    with pytest.raises(MismatchError) as raised:
        add_gradients(*((parameter, 1.0) for parameter in parameters))
    text = str(raised.value)
    assert "negate" in text
    assert "dense" in text
    assert len(set(hvd.allgather_object(text))) == 1
    optimizer.zero_grad()
    techniques_of(optimizer).new_step()
    _step(parameters, optimizer)
    strategy.choice = lambda bucket, step: NEGATE
    for _ in range(3):
        _step(parameters, optimizer)
    assert _techniques(optimizer) == [NEGATED] * 6


@needs_ranks(2)
def check_forms_that_disagree_are_named_and_not_their_dtypes() -> None:
    """A strategy that chooses no technique, or a compression, which the core sees as another dtype."""
    for other, text in (
        ({"strategy": "dense:wire=bf16"}, "'dense:wire=bf16'"),
        (
            {"strategy": "dense", "compression": hvd.Compression.fp16},
            "'dense with compression FP16Compressor'",
        ),
    ):
        arguments: dict[str, Any] = {"strategy": "dense"} if hvd.rank() == 0 else other
        parameters = make_parameters(6, 16)
        optimizer = torch.optim.SGD(parameters, lr=1.0)
        hvd.DistributedOptimizer(optimizer, op=hvd.Sum, **arguments)
        with pytest.raises(MismatchError, match="the strategies of an optimizer") as raised:
            add_gradients(*((parameter, 1.0) for parameter in parameters))
        assert f"rank 0 has 'dense', rank 1 {text}: " in str(raised.value)
        optimizer.zero_grad()
    parameters = make_parameters(6, 16)
    optimizer = torch.optim.SGD(parameters, lr=1.0)
    hvd.DistributedOptimizer(optimizer, op=hvd.Sum, strategy="dense")
    _step(parameters, optimizer)


@needs_ranks(2)
def check_process_sets_have_strategies_of_their_own() -> None:
    ranks = list(range(hvd.size() - 1))
    process_set = hvd.add_process_set(ranks)
    parameters = make_parameters(3, 16)
    optimizer = torch.optim.SGD(parameters, lr=1.0)
    hvd.DistributedOptimizer(optimizer, op=hvd.Sum, process_set=process_set, strategy=NEGATE)
    assert hvd.strategies.of(optimizer).text == NEGATED
    for _ in range(5):
        optimizer.zero_grad()
        add_gradients(*((parameter, 1.0) for parameter in parameters))
        optimizer.step()
        among = len(ranks) if process_set.included() else 1
        assert gradient_of(parameters[0]) == [float(among)] * 16
    hvd.barrier()
    hvd.remove_process_set(process_set)

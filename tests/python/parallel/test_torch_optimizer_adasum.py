"""DistributedOptimizer with op=Adasum. Steps at right angles are added, equal ones stay: both are exact."""

from __future__ import annotations

import copy
from typing import Any

import pytest
import torch

import roundelay.torch as hvd
from ranks import Check, run_check
from small_gradients import add_gradients, make_parameters


@pytest.mark.parametrize("np", [1, 2, 3, 4])
def test_adasum(np: int, check: Check) -> None:
    run_check(check, np)


def _wrapped(parameters: list[torch.nn.Parameter], **arguments: Any) -> torch.optim.SGD:
    return hvd.DistributedOptimizer(torch.optim.SGD(parameters, lr=1.0), op=hvd.Adasum, **arguments)


def check_steps_at_right_angles_are_added() -> None:
    for compression in (hvd.Compression.none, hvd.Compression.bf16):
        parameters = make_parameters(3, size=4)
        optimizer = _wrapped(parameters, compression=compression)
        for step in range(1, 3):
            optimizer.zero_grad()
            for factor, parameter in enumerate(parameters, start=1):
                (parameter[hvd.rank()] * 2.0 * factor).backward()
                assert parameter.grad is not None
                assert parameter.grad.count_nonzero() == 1, "gradients stay this rank's own"
            optimizer.step()
            for factor, parameter in enumerate(parameters, start=1):
                expected = [-2.0 * factor * step * (index < hvd.size()) for index in range(4)]
                assert parameter.tolist() == expected


def check_equal_steps_stay_what_they_are() -> None:
    kinds: list[Any] = [
        lambda p: torch.optim.SGD(p, lr=0.5, momentum=0.5, foreach=True),
        lambda p: torch.optim.Adam(p, lr=0.5, fused=True),
        lambda p: torch.optim.AdamW(p, lr=0.5, weight_decay=0.25),
    ]
    for make in kinds:
        model = torch.nn.Sequential(torch.nn.Linear(3, 4), torch.nn.Linear(4, 2))
        hvd.broadcast_parameters(model, 0)
        alone = copy.deepcopy(model)
        ours, plain = (
            hvd.DistributedOptimizer(make(model.parameters()), op=hvd.Adasum),
            make(alone.parameters()),
        )
        for step in range(3):
            for net, optimizer in ((model, ours), (alone, plain)):
                optimizer.zero_grad()
                net(torch.full((2, 3), step + 1.0)).square().sum().backward()
                optimizer.step()
        for parameter, expected in zip(model.parameters(), alone.parameters(), strict=True):
            torch.testing.assert_close(parameter, expected, rtol=1e-5, atol=1e-6)
            assert torch.equal(hvd.broadcast(parameter.detach(), 0), parameter)


def check_parameters_that_some_ranks_do_not_use() -> None:
    """The first rank uses one, the last rank another; those between have no gradient at all."""
    first, last, frozen, nobody = make_parameters(4)
    frozen.requires_grad_(False)
    optimizer = _wrapped([first, last, frozen, nobody])
    if hvd.rank() == 0:
        add_gradients((first, 2.0))
    if hvd.rank() == hvd.size() - 1:
        add_gradients((last, 1.0))
    optimizer.step()
    assert first.tolist() == [-2.0] * 3
    assert last.tolist() == [-1.0] * 3
    assert nobody.tolist() == frozen.tolist() == [0.0] * 3


def check_closures_accumulation_and_the_ritual() -> None:
    (parameter,) = make_parameters(1)
    optimizer = _wrapped([parameter], backward_passes_per_step=2)

    def closure() -> float:
        optimizer.zero_grad()
        for _ in range(2):
            add_gradients((parameter, 1.0))
        return 3.0

    assert optimizer.step(closure) == 3.0
    assert parameter.tolist() == [-2.0] * 3
    optimizer.synchronize()  # type: ignore[attr-defined]
    with optimizer.no_sync():  # type: ignore[attr-defined]
        closure()
    if hvd.size() > 1:
        with pytest.raises(RuntimeError, match=r"Adasum.*step\(\) without it"), optimizer.skip_synchronize():  # type: ignore[attr-defined]
            pass
    optimizer.step()
    assert parameter.tolist() == [-4.0] * 3


def check_overflow_on_one_rank_skips_the_step_on_all() -> None:
    for fused in (False, True):
        (parameter,) = make_parameters(1)
        plain = torch.optim.SGD([parameter], lr=1.0, fused=fused)
        optimizer = hvd.DistributedOptimizer(plain, op=hvd.Adasum)
        scaler = torch.amp.GradScaler("cpu", init_scale=4.0)
        last = hvd.size() - 1
        for bad_rank in (None, last, None, 0):
            optimizer.zero_grad()
            value = float("inf") if hvd.rank() == bad_rank else 1.0
            scaler.scale((parameter * value).sum()).backward()
            scaler.step(optimizer)
            scaler.update()
        assert parameter.tolist() == [-2.0] * 3
        assert scaler.get_scale() == 1.0


def check_a_step_that_raises() -> None:
    (parameter,) = make_parameters(1)
    optimizer = _wrapped([parameter])

    def fails() -> float:
        raise ZeroDivisionError("made to fail")

    with pytest.raises(ZeroDivisionError):
        optimizer.step(fails)
    add_gradients((parameter, 1.0))
    optimizer.step()
    assert parameter.tolist() == [-1.0] * 3

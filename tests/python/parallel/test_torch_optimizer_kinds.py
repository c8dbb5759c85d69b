"""Every optimizer and learning rate scheduler of torch, wrapped: bit for bit what it does in one process."""

from __future__ import annotations

import inspect
import warnings
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch.optim import lr_scheduler

import roundelay.torch as hvd
from ranks import Check, run_check
from small_gradients import sum_of_ranks


@pytest.mark.parametrize("np", [1, 2, 3, 4])
def test_kinds(np: int, check: Check) -> None:
    run_check(check, np)


def check_a_line_search_sees_one_loss() -> None:
    """Each rank's own loss would end the search at another point."""
    for reduction in (hvd.Average, hvd.Sum):
        model = torch.nn.Linear(4, 1)
        torch.manual_seed(hvd.rank())
        inputs = torch.randn(32, 4)
        targets = inputs.sum(dim=1, keepdim=True) + torch.randn(32, 1) * (1 + 2 * hvd.rank())
        hvd.broadcast_parameters(model.state_dict(), root_rank=0)
        search = torch.optim.LBFGS(model.parameters(), max_iter=20, line_search_fn="strong_wolfe")
        optimizer = hvd.DistributedOptimizer(search, model.named_parameters(), op=reduction)
        calls = [0]

        def closure(
            model: torch.nn.Module = model, optimizer: Any = optimizer, calls: list[int] = calls
        ) -> torch.Tensor:
            calls[0] += 1
            optimizer.zero_grad()
            loss: torch.Tensor = (model(inputs) - targets).square().mean()  # noqa: B023
            loss.backward()  # type: ignore[no-untyped-call]
            return loss

        losses = [float(optimizer.step(closure)) for _ in range(3)]
        mine = [calls[0], *losses, *model.weight.flatten().tolist()]
        assert hvd.allgather_object(mine) == [mine] * hvd.size()
        assert losses[2] < losses[0]


class _Nested(torch.optim.SGD):
    """Its step() is that of its base class, which torch wraps too once there is an object of that."""

    def step(self, closure: Any = None) -> Any:
        return super().step(closure)


def check_a_step_within_a_step_is_one() -> None:
    torch.optim.SGD([torch.nn.Parameter(torch.zeros(1))], lr=0.1)
    parameter = torch.nn.Parameter(torch.zeros(2))
    optimizer = hvd.DistributedOptimizer(
        _Nested([parameter], lr=1.0), strategy=hvd.strategies.LocalSGD(period=2, within_node="period")
    )
    values = []
    for _ in range(4):
        optimizer.zero_grad()
        (parameter * (hvd.rank() + 1.0)).sum().backward()  # type: ignore[no-untyped-call]
        optimizer.step()
        values.append(parameter[0].item())
    mean = sum_of_ranks() / hvd.size()
    own = hvd.rank() + 1.0
    assert values == pytest.approx([-own, -2.0 * mean, -2.0 * mean - own, -4.0 * mean])


OPTIMIZERS: list[type[torch.optim.Optimizer]] = [
    kind
    for kind in vars(torch.optim).values()
    if inspect.isclass(kind) and issubclass(kind, torch.optim.Optimizer) and kind is not torch.optim.Optimizer
]


class Doubling(torch.optim.SGD):
    """A user's own: other constructor, a step of its own around the parent's, state of its own."""

    def __init__(self, *groups: dict[str, Any], extra: str) -> None:
        super().__init__(list(groups), lr=0.25)
        self.extra = extra
        self.calls = 0

    def step(self, closure: Callable[[], float] | None = None) -> float | None:  # type: ignore[override]
        self.calls += 1
        loss: float | None = super().step(closure)
        with torch.no_grad():
            for group in self.param_groups:
                for parameter in group["params"]:
                    parameter.mul_(2.0)
        return loss


def _variants(kind: type[torch.optim.Optimizer]) -> list[dict[str, Any]]:
    names = inspect.signature(kind).parameters
    return [{}, *({name: True} for name in ("foreach", "fused", "amsgrad", "nesterov") if name in names)]


def _built(kind: type[torch.optim.Optimizer], parameters: list[torch.Tensor], options: dict[str, Any]) -> Any:
    if kind is Doubling:
        return Doubling({"params": parameters}, extra="kept")
    rate: dict[str, Any] = {"momentum": 0.5} if "nesterov" in options else {}
    return kind(parameters, lr=0.25, **rate, **options)  # type: ignore[call-arg]


def _parameters() -> list[torch.Tensor]:
    first = torch.arange(6, dtype=torch.float32).reshape(2, 3)
    return [torch.nn.Parameter(first), torch.nn.Parameter(first.flip(0).contiguous() - 2)]


def _step(optimizer: Any, parameters: list[torch.Tensor], factor: float, sparse: bool) -> None:
    """Gradients are small whole numbers, so that their sums are exact."""

    def closure() -> torch.Tensor:
        optimizer.zero_grad()
        terms = []
        for parameter in parameters:
            used = (
                torch.nn.functional.embedding(torch.tensor([1]), parameter, sparse=True)
                if sparse
                else parameter
            )
            pattern = torch.arange(used.numel()).reshape(used.shape) - 2.0
            terms.append((used * pattern).sum() * factor)
        loss = torch.stack(terms).sum()
        loss.backward()  # type: ignore[no-untyped-call]
        return loss.detach() / factor  # the same on all ranks

    if isinstance(optimizer, torch.optim.LBFGS):
        optimizer.step(closure)
    else:
        closure()
        optimizer.step()


def check_every_optimizer() -> None:
    assert len(OPTIMIZERS) >= 14
    for kind in [*OPTIMIZERS, Doubling]:
        for options in _variants(kind):
            ours, alone = _parameters(), _parameters()
            try:
                plain = _built(kind, alone, options)
            except (RuntimeError, ValueError):
                if not options:
                    raise
                continue  # this torch has no such variant on CPUs
            optimizer = _built(kind, ours, options)
            assert hvd.DistributedOptimizer(optimizer, op=hvd.Sum) is optimizer
            sparse = kind is torch.optim.SparseAdam
            for _ in range(3):
                _step(optimizer, ours, hvd.rank() + 1.0, sparse)
                _step(plain, alone, sum_of_ranks(), sparse)
            for parameter, expected in zip(ours, alone, strict=True):
                assert torch.equal(parameter, expected), (kind.__name__, options)


def check_a_subclass_keeps_what_is_its_own() -> None:
    parameters = _parameters()
    optimizer = hvd.DistributedOptimizer(Doubling({"params": parameters}, extra="kept"), op=hvd.Sum)
    calls = 0
    for backwards in (1, 2):
        calls += 1
        optimizer.zero_grad()
        start = parameters[0].detach().clone()
        for _ in range(backwards):
            parameters[0].sum().backward()
        assert optimizer.step() is None
        assert torch.equal(parameters[0], (start - 0.25 * backwards * hvd.size()) * 2)
    assert (optimizer.extra, optimizer.calls) == ("kept", calls)


SCHEDULERS: dict[str, Callable[[Any], Any]] = {
    "LambdaLR": lambda o: lr_scheduler.LambdaLR(o, lambda epoch: 0.5**epoch),
    "MultiplicativeLR": lambda o: lr_scheduler.MultiplicativeLR(o, lambda epoch: 0.5),
    "StepLR": lambda o: lr_scheduler.StepLR(o, 2, 0.5),
    "MultiStepLR": lambda o: lr_scheduler.MultiStepLR(o, [1, 3], 0.5),
    "ConstantLR": lambda o: lr_scheduler.ConstantLR(o, 0.5, 2),
    "LinearLR": lambda o: lr_scheduler.LinearLR(o, 0.5, 1.0, 4),
    "ExponentialLR": lambda o: lr_scheduler.ExponentialLR(o, 0.5),
    "SequentialLR": lambda o: lr_scheduler.SequentialLR(
        o, [lr_scheduler.ConstantLR(o, 0.5, 2), lr_scheduler.ExponentialLR(o, 0.5)], [2]
    ),
    "CosineAnnealingLR": lambda o: lr_scheduler.CosineAnnealingLR(o, 4),
    "ChainedScheduler": lambda o: lr_scheduler.ChainedScheduler(
        [lr_scheduler.ConstantLR(o, 0.5, 2), lr_scheduler.ExponentialLR(o, 0.5)], o
    ),
    "ReduceLROnPlateau": lambda o: lr_scheduler.ReduceLROnPlateau(o, patience=0),
    "CyclicLR": lambda o: lr_scheduler.CyclicLR(o, 0.125, 0.5, step_size_up=2),
    "CosineAnnealingWarmRestarts": lambda o: lr_scheduler.CosineAnnealingWarmRestarts(o, 3),
    "OneCycleLR": lambda o: lr_scheduler.OneCycleLR(o, 0.5, total_steps=6),
    "PolynomialLR": lambda o: lr_scheduler.PolynomialLR(o, 5),
    "SWALR": lambda o: torch.optim.swa_utils.SWALR(o, 0.125, 3),
}


def _rates(make: Callable[[Any], Any], wrap: str) -> list[float]:
    (parameter,) = [torch.nn.Parameter(torch.zeros(2))]
    optimizer = torch.optim.SGD([parameter], lr=0.25, momentum=0.5)
    if wrap == "before":
        hvd.DistributedOptimizer(optimizer, op=hvd.Sum)
    scheduler = make(optimizer)
    if wrap == "after":
        hvd.DistributedOptimizer(optimizer, op=hvd.Sum)
    rates = []
    for _ in range(5):
        optimizer.zero_grad()
        parameter.sum().backward()
        optimizer.step()
        scheduler.step(*([1.0] if isinstance(scheduler, lr_scheduler.ReduceLROnPlateau) else []))
        rates.append(optimizer.param_groups[0]["lr"])
        assert parameter.grad is not None
        assert parameter.grad.tolist() == [1.0 if wrap == "never" else hvd.size()] * 2
    return rates


def check_every_scheduler_made_before_and_after_wrapping() -> None:
    known = {
        name
        for name, value in vars(lr_scheduler).items()
        if inspect.isclass(value) and issubclass(value, lr_scheduler.LRScheduler) and not name.startswith("_")
    }
    assert known - {"LRScheduler"} <= SCHEDULERS.keys()
    for name, make in SCHEDULERS.items():
        with warnings.catch_warnings():
            warnings.simplefilter("error")  # such as "lr_scheduler.step() before optimizer.step()"
            warnings.filterwarnings("ignore", message=".*epoch parameter.*")
            expected = _rates(make, "never")
            assert _rates(make, "before") == _rates(make, "after") == expected, name


def check_averaged_models() -> None:
    model = torch.nn.Linear(2, 1)
    optimizer = hvd.DistributedOptimizer(torch.optim.SGD(model.parameters(), lr=0.5), op=hvd.Sum)
    averaged = torch.optim.swa_utils.AveragedModel(model)  # a deepcopy
    model(torch.ones(1, 2)).sum().backward()
    optimizer.step()
    averaged.update_parameters(model)
    assert model.weight.grad is not None
    assert model.weight.grad.tolist() == [[hvd.size()] * 2]

"""DistributedOptimizer in the training loops that people write: exact sums, or compared to one process."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from torch import nn
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset

import roundelay.torch as hvd
from ranks import Check, run_check
from small_gradients import (
    ALONE,
    POOLED,
    add_gradients,
    gradient_of,
    make_parameters,
    sum_of_ranks,
    wrapped_sgd,
)


@pytest.mark.parametrize("np", [1, 2, 3, 4])
def test_loops(np: int, check: Check) -> None:
    run_check(check, np)


@pytest.mark.parametrize("np", [2, 4])
def test_loops_with_gradients_in_a_pool(np: int, check: Check) -> None:
    run_check(check, np, env={POOLED: "1"})


@pytest.mark.slow
@pytest.mark.parametrize("np", [2, 4])
def test_loops_without_a_pool(np: int, check: Check) -> None:
    run_check(check, np, env=ALONE)


def check_no_sync() -> None:
    first, inside, outside = make_parameters(3)
    optimizer: Any = wrapped_sgd([first, inside, outside])
    for step in range(3):
        optimizer.zero_grad(set_to_none=step != 1)
        tensors = hvd.stats()["tensors"]
        with optimizer.no_sync():
            add_gradients((first, hvd.rank() + 1.0), (inside, 1.0))
            with optimizer.no_sync():
                add_gradients((first, hvd.rank() + 1.0))
        assert gradient_of(first) == [2 * (hvd.rank() + 1.0)] * 3
        assert hvd.stats()["tensors"] == tensors, "something was sent"
        add_gradients((first, hvd.rank() + 1.0), (outside, 2.0))
        assert gradient_of(first) == [3 * sum_of_ranks()] * 3
        assert gradient_of(inside) == [hvd.size()] * 3, "reduced, though only no_sync() brought it"
        assert gradient_of(outside) == [2.0 * hvd.size()] * 3
        optimizer.step()
    optimizer.zero_grad()
    with pytest.raises(ZeroDivisionError), optimizer.no_sync():
        raise ZeroDivisionError
    add_gradients((first, 1.0))
    assert gradient_of(first) == [hvd.size()] * 3


def check_no_sync_after_a_reduced_backward_and_before_step() -> None:
    (parameter,) = make_parameters(1)
    optimizer: Any = wrapped_sgd([parameter])
    for _ in range(2):
        optimizer.zero_grad()
        add_gradients((parameter, hvd.rank() + 1.0))
        with optimizer.no_sync():
            add_gradients((parameter, 10.0))
        optimizer.step()  # completes what no_sync() left
        assert gradient_of(parameter) == [sum_of_ranks() + 10.0 * hvd.size()] * 3


def check_windows_that_zero_grad_cuts_short() -> None:
    (parameter,) = make_parameters(1)
    optimizer: Any = wrapped_sgd([parameter], backward_passes_per_step=2)
    add_gradients((parameter, 100.0))
    optimizer.zero_grad()
    for _ in range(2):
        add_gradients((parameter, hvd.rank() + 1.0))
    assert gradient_of(parameter) == [2 * sum_of_ranks()] * 3
    optimizer.zero_grad()  # between backward and step: nothing to step with
    optimizer.step()
    assert parameter.grad is None
    assert parameter.tolist() == [0.0] * 3


def check_the_same_module_twice_in_a_step() -> None:
    layer = nn.Linear(2, 2, bias=False)
    layer.weight.data = torch.tensor([[1.0, 2.0], [0.0, 1.0]])
    alone = copy.deepcopy(layer)
    optimizer = hvd.DistributedOptimizer(torch.optim.SGD(layer.parameters(), lr=0.5), op=hvd.Sum)
    for _ in range(2):
        optimizer.zero_grad()
        x = torch.full((1, 2), hvd.rank() + 1.0)
        (layer(layer(x)).sum() + layer(x).sum()).backward()
        alone.zero_grad()
        for rank in range(hvd.size()):
            y = torch.full((1, 2), rank + 1.0)
            (alone(alone(y)).sum() + alone(y).sum()).backward()
        assert layer.weight.grad is not None
        assert alone.weight.grad is not None
        assert torch.equal(layer.weight.grad, alone.weight.grad)


def _gan() -> tuple[nn.Module, nn.Module]:
    torch.manual_seed(11)
    generator = nn.Sequential(nn.Linear(2, 4), nn.Tanh(), nn.Linear(4, 3))
    discriminator = nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 1))
    return generator.double(), discriminator.double()


def _train_gan(
    models: tuple[nn.Module, nn.Module],
    optimizers: tuple[torch.optim.Optimizer, torch.optim.Optimizer],
    data: list[tuple[torch.Tensor, torch.Tensor]],
) -> None:
    (generator, discriminator), (for_generator, for_discriminator) = models, optimizers
    for noise, real in data:
        for_discriminator.zero_grad()
        discriminator(real).mean().neg().backward()
        discriminator(generator(noise).detach()).mean().backward()
        for_discriminator.step()
        for_generator.zero_grad()
        discriminator(generator(noise)).mean().neg().backward()  # gives the discriminator gradients too
        for_generator.step()


def check_gan_with_two_optimizers() -> None:
    torch.manual_seed(3)
    data = [(torch.randn(12, 2).double(), torch.randn(12, 3).double()) for _ in range(4)]
    share = 12 // hvd.size()
    mine = [tuple(t[hvd.rank() * share : (hvd.rank() + 1) * share] for t in pair) for pair in data]
    models, alone = _gan(), _gan()
    plain = [torch.optim.SGD(model.parameters(), lr=0.1) for model in alone]
    ours = [hvd.DistributedOptimizer(torch.optim.SGD(m.parameters(), lr=0.1)) for m in models]
    _train_gan(alone, (plain[0], plain[1]), data)
    _train_gan(models, (ours[0], ours[1]), mine)  # type: ignore[arg-type]
    for model, expected in zip(models, alone, strict=True):
        for parameter, other in zip(model.parameters(), expected.parameters(), strict=True):
            torch.testing.assert_close(parameter, other, rtol=1e-9, atol=1e-12)


def check_one_optimizer_over_several_models() -> None:
    first, second = make_parameters(2)
    optimizer = wrapped_sgd([first, second])
    for _ in range(3):
        optimizer.zero_grad()
        add_gradients((first, hvd.rank() + 1.0))
        add_gradients((second, 1.0), (first, 1.0))
        add_gradients((second, hvd.rank() + 1.0))
        optimizer.step()
        assert gradient_of(first) == gradient_of(second) == [sum_of_ranks() + hvd.size()] * 3


def check_loss_scaling_in_all_its_forms() -> None:
    """Overflow on one rank alone: in the window's end, in its beginning, and where the window is short."""
    last = hvd.size() - 1
    for passes, backwards in ((1, 1), (2, 2), (3, 2), (1, 2)):
        for fused, unscale in ((False, False), (False, True), (True, False)):
            (parameter,) = make_parameters(1)
            plain = torch.optim.SGD([parameter], lr=1.0, fused=fused)
            optimizer = hvd.DistributedOptimizer(plain, op=hvd.Sum, backward_passes_per_step=passes)
            scaler = torch.amp.GradScaler("cpu", init_scale=16.0)
            for bad_rank in (None, last, 0, None):
                for number in range(backwards):
                    bad = hvd.rank() == bad_rank and number == backwards - 1
                    value = float("inf") if bad else hvd.rank() + 1.0
                    scaler.scale((parameter * value).sum()).backward()
                if unscale:
                    scaler.unscale_(optimizer)
                    torch.nn.utils.clip_grad_value_([parameter], 1000.0)
                scaler.step(optimizer)
                scaler.update()
                optimizer.zero_grad(set_to_none=not fused)
            assert parameter.tolist() == [-2 * backwards * sum_of_ranks()] * 3, (passes, backwards, fused)
            assert scaler.get_scale() == 4.0


def check_loss_scaling_with_other_operations_and_model_zero_grad() -> None:
    model = nn.Linear(1, 1, bias=False)
    model.weight.data.zero_()
    optimizer = hvd.DistributedOptimizer(torch.optim.SGD(model.parameters(), lr=1.0), op=hvd.Max)
    scaler = torch.amp.GradScaler("cpu", init_scale=4.0)
    for value in (1.0, float("inf") if hvd.rank() == 0 else 1.0, 1.0):
        model.zero_grad()
        scaler.scale(model(torch.full((1, 1), value * (hvd.rank() + 1))).sum()).backward()
        scaler.step(optimizer)
        scaler.update()
    assert model.weight.item() == -2.0 * hvd.size()


def check_autocast() -> None:
    model = nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 1))
    for parameter in model.parameters():
        parameter.data.fill_(0.5)
    alone = copy.deepcopy(model)
    optimizer = hvd.DistributedOptimizer(torch.optim.SGD(model.parameters(), lr=0.5), op=hvd.Sum)
    plain = torch.optim.SGD(alone.parameters(), lr=0.5)
    for net, chosen, ranks in ((model, optimizer, [hvd.rank()]), (alone, plain, list(range(hvd.size())))):
        for _ in range(2):
            chosen.zero_grad()
            for rank in ranks:
                with torch.autocast("cpu", torch.bfloat16):
                    loss = net(torch.full((1, 4), rank + 1.0)).sum()
                loss.backward()
            chosen.step()
    for parameter, expected in zip(model.parameters(), alone.parameters(), strict=True):
        assert parameter.grad is not None
        assert parameter.grad.dtype == torch.float32
        torch.testing.assert_close(parameter, expected)


SAMPLES = 24  # divided by 1, 2, 3 and 4 ranks


def _classification() -> tuple[nn.Module, TensorDataset]:
    torch.manual_seed(2)
    dataset = TensorDataset(torch.randn(SAMPLES, 5).double(), torch.randint(0, 3, (SAMPLES,)))
    return nn.Sequential(nn.Linear(5, 6), nn.Tanh(), nn.Linear(6, 3)).double(), dataset


def _manual_loop(model: nn.Module, loader: Any, optimizer: Any, scheduler: Any) -> None:
    """As one writes training_step() with manual optimization: the loop owns every call."""
    for x, y in loader:

        def training_step(x: torch.Tensor = x, y: torch.Tensor = y) -> torch.Tensor:
            loss = nn.functional.cross_entropy(model(x), y)
            optimizer.zero_grad(set_to_none=True)
            loss.backward()
            return loss

        optimizer.step(closure=training_step)
        scheduler.step()


def _trainer_loop(model: nn.Module, loader: Any, optimizer: Any, scheduler: Any) -> None:
    """As trainers do: accumulation over 2 batches, clipping, a schedule, a last window that is short."""
    batches = list(loader)
    model.zero_grad()
    for number, (x, y) in enumerate(batches, start=1):
        (nn.functional.cross_entropy(model(x), y) / 2).backward()
        if number % 2 == 0 or number == len(batches):
            if hasattr(optimizer, "synchronize"):
                optimizer.synchronize()
            nn.utils.clip_grad_norm_(model.parameters(), 0.5)
            optimizer.step()
            scheduler.step()
            model.zero_grad()


def _compare(loop: Callable[[nn.Module, Any, Any, Any], None], passes: int, workers: int) -> None:
    """An epoch on DataLoader and DistributedSampler equals one process on the same samples."""
    model, dataset = _classification()
    alone = copy.deepcopy(model)
    optimizer = hvd.DistributedOptimizer(
        torch.optim.AdamW(model.parameters(), lr=0.05),
        named_parameters=model.named_parameters(),
        backward_passes_per_step=passes,
    )
    plain = torch.optim.AdamW(alone.parameters(), lr=0.05)
    share = SAMPLES // hvd.size()
    sampler: DistributedSampler[Any] = DistributedSampler(
        dataset, hvd.size(), hvd.rank(), shuffle=True, seed=4
    )
    sampler.set_epoch(1)
    batch = share // 3
    mine = DataLoader(dataset, batch, sampler=sampler, num_workers=workers)

    def together() -> Iterator[tuple[torch.Tensor, torch.Tensor]]:
        samplers: list[DistributedSampler[Any]] = [
            DistributedSampler(dataset, hvd.size(), rank, seed=4) for rank in range(hvd.size())
        ]
        for other in samplers:
            other.set_epoch(1)
        orders = [list(other) for other in samplers]
        for start in range(0, share, batch):
            indices = [index for order in orders for index in order[start : start + batch]]
            yield dataset[indices]

    for net, batches, chosen in ((model, mine, optimizer), (alone, together(), plain)):
        loop(net, batches, chosen, torch.optim.lr_scheduler.LinearLR(chosen, 1.0, 0.1, 4))
    for parameter, expected in zip(model.parameters(), alone.parameters(), strict=True):
        torch.testing.assert_close(parameter, expected, rtol=1e-9, atol=1e-12)


def check_a_manual_loop_with_loader_workers() -> None:
    _compare(_manual_loop, passes=1, workers=2)  # forked after init


def check_a_trainer_loop() -> None:
    _compare(_trainer_loop, passes=2, workers=0)
    _compare(_trainer_loop, passes=1, workers=0)


class _Asks(torch.utils.data.Dataset[int]):
    """Uses the library where it must not: in a forked worker."""

    def __len__(self) -> int:
        return 1

    def __getitem__(self, _: int) -> int:
        return hvd.rank()


def check_the_library_in_a_loader_worker_is_an_error_with_a_cure() -> None:
    with pytest.raises(RuntimeError, match="spawn"):
        list(DataLoader(_Asks(), num_workers=1))
    (parameter,) = make_parameters(1)
    optimizer = wrapped_sgd([parameter])
    add_gradients((parameter, 1.0))
    optimizer.step()
    assert gradient_of(parameter) == [hvd.size()] * 3


def check_names_that_scripts_look_at() -> None:
    model = nn.Linear(2, 2)
    optimizer: Any = torch.optim.SGD(model.parameters(), lr=1.0)
    hvd.DistributedOptimizer(optimizer, model.named_parameters())
    assert {name: id(p) for p, name in optimizer._parameter_names.items()} == {
        "weight": id(model.weight),
        "bias": id(model.bias),
    }
    model(torch.ones(1, 2)).sum().backward()
    assert not optimizer._handles
    extra = nn.Parameter(torch.zeros(1))
    optimizer.add_param_group({"params": [extra]})
    assert extra in optimizer._requires_update
    assert optimizer._parameter_names[extra] == "noname.1.0"

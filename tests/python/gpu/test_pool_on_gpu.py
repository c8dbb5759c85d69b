"""Gradients in a pool on a GPU: what users do with them, and training as one process does it."""

from __future__ import annotations

import contextlib
import copy
import warnings

import pytest
import torch
from torch import nn

import gpu_device
import roundelay.torch as hvd
from parallel.test_gradient_pool import (  # noqa: F401  on a GPU, too
    check_a_gradient_that_is_kept_stays_where_it_is,
    check_a_parameter_that_comes_later,
    check_double_backward_keeps_its_graph,
    check_frozen_and_unfrozen,
    check_gradients_that_the_user_replaces,
    check_no_pool_while_a_rank_has_joined,
    check_several_dtypes,
    check_the_same_bits_as_without_a_pool,
    check_the_work_of_a_step,
    check_unused_ones_keep_what_they_have,
    check_what_nobody_holds_is_not_moved_out,
)
from ranks import Check, run_check
from roundelay.torch._internal.optimizer.distributed import wrapper_of
from small_gradients import add_gradients, gradient_of, make_parameters, sum_of_ranks, use_pool, wrapped_sgd

pytestmark = pytest.mark.slow

ON_GPU = {"RANKS_DEVICE": gpu_device.NAME}
BATCH = 4  # of one rank
STEPS = 6


@pytest.mark.parametrize(("np", "seed"), [(1, 1), (2, 2), (4, 3)])
def test_gradient_pool_on_gpu(np: int, seed: int, check: Check) -> None:
    run_check(check, np, env={**ON_GPU, "FAKE_GPU_SEED": str(seed)}, fresh=True)


def test_in_small_buckets(check: Check) -> None:
    run_check(check, 2, env={**ON_GPU, "ROUNDELAY_THETA": "64"}, fresh=True)


def _buckets(optimizer: torch.optim.Optimizer) -> int:
    wrapper = wrapper_of(optimizer)
    assert wrapper is not None
    return wrapper.buckets()


def check_no_memory_on_one_rank_is_no_pool_on_all() -> None:
    parameters = make_parameters(2)
    optimizer = wrapped_sgd(parameters)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        for step in range(5):
            optimizer.zero_grad()
            last = hvd.rank() == hvd.size() - 1
            with gpu_device.full() if step == 1 and last else contextlib.nullcontext():
                add_gradients((parameters[0], hvd.rank() + 1.0), (parameters[1], 1.0))
            optimizer.step()
            assert gradient_of(parameters[0]) == [sum_of_ranks()] * 3
    texts = [str(warning.message) for warning in caught if "gradient pool" in str(warning.message)]
    assert _buckets(optimizer) == 0
    assert len(texts) == (hvd.rank() == hvd.size() - 1 and hvd.size() > 1)
    assert all("on GPU 0: out of memory" in text for text in texts)


def check_what_torch_keeps_for_nobody_makes_room() -> None:
    parameters = make_parameters(1, 1 << 16)  # several might be fused, and memory be wanted for that
    optimizer = wrapped_sgd(parameters)
    torch.empty(1 << 20)
    with warnings.catch_warnings():
        warnings.filterwarnings("error", message="no gradient pool")
        for step in range(4):
            optimizer.zero_grad()
            with gpu_device.used_up() if step == 1 else contextlib.nullcontext():
                add_gradients((parameters[0], hvd.rank() + 1.0))
            optimizer.step()
    assert _buckets(optimizer) > 0 or hvd.size() == 1


def _model() -> nn.Module:
    torch.manual_seed(5)
    return nn.Sequential(nn.Linear(6, 5), nn.Tanh(), nn.Linear(5, 4), nn.Linear(4, 3)).double()


class _Mixed(nn.Module):
    """A layer on the CPU, the rest on the GPU."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(6)
        self.first = nn.Linear(6, 5, device="cpu").double()
        self.second = nn.Linear(5, 3).double()

    def forward(self, values: torch.Tensor) -> torch.Tensor:
        output: torch.Tensor = self.second(self.first(values.cpu()).to(gpu_device.NAME))
        return output


def _train(
    model: nn.Module, optimizers: list[torch.optim.Optimizer], batches: list[torch.Tensor], passes: int = 1
) -> None:
    for step, batch in enumerate(batches):
        for optimizer in optimizers:
            optimizer.zero_grad(set_to_none=step % 3 != 0)
        for part in batch.chunk(passes):
            (model(part).square().mean() / passes).backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 0.5)
        for optimizer in optimizers:
            optimizer.step()


def _as_one_process(model: nn.Module, parts: int = 1, passes: int = 1) -> None:
    """parts: optimizers that share the parameters."""
    alone = copy.deepcopy(model)
    whole = [torch.randn(BATCH * hvd.size(), 6, dtype=torch.float64) for _ in range(STEPS)]
    _train(alone, [torch.optim.SGD(alone.parameters(), lr=0.05, momentum=0.9)], whole)
    every = list(model.parameters())
    optimizers: list[torch.optim.Optimizer] = []
    for part in range(parts):
        optimizer = torch.optim.SGD(every[part::parts], lr=0.05, momentum=0.9)
        optimizers.append(hvd.DistributedOptimizer(optimizer, backward_passes_per_step=passes))
    own = [batch[BATCH * hvd.rank() :][:BATCH] for batch in whole]
    _train(model, optimizers, own, passes)
    for one, other in zip(every, alone.parameters(), strict=True):
        assert one.device == other.device
        torch.testing.assert_close(one.detach().cpu(), other.detach().cpu(), rtol=1e-12, atol=1e-12)
    if hvd.size() > 1:
        assert all(_buckets(optimizer) > 0 for optimizer in optimizers)


def check_training_with_one_optimizer() -> None:
    _as_one_process(_model())


def check_training_with_several_optimizers() -> None:
    _as_one_process(_model(), parts=3)


def check_training_on_two_devices() -> None:
    _as_one_process(_Mixed())
    _as_one_process(_Mixed(), parts=2)


def check_accumulation() -> None:
    _as_one_process(_model(), passes=2)


def check_a_second_backward_before_the_step() -> None:
    parameters = make_parameters(2)
    optimizer = wrapped_sgd(parameters)
    use_pool(optimizer)
    for _ in range(3):
        optimizer.zero_grad()
        add_gradients((parameters[0], hvd.rank() + 1.0), (parameters[1], 1.0))
        add_gradients((parameters[0], 2.0), (parameters[1], 3.0))
        optimizer.step()
        assert gradient_of(parameters[0]) == [sum_of_ranks() + 2.0 * hvd.size()] * 3
        assert gradient_of(parameters[1]) == [4.0 * hvd.size()] * 3


def check_who_holds_an_earlier_gradient_keeps_its_values() -> None:
    parameters = make_parameters(2)
    optimizer = wrapped_sgd(parameters)
    use_pool(optimizer)
    before = hvd.stats()["gradients_moved_out"]
    held: list[torch.Tensor] = []
    for step in range(4):
        optimizer.zero_grad()
        add_gradients((parameters[0], (hvd.rank() + 1.0) * (step + 1)), (parameters[1], 1.0))
        assert parameters[0].grad is not None
        held.append(parameters[0].grad)
        optimizer.step()
    for step, gradient in enumerate(held):
        assert gradient.tolist() == [sum_of_ranks() * (step + 1)] * 3
    moved_out = len(held) - 1 if hvd.size() > 1 else 0
    assert hvd.stats()["gradients_moved_out"] == before + moved_out


def check_a_gradient_is_a_tensor_of_its_own() -> None:
    parameters = make_parameters(2)
    optimizer = wrapped_sgd(parameters)
    use_pool(optimizer)
    add_gradients(*((parameter, 1.0) for parameter in parameters))
    gradient = parameters[0].grad
    assert gradient is not None
    assert gradient.device == parameters[0].device
    assert gradient.untyped_storage().nbytes() == 3 * 4
    gradient.detach_()
    hvd.allreduce_(gradient, op=hvd.Average)
    assert gradient_of(parameters[0]) == [hvd.size()] * 3


def check_nothing_is_measured_on_the_cpu() -> None:
    """What a pool on the CPU would meet for; its size is no reason to."""
    parameters = make_parameters(2, 1 << 17)
    optimizer = wrapped_sgd(parameters)
    use_pool(optimizer)
    before = hvd.stats()["operations"]
    optimizer.zero_grad()
    add_gradients(*((parameter, 1.0) for parameter in parameters))
    optimizer.step()
    if hvd.size() > 1:
        assert hvd.stats()["operations"] - before == _buckets(optimizer)
    assert all(value == hvd.size() for value in gradient_of(parameters[0]))

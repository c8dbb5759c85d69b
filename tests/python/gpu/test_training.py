"""Training on GPUs: several ranks do what one process does with the whole batch."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import pytest
import torch

import gpu_device
import roundelay.torch as hvd
from ranks import Check, run_check

STEPS = 3
BATCH = 4  # of one rank

Model = torch.nn.Module


@pytest.mark.parametrize("np", [1, 2, 4])
def test_training(np: int, check: Check) -> None:
    run_check(check, np, env={"RANKS_DEVICE": gpu_device.NAME}, fresh=True)


class _Mixed(torch.nn.Module):
    """A layer on the CPU, the rest on the GPU."""

    def __init__(self) -> None:
        super().__init__()
        self.first = torch.nn.Linear(6, 5, device="cpu")
        self.second = torch.nn.Linear(5, 3)

    def forward(self, values: torch.Tensor) -> torch.Tensor:
        output: torch.Tensor = self.second(self.first(values.cpu()).to(gpu_device.NAME))
        return output


def _convolution() -> Model:
    return torch.nn.Sequential(
        torch.nn.Conv2d(2, 3, 3),
        torch.nn.ReLU(),
        torch.nn.Flatten(),
        torch.nn.Linear(3 * 4 * 4, 3),
    ).double()


def _own(whole: torch.Tensor) -> torch.Tensor:
    return whole[BATCH * hvd.rank() :][:BATCH]


def _train(model: Model, optimizer: torch.optim.Optimizer, batches: list[torch.Tensor]) -> None:
    for batch in batches:
        optimizer.zero_grad()
        model(batch).square().mean().backward()
        optimizer.step()


def _compare(alone: Model, together: Model, tolerance: float) -> None:
    for one, other in zip(together.state_dict().values(), alone.state_dict().values(), strict=True):
        assert one.device == other.device
        torch.testing.assert_close(one.cpu(), other.cpu(), rtol=tolerance, atol=tolerance)


def _as_one_process(make: Callable[[], Model], inputs: tuple[int, ...], tolerance: float, **how: Any) -> None:
    torch.manual_seed(1)
    alone = make()
    together = copy.deepcopy(alone)
    dtype = next(alone.parameters()).dtype
    whole = [torch.randn(BATCH * hvd.size(), *inputs, dtype=dtype) for _ in range(STEPS)]
    single = torch.optim.SGD(alone.parameters(), lr=0.05, momentum=0.9)
    _train(alone, single, whole)
    optimizer = torch.optim.SGD(together.parameters(), lr=0.05, momentum=0.9)
    groups = [list(together.parameters())] if how.pop("grouped", False) else None
    hvd.DistributedOptimizer(optimizer, named_parameters=together.named_parameters(), groups=groups, **how)
    _train(together, optimizer, [_own(batch) for batch in whole])
    _compare(alone, together, tolerance)


def check_linear_layers() -> None:
    def make() -> Model:
        return torch.nn.Sequential(torch.nn.Linear(6, 5), torch.nn.Tanh(), torch.nn.Linear(5, 3)).double()

    _as_one_process(make, (6,), 1e-12)
    _as_one_process(make, (6,), 1e-12, grouped=True)


def check_convolutions() -> None:
    _as_one_process(_convolution, (2, 6, 6), 1e-12)


def check_a_model_on_two_devices() -> None:
    _as_one_process(_Mixed, (6,), 1e-5)
    _as_one_process(_Mixed, (6,), 1e-5, grouped=True)


def check_half_precision_and_compression() -> None:
    def half() -> Model:
        return torch.nn.Linear(6, 3).bfloat16()

    _as_one_process(half, (6,), 5e-2)
    for compression in (hvd.Compression.fp16, hvd.Compression.bf16):
        _as_one_process(lambda: torch.nn.Linear(6, 3), (6,), 5e-2, compression=compression)


def check_embeddings_with_sparse_gradients() -> None:
    torch.manual_seed(2)
    alone = torch.nn.Embedding(7, 3, sparse=True)
    together = copy.deepcopy(alone)
    whole = torch.randint(7, (BATCH * hvd.size(),))
    optimizer = torch.optim.SGD(together.parameters(), lr=0.5)
    hvd.DistributedOptimizer(optimizer, named_parameters=together.named_parameters())
    for model, made, batch in (
        (alone, torch.optim.SGD(alone.parameters(), lr=0.5), whole),
        (together, optimizer, _own(whole)),
    ):
        model(batch).square().mean().backward()
        made.step()
    _compare(alone, together, 1e-6)


def check_gradient_scaler() -> None:
    model = torch.nn.Linear(4, 2)
    hvd.broadcast_parameters(model, 0)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    hvd.DistributedOptimizer(optimizer, named_parameters=model.named_parameters())
    scaler = torch.amp.GradScaler(gpu_device.NAME, init_scale=4.0, growth_interval=1000)
    before = copy.deepcopy(model.state_dict())
    for step, value in enumerate((1.0, float("inf"))):
        mine = torch.full((2, 4), value if hvd.rank() == 0 else 1.0)
        optimizer.zero_grad()
        scaler.scale(model(mine).sum()).backward()
        scaler.step(optimizer)
        scaler.update()
        weight = model.weight.detach().cpu()
        moved = not torch.equal(weight, before["weight"].cpu())
        assert moved == (step == 0), step
        before = copy.deepcopy(model.state_dict())
    assert scaler.get_scale() == 2.0


def check_all_start_alike() -> None:
    torch.manual_seed(hvd.rank())
    model = _Mixed()
    model.register_buffer("running", torch.full((3,), float(hvd.rank())))
    optimizer = torch.optim.Adam(model.parameters())
    for parameter in model.parameters():
        parameter.grad = torch.full_like(parameter, hvd.rank() + 1.0)
    optimizer.step()
    hvd.broadcast_parameters(model.state_dict(), 0)
    hvd.broadcast_optimizer_state(optimizer, 0)
    for name, tensor in [*model.state_dict().items(), *_state(optimizer)]:
        everyones = hvd.allgather(tensor.detach().reshape(1, -1), name=f"alike.{name}")
        assert bool((everyones == everyones[0]).all()), name
    devices = {parameter.device: state["exp_avg"].device for parameter, state in optimizer.state.items()}
    assert all(one == other for one, other in devices.items())


def _state(optimizer: torch.optim.Optimizer) -> list[tuple[str, torch.Tensor]]:
    states = enumerate(optimizer.state.values())
    return [(f"{number}.{key}", value) for number, state in states for key, value in state.items()]


def check_objects_travel_while_tensors_do() -> None:
    handle = hvd.allreduce_async(torch.ones(1000), op=hvd.Sum)
    assert hvd.allgather_object({"rank": hvd.rank()}) == [{"rank": rank} for rank in range(hvd.size())]
    assert hvd.broadcast_object("root's", 0) == "root's"
    assert hvd.synchronize(handle).unique().tolist() == [hvd.size()]


def check_join_while_others_train() -> None:
    model = torch.nn.Linear(3, 2)
    hvd.broadcast_parameters(model, 0)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    hvd.DistributedOptimizer(optimizer, named_parameters=model.named_parameters())
    for _ in range(1 + hvd.rank()):
        optimizer.zero_grad()
        model(torch.ones(2, 3)).sum().backward()
        optimizer.step()
    assert hvd.join(device=0) == hvd.size() - 1
    hvd.broadcast_parameters(model, hvd.size() - 1)


def check_adasum() -> None:
    model = _Mixed()
    hvd.broadcast_parameters(model, 0)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    hvd.DistributedOptimizer(optimizer, named_parameters=model.named_parameters(), op=hvd.Adasum)
    model(torch.ones(2, 6)).sum().backward()
    optimizer.step()
    for name, tensor in model.state_dict().items():
        everyones = hvd.allgather(tensor.detach().reshape(1, -1), name=f"adasum.{name}")
        assert bool((everyones == everyones[0]).all()), name

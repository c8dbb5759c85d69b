"""DistributedDataParallel over roundelay trains to the weights that it has over gloo."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest
import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.algorithms.ddp_comm_hooks import default_hooks, powerSGD_hook
from torch.nn.parallel import DistributedDataParallel

from against_gloo import Model, assert_as_gloo, batches, weights
from ranks import Check, needs_ranks, run_check, two_by_two


@pytest.mark.parametrize("np", [2, 4])
def test_one_node(np: int, check: Check) -> None:
    run_check(check, np)


@pytest.mark.slow
@pytest.mark.parametrize("np", [4])
def test_two_nodes(np: int, check: Check) -> None:
    run_check(check, np, each=two_by_two(), mpi=False)


class Trainer:
    """Trains DDP with these options. Tests change one step or what surrounds the steps."""

    def __init__(self, **options: Any) -> None:
        self.options = options

    def __call__(self) -> Sequence[torch.Tensor]:
        model = DistributedDataParallel(self.model(), bucket_cap_mb=0.005, **self.options)
        self.prepare(model)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
        self.train(model, optimizer)
        return weights(model.module)

    def model(self) -> nn.Module:
        return Model()

    def prepare(self, model: DistributedDataParallel) -> None:
        """Called before the first step."""

    def train(self, model: DistributedDataParallel, optimizer: torch.optim.Optimizer) -> None:
        for number, batch in enumerate(batches()):
            self.step(model, batch, number)
            optimizer.step()
            optimizer.zero_grad()

    def step(self, model: DistributedDataParallel, batch: torch.Tensor, number: int) -> None:
        model(batch).square().mean().backward()


def check_default_options() -> None:
    assert_as_gloo(Trainer())


def check_bucket_views() -> None:
    assert_as_gloo(Trainer(gradient_as_bucket_view=True))


def check_static_graph() -> None:
    assert_as_gloo(Trainer(static_graph=True))


def check_buffers_are_broadcast() -> None:
    class Normed(Trainer):
        def model(self) -> nn.Module:
            return nn.Sequential(Model(), nn.BatchNorm1d(3))

        def __call__(self) -> Sequence[torch.Tensor]:
            model = DistributedDataParallel(self.model())
            for batch in batches():
                self.step(model, batch, 0)
            return [*weights(model), *(buffer.double() for buffer in model.module.buffers())]

    assert_as_gloo(Normed())


def check_unused_parameters() -> None:
    """Some ranks leave out a layer in some steps."""

    class Unused(Trainer):
        def step(self, model: DistributedDataParallel, batch: torch.Tensor, number: int) -> None:
            model(batch, all_used=(number + dist.get_rank()) % 2 == 0).square().mean().backward()

    assert_as_gloo(Unused(find_unused_parameters=True))


def check_accumulation_without_sync() -> None:
    class Accumulated(Trainer):
        def step(self, model: DistributedDataParallel, batch: torch.Tensor, number: int) -> None:
            with model.no_sync():
                super().step(model, batch, number)
            super().step(model, batch * 0.5, number)

    assert_as_gloo(Accumulated())
    assert_as_gloo(Accumulated(gradient_as_bucket_view=True))


def check_ranks_with_fewer_batches_join() -> None:
    class Joined(Trainer):
        def train(self, model: DistributedDataParallel, optimizer: torch.optim.Optimizer) -> None:
            with model.join():
                for batch in batches(3 + dist.get_rank()):
                    self.step(model, batch, 0)
                    optimizer.step()
                    optimizer.zero_grad()

    assert_as_gloo(Joined())


@needs_ranks(2, 2)  # more summands of 16 bits differ by more than ulps of a weight
def check_halved_gradients() -> None:
    class Halved(Trainer):
        def prepare(self, model: DistributedDataParallel) -> None:
            model.register_comm_hook(None, default_hooks.fp16_compress_hook)

    assert_as_gloo(Halved())


def check_powersgd_hook() -> None:
    class LowRank(Trainer):
        def prepare(self, model: DistributedDataParallel) -> None:
            state = powerSGD_hook.PowerSGDState(None, matrix_approximation_rank=2, start_powerSGD_iter=2)
            model.register_comm_hook(state, powerSGD_hook.powerSGD_hook)

    assert_as_gloo(LowRank())


def check_sparse_embeddings() -> None:
    class Sparse(Trainer):
        def model(self) -> nn.Module:
            torch.manual_seed(5)
            return nn.Sequential(nn.Embedding(50, 4, sparse=True), nn.Linear(4, 3))

        def train(self, model: DistributedDataParallel, optimizer: torch.optim.Optimizer) -> None:
            plain = torch.optim.SGD(model.parameters(), lr=0.1)
            for number in range(3):
                rows = torch.arange(6) * (number + 1 + dist.get_rank()) % 50
                self.step(model, rows, number)
                plain.step()
                plain.zero_grad()

    assert_as_gloo(Sparse())

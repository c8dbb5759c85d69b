"""Training with exact sums: gradients are small whole numbers in fp32, and parameters count what came."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import nn

import roundelay.torch as hvd
from roundelay.torch._internal.optimizer.distributed import wrapper_of
from roundelay.torch._internal.optimizer.techniques import Techniques
from technique_libraries import CYCLIC

SIZES = (5, 16, 64, 33, 7)


class Training:
    """Parameters, SGD with lr 1 (parameters count what came), and what this rank has given.

    dtype: of the parameters; half ones get fp32 masters. ranks: those that train together. passes: backward
    passes in a step. settings: SGD's.
    """

    def __init__(
        self,
        strategy: Any = f"{CYCLIC}:parts=3",
        sizes: Sequence[int | tuple[int, ...]] = SIZES,
        lr: float = 1.0,
        dtype: torch.dtype = torch.float32,
        op: int = hvd.Sum,
        ranks: hvd.ProcessSet = hvd.global_process_set,
        passes: int = 1,
        predivide: float = 1.0,
        **settings: Any,
    ) -> None:
        self.parameters = [nn.Parameter(torch.zeros(size, dtype=dtype)) for size in sizes]
        self.given = [torch.zeros(size) for size in sizes]
        plain = torch.optim.SGD(self.parameters, lr=lr, **settings)
        masters = dtype != torch.float32
        self.optimizer: Any = hvd.DistributedOptimizer(
            plain,
            op=op,
            strategy=strategy,
            master_weights=masters,
            process_set=ranks,
            backward_passes_per_step=passes,
            gradient_predivide_factor=predivide,
        )
        self.ranks, self.passes = ranks, passes
        self.strategy = hvd.strategies.of(self.optimizer)
        self.chance = torch.Generator("cpu").manual_seed(hvd.rank())

    @property
    def techniques(self) -> Techniques:
        wrapper = wrapper_of(self.optimizer)
        assert wrapper is not None
        techniques = wrapper.techniques()
        assert techniques is not None
        return techniques

    def backward(
        self,
        among: list[int] | None = None,
        scaler: torch.amp.GradScaler | None = None,
        infinity: bool = False,
    ) -> None:
        """Adds random gradients, times the scaler's scale; each has an infinite element on request."""
        terms = []
        for index in range(len(self.parameters)) if among is None else among:
            like = self.parameters[index]
            values = torch.randint(-8, 9, like.shape, generator=self.chance, device="cpu").to(like)
            self.given[index] += values
            if infinity:
                values[len(values) // 2] = float("inf")
            terms.append((self.parameters[index] * values).sum())
        loss = torch.stack(terms).sum()
        (loss if scaler is None else scaler.scale(loss)).backward()

    def step(self, among: list[int] | None = None) -> None:
        self.optimizer.zero_grad()
        for _ in range(self.passes):
            self.backward(among)
        self.optimizer.step()

    def flush(self) -> None:
        self.strategy.flush()
        self.step()

    def check_ranks_agree(self) -> None:
        """All ranks have the same parameters. The text of a tensor on a GPU would take many kernels."""
        mine = str([one.tolist() for one in self.parameters])
        assert len(set(hvd.allgather_object(mine, process_set=self.ranks))) == 1

    def check_an_overflow_is_skipped(self) -> None:
        """Three steps under a GradScaler whose scale is 4: rank 1 overflows in the first, and all skip it."""
        scaler = torch.amp.GradScaler("cpu", init_scale=4.0, growth_interval=1000)
        weights = [one.detach().clone() for one in self.parameters]
        for overflows in (True, False, False):
            self.optimizer.zero_grad()
            self.backward(scaler=scaler, infinity=overflows and hvd.rank() == 1)
            scaler.step(self.optimizer)
            scaler.update()
            if overflows:
                assert scaler.get_scale() == 2.0
                assert all(map(torch.equal, self.parameters, weights))
        assert scaler.get_scale() == 2.0

    def check_all_came(self) -> None:
        """Flushes; then the parameters are minus the sum of all that the ranks have given."""
        self.flush()
        assert not self.techniques.table.keeps_something()
        for parameter, given in zip(self.parameters, self.given, strict=True):
            assert torch.equal(-parameter.detach(), hvd.allreduce(given, op=hvd.Sum, process_set=self.ranks))


def until_buckets(training: Training) -> Training:
    """Takes steps until the gradients are in buckets with a technique that keeps some back."""
    for _ in range(4):
        training.step()
    assert training.techniques.stateful
    return training

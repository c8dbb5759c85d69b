"""Gradients that lie in no bucket beside a technique: groups, sparse ones, a compressor of the user's own.

They are reduced densely in each step, while the others' buckets take the technique. Gradients are small whole
numbers in fp32 and are summed, so that every sum is exact.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import nn

import roundelay.torch as hvd
from ranks import Check, run_check
from roundelay.torch._internal.optimizer.distributed import wrapper_of
from roundelay.torch._internal.optimizer.techniques import Techniques
from small_gradients import make_parameters
from technique_libraries import CYCLIC, NEGATE

KEEPING = (f"{CYCLIC}:parts=3", "csc:keep=0.3,chunk_elements=4,dense_below=0,momentum=none")
STEPS = 8
SIZE = 24


class Halving:
    """A compressor of a user's own, which loses nothing."""

    @staticmethod
    def compress(tensor: torch.Tensor) -> tuple[torch.Tensor, torch.dtype | None]:
        return tensor / 2, tensor.dtype

    @staticmethod
    def decompress(tensor: torch.Tensor, context: torch.dtype | None) -> torch.Tensor:
        return tensor.to(context) * 2


def test_dense_beside_techniques(check: Check) -> None:
    run_check(check, 2, env={"ROUNDELAY_THETA": "64"})  # several buckets


class Sums:
    """Training with lr 1: parameters count what came. `given` has what the ranks gave to each."""

    def __init__(self, strategy: str, parameters: list[nn.Parameter], **arguments: Any) -> None:
        self.parameters = parameters
        self.given = [torch.zeros_like(parameter) for parameter in parameters]
        plain = torch.optim.SGD(parameters, lr=1.0)
        self.optimizer: Any = hvd.DistributedOptimizer(plain, op=hvd.Sum, strategy=strategy, **arguments)
        self.chance = torch.Generator().manual_seed(hvd.rank())

    def techniques(self) -> Techniques:
        wrapper = wrapper_of(self.optimizer)
        assert wrapper is not None
        techniques = wrapper.techniques()
        assert techniques is not None
        return techniques

    def loss(self, parameter: nn.Parameter, index: int) -> torch.Tensor:
        values = torch.randint(-8, 9, parameter.shape, generator=self.chance, device="cpu").to(parameter)
        self.given[index] += values
        return (parameter * values).sum()

    def step(self, more: torch.Tensor | None = None, first: int = 0) -> None:
        """Takes a step with gradients for the parameters from `first` on, and those of the loss `more`."""
        self.optimizer.zero_grad()
        terms = [self.loss(each, index) for index, each in enumerate(self.parameters) if index >= first]
        torch.stack([*terms, *([] if more is None else [more])]).sum().backward()
        self.optimizer.step()

    def all_came(self, *indices: int) -> bool:
        """Returns whether parameters are minus the sums of what the ranks gave; alike on all ranks."""
        sums = hvd.grouped_allreduce([self.given[index] for index in indices], op=hvd.Sum)
        return all(torch.equal(-self.parameters[i].detach(), s) for i, s in zip(indices, sums, strict=True))

    def flush(self) -> None:
        hvd.strategies.of(self.optimizer).flush()


def _technique_operations() -> int:
    return hvd.stats()["technique_operations"]


def check_groups_go_densely_beside_a_technique() -> None:
    for strategy in KEEPING:
        parameters = make_parameters(5, SIZE)
        training = Sums(strategy, parameters, groups=[parameters[:2]])
        before = _technique_operations()
        waited = False
        for _ in range(STEPS):
            training.step()
            assert training.all_came(0, 1)
            waited |= not training.all_came(2, 3, 4)
        assert waited  # the technique has kept something back
        assert _technique_operations() > before
        grouped = {f"noname.0.{index}" for index in (0, 1)}
        in_buckets = {name for bucket in training.techniques().table._views for name in bucket.parameters}
        assert len(in_buckets) == 3
        assert not grouped & in_buckets
        training.flush()
        training.step()
        assert training.all_came(*range(5))


def check_groups_of_all_leave_a_technique_nothing_to_do() -> None:
    training = Sums(f"{CYCLIC}:parts=3", make_parameters(4, SIZE), groups=2)
    before = _technique_operations()
    for _ in range(STEPS):
        training.step()
        assert training.all_came(*range(4))
    assert _technique_operations() == before
    assert not training.techniques().table.keeps_something()
    training.flush()  # there is nothing to send
    training.step()


def check_sparse_gradients_go_densely_beside_a_technique() -> None:
    """Rank r looks up rows r and 3: every rank gets all of them, in each step."""
    embedding = nn.Embedding(4, 2, sparse=True)
    nn.init.zeros_(embedding.weight)
    training = Sums(f"{CYCLIC}:parts=3", [*embedding.parameters(), *make_parameters(4, SIZE)])
    before = _technique_operations()
    waited = False
    for number in range(STEPS):
        training.step(embedding(torch.tensor([hvd.rank(), 3])).sum(), first=1)
        assert embedding.weight.grad is not None
        assert embedding.weight.grad.layout == torch.sparse_coo
        steps = number + 1.0
        rows = [[-steps] * 2, [-steps] * 2, [0.0] * 2, [-2 * steps] * 2]
        assert embedding.weight.detach().tolist() == rows
        waited |= not training.all_came(*range(1, 5))
    assert waited
    assert _technique_operations() > before
    training.flush()
    training.step(first=1)
    assert training.all_came(*range(1, 5))
    assert embedding.weight.detach().tolist() == rows


def check_a_compressor_of_ones_own_is_dense() -> None:
    for strategy in (NEGATE, f"{CYCLIC}:parts=3"):
        for groups in (None, 2):
            training = Sums(strategy, make_parameters(4, SIZE), groups=groups, compression=Halving)
            before = _technique_operations()
            for _ in range(STEPS):
                training.step()
                assert training.all_came(*range(4))
            assert _technique_operations() == before
            assert not training.techniques().table.keeps_something()
            training.flush()
            training.step()
            assert training.all_came(*range(4))

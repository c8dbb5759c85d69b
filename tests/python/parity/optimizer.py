"""DistributedOptimizer: gradients to the bit, step after step, with factors, compressors and sparse ones."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch

import roundelay.torch as hvd
from horovod_rules import expect_bits, reduced, summed, values

STEPS = 4  # the first ones go alone, later ones in buckets
SHAPES = ((5, 3), (7,), (64,))

Rule = Callable[[Sequence[torch.Tensor]], torch.Tensor]


def expect_gradients(what: str, rule: Rule, **how: Any) -> None:
    """In each step every rank brings other gradients; `rule` says what becomes of them."""
    parameters = [torch.nn.Parameter(torch.ones(shape)) for shape in SHAPES]
    optimizer = hvd.DistributedOptimizer(torch.optim.SGD(parameters, lr=0.1), **how)
    for step in range(STEPS):
        parts = [
            [values(torch.float32, rank, *shape, seed=10 * step + i) for rank in range(hvd.size())]
            for i, shape in enumerate(SHAPES)
        ]
        optimizer.zero_grad()
        own = [part[hvd.rank()].to(torch.get_default_device()) for part in parts]
        torch.stack([(p * g).sum() for p, g in zip(parameters, own, strict=True)]).sum().backward()  # type: ignore[no-untyped-call]
        for parameter, part in zip(parameters, parts, strict=True):
            assert parameter.grad is not None
            expect_bits(parameter.grad, rule(part) if hvd.size() > 1 else part[0], f"{what}, step {step}")
        optimizer.step()


def check_predivided_averages() -> None:
    """Before and after the sum; without a factor one division."""
    for groups in (None, 1):
        expect_gradients("plain", lambda parts: summed(parts, len(parts)), groups=groups)
        for factor in (3.0, 0.7):
            expect_gradients(
                f"divided by {factor}",
                lambda parts: reduced(parts, hvd.Average, 1 / factor, factor),  # noqa: B023
                gradient_predivide_factor=factor,
                groups=groups,
            )


def check_compression_is_cast_rounded_multiplied_and_rounded() -> None:
    for compression, wire in ((hvd.Compression.fp16, torch.float16), (hvd.Compression.bf16, torch.bfloat16)):
        expect_gradients(
            f"{wire}",
            lambda parts: reduced([part.to(wire) for part in parts], hvd.Average, 1 / 3, 3.0).float(),  # noqa: B023
            gradient_predivide_factor=3.0,
            compression=compression,
        )


class Quarter:
    """In place, and without a context."""

    def compress(self, tensor: torch.Tensor) -> tuple[torch.Tensor, None]:
        return tensor.div_(4), None

    def decompress(self, tensor: torch.Tensor, context: None) -> torch.Tensor:
        return tensor.mul_(4)


class Shift:
    """In place one way, a new tensor the other, with a context of its own kind."""

    @staticmethod
    def compress(tensor: torch.Tensor) -> tuple[torch.Tensor, dict[str, float]]:
        return tensor.sub_(1), {"by": 1.0}

    @staticmethod
    def decompress(tensor: torch.Tensor, context: dict[str, float]) -> torch.Tensor:
        return tensor + context["by"]


class Halves:
    """Another type, and no context."""

    @staticmethod
    def compress(tensor: torch.Tensor) -> tuple[torch.Tensor, None]:
        return tensor.half(), None

    @staticmethod
    def decompress(tensor: torch.Tensor, context: None) -> torch.Tensor:
        return tensor.float()


def check_compressors_of_the_users() -> None:
    def by(compressor: Any) -> Rule:
        def rule(parts: Sequence[torch.Tensor]) -> torch.Tensor:
            sent = [compressor.compress(part.clone()) for part in parts]
            return compressor.decompress(summed([wire for wire, _ in sent], len(parts)), sent[0][1])  # type: ignore[no-any-return]

        return rule

    for compressor in (Quarter(), Shift, Halves):
        for groups in (None, 1):
            expect_gradients(f"{compressor}", by(compressor), compression=compressor, groups=groups)


def check_sparse_gradients_made_dense_are_sparse_again() -> None:
    """So that SparseAdam takes them: as one process does that has everyone's average."""
    plain = torch.nn.Embedding(6, 2, device="cpu")
    plain.weight.data.fill_(1.0)
    embedding = torch.nn.Embedding(6, 2, sparse=True)
    embedding.weight.data.fill_(1.0)
    alone = torch.optim.SparseAdam(plain.parameters(), lr=0.1)
    optimizer = hvd.DistributedOptimizer(
        torch.optim.SparseAdam(embedding.parameters(), lr=0.1), sparse_as_dense=True
    )
    for step in range(STEPS):
        rows = [torch.tensor([(rank + step) % 6, step % 6], device="cpu") for rank in range(hvd.size())]
        parts = []
        for rank, picked in enumerate(rows):
            part = torch.zeros(6, 2, device="cpu")
            parts.append(part.index_add_(0, picked, torch.full((2, 2), 1.0 + rank, device="cpu")))
        optimizer.zero_grad()
        own = rows[hvd.rank()].to(torch.get_default_device())
        (embedding(own) * (1.0 + hvd.rank())).sum().backward()
        gradient = embedding.weight.grad
        assert gradient is not None
        assert gradient.layout == torch.sparse_coo
        average = summed(parts, hvd.size())
        expect_bits(gradient.to_dense(), average, f"step {step}")
        plain.weight.grad = average.to_sparse()
        alone.step()
        optimizer.step()
        if hvd.size() > 1:
            expect_bits(embedding.weight.data, plain.weight.data, f"the weights after step {step}")


def check_a_rank_without_a_gradient_has_a_sparse_one_too() -> None:
    """Once it has had one: all ranks' SparseAdam go on."""
    embedding = torch.nn.Embedding(4, 2, sparse=True)
    embedding.weight.data.fill_(1.0)
    optimizer = hvd.DistributedOptimizer(
        torch.optim.SparseAdam(embedding.parameters(), lr=0.1), sparse_as_dense=True
    )
    for used in (True, hvd.rank() == 0):
        optimizer.zero_grad()
        if used:
            embedding(torch.tensor([1])).sum().backward()
        optimizer.step()
    weights = hvd.allgather(embedding.weight.data.reshape(1, -1))
    assert torch.equal(weights, weights[:1].expand_as(weights))

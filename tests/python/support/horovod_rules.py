"""Horovod's numbers as plain PyTorch, on what all ranks give: every rank can compute everyone's.

Values are such that sums in the wider type are exact, whatever their order, so that every bit is determined.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from fractions import Fraction
from functools import reduce
from typing import Any

import torch

import roundelay.torch as hvd

FLOATS = (torch.float64, torch.float32, torch.float16, torch.bfloat16)
INTEGERS = (torch.int64, torch.int32, torch.int16, torch.int8, torch.uint8)
FACTORS = ((1.0, 1.0), (0.3, 1.0), (1.0, 1 / 3), (1.7, 0.6), (1.0, 4.0))


def values(dtype: torch.dtype, rank: int, *shape: int, seed: int = 0) -> torch.Tensor:
    """What this rank gives: all the dtype's bits, magnitudes from 1/2 to 4; small integers."""
    generator = torch.Generator().manual_seed(1000 * seed + rank)
    if not dtype.is_floating_point:
        low = 0 if dtype == torch.uint8 else -20
        return torch.randint(low, 21, shape, generator=generator, device="cpu").to(dtype)
    magnitudes = 0.5 + 3.5 * torch.rand(shape, generator=generator, dtype=torch.float64, device="cpu")
    signs = torch.randint(0, 2, shape, generator=generator, device="cpu") * 2 - 1
    return (magnitudes * signs).to(dtype)


def mine(parts: Sequence[torch.Tensor], process_set: hvd.ProcessSet) -> torch.Tensor:
    """This rank's part, where operations are tried."""
    return parts[process_set.rank()].clone().to(torch.get_default_device())


def scaled(op: int, before: float, after: float) -> dict[str, Any]:
    """Arguments of an operation."""
    return {"op": op, "prescale_factor": before, "postscale_factor": after}


def times(tensor: torch.Tensor, factor: float) -> torch.Tensor:
    """The factor is of the tensor's type; of halves fp32, of integers fp64, truncated."""
    if factor == 1:
        return tensor
    dtype = tensor.dtype
    if not dtype.is_floating_point:
        limits = torch.iinfo(dtype)
        return (tensor.double() * factor).trunc().clamp(limits.min, limits.max).to(dtype)
    wide = torch.float32 if dtype in (torch.float16, torch.bfloat16) else dtype
    return (tensor.to(wide) * torch.tensor(factor, dtype=wide, device="cpu")).to(dtype)


def summed(parts: Sequence[torch.Tensor], divisor: int = 1) -> torch.Tensor:
    """The sum, or the average: rounded once."""
    dtype, stacked = parts[0].dtype, torch.stack(list(parts))
    if not dtype.is_floating_point:
        total = stacked.long().sum(0)
        return (total if divisor == 1 else total.div(divisor, rounding_mode="trunc")).to(dtype)
    if dtype != torch.float64:
        wide = torch.float64 if dtype == torch.float32 else torch.float32
        return (stacked.to(wide).sum(0) / divisor).to(dtype)
    columns = stacked.flatten(1).t().tolist()
    exact = [float(sum(map(Fraction, column)) / divisor) for column in columns]
    return torch.tensor(exact, dtype=dtype, device="cpu").reshape(stacked.shape[1:])


def reduced(parts: Sequence[torch.Tensor], op: int, before: float = 1.0, after: float = 1.0) -> torch.Tensor:
    """Of an allreduce. Average alone is one division; with factors it is a part of the second."""
    size = len(parts)
    if op == hvd.Average and before == after == 1:
        return summed(parts, size)
    products = [times(part, before) for part in parts]
    if op == hvd.Average:
        return times(summed(products), after / size)
    if op == hvd.Sum:
        return times(summed(products), after)
    step = {hvd.Min: torch.minimum, hvd.Max: torch.maximum, hvd.Product: torch.mul}[op]
    return times(reduce(step, products), after)


def shards(rows: int, size: int) -> list[int]:
    """How many rows of a reducescatter each member gets."""
    return [rows // size + (member < rows % size) for member in range(size)]


def expect_bits(result: torch.Tensor, right: torch.Tensor, what: str) -> None:
    """The same dtype, shape and bits."""
    result = result.detach().cpu()
    assert (result.dtype, result.shape) == (right.dtype, right.shape), (what, result.dtype, result.shape)
    same = torch.equal(result.contiguous().view(torch.uint8), right.contiguous().view(torch.uint8))
    assert same or result.numel() == 0, f"{what}: {result.tolist()}, must be {right.tolist()}"


def rounds_each_addition() -> bool:
    """Whether sums here are NCCL's. `staged` and `mpi` give the CPU's bits."""
    fabric = os.environ.get("ROUNDELAY_GPU_FABRIC", "nccl")
    return torch.get_default_device().type == "cuda" and fabric not in ("staged", "mpi")


def allowed(parts: Sequence[torch.Tensor], op: int, before: float, after: float) -> torch.Tensor:
    """How far NCCL's result may be from reduced(): docs/gpu.md. Minimum and maximum are exact."""
    size, dtype = len(parts), parts[0].dtype
    if op in (hvd.Min, hvd.Max) or not dtype.is_floating_point:
        return torch.zeros(parts[0].shape, dtype=torch.float64, device="cpu")
    magnitudes = torch.stack([times(part, before).abs().double() for part in parts])
    whole = magnitudes.prod(0) if op == hvd.Product else magnitudes.sum(0)
    factor = abs(after) / (size if op == hvd.Average else 1)
    unit = torch.finfo(dtype).eps / 2
    return (size + 3) * unit * factor * whole  # both are rounded once more, and by the second factor


def expect_reduced(
    result: torch.Tensor, parts: Sequence[torch.Tensor], op: int, before: float, after: float, what: str
) -> None:
    """The bits of reduced(); over NCCL its sums and products within the ulps that docs/gpu.md promises."""
    right = reduced(parts, op, before, after)
    result = result.detach().cpu()
    if not rounds_each_addition() or result.shape != right.shape or result.dtype != right.dtype:
        expect_bits(result, right, what)
        return
    off = (result.double() - right.double()).abs() > allowed(parts, op, before, after)
    assert not off.any(), f"{what}: {result[off].tolist()}, must be nearly {right[off].tolist()}"


def gradient_of(output: torch.Tensor, given: torch.Tensor, weights: torch.Tensor) -> torch.Tensor:
    """Of `given`, where `output` gets the gradient `weights`."""
    output.backward(weights.to(output.device))
    assert given.grad is not None
    return given.grad


@contextmanager
def sets() -> Iterator[list[hvd.ProcessSet]]:
    """The world, and a set without rank 0 where there is one; those that this rank is in."""
    if hvd.size() == 1:
        yield [hvd.global_process_set]
        return
    tail = hvd.add_process_set(range(1, hvd.size()))
    yield [hvd.global_process_set, *([tail] if tail.included() else [])]
    hvd.barrier()
    hvd.remove_process_set(tail)

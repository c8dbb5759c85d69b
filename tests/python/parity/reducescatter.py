"""reducescatter: values as allreduce's, and Horovod's gradients."""

from __future__ import annotations

import torch

import roundelay.torch as hvd
from horovod_rules import (
    FACTORS,
    FLOATS,
    INTEGERS,
    expect_bits,
    gradient_of,
    mine,
    reduced,
    scaled,
    sets,
    shards,
    times,
    values,
)

ROWS = 7


def check_values_of_every_op_dtype_set_and_factor() -> None:
    with sets() as process_sets:
        for process_set in process_sets:
            for dtype in (*FLOATS, *INTEGERS):
                parts = [values(dtype, rank, ROWS, 2) for rank in process_set.ranks]
                for op in (hvd.Average, hvd.Sum):
                    for before, after in FACTORS:
                        how = scaled(op, before, after)
                        whole = reduced(parts, op, before, after)
                        right = whole.split(shards(ROWS, process_set.size()))[process_set.rank()]
                        given = mine(parts, process_set)
                        result = hvd.reducescatter(given, process_set=process_set, **how)
                        expect_bits(result, right, f"{dtype} {how}")
                        group = hvd.grouped_reducescatter([given], process_set=process_set, **how)
                        expect_bits(group[0], right, f"{dtype} {how}, group")


def check_compression_is_cast_rounded_multiplied_and_rounded() -> None:
    world = hvd.global_process_set
    parts = [values(torch.float32, rank, ROWS, 2) for rank in world.ranks]
    whole = reduced([part.half() for part in parts], hvd.Sum, 0.3, 1.7).float()
    right = whole.split(shards(ROWS, hvd.size()))[hvd.rank()]
    how = scaled(hvd.Sum, 0.3, 1.7)
    result = hvd.reducescatter(mine(parts, world), compression=hvd.Compression.fp16, **how)
    expect_bits(result, right, "fp16")


def check_gradients() -> None:
    """Sum: times the set's size; both factors, one rounding after the other; Average is not divided."""
    with sets() as process_sets:
        for process_set in process_sets:
            size = process_set.size()
            counts = shards(ROWS, size)
            for dtype in FLOATS:
                incoming = [
                    values(dtype, rank, count, 2, seed=1)
                    for rank, count in zip(process_set.ranks, counts, strict=True)
                ]
                for op in (hvd.Average, hvd.Sum):
                    for before, after in FACTORS:
                        how = scaled(op, before, after)
                        right = torch.cat(incoming)
                        for factor in (size if op == hvd.Sum else 1, before, after):
                            right = times(right, factor)
                        given = torch.ones(ROWS, 2, dtype=dtype, requires_grad=True)
                        own = incoming[process_set.rank()]
                        output = hvd.reducescatter(given, process_set=process_set, **how)
                        expect_bits(gradient_of(output, given, own), right, f"{dtype} {how}")
                        given.grad = None
                        output = hvd.grouped_reducescatter([given], process_set=process_set, **how)[0]
                        expect_bits(gradient_of(output, given, own), right, f"{dtype} {how}, group")


def check_second_derivatives_of_horovods_gradients() -> None:
    """Of the cubes' sum: the gradient of the gathering backward is an average, times the size once more."""
    size = hvd.size()
    given = torch.arange(1.0, 2.0 * size + 1).requires_grad_()
    cubes = (hvd.reducescatter(given, op=hvd.Sum) ** 3).sum()
    (first,) = torch.autograd.grad(cubes, given, create_graph=True)  # type: ignore[no-untyped-call]
    (second,) = torch.autograd.grad(first.sum(), given)
    total = given.detach() * size
    torch.testing.assert_close(first.detach(), 3 * total**2 * size)
    torch.testing.assert_close(second, 6 * total * size**2)

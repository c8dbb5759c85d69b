"""allreduce: values and gradients, with Horovod's rounding of the factors."""

from __future__ import annotations

from collections.abc import Callable

import torch

import roundelay.torch as hvd
from horovod_rules import (
    FACTORS,
    FLOATS,
    INTEGERS,
    expect_bits,
    expect_reduced,
    gradient_of,
    mine,
    reduced,
    scaled,
    sets,
    times,
    values,
)

OPS = (hvd.Average, hvd.Sum, hvd.Min, hvd.Max, hvd.Product)
Form = Callable[..., torch.Tensor]
FORMS: dict[str, Form] = {
    "allreduce": hvd.allreduce,
    "allreduce_": hvd.allreduce_,
    "allreduce_async": lambda t, **how: hvd.synchronize(hvd.allreduce_async(t, **how)),
    "allreduce_async_": lambda t, **how: hvd.synchronize(hvd.allreduce_async_(t, **how)),
    "grouped_allreduce": lambda t, **how: hvd.grouped_allreduce([t, torch.ones(3)], **how)[0],
    "grouped_allreduce_": lambda t, **how: hvd.grouped_allreduce_([torch.ones(3), t], **how)[1],
    "grouped_allreduce_async": lambda t, **how: hvd.synchronize(hvd.grouped_allreduce_async([t], **how))[0],
    "grouped_allreduce_async_": lambda t, **how: hvd.synchronize(hvd.grouped_allreduce_async_([t], **how))[0],
}


def parts_of(
    dtype: torch.dtype, process_set: hvd.ProcessSet, *shape: int, seed: int = 0
) -> list[torch.Tensor]:
    return [values(dtype, rank, *shape, seed=seed) for rank in process_set.ranks]


def check_values_of_every_op_dtype_set_and_factor() -> None:
    with sets() as process_sets:
        for process_set in process_sets:
            for dtype in (*FLOATS, *INTEGERS):
                parts = parts_of(dtype, process_set, 23)
                for op in OPS:
                    for before, after in FACTORS:
                        how = scaled(op, before, after)
                        result = hvd.allreduce_(mine(parts, process_set), process_set=process_set, **how)
                        expect_reduced(result, parts, op, before, after, f"{dtype} {how}")


def check_every_form_and_large_tensors() -> None:
    """Beyond the sizes that each rank reduces by itself; a large tensor is cut."""
    world = hvd.global_process_set
    for name, form in FORMS.items():
        for dtype in (torch.float32, torch.float16, torch.int32):
            parts = parts_of(dtype, world, 11, 7)
            result = form(mine(parts, world), op=hvd.Average, prescale_factor=0.3, postscale_factor=1.7)
            expect_reduced(result, parts, hvd.Average, 0.3, 1.7, f"{name} of {dtype}")
    for dtype in (torch.float32, torch.bfloat16):
        parts = parts_of(dtype, world, 300_001)
        result = hvd.allreduce(mine(parts, world), op=hvd.Sum, prescale_factor=1 / 3, postscale_factor=0.7)
        expect_reduced(result, parts, hvd.Sum, 1 / 3, 0.7, f"300001 of {dtype}")


def check_what_leaves_the_types_range() -> None:
    """As if the user had multiplied: halves become infinite before the second factor, integers wrap."""
    world, size = hvd.global_process_set, hvd.size()
    parts = [torch.full((3,), 40000.0, device="cpu").half()] * size
    result = hvd.allreduce(mine(parts, world), op=hvd.Sum, prescale_factor=2.0, postscale_factor=0.01)
    expect_bits(result, torch.full((3,), float("inf"), device="cpu").half(), "80000 in fp16")
    integers = [torch.full((3,), 100, dtype=torch.int8, device="cpu")] * size
    result = hvd.allreduce(mine(integers, world), op=hvd.Sum, postscale_factor=0.5)
    expect_bits(result, reduced(integers, hvd.Sum, 1.0, 0.5), "a sum of int8")


def check_adasum_with_factors() -> None:
    world = hvd.global_process_set
    for dtype in FLOATS:
        given = mine(parts_of(dtype, world, 40), world)
        plain = hvd.allreduce(times(given.cpu(), 0.3).to(given.device), op=hvd.Adasum)
        result = hvd.allreduce(given, op=hvd.Adasum, prescale_factor=0.3, postscale_factor=1.7)
        expect_bits(result, times(plain.cpu(), 1.7), f"Adasum of {dtype}")


def check_compression_is_cast_rounded_multiplied_and_rounded() -> None:
    world = hvd.global_process_set
    for compression, wire in ((hvd.Compression.fp16, torch.float16), (hvd.Compression.bf16, torch.bfloat16)):
        parts = parts_of(torch.float32, world, 40)
        cast = [part.to(wire) for part in parts]
        how = scaled(hvd.Sum, 0.3, 1.7)
        given = mine(parts, world)
        alone = hvd.allreduce(given, compression=compression, **how)
        grouped = hvd.grouped_allreduce([given], compression=compression, **how)[0]
        for result in (alone, grouped):
            assert result.dtype == torch.float32
            assert torch.equal(result.to(wire).float(), result)
            expect_reduced(result.to(wire), cast, hvd.Sum, 0.3, 1.7, f"{wire}")


def check_gradients() -> None:
    """The same operation of the ranks' gradients."""
    with sets() as process_sets:
        for process_set in process_sets:
            for dtype in FLOATS:
                incoming = parts_of(dtype, process_set, 9, seed=1)
                own = incoming[process_set.rank()]
                for op in (hvd.Average, hvd.Sum):
                    for before, after in FACTORS:
                        how = scaled(op, before, after)
                        given = mine(parts_of(dtype, process_set, 9), process_set).requires_grad_()
                        output = hvd.allreduce(given, process_set=process_set, **how)
                        gradient = gradient_of(output, given, own)
                        expect_reduced(gradient, incoming, op, before, after, f"{dtype} {how}")
                        given.grad = None
                        outputs = hvd.grouped_allreduce([given], process_set=process_set, **how)
                        gradient = gradient_of(outputs[0], given, own)
                        expect_reduced(gradient, incoming, op, before, after, f"{dtype} {how}, group")

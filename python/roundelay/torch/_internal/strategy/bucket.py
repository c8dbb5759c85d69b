"""What a strategy sees of its optimizer's buckets, and what a step has sent of them."""

from __future__ import annotations

import math
from collections.abc import Collection
from dataclasses import dataclass
from typing import NamedTuple

import torch

from roundelay.torch._internal.gradients.pool_strides import pool_strides


class Shape(NamedTuple):
    """The form of a parameter, and how its elements lie in the bucket, without gaps."""

    sizes: tuple[int, ...]
    strides: tuple[int, ...]  # count elements

    @property
    def elements(self) -> int:
        """The number of elements."""
        return math.prod(self.sizes)


@dataclass(frozen=True)
class Bucket:
    """A bucket, as strategies see it. It is the same on all ranks, but for the device."""

    index: int  # its number among the optimizer's buckets, in the order of backward
    name: str
    bytes: int  # its size in the pool, which holds the type that travels
    dtype: torch.dtype  # the type that travels
    device: torch.device
    parameters: tuple[str, ...]  # their names, in the order of backward
    pool: int = 0  # its number among the optimizer's pools: one for each device and type
    ranges: tuple[range, ...] = ()  # the elements of each parameter in the bucket; padding may lie between
    shapes: tuple[Shape, ...] = ()  # one for each parameter


class Part(NamedTuple):
    """The part of a bucket that a technique has sent, the same on all ranks. Everything else is zero."""

    chunk: int  # elements of a chunk; the chunks begin at the bucket's first element
    chunks: torch.Tensor  # the numbers of those that were sent, int32, ascending, on the bucket's device
    dense: Collection[int]  # the bucket's parameters that were sent whole, by number


class Sent(NamedTuple):
    """A bucket that has a technique, and the part of it that this step has sent."""

    bucket: Bucket
    parameters: tuple[torch.Tensor | None, ...]  # None: it no longer exists
    part: Part | None  # None: all was sent, or another operation has added to it
    applied: bool = True  # False: it is the step's own sum, to which no technique with a state has added


def shape_in_pool(parameter: torch.Tensor | None) -> Shape:
    """Returns the form of this parameter's gradient; one without dimensions if the parameter is gone."""
    if parameter is None:
        return Shape((), ())
    return Shape(tuple(parameter.shape), pool_strides(parameter))

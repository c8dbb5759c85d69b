"""PowerSGD: low-rank factors of the gradients' matrices travel, and what they lack is kept back.

Source: Vogels et al. (arXiv 1905.13727); csrc/compress/power_sgd has the technique.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterable, Sequence
from typing import Any

import torch

from roundelay import _model
from roundelay._internal.spelling.table import kind_of
from roundelay.torch._internal.strategy.bucket import Bucket, Shape
from roundelay.torch._internal.strategy.spec import Spec
from roundelay.torch._internal.tuning.ways import Formula
from roundelay.torch.strategies._lossy.kept_back import KeepsBack
from roundelay.torch.strategies._lossy.node_shards import NodeShards

_LEAST_GAIN = 2  # so many times as many elements as its factors has a matrix that is sent by them


class PowerSGD(NodeShards, KeepsBack):
    """Sends low-rank factors of each parameter's gradient.

    A gradient is taken for a matrix: its first dimension by all others. rank: the rank of the factors. A
    matrix goes densely unless its factors have fewer than half of its elements. seed: gives the first, random
    factors. warmup: the number of first steps that are dense. momentum: None only, because the optimizer's
    own momentum works on the result. wire: the type of the factors, and of gradients that go densely.
    KeepsBack describes the others.

    ValueError: one of them is wrong.
    """

    kind = "power_sgd"

    def __init__(
        self,
        rank: int = 2,
        seed: int = 0,
        *,
        momentum: str | None = None,
        warmup: int = 0,
        wire: torch.dtype | str | None = None,
        dense_below: int = 4096,
        dense_parameters: Iterable[str] = (),
    ) -> None:
        super().__init__(wire, dense_below, dense_parameters)
        self.rank: int = kind_of(self.kind, "rank").checked("rank", rank)
        self.seed: int = kind_of(self.kind, "seed").checked("seed", seed)
        kind_of(self.kind, "momentum").checked("momentum", momentum)
        if not isinstance(warmup, int) or isinstance(warmup, bool) or warmup < 0:
            raise ValueError(f"warmup is {warmup!r}, but must be the number of first steps that are dense")
        self.warmup = warmup
        self._size = 0.0  # bytes of all buckets
        self._rows = self._columns = 0.0  # of all matrices in them

    @property
    def own_settings(self) -> dict[str, Any]:
        """The rank, the seed and the warm-up."""
        return {"rank": self.rank, "seed": self.seed, "warmup": self.warmup}

    @property
    def warmup_steps(self) -> int:
        """The number of first steps that are dense."""
        return self.warmup

    def use_buckets(self, buckets: Sequence[Bucket]) -> None:
        """Adds up the matrices, for the cost model. An element that goes densely is a part of a column."""
        self._size = self._rows = self._columns = 0.0
        for bucket in buckets:
            self._size += sum(map(len, bucket.ranges)) * bucket.dtype.itemsize
            for shape, columns in zip(bucket.shapes, self._matrices(bucket), strict=True):
                self._rows += shape.elements / columns if columns else 0
                self._columns += columns or shape.elements / self.rank

    def formula(self) -> Formula | None:
        """Returns the cost model's formula, which spreads the matrices evenly over the gradients' bytes."""
        if not self._size:
            return None
        rows, columns = self._rows / self._size, self._columns / self._size
        return lambda cluster, size: _model.power_sgd(
            cluster, size, rank=self.rank, rows=rows * size, columns=columns * size
        )

    def technique(self, bucket: Bucket, step: int) -> Spec | None:
        """Returns the core's technique power_sgd; None in the warm-up, and if all goes densely."""
        if step < self.warmup:
            return None
        columns = self._matrices(bucket)
        if not any(columns):
            return None
        words = f"{self.seed} {bucket.parameters} {bucket.shapes}"
        return Spec(
            self.kind,
            columns=[str(number) for number in columns],
            rank=self.rank,
            seed=zlib.crc32(words.encode()),
            **self.technique_settings(),
        )

    def _matrices(self, bucket: Bucket) -> list[int]:
        """Returns the columns of each parameter's matrix; 0: it goes densely."""
        dense = set(self.dense_in(bucket))
        return [
            0 if number in dense else self._columns_of(shape) for number, shape in enumerate(bucket.shapes)
        ]

    def _columns_of(self, shape: Shape) -> int:
        """Returns the number of columns of the matrix; 0: it goes densely."""
        columns = columns_of(shape)
        if columns == 0:
            return 0
        elements = shape.elements
        rows = elements // columns
        factors = min(self.rank, rows, columns) * (rows + columns)
        return columns if _LEAST_GAIN * factors < elements else 0


def columns_of(shape: Shape) -> int:
    """Returns how many elements a row of the parameter's matrix has in memory; 0: it has no rows there.

    A parameter whose first dimension is the innermost one lies there as the transposed matrix, which has the
    same approximations.
    """
    if len(shape.sizes) < 2 or shape.elements == 0:
        return 0
    first, rest = shape.sizes[0], shape.elements // shape.sizes[0]
    if first == 1 or shape.strides[0] == rest:
        return rest
    return first if shape.strides[0] == 1 else 0

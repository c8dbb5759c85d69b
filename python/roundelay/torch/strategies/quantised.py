"""Gradients travel between nodes in 8 bits, and what the rounding takes away is kept back.

csrc/compress/quantised has the technique.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from roundelay import _model
from roundelay._internal.spelling.table import kind_of
from roundelay.torch._internal.strategy.bucket import Bucket
from roundelay.torch._internal.strategy.spec import Spec
from roundelay.torch._internal.tuning.ways import Formula
from roundelay.torch.strategies._lossy.kept_back import KeepsBack
from roundelay.torch.strategies._lossy.node_shards import NodeShards

_TYPES = (torch.float32, torch.float16, torch.bfloat16)


class Quantised(NodeShards, KeepsBack):
    """Sends gradients between nodes in 8 bits, with one scale for each 256. Inside a node they are dense.

    bits: 8. What the rounding takes away is added to the next step's gradients. Gradients of fp64 go densely,
    and so do all if there is one node. Parameters on a GPU are a ValueError.
    """

    kind = "quantised"

    def __init__(self, bits: int = 8) -> None:
        super().__init__(None, 0, ())
        self.bits: int = kind_of(self.kind, "bits").checked("bits", bits)
        self._between = False  # whether there are several nodes

    @property
    def settings(self) -> dict[str, Any]:
        """The number of bits."""
        return {"bits": self.bits}

    def accept(self, optimizer: torch.optim.Optimizer, op: int) -> None:
        """Refuses parameters on a GPU: the technique works in host memory."""
        super().accept(optimizer, op)
        if self._on_gpu:
            raise ValueError(
                f"strategy {self.text} works in the host's memory, and parameters are on a GPU: take "
                "dense:wire=bf16, csc or topk"
            )

    def use_buckets(self, buckets: Sequence[Bucket]) -> None:
        """Looks whether there is more than one node. A hook of DDP leaves that to the core."""
        if buckets:
            self._between = self._context is None or self.levels().nodes > 1

    def formula(self) -> Formula:
        """Returns the cost model's formula."""
        return _model.quantised

    def technique(self, bucket: Bucket, step: int) -> Spec | None:
        """Returns the core's technique quantised; None if there is one node, and for other types."""
        if not self._between or bucket.dtype not in _TYPES:
            return None
        return Spec(self.kind, bits=self.bits)

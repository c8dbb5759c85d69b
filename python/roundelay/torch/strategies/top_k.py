"""HiTopKComm: nodes exchange the gradients of largest magnitude, and keep the others for later steps.

Source: Shi et al. (arXiv 2010.10458); csrc/compress/top_k has the technique.
"""

from __future__ import annotations

import warnings
from collections.abc import Collection, Iterable, Sequence
from typing import Any, ClassVar

import torch

from roundelay import _model
from roundelay._internal.spelling.table import kind_of, momenta_of
from roundelay.torch._internal.strategy.bucket import Bucket
from roundelay.torch._internal.strategy.spec import Spec
from roundelay.torch._internal.tuning.ways import Formula
from roundelay.torch.strategies._lossy.lossy import Lossy, Schedule
from roundelay.torch.strategies._lossy.node_shards import NodeShards


def break_even(nodes: int, dense_bytes: float, pair_bytes: float) -> float:
    """Returns the density above which a dense allreduce between the nodes sends fewer bytes.

    Each of m nodes sends 2 (m - 1) / m of the gradients' bytes densely, and (m - 1) * density pairs for each
    gradient. nodes: m. dense_bytes: of one gradient. pair_bytes: of one value with its index.
    """
    return 2 * dense_bytes / (nodes * pair_bytes)


class TopK(NodeShards, Lossy):
    """Sends the part ``density`` of the gradients between nodes in each step. Each node chooses its own.

    select: "radix", which finds the largest magnitudes exactly; "mstopk", which finds them nearly; or "auto",
    the faster of the two. samplings, seed: arguments of hvd.mstopk(). index_bits: the size of an index on the
    wire, 32 or 16. momentum: "local", None or "auto"; momentum and the gradients that are kept back belong to
    the sum over a node. Lossy describes the others.
    """

    kind = "topk"
    share: ClassVar[str] = "density"
    momenta: ClassVar[tuple[str, ...]] = momenta_of("topk")

    def __init__(
        self,
        density: float = 0.01,
        select: str = "mstopk",
        samplings: int = 20,
        index_bits: int = 32,
        seed: int = 0,
        *,
        momentum: str | None = "auto",
        masking: bool = True,
        warmup: int | Schedule = 0,
        wire: torch.dtype | str | None = None,
        dense_below: int = 4096,
        dense_parameters: Iterable[str] = (),
    ) -> None:
        super().__init__(
            density,
            momentum=momentum,
            masking=masking,
            warmup=warmup,
            wire=wire,
            dense_below=dense_below,
            dense_parameters=dense_parameters,
        )
        self.select: str = kind_of(self.kind, "select").checked("select", select)
        self.samplings: int = kind_of(self.kind, "samplings").checked("samplings", samplings)
        self.index_bits: int = kind_of(self.kind, "index_bits").checked("index_bits", index_bits)
        self.seed: int = kind_of(self.kind, "seed").checked("seed", seed)
        self._before: dict[int, int] = {}  # lossy elements before each bucket in its pool
        self._compared = False  # True: the bytes were compared with those of a dense allreduce
        self._momentum_changed = False

    @property
    def own_settings(self) -> dict[str, Any]:
        """The selection and the form of indices."""
        return {**self._numbers(), "select": self.select}

    def _numbers(self) -> dict[str, int]:
        return {"samplings": self.samplings, "index_bits": self.index_bits, "seed": self.seed}

    def use_buckets(self, buckets: Sequence[Bucket]) -> None:
        """Counts the lossy elements of each pool: a bucket's share depends on those before it."""
        self._before.clear()
        elements: dict[int, int] = {}
        for bucket in buckets:
            before = elements.get(bucket.pool, 0)
            self._before[bucket.index] = before
            dense = set(self.dense_in(bucket))
            lossy = (len(place) for number, place in enumerate(bucket.ranges) if number not in dense)
            elements[bucket.pool] = before + sum(lossy)
        if buckets and self._context is not None and not self._compared:
            self._compared = True
            self._compare(buckets[0].dtype)

    def _compare(self, dtype: torch.dtype) -> None:
        """Warns if a dense allreduce would send fewer bytes between the nodes."""
        value = (self.message_wire or dtype).itemsize
        nodes, process_set = self.levels().nodes, self.context.process_set
        even = break_even(nodes, value, value + self.index_bits / 8)
        if self.keep <= even or self.keep == 1.0 or process_set.rank() != 0:
            return
        text = (
            f"strategy {self.text} sends more between {nodes} nodes than a dense allreduce does: a value "
            f"takes {value} bytes and its index {self.index_bits // 8}, so dense is cheaper above "
            f"density={even:.3g} (docs/techniques/topk.md#when-it-pays)"
        )
        warnings.warn(text, RuntimeWarning, stacklevel=2)

    def formula(self) -> Formula:
        """Returns the cost model's formula."""
        value = 4 if self.message_wire is None else self.message_wire.itemsize
        return lambda cluster, size: _model.top_k(
            cluster,
            size,
            density=self.keep,
            value=value,
            index=self.index_bits / 8,
        )

    def spec(self, bucket: Bucket, keep: float, dense: Collection[int]) -> Spec | None:
        """Returns the core's technique topk for this bucket; with density 1 none."""
        if keep == 1.0:
            return None
        settings = self.technique_settings()
        if dense:
            settings["dense"] = [str(number) for number in sorted(dense)]
        return Spec(
            "topk",
            before=self._before[bucket.index],
            density=keep,
            select=self.select,
            **self._numbers(),
            **settings,
        )

    def _momentum_has_changed(self, text: str) -> None:
        """Warns once, and goes on with the momentum of the beginning: a scheduler may change it."""
        if self._momentum_changed:
            return
        self._momentum_changed = True
        if self.context.process_set.rank() == 0:
            warnings.warn(f"{text}; until then the first one stays", RuntimeWarning, stacklevel=2)

"""Coarse-grained sparse communication: the chunks with the largest norms are sent, in one dense allreduce.

Source: GradientFlow (arXiv 1902.06855), section 5; csrc/compress/csc has the technique.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from typing import Any

import torch

from roundelay._internal.spelling.table import kind_of
from roundelay.torch._internal.strategy.bucket import Bucket
from roundelay.torch._internal.strategy.spec import Spec
from roundelay.torch.strategies._lossy.lossy import Lossy, Schedule


class CSC(Lossy):
    """Sends the part ``keep`` of a pool's chunks in each step. All ranks send the same chunks.

    chunk_elements: the number of elements of a chunk. norms: "same" chooses chunks by the norms of this step,
    "previous" by those of the step before, which the ranks know earlier. Lossy describes the others.
    """

    kind = "csc"

    def __init__(
        self,
        keep: float = 0.1,
        chunk_elements: int = 32768,
        norms: str = "same",
        *,
        momentum: str | None = "auto",
        masking: bool = True,
        warmup: int | Schedule = 0,
        wire: torch.dtype | str | None = None,
        dense_below: int = 4096,
        dense_parameters: Iterable[str] = (),
    ) -> None:
        super().__init__(
            keep,
            momentum=momentum,
            masking=masking,
            warmup=warmup,
            wire=wire,
            dense_below=dense_below,
            dense_parameters=dense_parameters,
        )
        self.chunk_elements: int = kind_of(self.kind, "chunk_elements").checked(
            "chunk_elements", chunk_elements
        )
        self.norms: str = kind_of(self.kind, "norms").checked("norms", norms)
        self._before: dict[int, int] = {}  # the number of chunks before each bucket in its pool

    @property
    def own_settings(self) -> dict[str, Any]:
        """The chunks' size and the choice of norms."""
        return {"chunk_elements": self.chunk_elements, "norms": self.norms}

    def accept_gradients(self, names: Collection[str], passes: int) -> None:
        """Refuses several passes with norms of the step before: they would be those of fewer gradients."""
        super().accept_gradients(names, passes)
        if passes > 1 and self.norms == "previous":
            raise ValueError(
                f"strategy {self.text} chooses by the last step's norms, which has no meaning with "
                f"backward_passes_per_step={passes}: give the strategy norms='same'"
            )

    def use_buckets(self, buckets: Sequence[Bucket]) -> None:
        """Counts the chunks of each pool: a bucket's quota depends on the buckets before it."""
        self._before.clear()
        chunks: dict[int, int] = {}
        for bucket in buckets:
            before = chunks.get(bucket.pool, 0)
            self._before[bucket.index] = before
            chunks[bucket.pool] = before + self._chunks_of(bucket)

    def _chunks_of(self, bucket: Bucket) -> int:
        """Returns the number of chunks that have an element of a parameter that is not always sent."""
        dense = set(self.dense_in(bucket))
        size, count, last = self.chunk_elements, 0, -1  # last: the last chunk that was counted
        for number, place in enumerate(bucket.ranges):
            if number not in dense and place:
                first, end = place.start // size, (place.stop - 1) // size
                count += end - max(first, last + 1) + 1
                last = end
        return count

    def spec(self, bucket: Bucket, keep: float, dense: Collection[int]) -> Spec | None:
        """Returns the core's technique csc for this bucket; None if SGD's own dense step does the same."""
        if keep == 1.0 and not self.masking and self.message_wire is None:
            return None
        settings = self.technique_settings()
        if dense:
            settings["dense"] = [str(number) for number in sorted(dense)]
        return Spec(
            "csc",
            before=self._before[bucket.index],
            chunk=self.chunk_elements,
            keep=keep,
            norms=self.norms,
            **settings,
        )

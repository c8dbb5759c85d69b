"""The bytes that a step with a lossy strategy has to sum, of the chunks that were really chosen."""

from __future__ import annotations

import math
from collections.abc import Iterable

import torch

from roundelay.torch.strategies import Bucket, Part, Sent

_NORM = 4  # bytes of a chunk's norm
_FULL = torch.float32


def message_bytes(every: Iterable[Sent], wire: torch.dtype | None, elements: int) -> int:
    """Return the bytes of a step's messages: chosen chunks, norms, and what went whole.

    Args:
        every: what buckets of fp32 gradients have sent by CSC.
        wire: the strategy's type of the elements that travel.
        elements: the number of elements of all parameters.

    """
    width = (wire or _FULL).itemsize
    message, others = 0, elements
    for sent in every:
        others -= sum(map(len, sent.bucket.ranges))
        message += sent.bucket.bytes if sent.part is None else _part_bytes(sent.bucket, sent.part, width)
    return message + _FULL.itemsize * others


def _part_bytes(bucket: Bucket, part: Part, width: int) -> int:
    size = bucket.bytes // bucket.dtype.itemsize
    indices: list[int] = part.chunks.tolist()
    chosen = sum(min(part.chunk, size - index * part.chunk) for index in indices)
    dense = sum(len(bucket.ranges[number]) for number in part.dense)
    return width * (chosen + dense) + _NORM * math.ceil(size / part.chunk)

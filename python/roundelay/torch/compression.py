"""Compressors of what travels between ranks: ``Compression.none``, ``.fp16``, ``.bf16``."""

from __future__ import annotations

from typing import ClassVar, Protocol

import torch


class Compressor(Protocol):
    """A pair of functions; ``context`` is what ``decompress`` needs to undo ``compress``."""

    @staticmethod
    def compress(tensor: torch.Tensor) -> tuple[torch.Tensor, torch.dtype | None]:
        """Returns the tensor to send, and the context for ``decompress``."""
        ...

    @staticmethod
    def decompress(tensor: torch.Tensor, context: torch.dtype | None) -> torch.Tensor:
        """Returns the received tensor in its former type."""
        ...


class NoneCompressor:
    """Sends the tensor as it is."""

    @staticmethod
    def compress(tensor: torch.Tensor) -> tuple[torch.Tensor, torch.dtype | None]:
        """Leaves the tensor as it is."""
        return tensor, None

    @staticmethod
    def decompress(tensor: torch.Tensor, context: torch.dtype | None) -> torch.Tensor:
        """Leaves the tensor as it is."""
        return tensor


class _CastCompressor:
    """Casts wider floating types to ``wire``; other types pass unchanged. ValueError for complex ones."""

    wire: ClassVar[torch.dtype]

    @classmethod
    def compress(cls, tensor: torch.Tensor) -> tuple[torch.Tensor, torch.dtype | None]:
        if tensor.dtype in (torch.float32, torch.float64):
            return tensor.to(cls.wire), tensor.dtype
        if tensor.is_complex():
            raise ValueError(
                f"a tensor of {tensor.dtype} cannot travel in {cls.wire}: leave the compression out, or pass "
                "torch.view_as_real() of it"
            )
        return tensor, None

    @classmethod
    def decompress(cls, tensor: torch.Tensor, context: torch.dtype | None) -> torch.Tensor:
        return tensor if context is None else tensor.to(context)


class FP16Compressor(_CastCompressor):
    """Sends fp16: half the bytes, 11 significant bits, largest value 65504."""

    wire = torch.float16


class BF16Compressor(_CastCompressor):
    """Sends bf16: half the bytes, 8 significant bits, the range of fp32."""

    wire = torch.bfloat16


class Compression:
    """The choices for ``compression=`` of allreduce and DistributedOptimizer."""

    none = NoneCompressor
    fp16 = FP16Compressor
    bf16 = BF16Compressor

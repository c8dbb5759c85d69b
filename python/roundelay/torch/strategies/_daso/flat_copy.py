"""Copies of tensors that travel together."""

from __future__ import annotations

from collections.abc import Sequence

import torch

_Kind = tuple[torch.device, torch.dtype]


class FlatCopy:
    """Memory for the values of some tensors: one piece for each device and type, which travels as it is.

    dtype: the copy's type, if it is not the tensors' own.
    """

    def __init__(self, tensors: Sequence[torch.Tensor], dtype: torch.dtype | None = None) -> None:
        elements: dict[_Kind, int] = {}
        places: list[tuple[_Kind, int]] = []
        for one in tensors:
            kind = one.device, dtype or one.dtype
            places.append((kind, elements.get(kind, 0)))
            elements[kind] = elements.get(kind, 0) + one.numel()
        pieces = {kind: torch.empty(count, device=kind[0], dtype=kind[1]) for kind, count in elements.items()}
        self.pieces = list(pieces.values())
        self.views = [
            pieces[kind][begin : begin + one.numel()].view(one.shape)
            for one, (kind, begin) in zip(tensors, places, strict=True)
        ]
        self._dtype = dtype
        self._shapes = [(one.device, one.dtype, one.shape) for one in tensors]

    def fits(self, tensors: Sequence[torch.Tensor], dtype: torch.dtype | None = None) -> bool:
        """Returns whether it is a copy of such tensors, in this type."""
        return (dtype, [(one.device, one.dtype, one.shape) for one in tensors]) == (self._dtype, self._shapes)

    def load(self, tensors: Sequence[torch.Tensor]) -> None:
        """Takes the tensors' values."""
        torch._foreach_copy_(self.views, list(tensors))

    def store(self, tensors: Sequence[torch.Tensor]) -> None:
        """Gives the tensors its values."""
        torch._foreach_copy_(list(tensors), self.views)


def fitting(
    copy: FlatCopy | None, tensors: Sequence[torch.Tensor], dtype: torch.dtype | None = None
) -> FlatCopy:
    """Returns the copy if it fits the tensors, else a new one."""
    return copy if copy is not None and copy.fits(tensors, dtype) else FlatCopy(tensors, dtype)

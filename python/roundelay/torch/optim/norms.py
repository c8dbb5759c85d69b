"""Norms of layers, and the division of layers over ranks. Nothing here communicates."""

from __future__ import annotations

import heapq
from collections import defaultdict
from collections.abc import Sequence

import torch


def norms(tensors: Sequence[torch.Tensor]) -> torch.Tensor:
    """Returns the 2-norms of the tensors, fp64 on the CPU, shape (len(tensors),).

    A tensor's norm has the same bits whichever other tensors are in the list: a multi-tensor kernel takes
    only tensors of one device, type and kind of layout, so another kind never changes the kernel.
    """
    alike = defaultdict(list)
    for number, tensor in enumerate(tensors):
        alike[tensor.device, tensor.dtype, _is_dense(tensor)].append(number)
    found = torch.empty(len(tensors), dtype=torch.float64, device="cpu")
    for numbers in alike.values():
        values = torch.stack(torch._foreach_norm([tensors[number] for number in numbers]))
        found[numbers] = values.to("cpu", torch.float64)
    return found


def _is_dense(tensor: torch.Tensor) -> bool:
    """Returns whether the elements lie side by side, as the fast multi-tensor kernels need them."""
    if tensor.is_contiguous():
        return True
    return tensor.dim() == 4 and tensor.is_contiguous(memory_format=torch.channels_last)


def shares(sizes: Sequence[int], ranks: int) -> list[list[int]]:
    """Returns for each rank the numbers of its layers, ascending; each layer, whole, has one rank.

    Greedy: the largest layer that is left goes to the rank with the least bytes (Graham's LPT rule, SIAM
    J. Appl. Math. 17, 1969: at most 4/3 of the best division's largest share). All ranks compute the same.

    sizes: the bytes of the layers.
    """
    loads = [(0, rank) for rank in range(ranks)]
    mine: list[list[int]] = [[] for _ in range(ranks)]
    for number in sorted(range(len(sizes)), key=lambda number: (-sizes[number], number)):
        load, rank = loads[0]
        mine[rank].append(number)
        heapq.heapreplace(loads, (load + sizes[number], rank))
    return [sorted(numbers) for numbers in mine]

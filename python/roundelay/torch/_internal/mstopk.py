"""Selects the k values of largest magnitude of a tensor, by MSTopK or exactly."""

from __future__ import annotations

import operator
from typing import Final, Literal

import torch

from roundelay import _core
from roundelay._internal import gpu

Select = Literal["mstopk", "radix", "auto"]

_SELECTS: Final = ("mstopk", "radix", "auto")
_FLOATS: Final = (torch.float32, torch.float16, torch.bfloat16)


def mstopk(
    tensor: torch.Tensor, k: int, samplings: int = 20, *, seed: int = 0, select: Select = "mstopk"
) -> tuple[torch.Tensor, torch.Tensor]:
    """Returns k values of large magnitude and their indices: exactly k of them, each index once.

    MSTopK (Shi et al., arXiv 2010.10458) looks for a threshold by bisection between the mean and the maximum
    of ``|tensor|``. It takes the values above, and fills up to k with a random run of those just below. The
    result depends on the arguments alone. Infinities and NaN count as the largest magnitudes; the first of
    them are taken if there are more than k.

    Args:
        tensor: fp32, fp16 or bf16, dense, of any shape, on the CPU or on a GPU; it counts as flattened. On a
            GPU the current stream does the work, and the results are those of the CPU.
        k: how many values, from 0 to ``tensor.numel()``.
        samplings: steps of the bisection, at least 1; those after the 48th have no effect.
        seed: chooses the random run, from 0 to ``2**64 - 1``.
        select: "mstopk"; "radix", the exact k largest, of equal magnitudes the first; or "auto", the faster
            of the two on a CPU: radix. ``samplings`` and ``seed`` are for "mstopk".

    Returns:
        ``(values, indices)``, of shape ``(k,)``, in the order of the indices: values in the tensor's type,
        with their signs, and int64 indices into the flattened tensor. Both on its device.

    Raises:
        TypeError: ``tensor`` is no dense tensor of such a type; k, samplings or seed is no integer.
        ValueError: ``tensor`` is on a device that Roundelay does not serve; another argument is out of range.

    """
    _check_tensor(tensor)
    if tensor.device.type != "cpu":
        gpu.load()
    k = _integer("k", k, 0, tensor.numel(), f" (the tensor has {tensor.numel()} values)")
    samplings = min(_integer("samplings", samplings, 1, None), 1 << 30)
    seed = _integer("seed", seed, 0, 2**64 - 1)
    if select not in _SELECTS:
        raise ValueError(f"mstopk: select must be one of {', '.join(_SELECTS)}, not {select!r}")
    values = tensor.detach().reshape(-1).to(torch.float32).contiguous()
    chosen, indices = _core.top_k(values, k, exact=select != "mstopk", samplings=samplings, seed=seed)
    return chosen.to(tensor.dtype), indices


def _check_tensor(tensor: object) -> None:
    if not isinstance(tensor, torch.Tensor):
        raise TypeError(f"mstopk: tensor must be a torch.Tensor, not {type(tensor).__name__}")
    if tensor.layout != torch.strided:
        raise TypeError(f"mstopk: the tensor is {tensor.layout}; call to_dense() first")
    if tensor.dtype not in _FLOATS:
        cure = "; fp32 would change the order of close magnitudes" if tensor.dtype == torch.float64 else ""
        raise TypeError(f"mstopk: the tensor must be fp32, fp16 or bf16, not {tensor.dtype}{cure}")


def _integer(name: str, value: object, least: int, most: int | None, why: str = "") -> int:
    """Returns the number. TypeError: it is no integer. ValueError: it is out of range."""
    try:
        number = operator.index(value)  # type: ignore[arg-type]
    except TypeError:
        raise TypeError(f"mstopk: {name} must be an integer, not {value!r}") from None
    if number < least or (most is not None and number > most):
        span = f"at least {least}" if most is None else f"from {least} to {most}"
        raise ValueError(f"mstopk: {name} must be {span}{why}, not {number}")
    return number

"""Compiled models whose gradients are reduced while backward goes on."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, TypeVar, cast

import torch

from roundelay.torch._internal import graph_splitter

Model = TypeVar("Model", bound=Callable[..., Any])


def compile(  # noqa: A001  PyTorch's name
    model: Model,
    *,
    piece_bytes: int | None = None,
    fullgraph: bool = False,
    dynamic: bool | None = None,
    backend: str | Callable[..., Any] = "inductor",
    mode: str | None = None,
    options: Mapping[str, Any] | None = None,
) -> Model:
    """Compiles a model as ``torch.compile`` does, for training with ``hvd.DistributedOptimizer``.

    ``torch.compile`` makes one backward of the whole model, whose gradients all come at its end. This cuts
    the graph by the bytes of its parameters, and compiles each piece by itself: the gradients of the last
    layers are reduced while those of the first ones are computed. Values stay the same.

    ``piece_bytes`` of parameters, in bytes, close a piece. By default a graph has about 16 pieces, of at
    least 4 MiB. More pieces hide more of the communication; fewer are compiled faster. The other arguments
    are those of ``torch.compile``. ``model`` may be a function that calls models.

    A graph that PyTorch cannot cut is compiled whole, and its gradients are reduced at the end; a line of
    the log says why. Graphs without gradients are never cut. DistributedDataParallel needs plain
    ``torch.compile``, which cuts by itself.

    Raises ValueError if ``piece_bytes`` is less than 1 or ``model`` is wrapped for DDP, and what
    ``torch.compile`` raises.
    """
    if piece_bytes is not None and piece_bytes < 1:
        raise ValueError(f"piece_bytes={piece_bytes}: at least 1")
    if isinstance(model, torch.nn.parallel.DistributedDataParallel):
        raise ValueError(
            "hvd.compile is for models of hvd.DistributedOptimizer: "
            "give DistributedDataParallel to torch.compile"
        )
    compiler = graph_splitter.SplittingCompiler(
        graph_splitter.inner_compiler(backend, mode, options, dynamic), piece_bytes
    )
    return cast(Model, torch.compile(model, fullgraph=fullgraph, dynamic=dynamic, backend=compiler))


__all__ = ["compile"]

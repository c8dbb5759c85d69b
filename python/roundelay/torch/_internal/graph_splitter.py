"""Cuts the graph of a compiled model into pieces, each with a backward of its own.

The backward of a whole graph is one node of autograd, whose gradients all come at its end. PyTorch's
DDPOptimizer cuts a graph by the bytes of its parameters, for DistributedDataParallel; here it does so for
hvd.DistributedOptimizer. What is private of PyTorch is in this file alone; tools/try_versions.py tries it.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch

from roundelay import _core

_LEAST_BYTES = 4 << 20  # of a piece, by default: the compiler fuses nothing over a cut
_MOST_PIECES = 16  # by default: each is compiled by itself

Graph = torch.fx.GraphModule
Compiler = Callable[[Graph, list[torch.Tensor]], Any]


def inner_compiler(
    backend: str | Compiler, mode: str | None, options: Mapping[str, Any] | None, dynamic: bool | None
) -> Compiler:
    """Returns the compiler of one graph that torch.compile makes of its arguments.

    Raises what torch.compile raises: RuntimeError for a mode or an option that does not exist.
    """
    if backend == "inductor":
        inductor: Compiler = torch._TorchCompileInductorWrapper(mode, options, dynamic)
        return inductor
    other: Compiler = torch._TorchCompileWrapper(backend, mode, options, dynamic)
    return other


@dataclass
class SplittingCompiler:
    """A backend for torch.compile. piece_bytes: parameters that close a piece; None: by their sum."""

    inner: Compiler
    piece_bytes: int | None

    def __call__(self, graph: Graph, inputs: list[torch.Tensor]) -> Any:
        """Compiles a graph in pieces, or whole if it has no backward or cannot be cut."""
        if not torch.is_grad_enabled():
            return self.inner(graph, inputs)
        bytes_ = self.piece_bytes or max(_LEAST_BYTES, _parameter_bytes(graph) // _MOST_PIECES)
        try:
            from torch._dynamo.backends.distributed import DDPOptimizer

            with _pieces_in_order():
                return DDPOptimizer(bytes_, self.inner, first_bucket_cap=bytes_).compile_fn(graph, inputs)
        except torch._dynamo.exc.RestartAnalysis:  # Dynamo traces once more, and then comes again
            raise
        except Exception as error:  # whatever a version of PyTorch cannot cut
            _forget_pieces()
            compiled = self.inner(graph, inputs)  # if the error was the compiler's, this raises it again
            why = str(error).partition("\n")[0]
            _core.log_warning(
                "hvd.compile: the model is compiled in one piece, so its gradients are reduced when its "
                f"backward ends, because PyTorch cannot cut its graph ({type(error).__name__}: {why})"
            )
            return compiled


@contextmanager
def _pieces_in_order() -> Iterator[None]:
    """Makes pieces run in the order of the graph. DDPOptimizer's call sorts them by their data alone.

    Then a branch without gradients can come first, and switch them off for the others; and buffers, random
    numbers and running statistics are read and written in another order.
    """
    module = torch.fx.passes.split_module
    original = module.split_module
    module.split_module = functools.partial(original, keep_original_order=True)
    try:
        yield
    finally:
        module.split_module = original


def _parameter_bytes(graph: Graph) -> int:
    """Returns the bytes of the parameters that have gradients."""
    inputs = [node.meta.get("example_value") for node in graph.graph.find_nodes(op="placeholder")]
    parameters = [value for value in inputs if isinstance(value, torch.nn.Parameter)]
    parameters += [parameter for parameter in graph.parameters() if parameter.requires_grad]
    return sum(parameter.nbytes for parameter in parameters if parameter.requires_grad)


def _forget_pieces() -> None:
    """Lets the whole graph's backward not look for the pieces of which some were compiled."""
    tracing = torch._guards.TracingContext.try_get()
    if tracing is not None:
        tracing.ddp_optimizer_ctx = None
        tracing.fakify_first_call = False

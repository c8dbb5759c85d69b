"""The boundary between torch.compile and the optimizer's hooks and methods, which talk to other ranks.

Dynamo breaks the user's graph where it meets one of them, and traces nothing after it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import ParamSpec, TypeVar

import torch

_P = ParamSpec("_P")
_R = TypeVar("_R")

_REASON = (
    "hvd.DistributedOptimizer talks to other ranks here, which no graph can: leave out fullgraph=True, or "
    "compile the model alone"
)


def untraced(call: Callable[_P, _R]) -> Callable[_P, _R]:
    """Returns ``call``, which runs outside of graphs with all that it calls.

    This loads Dynamo, as PyTorch does by itself for each optimizer.
    """
    wrapped: Callable[_P, _R] = torch.compiler.disable(call, reason=_REASON)
    return wrapped

"""Says when ranks that should have had the same weights did not.

``sync()`` gives all ranks the weights of one, so that nothing else would show it.
"""

from __future__ import annotations

import torch

from roundelay import _core
from roundelay.torch._internal.optimizer.distributed import wrapper_of
from roundelay.torch._internal.optimizer.first_weights import sums_of, unequal
from roundelay.torch.functions import allgather_object
from roundelay.torch.process_sets import global_process_set


def warn_of_divergence(optimizer: torch.optim.Optimizer, state: str, trained: bool) -> None:
    """Warns on rank 0 if ranks have other weights of a wrapped optimizer; collective.

    state: the optimizer's name in the elastic state. trained: this rank has the newest commit, and has not
    only begun. Optimizers of a smaller set do not count: the set may have other ranks now.
    """
    wrapper = wrapper_of(optimizer)
    if wrapper is None or wrapper.process_set is not global_process_set:
        return
    wrapper.parameters.refresh()
    named = {name: parameter for parameter, name in wrapper.parameters.watch.named.items()}
    sums = sums_of(named) if trained and _core.config().check_weights else {}
    found = unequal(allgather_object((_core.rank(), sums), f"elastic.weights.{state}"))
    if found is not None and _core.rank() == 0:
        _core.log_warning(
            f"{found.ranks} had other values of parameter {found.first_name!r} than rank {found.first} at "
            f"the newest commit ({found.unequal} of the {found.of} parameters of {state!r} differed): their "
            "training had diverged before. All ranks go on with the weights of one"
        )

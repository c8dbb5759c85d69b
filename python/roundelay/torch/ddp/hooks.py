"""Makes the hooks of DistributedDataParallel."""

from __future__ import annotations

from collections.abc import Callable, Iterable

import torch
import torch.distributed as dist
from torch._C._distributed_c10d import GradBucket

from roundelay.torch._internal.strategy.strategy import Strategy
from roundelay.torch.ddp._hook.hook_state import HookState
from roundelay.torch.ddp._hook.scaling import follow_scale
from roundelay.torch.ddp._hook.strategies import claim, strategy_of

Hook = Callable[[HookState, GradBucket], torch.futures.Future[torch.Tensor]]


def hook(
    strategy: str | Strategy,
    process_group: dist.ProcessGroup | None = None,
    named_parameters: Iterable[tuple[str, torch.Tensor]] = (),
) -> tuple[HookState, Hook]:
    """Returns a state and a function for ``register_comm_hook``, which average gradients by a strategy.

    strategy: dense, csc, topk, power_sgd or quantised, as text or as an object of hvd.strategies; the
    optimizer's own momentum works on the result. process_group: that of the DDP module; None: the default
    group. named_parameters: for state_dict(), and for strategies that name parameters.

    ValueError: the group's backend is not "roundelay", or a hook cannot have this strategy.
    """
    made = strategy_of(strategy)
    group = dist.group.WORLD if process_group is None else process_group
    if group is None:
        raise ValueError("call init_process_group('roundelay') before hook()")
    name, backend = dist.get_backend(group), group._get_backend(torch.device("cpu"))
    if backend.name() != "roundelay":
        raise ValueError(
            f"hooks work over the backend 'roundelay', and this group has {name!r}: call "
            "init_process_group('roundelay')"
        )
    names = dict(named_parameters)
    if names or getattr(made, "dense_parameters", None):
        made.accept_gradients(list(names), 1)
    state = HookState(made, group, backend, names)
    claim(made, state)
    follow_scale(state)
    return state, average


def average(state: HookState, bucket: GradBucket) -> torch.futures.Future[torch.Tensor]:
    """Averages a bucket of DDP's over the ranks."""
    return state.average(bucket)


average.__annotations__.clear()  # DDP compares them with classes, and these are texts

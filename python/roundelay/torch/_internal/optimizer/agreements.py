"""What the ranks of a process set agree on between two steps. All ranks of the set call each function."""

from __future__ import annotations

import weakref
from collections.abc import Iterable

import torch

from roundelay import _core
from roundelay.torch._internal.optimizer.gradient_sync import GradientSync
from roundelay.torch._internal.optimizer.techniques import Techniques
from roundelay.torch._internal.strategy.strategy import Strategy
from roundelay.torch.functions import allgather_object, broadcast_object
from roundelay.torch.process_sets import ProcessSet, set_id

# Process sets in which a strategy chooses techniques. All ranks know the same ones.
choosing_sets: weakref.WeakSet[ProcessSet] = weakref.WeakSet()
# Process sets in which a strategy overrides joined(). All ranks know the same ones.
joining_sets: weakref.WeakSet[ProcessSet] = weakref.WeakSet()


def check_nothing_is_kept(techniques: Techniques | None, strategy: str, process_set: ProcessSet) -> None:
    """Raises ValueError on all ranks if techniques keep gradients back on one of them.

    A rank that has loaded a state, and has taken no step since, raises too.
    """
    if techniques is None:
        return
    if techniques.loaded.fresh:
        raise ValueError(
            f"strategy {strategy} has loaded a state, which another one would not send: give the optimizer "
            "to DistributedOptimizer for the last time before you load the state"
        )
    if not techniques.stateful:
        return
    keeps = (_core.Merge.OR, bytes([techniques.table.keeps_something()]))
    if any(_core.agree("strategy.kept", [keeps], -1, set_id(process_set)).values):
        raise ValueError(
            f"strategy {strategy} keeps gradients back, which another one would not send: call "
            "hvd.strategies.of(optimizer).flush() and take a step before"
        )


def agree_on_steps(process_set: ProcessSet, last_rank: int, every: Iterable[GradientSync | None]) -> None:
    """Makes all ranks count steps like the rank that joined last, which has taken all of them.

    every: of this rank's optimizers in the process set.
    """
    if process_set not in choosing_sets:
        return
    tables = ((one, one.techniques.table) for one in every if one is not None)
    choosing = {table.prefix: one for one, table in tables if table.chooses}
    steps = {prefix: one.techniques.step for prefix, one in choosing.items()}
    for prefix, step in broadcast_object(steps, last_rank, "strategy.steps", process_set).items():
        if prefix in choosing:  # else it was collected as garbage on this rank
            choosing[prefix].joined(step)


def tell_joined(process_set: ProcessSet, every: Iterable[tuple[torch.optim.Optimizer, Strategy]]) -> None:
    """Tells the strategies that override joined() of a join that all ranks have ended.

    every: this rank's optimizers in the process set, and their strategies.
    """
    told = {
        strategy.context.number: (optimizer, strategy)
        for optimizer, strategy in every
        if "joined" in strategy.overrides
    }
    if process_set not in joining_sets:
        return
    everywhere = allgather_object(set(told), "strategy.joined", process_set)
    for number in sorted(set.intersection(*everywhere)):  # others were collected as garbage on some rank
        optimizer, strategy = told[number]
        strategy.joined(optimizer)

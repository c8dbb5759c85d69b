"""Gives a strategy its process set, and the functions by which it acts on its optimizer."""

from __future__ import annotations

import weakref
from functools import partial

from roundelay.torch._internal.optimizer.arguments import prefix_of
from roundelay.torch._internal.optimizer.equality import check_parameters
from roundelay.torch._internal.optimizer.options import Options
from roundelay.torch._internal.optimizer.technique_states import TechniqueStates
from roundelay.torch._internal.optimizer.wrapper import Wrapper
from roundelay.torch._internal.strategy.context import Context


def context_of(wrapper: Wrapper, options: Options, number: int, idle: TechniqueStates) -> Context:
    """Returns what the optimizer's strategy may use. It does not keep the wrapper alive.

    number: the optimizer's in the process set. idle: keeps nothing, while gradients stay local.
    """
    weak = weakref.ref(wrapper)

    def regroup() -> None:
        own = weak()
        if own is not None:
            own.regroup()

    def keeper() -> TechniqueStates:
        own = weak()
        sync = None if own is None else own.gradient_hooks.sync
        return idle if sync is None else sync.states

    def keep_local(local: bool) -> None:
        own = weak()
        if own is not None:
            own.gradient_hooks.keep_local(local)

    masters, process_set = wrapper.masters, wrapper.process_set
    check = partial(check_parameters, prefix=prefix_of(number), process_set=process_set)
    return Context(
        process_set,
        options.rule.compression,
        number,
        masters.stepped,
        keeper,
        masters.between_steps,
        regroup,
        keep_local,
        check,
        partial(check, weights=options.weights),
    )

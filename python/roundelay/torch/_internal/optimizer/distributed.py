"""``DistributedOptimizer`` returns the optimizer it was given, with gradients kept equal on all ranks.

The object keeps its class, parameter groups, state and hooks. Hooks on the parameters (gradient_sync.py) and
before and after ``step`` synchronise. They run in whatever order schedulers and GradScaler wrap ``step``. A
copied or unpickled optimizer is a plain one of the original class: give it to ``DistributedOptimizer`` again.
"""

from __future__ import annotations

import gc
import weakref
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import count
from typing import Any, TypeVar

import torch

from roundelay import _core
from roundelay.torch._internal import horovod_name
from roundelay.torch._internal.generations import is_elastic
from roundelay.torch._internal.gradients.gradient import Reduction
from roundelay.torch._internal.gradients.groups import assign
from roundelay.torch._internal.gradients.pool import job_keys
from roundelay.torch._internal.operations import Average
from roundelay.torch._internal.operations.join import after_join, joined_too
from roundelay.torch._internal.optimizer.agreements import (
    agree_on_steps,
    check_nothing_is_kept,
    choosing_sets,
    joining_sets,
    tell_joined,
)
from roundelay.torch._internal.optimizer.arguments import (
    check_complex,
    check_optimizer,
    checked_names,
    chosen_strategy,
    prefix_of,
)
from roundelay.torch._internal.optimizer.batch_weight import checked_weight, keep_function
from roundelay.torch._internal.optimizer.first_weights import FirstWeights
from roundelay.torch._internal.optimizer.grad_scaler import watch
from roundelay.torch._internal.optimizer.gradient_marks import GradientMarks
from roundelay.torch._internal.optimizer.gradient_sync import GradientSync
from roundelay.torch._internal.optimizer.master_weights import MasterWeights
from roundelay.torch._internal.optimizer.options import Arguments, Options
from roundelay.torch._internal.optimizer.scopes import Scopes
from roundelay.torch._internal.optimizer.settings import Settings, check_again, hide, known_settings, show
from roundelay.torch._internal.optimizer.surroundings import context_of
from roundelay.torch._internal.optimizer.technique_states import TechniqueStates
from roundelay.torch._internal.optimizer.techniques import Techniques
from roundelay.torch._internal.optimizer.wrapper import Wrapper
from roundelay.torch._internal.parameter_names import names_of
from roundelay.torch._internal.strategy.attached import attached
from roundelay.torch._internal.strategy.strategy import Strategy
from roundelay.torch._internal.unfit import check_fit
from roundelay.torch._internal.unreduced import unreduced
from roundelay.torch.compression import Compression, Compressor
from roundelay.torch.process_sets import ProcessSet, global_process_set, made_again, set_id

OptimizerT = TypeVar("OptimizerT", bound=torch.optim.Optimizer)
_wrapped: weakref.WeakKeyDictionary[torch.optim.Optimizer, Wrapper] = weakref.WeakKeyDictionary()
_scopes = Scopes()
_jobs = count()
_job = next(_jobs)


def restart_scopes() -> None:
    """Begins a job: all ranks count alike again. Before, some ranks may have wrapped other optimizers.

    The generations of an elastic job have the same optimizers. A new rank wraps them in the order in which
    the others did, and all get the same numbers and keys.
    """
    global _job  # noqa: PLW0603
    _job = next(_jobs)
    if _job > 1 and is_elastic():
        job_keys.begin_anew()
        _scopes.begin_anew()
    else:
        _scopes.restart()
        job_keys.restart()
    for optimizer, wrapper in wrapped():
        if is_elastic() and wrapper.process_set in made_again():
            _wrap_again(optimizer, wrapper)
        else:
            wrapper.restart()
            _wrapped[optimizer] = _wrapped.pop(optimizer)  # the order stays


def job_number() -> int:
    """Returns a number that differs between the jobs of this process."""
    return _job


def wrapped() -> list[tuple[torch.optim.Optimizer, Wrapper]]:
    """Returns all wrapped optimizers of this process, in the order of wrapping."""
    return list(_wrapped.items())


def wrapper_of(optimizer: torch.optim.Optimizer) -> Wrapper | None:
    """Returns the wrapper of a wrapped optimizer; None for a plain one."""
    return _wrapped.get(optimizer)


def DistributedOptimizer(  # noqa: N802  Horovod's name
    optimizer: OptimizerT,
    named_parameters: Iterable[tuple[str, torch.Tensor]] | None = None,
    compression: type[Compressor] = Compression.none,
    backward_passes_per_step: int = 1,
    op: int = Average,
    gradient_predivide_factor: float = 1.0,
    num_groups: int = 0,
    groups: Any = None,
    sparse_as_dense: bool = False,
    process_set: ProcessSet = global_process_set,
    *,
    strategy: Strategy | str | None = None,
    master_weights: bool = False,
    weight: Callable[[], Any] | None = None,
) -> OptimizerT:
    """Returns ``optimizer`` itself. Backward passes reduce its gradients over all ranks from now on.

    When ``backward()`` returns the gradients hold the result, so clipping and GradScaler need nothing
    special. Every rank of ``process_set`` wraps its optimizers in the same order, with the same parameters;
    on other ranks the optimizer stays a plain one. Wrapping again replaces names and strategy.

    named_parameters: names for messages and the timeline. compression: the form in which gradients travel.
    backward_passes_per_step: gradients are summed locally over so many backward passes, then reduced. op:
    Average, Sum, Min, Max, Product; Adasum combines the ranks' steps instead of their gradients
    (strategies/adasum.py). gradient_predivide_factor: with Average, gradients are divided by it before the
    sum and by size / factor afterwards. groups: into how many groups to put the parameters, or lists of
    parameters; the gradients of a group are reduced together. num_groups: its deprecated name.
    sparse_as_dense: sparse gradients are made dense to be reduced, and sparse again; else indices and values
    are gathered (Average and Sum; ValueError for other ops). strategy: what happens to buckets and around a
    step (docs/strategies.md), as an object or as text such as "dense:wire=bf16"; None: ROUNDELAY_STRATEGY's.
    master_weights: the optimizer works on fp32 copies of fp16 and bf16 parameters (docs/master_weights.md).
    weight: returns the number of this rank's samples in a step, by which its gradients count in the average
    (docs/uneven_batches.md).

    It gains ``synchronize()``, ``skip_synchronize()``, ``no_sync()``, ``set_backward_passes_per_step(n)``.
    Raises ValueError for wrong arguments, before ``init``, if its present strategy keeps gradients back, and
    if it is wrapped with other ones of Horovod's arguments.
    """
    _core.size()
    check_optimizer(optimizer)
    given = Arguments(
        named_parameters,
        compression,
        backward_passes_per_step,
        op,
        gradient_predivide_factor,
        num_groups,
        groups,
        sparse_as_dense,
        process_set,
        strategy,
        master_weights,
        weight,
    )
    options, settings = _checked(optimizer, given)
    watch(_scaled)
    unreduced.end()
    _leave(optimizer)
    keep_function(optimizer, weight)
    _wrap(optimizer, options)
    show(optimizer, settings, job_number())
    horovod_name.put_on(optimizer)
    return optimizer


def _wrap_again(optimizer: torch.optim.Optimizer, wrapper: Wrapper) -> None:
    """Wraps an optimizer whose process set may have other ranks now. What it has kept back goes on."""
    strategy, settings, techniques = attached[optimizer], known_settings(optimizer), wrapper.techniques()
    if techniques is not None:
        techniques.restart()
    kept = strategy.commit()
    lost = "" if wrapper.process_set.included() else strategy.lost_with_this_rank()
    if lost:
        _core.log_warning(
            f"strategy {strategy.text}: this rank is no longer in the optimizer's process set, and what it "
            f"has kept back of its gradients is lost: {lost}"
        )
    _forget(optimizer, wrapper)
    _wrap(optimizer, wrapper.options)
    strategy.restore(kept)
    show(optimizer, settings, job_number())
    horovod_name.put_on(optimizer)


def _scaled(optimizer: torch.optim.Optimizer) -> Sequence[Wrapper]:
    """Returns what GradScaler is to tell of this optimizer."""
    wrapper = wrapper_of(optimizer)
    return () if wrapper is None else (wrapper,)


def _checked(optimizer: torch.optim.Optimizer, given: Arguments) -> tuple[Options, Settings]:
    """Returns the options, and what clients read of the arguments. ValueError: wrong; nothing has changed."""
    before = _wrapped.get(optimizer)
    present = before.masters if before is not None else None
    masters = MasterWeights.chosen(optimizer, given.master_weights, present)
    parameters = masters.parameters(optimizer)
    names = checked_names(parameters, given.named_parameters)
    given = given.checked()
    op, factor, ranks = given.op, given.predivide_factor, given.process_set
    check_again(optimizer, given.settings(), job_number())
    strategy, compression = chosen_strategy(given.strategy, given.compression, op)
    named = names_of(optimizer, parameters, names)
    check_complex(named, strategy, compression, op)
    strategy.check(optimizer, op, factor, named.values(), given.passes, ranks)
    _check_sharing(optimizer, strategy, named)
    grouping = assign(given.num_groups, given.groups, named)
    set_id(ranks)
    _check_owners(named, ranks)
    weight = checked_weight(optimizer, given.weight, op, strategy)
    rule = Reduction(
        op,
        1.0 / factor,
        factor,
        compression,
        given.sparse_as_dense,
        strategy.takes_sparse,
        ranks,
        None if weight is None else weight.core,
    )
    options = Options(rule, given.passes, grouping, names, strategy, masters, FirstWeights(), weight)
    return options, given.settings()


def _check_owners(named: Mapping[torch.Tensor, str], process_set: ProcessSet) -> None:
    """Raises ValueError if something else reduces a parameter; the peers get it in their first backward."""
    if not process_set.included():
        return
    try:
        check_fit(((name, parameter) for parameter, name in named.items()), reduced=True)
    except ValueError as error:
        round_ = f"{prefix_of(_scopes.next(process_set))}.agreement1"
        _core.submit_error("allreduce", round_, str(error), set_id(process_set))
        raise


def _wrap(optimizer: torch.optim.Optimizer, options: Options) -> None:
    """Gives the optimizer its wrapper and strategy; or leaves it plain, and raises."""
    rule, strategy = options.rule, options.strategy
    process_set = rule.process_set
    scope = _scopes.next(process_set) if process_set.included() else 0
    active = process_set.included() and (process_set.size() > 1 or is_elastic())  # others may join

    def make_sync(ranks: ProcessSet) -> GradientSync:
        number = scope if ranks is process_set else _scopes.next(ranks)
        sync = GradientSync(number, options.over(ranks))
        if sync.techniques.table.chooses:
            choosing_sets.add(ranks)
        return sync

    marks = None if active or _core.size() > 1 else GradientMarks(scope, options.passes)
    wrapper = Wrapper(optimizer, options, make_sync, active, marks)
    _wrapped[optimizer] = wrapper
    attached[optimizer] = strategy
    if active and "joined" in strategy.overrides:
        joining_sets.add(process_set)
    idle = TechniqueStates(Techniques(strategy, rule.op, process_set, "", {}), {}, None)
    try:
        strategy.attach(optimizer, context_of(wrapper, options, scope, idle))
        wrapper.regroup()
    except BaseException:
        _forget(optimizer, wrapper)
        raise


def _leave(optimizer: torch.optim.Optimizer) -> None:
    """Makes a wrapped optimizer a plain one. ValueError on all ranks if its strategy keeps gradients back."""
    previous = _wrapped.get(optimizer)
    if previous is None:
        return
    attached[optimizer].accept_end()
    check_nothing_is_kept(previous.techniques(), attached[optimizer].text, previous.process_set)
    _forget(optimizer, previous)


def _forget(optimizer: torch.optim.Optimizer, wrapper: Wrapper) -> None:
    del _wrapped[optimizer]
    attached.pop(optimizer).detach()
    wrapper.undo(optimizer)
    keep_function(optimizer, None)
    hide(optimizer)
    horovod_name.take_off(optimizer)


def _check_sharing(
    optimizer: torch.optim.Optimizer, strategy: Strategy, named: Mapping[torch.Tensor, str]
) -> None:
    """Raises ValueError if another optimizer has a parameter whose strategy, or this one, needs it alone."""
    if not any(_sharing(optimizer, strategy, named)):
        return
    gc.collect()  # the other one may be an optimizer that nobody has any more
    for name, other in _sharing(optimizer, strategy, named):
        raise ValueError(
            f"parameter {name!r} belongs to two optimizers, whose strategies {strategy.text} and {other} "
            "cannot both change it: give each parameter to one optimizer"
        )


def _sharing(
    optimizer: torch.optim.Optimizer, strategy: Strategy, named: Mapping[torch.Tensor, str]
) -> Iterator[tuple[str, str]]:
    """Yields names of parameters, and the texts of the strategies that others have for them."""
    for other, wrapper in wrapped():
        theirs = attached[other]
        if other is optimizer or (strategy.shares_parameters and theirs.shares_parameters):
            continue
        for group in wrapper.masters.parameters(other):
            yield from ((named[one], theirs.text) for one in group if one in named)


def _joined(process_set: ProcessSet, last_rank: int) -> None:
    number = process_set.process_set_id
    there = [each for each in wrapped() if each[1].process_set.process_set_id == number]
    syncs = [wrapper.gradient_hooks.sync for _, wrapper in there]
    for optimizer, wrapper in there:
        sync = wrapper.gradient_hooks.sync
        if sync is None:
            continue
        if sync.in_step():  # data ran out within accumulation: all ranks begin with the next step
            optimizer.zero_grad()
        if sync.batch_weight is not None:
            sync.batch_weight.restart()
    agree_on_steps(process_set, last_rank, syncs)
    tell_joined(process_set, [(optimizer, attached[optimizer]) for optimizer, _ in there])


def _joined_too(process_set: ProcessSet) -> list[ProcessSet]:
    """Returns the further sets of the strategies whose optimizers belong to the set."""
    number = process_set.process_set_id
    there = [one for one, each in wrapped() if each.process_set.process_set_id == number]
    return [further for one in there for further in attached[one].own_sets()]


after_join.append(_joined)
joined_too.append(_joined_too)

"""Keeps the gradients of one optimizer equal on all ranks: what Python decides of it.

The core's Reducer (csrc/gradients/reducer.h) reduces gradients while backward runs, and holds a round at the
end of each backward and in step(): an agreement that tells all ranks which gradients there are. The values on
which Python's decisions depend are a part of that agreement. While all of them are zero, no function here is
called in a backward.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import torch

from roundelay import _core
from roundelay.errors import MismatchError
from roundelay.torch._internal import operations
from roundelay.torch._internal.generations import is_elastic
from roundelay.torch._internal.gradients.gradient import Gradient
from roundelay.torch._internal.gradients.hooks import hooks_on
from roundelay.torch._internal.gradients.pool import PoolBucket, Pools, job_keys
from roundelay.torch._internal.gradients.pool_state import PoolState
from roundelay.torch._internal.gradients.round_values import Fields, Round
from roundelay.torch._internal.optimizer import equality
from roundelay.torch._internal.optimizer.arguments import prefix_of
from roundelay.torch._internal.optimizer.gradient_table import GradientTable
from roundelay.torch._internal.optimizer.options import Options
from roundelay.torch._internal.optimizer.pool_plan import PoolPlan
from roundelay.torch._internal.optimizer.technique_states import TechniqueStates
from roundelay.torch._internal.optimizer.techniques import Techniques
from roundelay.torch.process_sets import set_id
from roundelay.tuning.buckets import Cuts


class GradientSync:
    """Hooks on the parameters of one optimizer, and the groups, pools and techniques of their gradients.

    scope: the optimizer's number in the process set of the options.
    """

    def __init__(self, scope: int, options: Options) -> None:
        rule, strategy = options.rule, options.strategy
        self._keys = job_keys.of(rule.process_set)  # the keys of the job in which the optimizer was wrapped
        self._key = self._keys.take()
        self._prefix = prefix_of(scope)
        self._rule = rule
        order = (set_id(rule.process_set), scope)
        self._reducer = _core.Reducer(order, self._prefix, rule.for_core(), rule.process_set.ranks[0], self)
        self.abandon = self._reducer.abandon
        self.rules.passes_per_step = options.passes
        self._way = equality.way_of(strategy, rule.compression, rule.weights is not None)
        self._table = GradientTable(self._prefix, rule, options.grouping, self._way)
        self._masters = options.masters
        self._weights = options.weights
        self.batch_weight = options.batch_weight
        self.techniques = Techniques(strategy, rule.op, rule.process_set, self._prefix, self._table.records)
        self.states = TechniqueStates(self.techniques, self._table.records, self)
        self._plan = self._make_plan()
        if self.batch_weight is not None:
            self.batch_weight.belong_to(self._prefix, rule.process_set)
        self._published: tuple[Fields, bool, tuple[bytes, bytes]] | None = None

    @property
    def rules(self) -> _core.HookRules:
        """The settings of its hooks."""
        return self._reducer.rules

    # -- parameters

    def follow(self, named: Mapping[torch.Tensor, str]) -> None:
        """Makes these the optimizer's parameters, and puts hooks on those that are trained.

        All ranks call it alike. A parameter that comes later, with a gradient, has it from a backward without
        hooks, which counts as a pass.
        """
        first = not self._table.records
        if self._table.follow(named):
            self._plan.parameters_changed()
        self._use_groups()
        for parameter in named:
            gradient = self._table.records[id(parameter)]
            if not gradient.hooks and gradient.core.wanted:
                after = _core.AfterHook(gradient.core, self._reducer)
                gradient.hooks += hooks_on(parameter, gradient.core, after)
                gradient.core.local_passes = int(not first and parameter.grad is not None)

    def give_back_key(self) -> None:
        """Lets a later optimizer have the keys of this one's pools. All ranks do it at the same time."""
        self._keys.give_back(self._key)

    def close(self) -> None:
        """Takes all hooks off."""
        for gradient in self._table.records.values():
            gradient.release()

    # -- gradient pools

    def _make_pools(self, gradients: Sequence[Gradient]) -> Pools:
        return Pools(gradients, self._rule, self._prefix, self._key)

    def _make_plan(self) -> PoolPlan:
        return PoolPlan(self._rule.process_set, self._prefix, self._reducer, self.techniques)

    def _use(self, buckets: list[PoolBucket]) -> None:
        """Moves gradients into these buckets. They were alone or in other buckets before."""
        if buckets:
            self._table.use(buckets)
            self.techniques.use(buckets)
            self._use_groups()

    def _use_groups(self) -> None:
        self._reducer.set_groups(self._table.groups())
        self.publish()

    def buckets(self) -> int:
        """Returns the number of buckets."""
        return self._table.buckets()

    def cuts(self) -> Cuts | None:
        """Returns the sizes of the pools' buckets; None while there are none."""
        return self._plan.cuts

    def pool_state(self) -> PoolState:
        """Returns the pool's state, between two steps."""
        return self._plan.state()

    def restore_pool(self, state: PoolState) -> None:
        """Makes the pool, and its buckets if they are in use, without a message to other ranks.

        ValueError, RuntimeError or MemoryError: this rank cannot make them; call restart().
        """
        free = [gradient for gradient in self._table.members if gradient.group is None]
        self._use(self._plan.restore(state, free, self._make_pools))
        self.publish()

    def restart(self) -> None:
        """Begins a new job, without the last one's pool, and with groups that count from the beginning."""
        keys = job_keys.of(self._rule.process_set)
        if is_elastic() and keys is not self._keys:
            self._keys, self._key = keys, keys.take()
        if self.batch_weight is not None:
            self.batch_weight.restart()
        self._reducer.set_rule(self._rule.for_core())
        self._table.begin_anew()
        self.techniques.restart()
        self._plan = self._make_plan()
        self._use_groups()

    def _lay_out_anew(self) -> None:
        """Gives up the pool. All ranks do it at the same time: tensors of it may be in use under its key."""
        self.give_back_key()
        self._key = self._keys.take()
        self.restart()

    # -- one step

    def outstanding(self) -> bool:
        """Returns whether gradients are in flight or wait for others: only after a backward that raised."""
        return self._reducer.outstanding()

    def has_submitted(self) -> bool:
        """Returns whether the ranks have something to agree on."""
        return self._reducer.has_submitted()

    def in_step(self) -> bool:
        """Returns whether backward has brought gradients of the next step, reduced or not."""
        local = any(one.core.local_passes > 0 for one in self._table.members)
        return local or self._reducer.rounds > 0 or self._reducer.outstanding()

    def synchronize(self) -> None:
        """Completes everything for this step: gradients not submitted yet, and those of other ranks."""
        self._reducer.synchronize()

    def new_step(self) -> None:
        """Begins a step, after optimizer.step(), zero_grad() and a failure."""
        self._plan.new_step(self._table.members)
        self.techniques.new_gradients()
        self._reducer.new_step()
        if self._plan.is_outdated:
            self.techniques.layout_will_change()
            self._lay_out_anew()
        self.publish()

    def joined(self, step: int) -> None:
        """Goes on after hvd.join. step: the number of steps that the rank that joined last has taken."""
        self.techniques.joined(step)
        self.publish()

    # -- the core's Policy (csrc/gradients/reducer.h)

    def publish(self) -> None:
        """Gives the core this rank's values of the next round, if there is one."""
        if self._rule.process_set.process_set_id is None:  # it has ended with its job
            return
        due = self._weights.due
        fields = Fields(self._masters.enabled, self._plan.values(), self.techniques.values(), due)
        always = self._masters.enabled or self._plan.needs_rounds or self.techniques.needs_rounds or due
        digests = (self._table.digest, self.techniques.loaded.digest)
        if (fields, always, digests) != self._published:
            self._published = (fields, always, digests)
            self._reducer.set_policy(fields.pack(), always)
            self._reducer.set_compared(equality.mixed(*digests))
        self._reducer.attach(self._plan.order_of(self._table.members))

    def agreed(
        self, values: bytes, differences: list[equality.Difference], absent: list[int], busy: bool
    ) -> None:
        """Takes the merged values of a round. absent: the ranks that have joined. busy: other rounds wait."""
        result = Round.parse(values, absent, busy)
        self.techniques.apply(result)
        buckets = self._plan.apply(self._table.members, result, self._make_pools)
        for bucket in buckets:
            bucket.core.join_step()  # another backward of this step adds to the results of this one
        self._use(buckets)
        self.techniques.end_round(self._plan.wants_change)
        self._masters.check(differences, self._prefix)
        self._masters.pairs.take_gradients()
        parameters, process_set = self._table.parameters, self._rule.process_set
        self._weights.compare(result.weights_due, parameters, self._prefix, process_set)
        self.publish()

    def reduce_sparse(self, tensor: torch.Tensor, name: str) -> Callable[[], torch.Tensor]:
        """Starts the reduction of a sparse gradient. Returns a function that waits for the result."""
        return operations.sparse_allreduce_async(tensor, name, self._rule.op, self._rule.process_set)

    def differs(self, error: str | None) -> None:
        """Raises what differs between the ranks, which all call it. error: the round's; None: it has none."""
        submitted = set(self._reducer.names_in_flight())
        cause = None if error is None else MismatchError(error)
        try:
            found = equality.parameters_error(
                self._table.rows, submitted, self._prefix, self._rule.process_set
            )
            if found is not None:
                raise found from cause
            loaded = self.states.loaded_error(submitted)
            if loaded is None:
                equality.check_ways(self._way, submitted, self._prefix, self._rule.process_set)
                raise cause or MismatchError(f"the ranks' optimizers differ ({self._prefix!r})")
        finally:
            self._reducer.abandon()
        self._lay_out_anew()
        self.states.forget_loaded()
        raise loaded from cause

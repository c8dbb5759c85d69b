"""Keeps the gradients of one optimizer equal on all ranks.

Hooks submit gradients while backward runs, each alone or with its group (gradients/groups.py). At the end
of the outermost backward, and in step() if some gradients are missing, the ranks hold an *agreement round*:
one small allreduce tells all ranks how often the rank that did so most has submitted each group, and which
gradients wait for the rest of their group. It is submitted with the last gradients, so it costs no round of
its own. A rank without a gradient that others have contributes ``.grad`` as it is, or zeros. A gradient
that no rank has stays as it is. When backward() returns, all submitted operations are therefore complete on
every rank.

step() holds further rounds only while there is a gradient that no rank has submitted since the last step (an
unused layer, a second loss still to come), until all ranks are in step(). Ranks may therefore call
backward() a different number of times as long as each such call brings gradients that the step did not have
yet. A rank that has joined (hvd.join) takes part in nothing, and nobody waits for it.
"""

from __future__ import annotations

import weakref
from collections.abc import Mapping, Sequence
from itertools import compress
from typing import NoReturn

import torch

from roundelay import _core
from roundelay.buckets import Cuts
from roundelay.errors import HorovodInternalError, MismatchError
from roundelay.torch.gradients.gradient import Gradient, Reduction
from roundelay.torch.gradients.groups import GradientGroup
from roundelay.torch.gradients.hooks import hooks_on
from roundelay.torch.gradients.pool import Bucket, Pools, job_keys
from roundelay.torch.gradients.pool_plan import PoolPlan
from roundelay.torch.gradients.pool_state import PoolState
from roundelay.torch.operations import Max
from roundelay.torch.optimizer import agreement_round, equality
from roundelay.torch.optimizer.agreement_round import GroupResult, Result, Round
from roundelay.torch.optimizer.arguments import prefix_of
from roundelay.torch.optimizer.backward_end import COMPILED_AUTOGRAD, backward_end
from roundelay.torch.optimizer.gradient_table import GradientTable
from roundelay.torch.optimizer.master_weights import MasterWeights
from roundelay.torch.optimizer.techniques import Techniques
from roundelay.torch.process_sets import set_id
from roundelay.torch.strategies import Strategy


class GradientSync:
    """Hooks on the parameters of one optimizer, and the state of their gradients since its last step.

    scope: the optimizer's number in its process set. grouping: numbers of groups by id(parameter).
    """

    def __init__(
        self,
        scope: int,
        rule: Reduction,
        passes_per_step: int,
        grouping: dict[int, int],
        strategy: Strategy,
        masters: MasterWeights,
    ) -> None:
        self.order = (set_id(rule.process_set), scope)
        self._keys = job_keys.of(rule.process_set)  # the keys of the job in which the optimizer was wrapped
        self._key = self._keys.take()
        self.rules = _core.HookRules()
        self.rules.passes_per_step = passes_per_step
        self._prefix = prefix_of(scope)
        self._rule = rule
        self._way = equality.way_of(strategy, rule.compression)
        self._table = GradientTable(self._prefix, rule, grouping, self._way)
        self._masters = masters
        self.techniques = Techniques(strategy, rule.op, rule.process_set, self._prefix, self._table.gradients)
        self.techniques.belong_to(self)
        self._plan = self._make_plan()
        self._rounds = 0
        self._round: Round | None = None
        # Some rank has submitted these since the last step: whole groups, and gradients without their group.
        self._seen_groups: set[GradientGroup] = set()
        self._seen: set[Gradient] = set()
        self._complete = False  # every gradient that some rank wants was submitted
        self._all_final = False

    # -- parameters

    def follow(self, named: Mapping[torch.Tensor, str]) -> None:
        """Has these parameters from now on, with hooks on those that are trained. All ranks do so alike.

        A gradient that one has when it joins others came from a backward before the hooks.
        """
        first = not self._table.gradients
        if self._table.follow(named):
            self._plan.parameters_changed()
        for parameter in named:
            gradient = self._table.gradients[id(parameter)]
            if not gradient.hooks and gradient.core.wanted:
                self._hook(parameter, gradient)
                gradient.core.set_passes(int(not first and parameter.grad is not None))

    def _hook(self, parameter: torch.Tensor, gradient: Gradient) -> None:
        sync = weakref.ref(self)

        def arrived() -> None:
            owner = sync()
            if owner is not None:
                owner._arrived(gradient)

        gradient.hooks += hooks_on(parameter, gradient.core, self.rules, arrived)

    def give_back_key(self) -> None:
        """Lets a later optimizer have the keys of this one's pools. All ranks do it at the same time."""
        self._keys.give_back(self._key)

    def close(self) -> None:
        """Takes all hooks off."""
        for gradient in self._table.gradients.values():
            gradient.release()

    # -- gradient pools

    def _make_pools(self, gradients: Sequence[Gradient]) -> Pools:
        return Pools(gradients, self._rule, self._prefix, self._key)

    def _make_plan(self) -> PoolPlan:
        return PoolPlan(self._rule.process_set, self._prefix, self.rules, self.techniques)

    def _use(self, buckets: list[Bucket]) -> None:
        """Moves gradients into these buckets. They were alone or in other buckets before."""
        if buckets:
            for group in self._seen_groups:
                self._seen.update(group.members)
            self._table.use(buckets)
            self.techniques.use(buckets)

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
        free = [gradient for gradient in self._table.members if self._table.may_be_in_pool(gradient)]
        self._use(self._plan.restore(state, free, self._make_pools))

    def restart(self) -> None:
        """Begins a new job, without the last one's pool, and with groups that count from the beginning."""
        self._table.begin_anew()
        self.techniques.restart()
        self._plan = self._make_plan()

    def _lay_out_anew(self) -> None:
        """Gives up the pool. All ranks do it at the same time: tensors of it may be in use under its key."""
        self.give_back_key()
        self._key = self._keys.take()
        self.restart()

    # -- one step

    def _arrived(self, gradient: Gradient) -> None:
        """Continues a hook (csrc/bindings/gradient_hooks.cc) whose gradient is not an ordinary one."""
        if backward_end.is_compiled():
            name = f"{self._prefix}.agreement{self._rounds + 1}"  # peers may wait there
            _core.submit_error("allreduce", name, COMPILED_AUTOGRAD, set_id(self._rule.process_set))
            raise ValueError(COMPILED_AUTOGRAD)
        self.rules.graph_task = backward_end.add(self)
        if self.rules.recording and self._table.may_be_in_pool(gradient):
            self._plan.arrived(gradient)
        self._table.group_of[gradient].arrived(gradient)

    def _submit(self, least_passes: int) -> None:
        """Submits gradients that have accumulated over so many passes and were not submitted yet."""
        for group in self._table.groups.values():
            for index in group.core.overdue(least_passes):
                group.arrived(group.members[index])

    def outstanding(self) -> bool:
        """Returns whether gradients are in flight or wait for others: only after a backward that raised."""
        return self.has_submitted() or any(gradient.core.reductions for gradient in self._table.members)

    def backward_ended(self) -> bool:
        """Ends a backward, and returns has_submitted()."""
        self.rules.graph_task = -1
        return self.has_submitted()

    def has_submitted(self) -> bool:
        """Returns whether the ranks have something to agree on."""
        return any(group.outstanding() for group in self._table.groups.values())

    def synchronize(self) -> None:
        """Completes everything for this step: gradients not submitted yet, and those of other ranks."""
        for group in self._table.groups.values():
            group.core.put_back()
        # A step's first round includes gradients that were made without backward().
        self._submit(least_passes=1 if self._rounds else 0)
        while self._open():
            with _core.Waiting():
                self.begin_round(final=True, alone=True)
                self.end_round()

    def _open(self) -> bool:
        if self.has_submitted():
            return True
        return not (self._complete or self._all_final)

    def new_step(self) -> None:
        """Begins a step, after optimizer.step(), zero_grad() and a failure."""
        self._plan.new_step()
        self.techniques.new_gradients()
        for group in self._table.groups.values():
            group.core.new_step()
        self._seen_groups.clear()
        self._seen.clear()
        self._rounds = 0
        self._complete = self._all_final = False
        if self._plan.is_outdated:
            self.techniques.layout_will_change()
            self._lay_out_anew()

    # -- agreement rounds

    def begin_round(self, final: bool, alone: bool) -> None:
        """Submits this rank's values and does not wait: see Listener."""
        self._submit(self.rules.passes_per_step)  # gradients of no_sync() blocks
        groups = self._table.groups.values()
        submitted = [min(group.core.take_filled(), 255) for group in groups]
        masters, techniques = self._masters.values(), self.techniques.values()
        plan = [*masters, *techniques, *self._plan.values(self._table.members, alone)]
        values = agreement_round.values_of(final, self._compared(), submitted, list(groups), plan)
        self._rounds += 1
        try:
            handle = None if alone else _core.allreduce_async(*self._round_call(values))
        except HorovodInternalError as error:
            raise agreement_round.naming_gradients(error, self._table.members) from None
        self._round = Round(handle, values, submitted)
        if not alone:
            _core.flush()

    def _round_call(
        self, values: bytearray
    ) -> tuple[torch.Tensor, torch.Tensor, str, int, float, float, int]:
        name = f"{self._prefix}.agreement{self._rounds}"
        tensor = torch.frombuffer(values, dtype=torch.uint8)
        return tensor, tensor, name, Max, 1.0, 1.0, set_id(self._rule.process_set)

    def end_round(self) -> None:
        """Contributes to operations that this rank lacks, and sleeps until all operations are complete."""
        assert self._round is not None
        own, self._round = self._round, None
        self._wait_for_round(own)
        result = agreement_round.result_of(bytes(own.values), self._table.groups.values())
        self._note(result)
        with torch.no_grad():
            self._contribute(result.groups, own.submitted)
            self._finish()
        masters, plan = result.plan[: MasterWeights.VALUES], result.plan[MasterWeights.VALUES :]
        length = self.techniques.length()
        self.techniques.apply(plan[:length])
        self._use(self._plan.apply(self._table.members, plan[length:], self._make_pools))
        self._plan.end_round()
        self.techniques.end_round(self._plan.wants_change)
        self._masters.check(masters, self._prefix, self._rule.process_set)
        self._masters.take_gradients()
        self.rules.marking = _core.timeline_enabled()

    def _note(self, result: Result) -> None:
        """Records which gradients are missing."""
        for group, submitted, kinds, _ in result.groups:
            if submitted:
                self._seen_groups.add(group)
            elif any(kinds):
                self._seen.update(compress(group.members, kinds))
        self._complete = all(
            group in self._seen_groups or self._seen.issuperset(compress(group.members, wanted_here))
            for group, _, _, wanted_here in result.groups
        )
        self._all_final = result.all_final

    def _compared(self) -> bytes:
        """Returns what the ranks compare in each round: parameters, strategies, what they have loaded."""
        return equality.mixed(self._table.digest, self.techniques.loaded_digest)

    def _wait_for_round(self, own: Round) -> None:
        """Waits for the round. MismatchError, on all ranks and with nothing in flight: optimizers differ."""
        try:
            if own.handle is None:
                _core.allreduce(*self._round_call(own.values))
            else:
                _core.synchronize(own.handle)
        except MismatchError as error:  # the sizes of the ranks' values differ
            self._raise_difference(error)
        except HorovodInternalError as error:
            raise agreement_round.naming_gradients(error, self._table.members) from None
        if agreement_round.parameters_in(own.values) != self._compared():
            self._raise_difference(None)

    def _raise_difference(self, error: MismatchError | None) -> NoReturn:
        """Raises what differs between the ranks, which all call it. error: the round's; None: it has none."""
        submitted = {name for group in self._table.groups.values() for name in group.names_in_step()}
        try:
            found = equality.parameters_error(
                self._table.rows, submitted, self._prefix, self._rule.process_set
            )
            if found is not None:
                raise found from error
            loaded = self.techniques.loaded_error(submitted)
            if loaded is None:
                equality.check_ways(self._way, self._prefix, self._rule.process_set)
                raise error or MismatchError(f"the ranks' optimizers differ ({self._prefix!r})")
        finally:
            self._abandon()
        self._lay_out_anew()
        self.techniques.forget_loaded()
        raise loaded from error

    def _contribute(self, results: list[GroupResult], own: list[int]) -> None:
        lacking = False
        for (group, others, kinds, _), mine in zip(results, own, strict=True):
            for _ in range(others - mine):
                group.catch_up()
                lacking = True
            if any(kinds):
                group.submit_rest({one: kind for one, kind in zip(group.members, kinds, strict=True) if kind})
                lacking = True
        if lacking:
            _core.flush()

    def _finish(self) -> None:
        try:
            for group in self._table.groups.values():
                group.finish()
        except BaseException:
            self._abandon()
            raise

    def _abandon(self) -> None:
        """Waits for operations in flight, ignores their results, and begins anew."""
        for group in self._table.groups.values():
            group.abandon()
        self.new_step()

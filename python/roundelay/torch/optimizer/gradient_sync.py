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
from collections.abc import Collection, Mapping, Sequence
from itertools import compress

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
from roundelay.torch.optimizer.backward_end import backward_end
from roundelay.torch.optimizer.master_weights import MasterWeights
from roundelay.torch.optimizer.techniques import Techniques
from roundelay.torch.parameter_list import Row, in_order
from roundelay.torch.parameter_names import natural
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
        self._grouping = grouping
        self._masters = masters
        self._gradients: dict[int, Gradient] = {}  # keys: id(parameter), in the order of the parameter groups
        self._groups: dict[int | str, GradientGroup] = {}  # keys: numbers, or names for groups without one
        self._group: dict[Gradient, GradientGroup] = {}
        self.techniques = Techniques(strategy, rule.op, rule.process_set, self._prefix, self._gradients)
        self.techniques.belong_to(self)
        self._plan = self._make_plan()
        self._rounds = 0
        self._round: Round | None = None
        self._members: list[Gradient] = []  # the gradients of all groups, in the groups' order
        self._rows: list[Row] = []  # what ranks compare of the parameters
        self._digest = b""  # of the rows, both ways (equality.py)
        # Some rank has submitted these since the last step: whole groups, and gradients without their group.
        self._seen_groups: set[GradientGroup] = set()
        self._seen: set[Gradient] = set()
        self._complete = False  # every gradient that some rank wants was submitted
        self._all_final = False

    # -- parameters

    def follow(self, named: Mapping[torch.Tensor, str], after_backward: bool = False) -> None:
        """Has these parameters from now on, with hooks on those that are trained. All ranks do so alike.

        A parameter of two optimizers belongs to the one that was wrapped last: its gradient is reduced once.
        after_backward: gradients that new ones have came from a backward before the hooks.
        """
        before = len(self._gradients)
        groups = self._let_go(named)
        for parameter, name in sorted(named.items(), key=lambda pair: natural(pair[1])):
            number = id(parameter)
            if number not in self._gradients:
                self._gradients[number] = Gradient(parameter, f"{self._prefix}.{name}", self._rule)
                self._gradients[number].own(number)
                if name in groups:
                    self._grouping[number] = groups[name]
                self._join_group(self._gradients[number], self._grouping.get(number))
                if before:
                    self._plan.parameters_changed()
            gradient = self._gradients[number]
            if not gradient.hooks and gradient.core.wanted:
                self._hook(parameter, gradient)
                gradient.core.set_passes(int(after_backward))
        self._list_members()

    def _let_go(self, named: Collection[torch.Tensor]) -> dict[str, int]:
        """Lets go of all parameters but these. Returns the numbers of the groups that they were in, by name.

        They stay in groups of several gradients, as unwanted, until all ranks make new groups.
        """
        groups: dict[str, int] = {}
        present = set(map(id, named))
        for number, gradient in list(self._gradients.items()):
            if number in present and gradient.core.parameter is not None:  # else the number is a new one's
                continue
            del self._gradients[number]
            gradient.disown(number)
            if number in self._grouping:
                groups[self._short(gradient)] = self._grouping.pop(number)
            if self._group[gradient].alone:
                del self._groups[gradient.name], self._group[gradient]
            self._plan.parameters_changed()
        return groups

    def _short(self, gradient: Gradient) -> str:
        return gradient.name.removeprefix(f"{self._prefix}.")

    def _join_group(self, gradient: Gradient, number: int | None) -> None:
        if number is None:
            group = GradientGroup(gradient.name, alone=True)
            self._groups[gradient.name] = group
        else:
            name = f"{self._prefix}.group{number}"
            group = self._groups.setdefault(number, GradientGroup(name, alone=False))
        group.join(gradient)
        self._group[gradient] = group

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
        for gradient in self._gradients.values():
            gradient.release()

    # -- gradient pools

    def _make_pools(self, gradients: Sequence[Gradient]) -> Pools:
        return Pools(gradients, self._rule, self._prefix, self._key)

    def _make_plan(self) -> PoolPlan:
        return PoolPlan(self._rule.process_set, self._prefix, self.rules, self.techniques)

    def _use(self, buckets: list[Bucket]) -> None:
        """Moves gradients into these buckets. They were alone or in other buckets before."""
        for group in self._seen_groups if buckets else ():
            self._seen.update(group.members)
        for bucket in buckets:
            for gradient in bucket.members:
                self._groups.pop(self._group[gradient].name, None)
                self._group[gradient] = bucket
        self._groups.update((bucket.name, bucket) for bucket in buckets)
        if buckets:
            self._list_members()
            self.techniques.use(buckets)

    def _list_members(self) -> None:
        """Puts groups and gradients in the canonical order, in which rounds have them; buckets come last."""
        alone = {k: group for k, group in self._groups.items() if not isinstance(group, Bucket)}
        buckets = {k: group for k, group in self._groups.items() if isinstance(group, Bucket)}
        in_place = sorted(alone.items(), key=lambda item: natural(item[1].members[0].name))
        self._groups = {**dict(in_place), **buckets}
        self._members = [gradient for group in self._groups.values() for gradient in group.members]
        self._rows = in_order(
            one.row._replace(name=self._short(one), group=self._grouping.get(number))
            for number, one in self._gradients.items()
        )
        self._digest = equality.both_ways(equality.digest_of_parameters(self._rows))

    def buckets(self) -> int:
        """Returns the number of buckets."""
        return sum(isinstance(group, Bucket) for group in self._groups.values())

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
        groups = self._group
        free = [one for one in self._members if groups[one].alone or isinstance(groups[one], Bucket)]
        self._use(self._plan.restore(state, free, self._make_pools))

    def restart(self) -> None:
        """Begins a new job, without the last one's pool, and with groups that count from the beginning."""
        self._groups.clear()
        self._group.clear()
        for number, gradient in self._gradients.items():
            self._join_group(gradient, self._grouping.get(number))
        self._list_members()
        self.techniques.restart()
        self._plan = self._make_plan()

    def _lay_out_anew(self) -> None:
        """Gives up the pool of other parameters than these. All ranks do it at the same time."""
        self.techniques.layout_will_change()
        self.give_back_key()
        self._key = self._keys.take()
        self.restart()

    # -- one step

    def _arrived(self, gradient: Gradient) -> None:
        """Continues a hook (csrc/bindings/gradient_hooks.cc) whose gradient is not an ordinary one."""
        self.rules.graph_task = backward_end.add(self)
        group = self._group[gradient]
        if self.rules.recording and (group.alone or isinstance(group, Bucket)):
            self._plan.arrived(gradient)
        group.arrived(gradient)

    def _submit(self, least_passes: int) -> None:
        """Submits gradients that have accumulated over so many passes and were not submitted yet."""
        for group in self._groups.values():
            for index in group.core.overdue(least_passes):
                group.arrived(group.members[index])

    def outstanding(self) -> bool:
        """Returns whether gradients are in flight or wait for others: only after a backward that raised."""
        return self.has_submitted() or any(gradient.core.reductions for gradient in self._members)

    def backward_ended(self) -> bool:
        """Ends a backward, and returns has_submitted()."""
        self.rules.graph_task = -1
        return self.has_submitted()

    def has_submitted(self) -> bool:
        """Returns whether the ranks have something to agree on."""
        return any(group.outstanding() for group in self._groups.values())

    def synchronize(self) -> None:
        """Completes everything for this step: gradients not submitted yet, and those of other ranks."""
        for group in self._groups.values():
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
        for group in self._groups.values():
            group.core.new_step()
        self._seen_groups.clear()
        self._seen.clear()
        self._rounds = 0
        self._complete = self._all_final = False
        if self._plan.is_outdated:
            self._lay_out_anew()

    # -- agreement rounds

    def begin_round(self, final: bool, alone: bool) -> None:
        """Submits this rank's values and does not wait: see Listener."""
        self._submit(self.rules.passes_per_step)  # gradients of no_sync() blocks
        groups = self._groups.values()
        submitted = [min(group.core.take_filled(), 255) for group in groups]
        masters, techniques = self._masters.values(), self.techniques.values()
        plan = [*masters, *techniques, *self._plan.values(self._members, alone)]
        values = agreement_round.values_of(final, self._compared(), submitted, list(groups), plan)
        self._rounds += 1
        try:
            handle = None if alone else _core.allreduce_async(*self._round_call(values))
        except HorovodInternalError as error:
            raise agreement_round.naming_gradients(error, self._members) from None
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
        result = agreement_round.result_of(bytes(own.values), self._groups.values())
        self._note(result)
        with torch.no_grad():
            self._contribute(result.groups, own.submitted)
            self._finish()
        masters, plan = result.plan[: MasterWeights.VALUES], result.plan[MasterWeights.VALUES :]
        length = self.techniques.length()
        self.techniques.apply(plan[:length])
        self._use(self._plan.apply(self._members, plan[length:], self._make_pools))
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
        """Returns what the ranks compare in each round: their parameters, and what they have loaded."""
        return equality.mixed(self._digest, self.techniques.loaded_digest)

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
            raise agreement_round.naming_gradients(error, self._members) from None
        if agreement_round.parameters_in(own.values) != self._compared():
            self._raise_difference(None)

    def _raise_difference(self, error: MismatchError | None) -> None:
        """Raises what differs between the ranks, which all call it. error: the round's; None: it has none."""
        submitted = {name for group in self._groups.values() for name in group.names_in_step()}
        try:
            found = equality.parameters_error(self._rows, submitted, self._prefix, self._rule.process_set)
            if found is not None:
                raise found from error
            loaded = self.techniques.loaded_error(submitted)
            if loaded is None:
                self.techniques.check_strategies()
                if error is not None:
                    raise error
        finally:
            self._abandon()
        if loaded is not None:
            self._forget_loaded()
            raise loaded from error

    def _forget_loaded(self) -> None:
        """Begins without a pool, on all ranks, and with a new key: tensors of the last one may be in use."""
        self.restart()
        self.techniques.forget_loaded()
        self._keys.give_back(self._key)
        self._key = self._keys.take()

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
            for group in self._groups.values():
                group.finish()
        except BaseException:
            self._abandon()
            raise

    def _abandon(self) -> None:
        """Waits for operations in flight, ignores their results, and begins anew."""
        for group in self._groups.values():
            group.abandon()
        self.new_step()

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
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import compress
from typing import NamedTuple

import torch

from roundelay import _core
from roundelay.buckets import Cuts
from roundelay.errors import HorovodInternalError, MismatchError
from roundelay.torch.gradients.gradient import Gradient, Reduction
from roundelay.torch.gradients.groups import GradientGroup
from roundelay.torch.gradients.hooks import hooks_on
from roundelay.torch.gradients.pool import Bucket, Pools, job_keys
from roundelay.torch.gradients.pool_plan import PoolPlan
from roundelay.torch.operations import Max, allgather
from roundelay.torch.operations.common import row_of_this_rank
from roundelay.torch.optimizer.arguments import prefix_of
from roundelay.torch.optimizer.backward_end import COMPILED_AUTOGRAD, backward_end
from roundelay.torch.optimizer.master_weights import MasterWeights
from roundelay.torch.optimizer.techniques import Techniques
from roundelay.torch.process_sets import set_id
from roundelay.torch.strategies import Strategy

NAMES_SHOWN = 6  # an error names so many gradients at most


@dataclass(slots=True)
class _Round:
    """An agreement round that has begun, and this rank's part in it."""

    handle: int | None  # None: end_round() submits the operation and waits
    values: bytearray  # this rank's; those of all ranks, combined by Max, replace them in the same memory
    submitted: list[int]  # one number for each group


class _GroupResult(NamedTuple):
    """The result of an agreement round for one group."""

    group: GradientGroup
    submitted: int  # the times that the rank that did so most has submitted it
    kinds: bytes  # each gradient's kind (groups.py) where it is ready on some rank; 0: it is ready on none
    wanted: bytes  # 1 for each gradient that some rank wants


class _Result(NamedTuple):
    """The result of an agreement round: equal on all ranks."""

    groups: list[_GroupResult]
    plan: bytes  # the values of MasterWeights, then those of Techniques, then PoolPlan's


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
        self._plan = self._make_plan()
        self._frozen = 0
        self._rounds = 0
        self._round: _Round | None = None
        self._members: list[Gradient] = []  # the gradients of all groups, in the groups' order
        # Some rank has submitted these since the last step: whole groups, and gradients without their group.
        self._seen_groups: set[GradientGroup] = set()
        self._seen: set[Gradient] = set()
        self._complete = False  # every gradient that some rank wants was submitted
        self._all_final = False

    # -- parameters

    def add(self, parameters: Iterable[tuple[str, torch.Tensor]], after_backward: bool = False) -> None:
        """Takes over new parameters, and puts hooks on those that were frozen until now.

        A parameter of two optimizers belongs to the one that was wrapped last: its gradient is reduced once.
        after_backward: gradients that they have came from a backward before the hooks.
        """
        for name, parameter in parameters:
            gradient = self._gradients.get(id(parameter))
            if gradient is None or gradient.core.parameter is not parameter:
                gradient = Gradient(parameter, f"{self._prefix}.{name}", self._rule)
                gradient.own(id(parameter))
                self._gradients[id(parameter)] = gradient
                self._join_group(gradient, self._grouping.get(id(parameter)))
            if not gradient.hooks and gradient.core.wanted:
                self._hook(parameter, gradient)
                gradient.core.set_passes(int(after_backward))
        self._frozen = sum(not gradient.hooks for gradient in self._gradients.values())
        self._list_members()

    def covers(self, number: int) -> bool:
        """Returns whether it has ``number`` parameters, all of them hooked."""
        return self._frozen == 0 and len(self._gradients) == number

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
        cuts = self._plan.cuts
        if buckets and cuts is not None:
            self._list_members()
            self.techniques.use(buckets, cuts)

    def _list_members(self) -> None:
        self._members = [gradient for group in self._groups.values() for gradient in group.members]

    def buckets(self) -> int:
        """Returns the number of buckets."""
        return sum(isinstance(group, Bucket) for group in self._groups.values())

    def cuts(self) -> Cuts | None:
        """Returns the sizes of the pools' buckets; None while there are none."""
        return self._plan.cuts

    def restart(self) -> None:
        """Begins a new job, without the last one's pool, and with groups that count from the beginning."""
        self._groups.clear()
        self._group.clear()
        for number, gradient in self._gradients.items():
            self._join_group(gradient, self._grouping.get(number))
        self._list_members()
        self.techniques.restart()
        self._plan = self._make_plan()

    # -- one step

    def _arrived(self, gradient: Gradient) -> None:
        """Continues a hook (csrc/bindings/gradient_hooks.cc) whose gradient is not an ordinary one."""
        if backward_end.is_compiled():
            name = f"{self._prefix}.agreement{self._rounds + 1}"  # peers may wait there
            _core.submit_error("allreduce", name, COMPILED_AUTOGRAD, set_id(self._rule.process_set))
            raise ValueError(COMPILED_AUTOGRAD)
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

    # -- agreement rounds

    def begin_round(self, final: bool, alone: bool) -> None:
        """Submits this rank's values and does not wait: see Listener."""
        self._submit(self.rules.passes_per_step)  # gradients of no_sync() blocks
        groups = self._groups.values()
        submitted = [min(group.core.take_filled(), 255) for group in groups]
        kinds = [group.core.kinds() for group in groups]
        # _parse() counts a submitted group as seen and skips its wanted bytes: zeros keep their places.
        wanted = [
            bytes(len(group.members)) if number else group.core.wanted()
            for group, number in zip(groups, submitted, strict=True)
        ]
        plan = bytes(
            [*self._masters.values(), *self.techniques.values(), *self._plan.values(self._members, alone)]
        )
        values = bytearray().join([bytes([0 if final else 1, *submitted]), *kinds, *wanted, plan])
        self._rounds += 1
        try:
            handle = None if alone else _core.allreduce_async(*self._round_call(values))
        except HorovodInternalError as error:
            raise self._naming_gradients(error) from None
        self._round = _Round(handle, values, submitted)
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
        result = self._parse(bytes(own.values))
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

    def _parse(self, values: bytes) -> _Result:
        """Takes the combined values apart by group, and records which gradients are missing."""
        waiting = 1 + len(self._groups)
        wanted = waiting + len(self._members)
        results = []
        begin = 0
        for group, submitted in zip(self._groups.values(), values[1:waiting], strict=True):
            end = begin + len(group.members)
            kinds = values[waiting + begin : waiting + end]
            results.append(_GroupResult(group, submitted, kinds, values[wanted + begin : wanted + end]))
            begin = end
        for group, submitted, kinds, _ in results:
            if submitted:
                self._seen_groups.add(group)
            elif any(kinds):
                self._seen.update(compress(group.members, kinds))
        self._complete = all(
            group in self._seen_groups or self._seen.issuperset(compress(group.members, wanted_here))
            for group, _, _, wanted_here in results
        )
        self._all_final = values[0] == 0
        return _Result(results, values[wanted + begin :])

    def _wait_for_round(self, own: _Round) -> None:
        """Waits for the round. If the ranks' sizes differ, the error tells how the optimizers differ."""
        try:
            if own.handle is None:
                _core.allreduce(*self._round_call(own.values))
            else:
                _core.synchronize(own.handle)
        except HorovodInternalError as error:
            if not isinstance(error, MismatchError):
                raise self._naming_gradients(error) from None
            counts = row_of_this_rank(len(self._members), len(self._groups))
            rows = allgather(counts, f"{self._prefix}.parameters", self._rule.process_set).tolist()
            other = next((row for row in rows if row[1:] != rows[0][1:]), None)
            if other is None:
                self.techniques.check_strategies()
                raise
            has = [
                f"rank {rank} has {number} in {groups} groups" for rank, number, groups in (rows[0], other)
            ]
            raise MismatchError(
                f"the parameters of an optimizer ({self._prefix!r}) differ between ranks: {', '.join(has)}: "
                "give DistributedOptimizer the same parameters on every rank, and wrap several optimizers in "
                "the same order (is a layer frozen or left out on some ranks only?)"
            ) from error

    def _naming_gradients(self, error: HorovodInternalError) -> HorovodInternalError:
        """Returns the round's error with the names of the gradients that the step waits for."""
        names = [repr(gradient.name) for gradient in self._members if gradient.core.reductions]
        if not names:
            return error
        more = f" and {len(names) - NAMES_SHOWN} more" if len(names) > NAMES_SHOWN else ""
        return HorovodInternalError(f"{error}; with it {', '.join(names[:NAMES_SHOWN])}{more}")

    def _contribute(self, results: list[_GroupResult], own: list[int]) -> None:
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
            for group in self._groups.values():
                group.abandon()
            self.new_step()
            raise

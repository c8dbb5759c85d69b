"""Makes the ranks agree on a gradient pool, in the rounds that they hold anyway (optimizer/gradient_sync.py).

Rank 0 of the process set proposes. All ranks carry a proposal out at the end of the same round. Nothing is
carried out while a rank has joined (hvd.join), so no rank misses a proposal. The proposals:

1. An order: that of rank 0's gradients in the first step. Each rank makes the pool.
2. The use of the pool, when all ranks have said that they could make it. The sizes of buckets follow from a
   measurement (calibration.py), which is made now if no rank has anything else to wait for.
3. Other sizes, if rank 0 prefers them (pool_tuner.py): the ranks cut the pool into other buckets.
4. Another order, if gradients have come in it for a long time: the ranks lay the pool out anew.

When the optimizer has got other parameters, the ranks begin again with another plan.

A checkpoint's pool comes into use when it is loaded, on each rank alone: the ranks of the job that saved it
have agreed on it, and those of this job compare what they have loaded before they use a result.

Only the measurement waits. If the strategy keeps gradients back, sizes are not tried out. If a candidate of a
search does, the pool stays as it is until they are flushed (optimizer/techniques.py).
"""

from __future__ import annotations

import enum
import warnings
from collections.abc import Mapping, Sequence
from typing import Protocol

import torch

from roundelay import _core
from roundelay.torch._internal.gradients.gradient import Gradient
from roundelay.torch._internal.gradients.pool import PoolBucket, Pools
from roundelay.torch._internal.gradients.pool_state import Names, PoolState, Proposals
from roundelay.torch._internal.gradients.round_values import PoolValues, Round
from roundelay.torch._internal.measure import count
from roundelay.torch._internal.operations import broadcast
from roundelay.torch._internal.optimizer.pool_layout import Maker, PoolLayout, RecordedOrder
from roundelay.torch._internal.tuning import calibration
from roundelay.torch._internal.tuning.choices import Choices
from roundelay.torch._internal.tuning.pool_tuner import PoolTuner
from roundelay.torch.process_sets import ProcessSet
from roundelay.tuning.buckets import DEFAULT, Cuts


class Occupants(Protocol):
    """The techniques in the pool's buckets, some of which keep gradients back."""

    @property
    def choices(self) -> Choices | None:
        """The strategy's candidates for the search; None: it has none."""

    @property
    def stateful(self) -> bool:
        """True if techniques may keep gradients back. Alike on all ranks."""

    def may_change_layout(self) -> bool:
        """Returns whether nothing is kept back on any rank; if not, flushing begins."""

    def layout_will_change(self) -> None:
        """Tells that gradients move to other buckets now."""


class _Phase(enum.Enum):
    RECORDING = 0  # there is no pool; lasts until all ranks know rank 0's order
    MAKING = 1  # lasts until all ranks have said whether they had memory
    RUNNING = 2  # the pool is in use
    ORDERING = 3  # the pool is in use; lasts until all ranks know rank 0's new order
    OVER = 4  # there is no pool, and there will be none


class PoolPlan:
    """Makes and changes the pools of one optimizer. prefix: that of the optimizer's names.

    members, below: all its gradients, in an order that is equal on all ranks. reducer: records
    when gradients are ready while the plan needs it.
    """

    def __init__(
        self, process_set: ProcessSet, prefix: str, reducer: _core.Reducer, occupants: Occupants
    ) -> None:
        self._set = process_set
        self._occupants = occupants
        self._reducer = reducer
        self._prefix = prefix
        self._config = _core.config()
        self._phase = _Phase.RECORDING if self._config.gradient_pool else _Phase.OVER
        self._order = RecordedOrder(reducer)
        self._positions: torch.Tensor | None = None  # those of the next round, merged when it is over
        self._failure = ""
        cuts = DEFAULT if self._config.sizes_are_measured else Cuts(self._config.theta)
        self._layout = PoolLayout(cuts, self._config.fusion_threshold)
        self._pool_tuner: PoolTuner | None = None  # None on ranks other than 0
        self._waits = False  # a change of the layout waits for a flush
        self._begun = False  # all ranks have held a round with this plan, or loaded it
        self._parameters_changed = False
        self.is_outdated = False  # all ranks make another plan when this step ends
        self._reducer.recording = self._config.gradient_pool

    def new_step(self, members: Sequence[Gradient]) -> None:
        """Ends a step, in which gradients came in the order that was recorded."""
        order, layout = self._order.step_over(members), self._layout
        submitted = layout.pools is not None and layout.pools.step_over()
        if self._pool_tuner is not None and layout.pools is not None and submitted:
            if self._occupants.stateful:
                self._pool_tuner.keep_sizes()
            late = layout.pools.out_of_place(layout.buckets)
            self._pool_tuner.step_over(late, layout.cuts, order, self._order.ready)
            self._reducer.recording = self._pool_tuner.recording

    def parameters_changed(self) -> None:
        """Records that the optimizer has got other parameters, on all ranks before the same round."""
        self._parameters_changed = self._begun

    # -- rounds

    def values(self) -> PoolValues:
        """Returns what this rank says in the next round."""
        if self._phase is _Phase.MAKING:
            unmeasured = self._config.sizes_are_measured and calibration.known(self._set) is None
            return PoolValues(failed=bool(self._failure), unmeasured=unmeasured)
        if self._phase is _Phase.RUNNING and self._pool_tuner is not None:
            return PoolValues(reorder=self._pool_tuner.order is not None, cuts=self._pool_tuner.cuts)
        return PoolValues()

    def order_of(self, members: Sequence[Gradient]) -> torch.Tensor | None:
        """Returns each gradient's position, from 1 on, in the order that this rank wants; 0: it has none.

        The next round replaces it by rank 0's on all ranks. None: this plan needs no order now.
        """
        self._positions = None
        if self._phase is _Phase.RECORDING or self._phase is _Phase.ORDERING:
            order: Sequence[Gradient] = self._order.first if self._leads() else ()
            if self._pool_tuner is not None:
                order = self._pool_tuner.order or ()
            positions = dict.fromkeys(members, 0)
            for position, gradient in enumerate((g for g in order if g in positions), 1):
                positions[gradient] = position
            self._positions = torch.tensor(list(positions.values()), dtype=torch.int32, device="cpu")
        return self._positions

    def apply(self, members: Sequence[Gradient], agreed: Round, make: Maker) -> list[PoolBucket]:
        """Takes a round's result. Returns new buckets, which all ranks use from now on; often none.

        make: makes pools of gradients in this order.
        """
        if self._phase is _Phase.OVER or agreed.some_joined:
            return []
        self._begun = True
        pool = agreed.pool
        if self._parameters_changed:
            self.is_outdated = self._occupants.may_change_layout()
            return []
        if self._phase is _Phase.MAKING:
            self._order.complete(members)
            return self._give_up() if pool.failed else self._begin(not agreed.busy, pool.unmeasured)
        if self._phase is _Phase.RUNNING:
            return self._follow_tuner(pool.reorder, pool.cuts)
        assert self._positions is not None
        positions = zip(self._positions.tolist(), members, strict=True)
        order = [gradient for _, gradient in sorted((p for p in positions if p[0]), key=lambda p: p[0])]
        if not order:
            return []
        if self._phase is _Phase.ORDERING:
            return self._arrange(order)
        self._phase = _Phase.MAKING
        self._try(make, order)
        return []

    @property
    def needs_rounds(self) -> bool:
        """True if apply() is to be called after the next round, whatever its result is."""
        moving = self._phase is not _Phase.RUNNING and self._phase is not _Phase.OVER
        return moving or self._waits or self._parameters_changed

    # -- what happens on all ranks at once

    def _try(self, make: Maker, order: list[Gradient]) -> None:
        try:
            self._layout.lay_out(order, make)
        except (RuntimeError, ValueError, MemoryError) as error:
            self._failure = str(error)

    def _give_up(self) -> list[PoolBucket]:
        """Gives the pool up on all ranks."""
        if self._failure:
            warnings.warn(f"no gradient pool: {self._failure}", RuntimeWarning, stacklevel=2)
        self._phase, self._layout.pools, self._reducer.recording = _Phase.OVER, None, False
        return []

    def _begin(self, may_wait: bool, measure: bool) -> list[PoolBucket]:
        """Begins to use the pool.

        may_wait: all ranks can wait for each other here. measure: some rank has no measured numbers.
        """
        pools, cuts = self._layout.pools, self._layout.cuts
        assert pools is not None
        self._phase, self._reducer.recording = _Phase.RUNNING, False
        auto = (
            self._config.sizes_are_measured and pools.measurable and pools.largest() >= calibration.SMALLEST
        )
        with torch.no_grad():
            if auto and may_wait and measure:
                calibration.calibrate(*pools.trial(), pools.largest(), self._set)
            self._pool_tuner = self._make_tuner(pools)
            best = self._pool_tuner.best(cuts) if self._pool_tuner is not None else cuts
            if auto and may_wait:
                cuts = self._cuts_of_rank_0(best)
            elif self._pool_tuner is not None:
                self._pool_tuner.propose(best, cuts)
        return self._cut(cuts)

    def _make_tuner(self, pools: Pools) -> PoolTuner | None:
        """Makes rank 0's tuner."""
        if not self._leads():
            return None
        return PoolTuner(self._prefix, pools, self._set, self._order.ready, self._occupants.choices)

    def _leads(self) -> bool:
        return self._set.rank() == 0

    def _cuts_of_rank_0(self, cuts: Cuts) -> Cuts:
        """Returns rank 0's cuts; ``cuts`` are this rank's."""
        numbers = torch.tensor(cuts, dtype=torch.int64, device="cpu")
        root = self._set.ranks[0]
        theta, last = broadcast(numbers, root, f"{self._prefix}.cuts", self._set).tolist()
        return Cuts(theta, last)

    def _follow_tuner(self, reorder: bool, cuts: Cuts | None) -> list[PoolBucket]:
        self._waits = (reorder or cuts is not None) and not self._occupants.may_change_layout()
        if self._waits:
            return []  # rank 0 proposes the same again in the next round
        if reorder:
            self._phase = _Phase.ORDERING
        if cuts is None or (reorder and self._occupants.stateful):  # a flush makes room for one change
            return []
        count("pool_cuts")
        self._occupants.layout_will_change()
        return self._cut(cuts)

    def _arrange(self, order: list[Gradient]) -> list[PoolBucket]:
        layout = self._layout
        assert layout.pools is not None
        self._phase = _Phase.RUNNING
        self._occupants.layout_will_change()
        with torch.no_grad():
            layout.pools.arrange(order)
        if self._pool_tuner is not None:
            self._pool_tuner.arranged(layout.cuts)
        count("pool_orders")
        return self._cut(layout.cuts)

    def _cut(self, cuts: Cuts) -> list[PoolBucket]:
        buckets = self._layout.cut(cuts)
        if self._pool_tuner is not None:
            self._pool_tuner.in_use(cuts, len(buckets))
        return buckets

    # -- checkpoints

    def state(self) -> PoolState:
        """Returns what restore() needs, between two steps."""
        pools, tuner = self._layout.pools, self._pool_tuner
        if pools is None:
            first = self._order.first if self._leads() else ()
            return PoolState(proposals=Proposals(first=self._names(first)))
        proposals = Proposals()
        if tuner is not None:
            late, last = tuner.order_watch.state
            order = self._names(tuner.order or ())
            proposals = Proposals(order=order, cuts=tuner.cuts, late=late, last=self._names(last))
        ordering = self._phase is _Phase.ORDERING
        return PoolState(self._names(pools.gradients()), self.cuts, ordering, self._waits, proposals)

    def restore(self, state: PoolState, members: Sequence[Gradient], make: Maker) -> list[PoolBucket]:
        """Takes what state() returned, and makes the pool. Returns its buckets; none if they are not in use.

        members: those that may be in a pool. Call it before there is one, or again before that is used.
        ValueError, RuntimeError or MemoryError: this rank cannot make the pool; drop this object.
        """
        by_name = {gradient.name.removeprefix(f"{self._prefix}."): gradient for gradient in members}
        order, layout = _found(state.order, by_name), self._layout
        self._begun = True
        if order and self._phase is _Phase.OVER:
            raise ValueError("there is no gradient pool (is ROUNDELAY_GRADIENT_POOL=0 set?)")
        if layout.pools is None:
            self._order.first = _found(state.proposals.first, by_name)
        elif not order or (layout.buckets and state.cuts is None):
            raise ValueError("it has none, and there are some already")
        if not order:
            return []
        layout.lay_out(order, make)
        self._phase, self._failure = _Phase.MAKING, ""
        return [] if state.cuts is None else self._resume(state, state.cuts, by_name)

    def _resume(self, state: PoolState, cuts: Cuts, by_name: Mapping[str, Gradient]) -> list[PoolBucket]:
        """Goes on where the job that has saved the state was, with its pool in use."""
        assert self._layout.pools is not None
        self._phase = _Phase.ORDERING if state.ordering else _Phase.RUNNING
        self._waits, proposals = state.waits, state.proposals
        tuner = self._pool_tuner = self._make_tuner(self._layout.pools)
        if tuner is not None:
            tuner.order_watch.state = proposals.late, _found(proposals.last, by_name)
            tuner.order = _found(proposals.order, by_name) or None
            tuner.cuts = proposals.cuts
        self._reducer.recording = tuner is not None and tuner.recording
        return self._cut(cuts)

    def _names(self, gradients: Sequence[Gradient]) -> Names:
        return tuple(gradient.name.removeprefix(f"{self._prefix}.") for gradient in gradients)

    @property
    def wants_change(self) -> bool:
        """True if the layout is still to be changed. Alike on all ranks."""
        return self._waits or self._parameters_changed or self._phase is _Phase.ORDERING

    @property
    def cuts(self) -> Cuts | None:
        """The sizes of the pools' buckets; None while no pool is in use."""
        return self._layout.cuts if self._layout.buckets else None


def _found(names: Names, by_name: Mapping[str, Gradient]) -> tuple[Gradient, ...]:
    """Returns the gradients of these names. ValueError: one of them is in no pool here."""
    missing = next((name for name in names if name not in by_name), None)
    if missing is not None:
        raise ValueError(f"no bucket can have {missing!r} here (is it in groups=?)")
    return tuple(by_name[name] for name in names)

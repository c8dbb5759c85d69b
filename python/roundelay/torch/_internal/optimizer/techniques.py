"""Gives the buckets of one optimizer the techniques that its strategy chooses.

After each step, and when buckets are made, it asks the strategy for each bucket's technique. The rounds
(gradient_sync.py) carry what the ranks must agree on: rank 0's proposals, and its number of the step where
ranks may have counted others (after a join, or a state that was loaded).

**Flushing.** A technique with state keeps gradients back. Before such a bucket gets another technique, and
before the pool is cut or laid out anew, all ranks submit buckets as a *flush* (densely, with all that was
kept back) until every rank has said that its state is empty. So nothing is lost, and nothing is sent twice.
A strategy without techniques costs no call for each bucket.
"""

from __future__ import annotations

import warnings
import weakref
from collections.abc import Iterable, Mapping, Set
from typing import Any

import torch

from roundelay import _core
from roundelay.errors import MismatchError
from roundelay.torch import strategies
from roundelay.torch._internal.gradients.gradient import Gradient
from roundelay.torch._internal.gradients.pool import Bucket
from roundelay.torch._internal.gradients.pool_state import PoolOwner, PoolState
from roundelay.torch._internal.gradients.round_values import LONGEST_PROPOSAL, Round, TechniqueValues
from roundelay.torch._internal.operations import LINEAR_OPS
from roundelay.torch._internal.optimizer import equality
from roundelay.torch._internal.optimizer.equality import NO_DIGEST
from roundelay.torch._internal.optimizer.kept_state import (
    Flushing,
    KeptState,
    Parameters,
    kept_buckets,
    parameters_of,
)
from roundelay.torch.process_sets import ProcessSet
from roundelay.torch.strategies import Strategy
from roundelay.torch.strategies._shared.pool_shapes import shape_in_pool

Traffic = list[tuple[str, int, int, int]]  # a technique's text, operations, bytes of gradients, bytes sent


class Techniques:
    """The techniques of one optimizer's buckets.

    prefix: that of the optimizer's names. records: of all gradients of the optimizer; more may come.
    """

    def __init__(
        self,
        strategy: Strategy,
        op: int,
        process_set: ProcessSet,
        prefix: str,
        records: Mapping[int, Gradient],
    ) -> None:
        self._strategy = strategy
        self._op = op
        self._set = process_set
        self.prefix = prefix
        self._records = records
        self.asks = "technique" in strategy.overrides  # False: every bucket is dense
        self.choices = strategy.choices  # its candidates for the search (tuning/pool_tuner.py)
        self._proposes = "propose" in strategy.overrides
        self._buckets: list[Bucket] = []
        self._views: list[strategies.Bucket] = []  # the buckets as the strategy sees them
        self._asked: list[str | None] = []  # the techniques that they have
        self._keeps: list[bool] = []  # True: the technique has state
        self._canonical: dict[str, str] = {}  # forms of its answers
        self._step = 0
        self._step_agreed = False  # all ranks count from the same step
        self._flushing = False  # alike on all ranks: buckets are submitted as flushes
        self._flush_this_step = False  # flush() was called
        self._some_joined = False  # before the last round; techniques do not apply then, and stay as they are
        self._empty_here = False  # this rank's states are empty, and stay so while flushing
        self._empty_everywhere = False  # the states of all ranks are empty, by the last round's values
        self._overflow_said = False  # the warning of note_overflow()
        self._owner: weakref.ref[PoolOwner] | None = None
        self._loading: KeptState | None = None  # while its buckets are made
        self.loaded = False  # a state was loaded, and no step was taken since
        self.loaded_digest = NO_DIGEST  # of the state that was loaded; the ranks compare theirs in each round

    def belong_to(self, owner: PoolOwner) -> None:
        """Names the owner of the buckets. Without one there is nothing to load."""
        self._owner = weakref.ref(owner)

    # -- buckets

    def use(self, buckets: list[Bucket]) -> None:
        """Begins to use new buckets; the last ones are not used any more."""
        self._buckets = buckets
        self._views = [self._view(*each) for each in enumerate(buckets)] if self.asks else []
        self._asked, self._keeps = [None] * len(buckets), [False] * len(buckets)
        self._flushing = self._empty_everywhere = False
        if self.asks:
            self._strategy.use_buckets(self._views)
        if self._loading is not None:
            self._give(self._loading)
        if not self._flushing:
            self._ask()

    def restart(self) -> None:
        """Begins a new job, which has no buckets yet. A loaded state was for the last one."""
        self.loaded, self.loaded_digest = False, NO_DIGEST
        self._buckets, self._views, self._asked, self._keeps = [], [], [], []
        self._flushing = self._empty_everywhere = self._flush_this_step = self._some_joined = False
        self._step_agreed = False

    def new_step(self) -> None:
        """Ends a step of the optimizer: the next one may take other techniques."""
        self._step += 1
        self._flush_this_step = self.loaded = False
        if not self._flushing and not self._some_joined:
            self._ask()

    def new_gradients(self) -> None:
        """Begins new gradients, within a step or after it. While flushing, these are flushed too."""
        if self._flushing or self._flush_this_step:
            self._flush_all()

    @property
    def step(self) -> int:
        """The number of steps that the optimizer has taken."""
        return self._step

    def joined(self, step: int) -> None:
        """Goes on after hvd.join, which all ranks have called; this one may have taken fewer steps.

        Techniques are those from before the join on all ranks. The next step is a flush: a rank may have been
        asked for one before it joined, and then it must be one on all.
        """
        self._step, self._step_agreed, self._some_joined = step, False, False
        if not self._flushing:
            self._ask()
        self.flush()
        owner = self._pool_owner()
        if owner is not None:
            owner.publish()

    def _ask(self) -> None:
        """Asks the strategy about each bucket. A bucket that keeps something back is flushed first."""
        if not self.asks:
            return
        for number, bucket in enumerate(self._buckets):
            text = self._answer(self._views[number])
            if text == self._asked[number]:
                continue
            if self._keeps[number] and not self._empty_everywhere:
                self._begin_flushing()
                return
            bucket.core.set_technique(text)
            self._asked[number], self._keeps[number] = text, bucket.core.state is not None

    def _answer(self, bucket: strategies.Bucket) -> str | None:
        spec = self._strategy.technique(bucket, self._step)
        if spec is None:
            return None
        if not isinstance(spec, strategies.Spec):
            raise ValueError(f"strategy {self._strategy.text} chose {spec!r}, which is no Spec")
        if self._op not in LINEAR_OPS:
            raise ValueError(
                f"strategy {self._strategy.text} chose technique {spec.text}, which needs op=hvd.Average or "
                "op=hvd.Sum"
            )
        if spec.text not in self._canonical:
            self._canonical[spec.text] = _core.technique_text(spec.text)
        return self._canonical[spec.text]

    def _view(self, number: int, bucket: Bucket) -> strategies.Bucket:
        names = tuple(self._short(gradient.name) for gradient in bucket.members)
        pool = bucket.pool
        return strategies.Bucket(
            number,
            self._short(bucket.core.name),
            bucket.core.bytes,
            pool.dtype,
            pool.device,
            names,
            pool.index,
            bucket.ranges(),
            tuple(shape_in_pool(gradient.core.parameter) for gradient in bucket.members),
        )

    def _short(self, name: str) -> str:
        return name.removeprefix(f"{self.prefix}.")

    def traffic(self) -> list[tuple[strategies.Bucket, Traffic]]:
        """Returns each bucket's traffic by technique, since the bucket was made."""
        return [(self._view(n, bucket), bucket.core.traffic) for n, bucket in enumerate(self._buckets)]

    def sent(self) -> list[strategies.Sent]:
        """Returns the buckets that have a technique, and the part of them that this step has sent."""
        every = zip(self._buckets, self._views, self._asked, self._keeps, strict=True) if self.asks else ()
        return [
            _sent(bucket, view, keeps) for bucket, view, technique, keeps in every if technique is not None
        ]

    # -- changes of layouts

    @property
    def stateful(self) -> bool:
        """True if techniques may keep gradients back. Alike on all ranks."""
        return any(self._keeps)

    def may_change_layout(self) -> bool:
        """Returns whether nothing is kept back on any rank. If not, flushing begins. All ranks call it."""
        if not self.stateful or self._empty_everywhere:
            return True
        self._begin_flushing()
        return False

    def layout_will_change(self) -> None:
        """Tells the strategy that gradients move to other buckets."""
        if self._buckets:
            self._strategy.layout_will_change()

    def _begin_flushing(self) -> None:
        if not self._flushing:
            self._flushing, self._empty_here = True, False
            self._flush_all()

    def _flush_all(self) -> None:
        for bucket, keeps in zip(self._buckets, self._keeps, strict=True):
            if keeps:
                bucket.core.flush_next()

    # -- rounds

    @property
    def needs_rounds(self) -> bool:
        """True if apply() is to be called after the next round, whatever its result is."""
        return self._flushing or self._some_joined

    def values(self) -> TechniqueValues:
        """Returns what this rank says in the next round. ValueError: what the strategy proposes is wrong."""
        leads = self._set.rank() == 0
        return TechniqueValues(
            keeps_back=self._flushing and not self._empty_here,
            step=self._step if leads and self.asks and not self._step_agreed else None,
            proposal=self._proposal() if leads and self._proposes else None,
        )

    def _proposal(self) -> bytes | None:
        proposal = self._strategy.propose()
        if proposal is None or (isinstance(proposal, bytes) and len(proposal) <= LONGEST_PROPOSAL):
            return proposal
        raise ValueError(
            f"strategy {self._strategy.text} proposed {proposal!r:.80}: it must be at most "
            f"{LONGEST_PROPOSAL} bytes"
        )

    def apply(self, agreed: Round) -> None:
        """Takes a round's result."""
        self._empty_everywhere, self._some_joined = False, agreed.some_joined
        if self._some_joined:
            return
        values, self._step_agreed = agreed.techniques, True
        if values.step is not None:
            self._step = values.step
        self._empty_everywhere = self._flushing and not values.keeps_back
        if values.proposal is not None:
            self._strategy.agreed(values.proposal)

    def end_round(self, wants_layout: bool) -> None:
        """Ends a round, whose operations are complete. wants_layout: the layout is still to be changed."""
        if not self._flushing:
            return
        if self._empty_everywhere and not wants_layout:
            self._flushing = False
            self._ask()
        else:
            self._empty_here = not self.keeps_something()
        self._empty_everywhere = False

    # -- state

    def flush(self) -> None:
        """Makes the next step send all gradients that techniques keep back."""
        self._flush_this_step = True
        self._flush_all()

    def may_keep(self) -> bool:
        """True if techniques have state, or one was loaded."""
        return self.stateful or self.loaded

    def note_overflow(self, found: Iterable[torch.Tensor]) -> None:
        """Warns once, on rank 0, if a step that flushes is skipped. found: GradScaler's, not 0: overflow."""
        flushes = self.stateful and (self._flushing or self._flush_this_step)
        if flushes and not self._overflow_said and any(map(bool, found)) and self._set.rank() == 0:
            self._overflow_said = True
            text = (
                f"GradScaler skips a step in which strategy {self._strategy.text} sends all it kept back: "
                "these gradients are lost (docs/strategies.md#what-is-kept-back-and-checkpoints)"
            )
            warnings.warn(text, RuntimeWarning, stacklevel=2)

    def rescale(self, factor: float) -> None:
        """Multiplies gradients that are kept back."""
        for bucket, keeps in zip(self._buckets, self._keeps, strict=True):
            if keeps:
                bucket.core.rescale(factor)

    def keeps_something(self) -> bool:
        """Returns whether this rank's buckets keep gradients back."""
        return any(bucket.core.unflushed for bucket in self._buckets)

    def state_dict(self) -> dict[str, Any]:
        """Returns the techniques' state on this rank."""
        owner = self._pool_owner()
        return KeptState(
            self._strategy.text,
            self._set.rank(),
            self._set.size(),
            self._step,
            self._parameters(),
            PoolState() if owner is None else owner.pool_state(),
            Flushing(self._flushing, self._flush_this_step, self._empty_here),
            kept_buckets((self._short(bucket.core.name), bucket) for bucket in self._buckets),
        ).to_dict()

    def _give(self, kept: KeptState) -> None:
        kept.give({self._short(bucket.core.name): bucket for bucket in self._buckets})
        self._asked = [bucket.core.technique for bucket in self._buckets]
        self._keeps = [bucket.core.state is not None for bucket in self._buckets]
        self._flushing, self._flush_this_step, self._empty_here = kept.flushing
        self.new_gradients()

    def _parameters(self) -> Parameters:
        return parameters_of((self._short(one.name), one) for one in self._records.values())

    def _pool_owner(self) -> PoolOwner | None:
        return None if self._owner is None else self._owner()

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Takes back what state_dict() returned, and makes its pool and buckets. It sends no message.

        ValueError, and nothing has changed: it does not fit, or buckets are in use, which may keep gradients
        of other weights back. ValueError or RuntimeError, and nothing is loaded: no such buckets can be made.
        """
        if self._buckets and not self.loaded:
            raise ValueError(
                f"strategy {self._strategy.text} takes a state only before the first step: call its flush() "
                "and take a step, give the optimizer to DistributedOptimizer again, and load then"
            )
        kept = KeptState.from_dict(state)
        kept.check(self._strategy.text, self._set, self._parameters())
        owner = self._pool_owner()
        if owner is not None and owner.in_step():
            raise ValueError("gradients of this step were reduced already: load a state between two steps")
        before, self._step, self._loading = self._step, kept.step, kept
        self._step_agreed = False
        try:
            if owner is not None:
                owner.restore_pool(kept.pool)
        except BaseException as error:
            self._step = before
            self.forget_loaded()
            if owner is not None:
                owner.restart()
            if not isinstance(error, RuntimeError | MemoryError | ValueError):
                raise
            text = f"the buckets of this state cannot be made on this rank: {error}"
            raise (ValueError(text) if isinstance(error, ValueError) else RuntimeError(text)) from error
        finally:
            self._loading = None
        self.loaded, self.loaded_digest = True, kept.digest()
        if owner is not None:
            owner.publish()

    def loaded_error(self, submitted: Set[str]) -> MismatchError | None:
        """Returns the error to raise if the ranks have loaded different states. All ranks call it.

        submitted: the names of operations in flight on this rank.
        """
        text = self._strategy.text
        return equality.loaded_error(self.loaded_digest, text, submitted, self.prefix, self._set)

    def forget_loaded(self) -> None:
        """Forgets a loaded state, which does not belong to those of the other ranks."""
        self.loaded, self.loaded_digest = False, NO_DIGEST
        self._strategy.forget_state()


def _sent(bucket: Bucket, view: strategies.Bucket, keeps: bool) -> strategies.Sent:
    """Returns what the step's only operation in the pool has sent. keeps: the technique has a state."""
    parameters = tuple(one.core.parameter for one in bucket.members)
    sent = bucket.core.sent()
    part = None if sent is None else strategies.Part(*sent)
    return strategies.Sent(view, parameters, part, keeps and bucket.core.applied)

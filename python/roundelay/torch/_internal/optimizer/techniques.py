"""Changes the techniques of one optimizer's buckets in the same step on all ranks.

After each step, and when buckets are made, the strategy says each bucket's technique (bucket_techniques.py).
The rounds (gradient_sync.py) carry what the ranks must agree on: rank 0's proposals, and its number of the
step where ranks may have counted others (after a join, or a state that was loaded).

**Flushing.** A technique with state keeps gradients back. Before such a bucket gets another technique, and
before the pool is cut or laid out anew, all ranks submit buckets as a *flush* (densely, with all that was
kept back) until every rank has said that its state is empty. So nothing is lost, and nothing is sent twice.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Mapping, Sequence

import torch

from roundelay import _core
from roundelay.torch._internal.gradients.gradient import Gradient
from roundelay.torch._internal.gradients.pool import PoolBucket
from roundelay.torch._internal.gradients.round_values import LONGEST_PROPOSAL, Round, TechniqueValues
from roundelay.torch._internal.optimizer.bucket_techniques import BucketTechniques
from roundelay.torch._internal.optimizer.kept_state import Flushing, KeptState, Loaded
from roundelay.torch._internal.optimizer.residuals import Residuals
from roundelay.torch._internal.strategy.strategy import Strategy
from roundelay.torch.process_sets import ProcessSet


class Techniques:
    """Decides when the buckets of one optimizer change their techniques.

    table: the technique that each bucket has. prefix: that of the optimizer's names. records: all its
    gradients; more may come.
    """

    def __init__(
        self,
        strategy: Strategy,
        op: int,
        process_set: ProcessSet,
        prefix: str,
        records: Mapping[int, Gradient],
    ) -> None:
        self.strategy = strategy
        self.process_set = process_set
        self.table = BucketTechniques(strategy, op, prefix)
        self.residuals = Residuals(self.table, process_set, records)
        self.loaded = Loaded()
        self.choices = strategy.choices  # its candidates for the search (tuning/pool_tuner.py)
        self._proposes = "propose" in strategy.overrides
        self._step = 0
        self._step_agreed = False  # all ranks count from the same step
        self._flushing = False  # alike on all ranks: buckets are submitted as flushes
        self._flush_this_step = False  # flush() was called
        self._some_joined = False  # before the last round; techniques do not apply then, and stay as they are
        self._empty_here = False  # this rank's states are empty, and stay so while flushing
        self._empty_everywhere = False  # the states of all ranks are empty, by the last round's values
        self._overflow_said = False  # the warning of note_overflow()

    # -- steps

    def use(self, buckets: Sequence[PoolBucket]) -> None:
        """Begins to use new buckets; the last ones are not used any more."""
        self.table.use(buckets)
        self._flushing = self._empty_everywhere = False
        if self.loaded.making is not None:
            self._resume(self.loaded.making)
        if not self._flushing:
            self._choose()

    def restart(self) -> None:
        """Begins a new job, which has no buckets yet. A loaded state was for the last one."""
        if self.residuals.forget_buckets():
            _core.log_warning(
                f"strategy {self.strategy.text}: what this rank has kept back of its gradients is forgotten, "
                "as the ranks have changed"
            )
        self.loaded.forget()
        self.table.use(())
        self._flushing = self._empty_everywhere = self._flush_this_step = self._some_joined = False
        self._step_agreed = False

    def new_step(self) -> None:
        """Ends a step of the optimizer: the next one may take other techniques."""
        self._step += 1
        self.residuals.end_step()
        if self._flush_this_step and not self._some_joined and self.table.keeps_something():
            self._tell_of_the_rest()
        self._flush_this_step = self.loaded.fresh = False
        if self._flushing or self._some_joined:
            return
        if not self.table.choose(self._step, self._empty_everywhere):
            self._begin_flushing()

    def new_gradients(self) -> None:
        """Begins new gradients, within a step or after it. While flushing, these are flushed too."""
        self.residuals.new_gradients()
        if self._flushing or self._flush_this_step:
            self.table.flush_next()

    @property
    def step(self) -> int:
        """The number of steps that the optimizer has taken."""
        return self._step

    def count_from(self, step: int) -> None:
        """Goes on counting from this step, which other ranks may not have reached."""
        self._step, self._step_agreed = step, False

    def joined(self, step: int) -> None:
        """Goes on after hvd.join, which all ranks have called; this one may have taken fewer steps.

        Techniques are those from before the join on all ranks. The next step is a flush: a rank may have been
        asked for one before it joined, and then it must be one on all.
        """
        self.count_from(step)
        self._some_joined = False
        if not self._flushing:
            self._choose()
        self.flush()

    def _choose(self) -> None:
        if not self.table.choose(self._step, self._empty_everywhere):
            self._begin_flushing()

    # -- changes of layouts

    @property
    def stateful(self) -> bool:
        """True if techniques may keep gradients back. Alike on all ranks."""
        return self.table.stateful

    def may_change_layout(self) -> bool:
        """Returns whether nothing is kept back on any rank. If not, flushing begins. All ranks call it."""
        if not self.table.stateful or self._empty_everywhere:
            return True
        self._begin_flushing()
        return False

    def layout_will_change(self) -> None:
        """Tells the strategy that gradients move to other buckets."""
        if self.table.buckets:
            self.strategy.layout_will_change()

    def _begin_flushing(self) -> None:
        if not self._flushing:
            self._flushing, self._empty_here = True, False
            self.table.flush_next()

    # -- rounds

    @property
    def needs_rounds(self) -> bool:
        """True if apply() is to be called after the next round, whatever its result is."""
        return self._flushing or self._some_joined

    def values(self) -> TechniqueValues:
        """Returns what this rank says in the next round. ValueError: what the strategy proposes is wrong."""
        leads = self.process_set.rank() == 0
        return TechniqueValues(
            keeps_back=self._flushing and not self._empty_here,
            step=self._step if leads and self.table.chooses and not self._step_agreed else None,
            proposal=self._proposal() if leads and self._proposes else None,
        )

    def _proposal(self) -> bytes | None:
        proposal = self.strategy.propose()
        if proposal is None or (isinstance(proposal, bytes) and len(proposal) <= LONGEST_PROPOSAL):
            return proposal
        raise ValueError(
            f"strategy {self.strategy.text} proposed {proposal!r:.80}: it must be at most "
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
            self.strategy.agreed(values.proposal)

    def end_round(self, wants_layout: bool) -> None:
        """Ends a round, whose operations are complete. wants_layout: the layout is still to be changed."""
        if not self._flushing:
            return
        if self._empty_everywhere and not wants_layout:
            self._flushing = False
            self._choose()
        else:
            self._empty_here = not self.table.keeps_something()
        self._empty_everywhere = False

    # -- what is kept back

    def flush(self) -> None:
        """Makes the next step send all gradients that techniques keep back."""
        self._flush_this_step = True
        self.table.flush_next()

    def may_keep(self) -> bool:
        """True if techniques have state, or one was loaded."""
        return self.table.stateful or self.loaded.fresh or self.residuals.waits()

    def note_overflow(self, found: Iterable[torch.Tensor]) -> None:
        """Warns once, on rank 0, if a step that flushes is skipped. found: GradScaler's, not 0: overflow."""
        flushes = self.table.stateful and (self._flushing or self._flush_this_step)
        if flushes and not self._overflow_said and any(map(bool, found)) and self.process_set.rank() == 0:
            self._overflow_said = True
            text = (
                f"GradScaler skips a step in which strategy {self.strategy.text} sends all it kept back: "
                "these gradients are lost (docs/strategies.md#what-is-kept-back-and-checkpoints)"
            )
            warnings.warn(text, RuntimeWarning, stacklevel=2)

    def _tell_of_the_rest(self) -> None:
        text = (
            f"strategy {self.strategy.text} still keeps gradients back on rank {_core.rank()} after a step "
            "that was to send all: some layer had no gradient in it; the next step in which all layers have "
            "one sends them"
        )
        warnings.warn(text, RuntimeWarning, stacklevel=2)

    @property
    def progress(self) -> Flushing:
        """How far flushes have come, for a checkpoint."""
        return Flushing(self._flushing, self._flush_this_step, self._empty_here)

    def _resume(self, kept: KeptState) -> None:
        """Gives new buckets what a checkpoint has of them."""
        kept.restore(self.table.by_name())
        self.table.refresh()
        self._flushing, self._flush_this_step, self._empty_here = kept.flushing
        self.new_gradients()

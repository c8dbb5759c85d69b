"""Rank 0's proposals for a pool: the sizes of buckets, and another order of gradients.

Rank 0 of the process set decides at the end of each step. All ranks do what it proposes (pool_plan.py).
"""

from __future__ import annotations

import time
import warnings
from collections.abc import Hashable, Mapping
from typing import Generic, TypeVar

from roundelay import _core
from roundelay.buckets import Cuts, candidates, choose
from roundelay.torch.gradients.gradient import Gradient
from roundelay.torch.gradients.pool import Pools
from roundelay.torch.measure import Span
from roundelay.torch.process_sets import ProcessSet
from roundelay.torch.tuning import calibration
from roundelay.torch.tuning.autotune import Autotune, worth_trying

T = TypeVar("T", bound=Hashable)
PATIENCE = 50  # steps


class OrderWatch(Generic[T]):
    """Notices that gradients have come in another order than the pool's for a long time. Pure.

    To know whether buckets were submitted out of place costs nothing. After PATIENCE such steps in a row, the
    order of two whole steps is recorded. If both are equal, this is the new order; otherwise the count begins
    again.
    """

    def __init__(self) -> None:
        self._late = 0
        self._last: tuple[T, ...] = ()

    @property
    def recording(self) -> bool:
        """True if step_over() needs the order of the step that begins."""
        return self._late >= PATIENCE

    def step_over(self, late: bool, order: tuple[T, ...]) -> tuple[T, ...] | None:
        """Ends a step. late: buckets were out of place; order: that of its gradients, empty: not recorded."""
        if not late:
            self._late, self._last = 0, ()
            return None
        self._late += 1
        if not order:
            return None
        last, self._last = self._last, order
        if not last:
            return None
        self._late, self._last = 0, ()
        return order if order == last else None


class PoolTuner:
    """Rank 0's proposals for one optimizer's pool. prefix: that of the optimizer's names."""

    def __init__(self, prefix: str, pools: Pools, process_set: ProcessSet, ready: Mapping[Gradient, float]):
        self.cuts: Cuts | None = None  # proposed
        self.order: tuple[Gradient, ...] | None = None  # proposed
        self._prefix = prefix
        self._pools = pools
        self._set = process_set
        self._ready = ready
        self._config = _core.config()
        self._watch: OrderWatch[Gradient] = OrderWatch()
        self._tuner: Autotune | None = self._make_tuner()

    @property
    def recording(self) -> bool:
        """True if step_over() needs the order and times of gradients in the step that begins."""
        return self._watch.recording

    def best(self, now: Cuts) -> Cuts:
        """The best cuts by the model, or autotune's first; ``now`` if nothing was measured."""
        if self._tuner is not None:
            return self._tuner.cuts
        link = calibration.known(self._set) if self._pools.measurable else None
        if link is None or not self._config.theta_auto:
            return now
        most = self._config.fusion_threshold
        return choose(self._pools.extents(self._ready), most, link).cuts

    def step_over(
        self, late: bool, cuts: Cuts, order: tuple[Gradient, ...], ready: Mapping[Gradient, float]
    ) -> None:
        """Ends a step. cuts: the pool's now. late, order: as for OrderWatch. ready: seconds, by gradient."""
        if self._tuner is not None and not self._tuner.over:
            over = self._tuner.step_over(cuts, time.perf_counter())
            self.propose(self._tuner.cuts, cuts)
            if over:
                self._close(self._tuner)
            return
        new = self._watch.step_over(late, order)
        if new is not None:
            rest = [gradient for gradient in self._pools.gradients() if gradient not in ready]
            wanted = (*new, *rest)
            if self._pools.in_order(wanted) != self._pools.gradients():
                self.order, self._ready = wanted, ready

    def propose(self, cuts: Cuts, now: Cuts) -> None:
        """Proposes these cuts, unless the pool has them."""
        self.cuts = cuts if cuts != now else None

    def stop_trials(self) -> None:
        """Ends autotune where techniques keep gradients back: each trial would flush them."""
        if self._tuner is not None and not self._tuner.over:
            self._tell("no trials, as the strategy keeps gradients back")
            self._tuner = self.cuts = None

    def arranged(self, now: Cuts) -> None:
        """Records that the proposed order is in use. now: the pool's cuts."""
        self.order = None
        self.propose(self.best(now), now)

    def in_use(self, cuts: Cuts, buckets: int) -> None:
        """Records that the pool is in use with these cuts."""
        self.propose(self.cuts or cuts, cuts)
        last = f", the last of at most {_size(cuts.last)}" if cuts.last else ""
        self._tell(f"cut into {buckets}, theta {_size(cuts.theta)}{last}")

    def _make_tuner(self) -> Autotune | None:
        if not self._config.autotune:
            return None
        if not self._config.theta_auto:
            self._tell("nothing to tune, as ROUNDELAY_THETA says the size")
            return None
        if not self._pools.measurable:
            self._tell("nothing to tune, as it has gradients on a GPU")
            return None
        every = candidates(
            self._pools.extents(self._ready), self._config.fusion_threshold, calibration.known(self._set)
        )
        if len(every) == 1:
            self._tell("nothing to tune, as it is cut alike with all sizes")
            return None
        return Autotune(worth_trying(every), self._config.autotune_steps_per_sample)

    def _close(self, tuner: Autotune) -> None:
        """Reports the result of autotune, which has tried all sizes."""
        report = tuner.report(self._prefix)
        self._tell(f"autotune keeps theta {_size(tuner.cuts.theta)}, last {_size(tuner.cuts.last)}")
        if self._config.autotune_log:
            try:
                with open(self._config.autotune_log, "a", encoding="utf-8") as log:
                    log.write(report)
            except OSError as error:
                text = f"cannot write ROUNDELAY_AUTOTUNE_LOG: {error}"
                warnings.warn(text, RuntimeWarning, stacklevel=2)

    def _tell(self, text: str) -> None:
        """Writes a line to the log and to the timeline."""
        _core.log_info(f"pool of {self._prefix}: {text}")
        Span(f"pool of {self._prefix}: {text}").end()


def _size(bytes_: int) -> str:
    return f"{bytes_ / (1 << 20):g} MiB"

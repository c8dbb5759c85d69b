"""Rank 0's proposals for a pool: sizes of buckets, candidates of its strategy, and another order.

Rank 0 of the process set decides at the end of each step. All ranks do what it proposes (pool_plan.py).
"""

from __future__ import annotations

import sys
import time
import warnings
from collections.abc import Hashable, Mapping, Sequence
from datetime import datetime, timezone
from typing import Generic, TypeVar

from roundelay import _core
from roundelay.torch._internal.gradients.gradient import Gradient
from roundelay.torch._internal.gradients.pool import Pools
from roundelay.torch._internal.measure import Span, count, record
from roundelay.torch._internal.tuning import calibration
from roundelay.torch._internal.tuning.choices import Choices
from roundelay.torch._internal.tuning.gate import DENSE, DENSE_COST, Cost, Watch, link_of
from roundelay.torch._internal.tuning.search import Model, Search, Setting, worth_trying
from roundelay.torch._internal.tuning.trial_steps import UNCOUNTED, UNCOUNTED_LOSSY
from roundelay.torch.process_sets import ProcessSet
from roundelay.tuning.buckets import Cuts, Extent, Link, Piece, candidates, choose, pieces

T = TypeVar("T", bound=Hashable)
PATIENCE = 50  # steps


class OrderWatch(Generic[T]):
    """Notices that gradients have come in another order than the pool's for a long time. Pure.

    It costs nothing to know whether buckets were submitted out of place. After PATIENCE such steps in a row,
    the order of two whole steps is recorded. If both are equal, this is the new order; otherwise the count
    begins again.
    """

    def __init__(self) -> None:
        self._late = 0
        self._last: tuple[T, ...] = ()

    @property
    def recording(self) -> bool:
        """True if step_over() needs the order of the step that begins."""
        return self._late >= PATIENCE

    @property
    def state(self) -> tuple[int, tuple[T, ...]]:
        """What it has noticed so far: steps in a row that were late, and the order of the last one."""
        return self._late, self._last

    @state.setter
    def state(self, noticed: tuple[int, tuple[T, ...]]) -> None:
        self._late, self._last = noticed

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
    """Rank 0's proposals for one optimizer's pool. prefix: that of the optimizer's names.

    choices: the strategy's candidates for the search. ROUNDELAY_AUTOTUNE makes sizes a part of the search.
    """

    def __init__(
        self,
        prefix: str,
        pools: Pools,
        process_set: ProcessSet,
        ready: Mapping[Gradient, float],
        choices: Choices | None,
    ):
        self.cuts: Cuts | None = None  # proposed
        self.order: tuple[Gradient, ...] | None = None  # proposed
        self._prefix = prefix
        self._pools = pools
        self._set = process_set
        self._ready = ready
        self._choices = choices
        self._config = _core.config()
        self.order_watch: OrderWatch[Gradient] = OrderWatch()
        self._search: Search | None = None
        self._searched = False
        self._watch: Watch | None = None
        self._last_end = 0.0

    @property
    def recording(self) -> bool:
        """True if step_over() needs the order and times of gradients in the step that begins."""
        return self.order_watch.recording

    def best(self, now: Cuts) -> Cuts:
        """The best cuts by the model; ``now`` if nothing was measured."""
        link = self._link()
        if link is None or not self._config.sizes_are_measured:
            return now
        return choose(self._pools.extents(self._ready), self._config.fusion_threshold, link).cuts

    def _link(self) -> Link | None:
        return calibration.known(self._set) if self._pools.measurable else None

    def step_over(
        self, late: bool, cuts: Cuts, order: tuple[Gradient, ...], ready: Mapping[Gradient, float]
    ) -> None:
        """Ends a step. cuts: the pool's now. late, order: as for OrderWatch. ready: seconds, by gradient."""
        now = time.perf_counter()
        duration, self._last_end = now - self._last_end, now
        if self._search is None and self.cuts is None and self.order is None and self._is_due(duration):
            self._begin(cuts)
        if self._search is not None:
            self._go_on(self._search, cuts, now)
            return
        new = self.order_watch.step_over(late, order)
        if new is not None:
            rest = [gradient for gradient in self._pools.gradients() if gradient not in ready]
            wanted = (*new, *rest)
            if self._pools.in_order(wanted) != self._pools.gradients():
                self.order, self._ready = wanted, ready

    def propose(self, cuts: Cuts, now: Cuts) -> None:
        """Proposes these cuts, unless the pool has them."""
        self.cuts = cuts if cuts != now else None

    def keep_sizes(self) -> None:
        """Ends a search of sizes alone if techniques keep gradients back: each trial would flush them."""
        if self._choices is not None or (self._searched and self._search is None):
            return
        if self._config.autotune:
            self._tell("no trials, as the strategy keeps gradients back")
        self._search, self._searched = None, True

    def arranged(self, now: Cuts) -> None:
        """Records that the proposed order is in use. now: the pool's cuts."""
        self.order = None
        if self._choices is not None:
            self._search, self._searched = None, False
        self.propose(self.best(now), now)

    def in_use(self, cuts: Cuts, buckets: int) -> None:
        """Records that the pool is in use with these cuts."""
        self.propose(self.cuts or cuts, cuts)
        last = f", the last of at most {_size(cuts.last)}" if cuts.last else ""
        self._tell(f"cut into {buckets}, theta {_size(cuts.theta)}{last}")

    # -- the search

    def _is_due(self, duration: float) -> bool:
        changed = self._watch is not None and self._watch.step_over(duration)
        return not self._searched or changed

    def _begin(self, cuts: Cuts) -> None:
        self._searched, self._watch = True, None
        if self._choices is None and not self._config.autotune:
            return
        link = self._link()
        if link is not None:
            link = link._replace(copy=calibration.copy_rate())
        costs, mixed = (self._choices.costs, self._choices.mixed) if self._choices else ([DENSE_COST], [True])
        layouts = self._layouts(cuts, link, [cost for cost in costs if cost is not None])
        settings = worth_trying(layouts, Model(costs, mixed, link), self._config.autotune)
        if len(settings) == 1:
            if self._choices is not None:
                self._answer(self._choices, "dense: the candidates are no other way here", dense=True)
            return
        if self._choices is None:
            steps, uncounted = self._config.autotune_steps_per_sample, UNCOUNTED
        else:
            steps = 2 * self._choices.trial_steps
            uncounted = UNCOUNTED if all(mixed) else UNCOUNTED_LOSSY
        self._search = Search(settings, steps, uncounted)

    def _layouts(
        self, cuts: Cuts, link: Link | None, costs: Sequence[Cost]
    ) -> list[tuple[Cuts, list[Piece]]]:
        """Returns the present cuts and others, with their buckets.

        The others are all with ROUNDELAY_AUTOTUNE, otherwise those that the model finds best for each cost.
        """
        extents, most = self._pools.extents(self._ready), self._config.fusion_threshold
        every: list[Cuts] = []
        if self._config.autotune:
            every = self._sizes(extents, link)
        elif link is not None and self._config.sizes_are_measured:
            every = [choose(extents, most, link_of(cost, link)).cuts for cost in costs]
        shapes = {tuple(pieces(extents, one, most)): one for one in [*reversed(every), cuts]}
        tried = [cuts, *(one for one in every if one != cuts and one in shapes.values())]
        return [(one, pieces(extents, one, most)) for one in dict.fromkeys(tried)]

    def _sizes(self, extents: Sequence[Sequence[Extent]], link: Link | None) -> list[Cuts]:
        """Returns all sizes that autotune may try; if there are none, it tells why."""
        if not self._config.sizes_are_measured:
            self._tell("no sizes to tune, as ROUNDELAY_THETA or ROUNDELAY_DETERMINISTIC fixes them")
        elif not self._pools.measurable:
            self._tell("no sizes to tune, as it has gradients on a GPU")
        else:
            every = [one.cuts for one in candidates(extents, self._config.fusion_threshold, link)]
            if len(every) > 1:
                return every
            self._tell("no sizes to tune, as it is cut alike with all sizes")
        return []

    def _go_on(self, search: Search, cuts: Cuts, now: float) -> None:
        wanted = search.current
        planned = self._choices is None or self._choices.plan == wanted.plan
        if search.step_over(cuts == wanted.cuts and planned, now):
            self._close(search)
        self.propose(search.current.cuts, cuts)
        if self._choices is not None:
            self._choices.want(search.current.plan, search.current.cuts != cuts)

    def _close(self, search: Search) -> None:
        """Reports the result of a search, which has tried all settings."""
        self._search, kept = None, search.kept
        measured = ", ".join(
            f"{self._named(t.candidate, search)} {1e3 * t.median:.1f} ms" for t in search.tried
        )
        pays = "" if kept is not search.tried[0] else ": nothing pays here"
        choice = f"{self._named(kept.candidate, search)}{pays} ({measured} a step)"
        if self._choices is None:
            self._tell(f"autotune keeps {choice}")
        else:
            self._watch = Watch(kept.median)
            record("gate_dense_ns", round(1e9 * search.tried[0].median))
            record("gate_kept_ns", round(1e9 * kept.median))
            self._answer(self._choices, choice, set(kept.candidate.plan) == {DENSE})
        if self._config.autotune_log:
            named = self._choices.named if self._choices is not None else lambda plan: "dense"
            try:
                with open(self._config.autotune_log, "a", encoding="utf-8") as log:
                    log.write(search.report(self._prefix, _date(), named))
            except OSError as error:
                text = f"cannot write ROUNDELAY_AUTOTUNE_LOG: {error}"
                warnings.warn(text, RuntimeWarning, stacklevel=2)

    def _answer(self, choices: Choices, choice: str, dense: bool) -> None:
        """Reports the choice of a search among a strategy's candidates. dense: it is all buckets dense.

        The user has asked for a choice, so that it is on stderr whatever the log's level is.
        """
        choices.choice = choice
        count("gate_searches")
        count("gate_kept_dense", int(dense))
        said = f"strategy auto keeps {choice}"
        print(f"[roundelay] {said}", file=sys.stderr, flush=True)
        Span(said).end()

    def _named(self, setting: Setting, search: Search) -> str:
        """Names what differs between the settings of a search: plan, sizes or both."""
        words = [self._choices.named(setting.plan)] if self._choices is not None else []
        if len({one.candidate.cuts for one in search.tried}) > 1:
            last = f", last {_size(setting.cuts.last)}" if setting.cuts.last else ""
            words.append(f"theta {_size(setting.cuts.theta)}{last}")
        return " with ".join(words)

    def _tell(self, text: str) -> None:
        _tell(f"pool of {self._prefix}: {text}")


def _tell(text: str) -> None:
    """Writes a line to the log and to the timeline."""
    _core.log_info(text)
    Span(text).end()


def _date() -> str:
    return datetime.now(timezone.utc).isoformat(timespec="milliseconds")


def _size(bytes_: int) -> str:
    return f"{bytes_ / (1 << 20):g} MiB"

"""Decides how often DASO sends, waits and reduces gradients, from epoch to epoch. Pure.

Source: Coquelin et al. (arXiv 2104.05588), and the authors' code (HeAT, optim/dp_optimizer.py).
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

from roundelay._internal.spelling.numbers import whole_number

IMPROVEMENT = 0.05  # the part by which a loss must fall to count as better
PATIENCE = 2  # so many epochs in a row may be no better


@dataclass(frozen=True)
class Skips:
    """The cycle of the batches of an epoch, which are counted from 0."""

    global_skip: int  # batches between two transfers; 0: each batch ends with an average, and waits for it
    batches_to_wait: int  # batches from a transfer to its merge; 0: a transfer's batch averages and waits
    local_skip: int  # batches between two reductions of gradients in the node

    def sends(self, batch: int) -> bool:
        """Returns whether parameters leave the node after this batch."""
        return self.global_skip == 0 or batch % self.global_skip == 0

    def blocks(self, batch: int) -> bool:
        """Returns whether the batch waits for the average of the parameters."""
        return self.sends(batch) and self.batches_to_wait == 0

    def reduces(self, batch: int) -> bool:
        """Returns whether the batch's gradients are reduced in the node."""
        return batch % self.local_skip == 0 or self.sends(batch)

    def halved(self) -> Skips:
        """Returns the skips after a plateau of the loss."""
        every = self.global_skip // 2
        wait = min(self.batches_to_wait, max(1, self.batches_to_wait - 1), every)
        return Skips(every, wait, max(1, self.local_skip // 2))

    def widened(self) -> Skips:
        """Returns the skips after a plateau at which nothing was skipped. Call it on those of the start."""
        quarter = max(1, self.global_skip // 4)
        return Skips(self.global_skip, min(self.batches_to_wait, 1) * quarter, quarter)


BLOCKING = Skips(0, 0, 1)


class Schedule:
    """The skips of each epoch.

    The first and last epochs block. Between them the skips shrink when the loss reaches a plateau.

    start: the skips after the warm-up. warmup, cooldown: the numbers of blocking epochs. total: the number of
    all epochs.
    """

    def __init__(self, start: Skips, warmup: int, cooldown: int, total: int) -> None:
        self._start = self._cycling = start
        self._warmup, self._cooled = warmup, total - cooldown
        self.epoch = 0  # the number of epochs that have ended
        self._best = math.inf
        self._worse = 0  # epochs since the best one

    @property
    def blocking(self) -> bool:
        """True in the epochs of the warm-up and of the cool-down."""
        return not self._warmup <= self.epoch < self._cooled

    @property
    def skips(self) -> Skips:
        """The skips of this epoch."""
        return BLOCKING if self.blocking else self._cycling

    def ended(self, loss: float) -> None:
        """Begins the next epoch. loss: the mean loss, over all ranks, of the epoch that has ended."""
        was_blocking = self.blocking
        self.epoch += 1
        if was_blocking:
            return
        least = self._best if math.isinf(self._best) else self._best - IMPROVEMENT * abs(self._best)
        if loss < least:
            self._best, self._worse = loss, 0
            return
        self._worse += 1
        if self._worse > PATIENCE:
            self._worse = 0
            narrow = self._cycling.global_skip > 1
            self._cycling = self._cycling.halved() if narrow else self._start.widened()

    def state_dict(self) -> dict[str, Any]:
        """Returns what has changed since the start."""
        cycling = [self._cycling.global_skip, self._cycling.batches_to_wait, self._cycling.local_skip]
        return {"epoch": self.epoch, "best": self._best, "worse": self._worse, "skips": cycling}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Takes back what state_dict() returned."""
        self.epoch, self._best, self._worse = state["epoch"], state["best"], state["worse"]
        self._cycling = Skips(*state["skips"])


def checked_skips(every: Any, wait: Any, local: Any) -> Skips:
    """Returns the skips of the start. ValueError: they are no numbers, or contradict each other."""
    skips = Skips(
        whole_number("global_skip", every, 0),
        whole_number("batches_to_wait", wait, 0),
        whole_number("local_skip", local, 1),
    )
    if every == 0:
        return BLOCKING
    for name, value in (("batches_to_wait", wait), ("local_skip", local)):
        if value > every:
            raise ValueError(
                f"{name} is {value}, but must be at most global_skip, {every}: after so many batches the "
                "next transfer begins"
            )
    return skips


def checked_epochs(warmup: Any, cooldown: Any, total: Any) -> tuple[int, int, int]:
    """Returns the numbers of epochs. ValueError: they are no numbers, or contradict each other."""
    whole_number("warmup_epochs", warmup, 0)
    whole_number("cooldown_epochs", cooldown, 0)
    if warmup + cooldown > whole_number("total_epochs", total, 1):
        raise ValueError(
            f"total_epochs is {total}, but warmup_epochs and cooldown_epochs are {warmup + cooldown} in all: "
            "give fewer of them"
        )
    return warmup, cooldown, total


def checked_batches(batches: Any) -> int | None:
    """Returns the number of batches of an epoch; None: unknown. ValueError: it is no number."""
    return None if batches is None else whole_number("batches_per_epoch", batches, 1)

"""The report that tells users whether ranks share the norms."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class NormsReport:
    """Tells whether ranks share the norms of an optimizer's layers, and why. ``str()`` gives a sentence."""

    shared: bool | None  # True: ranks share the work; None: not chosen yet
    reason: str
    local_seconds: float | None = None  # a step's trust ratios: the slowest rank's median
    shared_seconds: float | None = None

    def __str__(self) -> str:
        who = {
            None: "not chosen yet",
            True: "the ranks share the norms",
            False: "each rank computes all norms",
        }[self.shared]
        text = f"{who}: {self.reason}"
        if self.local_seconds is not None and self.shared_seconds is not None:
            each, together = self.local_seconds * 1e3, self.shared_seconds * 1e3
            text += f" ({each:.3f} ms per step on each rank, {together:.3f} ms shared)"
        return text

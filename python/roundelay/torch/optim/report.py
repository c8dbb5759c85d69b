"""The report of whether ranks share the norms, as users see it."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class NormsReport:
    """Says whether ranks share the norms of an optimizer's layers, and why. ``str()`` gives a sentence."""

    shared: bool | None  # whether ranks share the work; None: not chosen yet
    reason: str
    local_seconds: float | None = None  # of a step's trust ratios, the slowest rank's median, if measured
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
            text += f" ({each:.3f} ms a step on each rank, {together:.3f} ms shared)"
        return text

"""What a strategy has to offer to its optimizer's search (pool_tuner.py)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from roundelay.torch._internal.tuning.gate import Cost, Plan


class Choices(Protocol):
    """The candidates of a strategy, among which its optimizer's search chooses on rank 0 (pool_tuner.py)."""

    choice: str  # the search writes its choice and the reason here, for reports

    @property
    def costs(self) -> Sequence[Cost | None]:
        """The candidates' costs, dense first; None: the model does not know the candidate."""

    @property
    def mixed(self) -> Sequence[bool]:
        """True for each candidate that may take some buckets while others take the rest."""

    @property
    def trial_steps(self) -> int:
        """The number of steps of a trial. Each setting has two trials."""

    @property
    def plan(self) -> Plan:
        """The number of the candidate that each bucket uses now."""

    def named(self, plan: Plan) -> str:
        """Names a plan for logs."""

    def want(self, plan: Plan, new_buckets: bool) -> None:
        """Proposes a plan to all ranks, for the present buckets or for the next ones."""

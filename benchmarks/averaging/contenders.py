"""The strategies that take turns, and the time of a step that their formulas give. Pure."""

from __future__ import annotations

from dataclasses import dataclass

_STEPS = 4  # a turn of a strategy without a cycle measures two times so many


@dataclass(frozen=True)
class Contender:
    """One way to train: `strategy` is Roundelay's text; "" trains without communication.

    Every `every`-th step puts parameters (or gradients) on the wire. Training waits for them `wait` steps
    later.
    """

    name: str
    strategy: str = ""
    every: int = 0
    wait: int = 0

    @property
    def cycle(self) -> int:
        """Return the number of steps after which communication repeats."""
        return max(self.every, _STEPS)

    def seconds(self, alone: float, wire: float) -> float:
        """Return the time of a step, in seconds.

        It is `alone`, the step without communication, and the part of a transfer's time `wire` that exceeds
        the wait.
        """
        if self.every == 0:
            return alone
        return alone + max(0.0, wire - self.wait * alone) / self.every

    def bytes(self, model: float) -> float:
        """Return the bytes that must leave a node in a step. model: the bytes of a message."""
        return model / self.every if self.every else 0.0


def _daso(every: int, wait: int) -> Contender:
    ends = "warmup_epochs=0,cooldown_epochs=0,total_epochs=1"
    text = f"daso:global_skip={every},batches_to_wait={wait},{ends}"
    return Contender(f"DASO, B = {every}, S = {wait}", text, every, wait)


def _local_sgd(period: int) -> Contender:
    return Contender(f"local SGD, period {period}", f"local_sgd:period={period}", period)


ALONE, NODE, DENSE = "alone", "node", "dense"
CONTENDERS = {
    ALONE: Contender("no communication"),
    NODE: Contender("gradients in the node alone", "local_sgd:period=1000000"),
    DENSE: Contender("dense", "dense", 1),
    "local-4": _local_sgd(4),
    "local-8": _local_sgd(8),
    "daso-4-1": _daso(4, 1),
    "daso-4-4": _daso(4, 4),
    "daso-8-4": _daso(8, 4),
    "daso-8-8": _daso(8, 8),
    "daso-16-16": _daso(16, 16),
}


def message(model: float, nodes: int) -> float:
    """Return the bytes that a node must send to sum a model: 2 (P - 1) / P of `model` bytes, for P nodes."""
    return 2 * (nodes - 1) / nodes * model

"""How the ranks agree on a gradient pool: through the notes that they compare anyway (gradient_sync.py).

Rank 0 of the process set proposes the order in which its gradients came in the first step. When all ranks
have heard it, each makes the pool; when all have said that they could, all use it from the same moment on.
A step of this happens only in a comparison in which all ranks take part, so that one which has joined
(hvd.join) misses none. Nothing here waits.
"""

from __future__ import annotations

import enum
import warnings
from collections.abc import Callable, Sequence

import torch

from roundelay import _core
from roundelay.torch.gradient import Gradient
from roundelay.torch.gradient_pool import Bucket, wire_dtype
from roundelay.torch.process_sets import ProcessSet

_PLACE_BYTES = 3  # of a position in the order, in the notes
_MOST = 256**_PLACE_BYTES - 1

Maker = Callable[[Sequence[Gradient]], list[Bucket]]


class _Phase(enum.Enum):
    RECORDING = 0  # until rank 0's order has reached everyone
    MAKING = 1  # until everyone has said whether there was memory
    OVER = 2  # there is a pool, or there will be none


class PoolPlan:
    """One optimizer's way to a pool."""

    def __init__(self, process_set: ProcessSet) -> None:
        self._set = process_set
        self._phase = _Phase.RECORDING if _core.config().gradient_pool else _Phase.OVER
        self._arrivals: dict[Gradient, None] = {}
        self._stepped = False
        self._buckets: list[Bucket] = []
        self._failure = ""

    @property
    def recording(self) -> bool:
        """Whether arrived() wants to hear of gradients."""
        return self._phase is _Phase.RECORDING and not self._stepped

    def arrived(self, gradient: Gradient) -> None:
        """A gradient came out of backward."""
        if wire_dtype(gradient) is not None:
            self._arrivals[gradient] = None

    def new_step(self) -> None:
        """What came until here was a step's, and in its order."""
        self._stepped = self._stepped or bool(self._arrivals)

    def notes(self, members: Sequence[Gradient]) -> list[int]:
        """This rank's bytes, to be combined by Max: which ranks are here, then what the phase needs."""
        if self._phase is _Phase.OVER:
            return []
        here = [int(index == self._set.rank()) for index in range(self._set.size())]
        if self._phase is _Phase.MAKING:
            return [*here, int(bool(self._failure))]
        positions = dict.fromkeys(members, 0)
        if self._set.rank() == 0 and self._stepped and len(members) <= _MOST:
            for position, gradient in enumerate(self._arrivals, 1):
                if gradient in positions:
                    positions[gradient] = position
        return [*here, *(byte for p in positions.values() for byte in p.to_bytes(_PLACE_BYTES, "big"))]

    def heard(self, members: Sequence[Gradient], values: Sequence[int], make: Maker) -> list[Bucket]:
        """Everyone's bytes. The buckets, at the moment from which on all ranks use them."""
        if self._phase is _Phase.OVER:
            return []
        here, rest = values[: self._set.size()], values[self._set.size() :]
        if not all(here):
            return []
        if self._phase is _Phase.MAKING:
            self._phase = _Phase.OVER
            buckets, self._buckets = self._buckets, []
            if self._failure:
                warnings.warn(f"no gradient pool: {self._failure}", RuntimeWarning, stacklevel=2)
            return [] if any(rest) else buckets
        order: dict[int, Gradient] = {}
        for index, gradient in enumerate(members):
            place = rest[index * _PLACE_BYTES : (index + 1) * _PLACE_BYTES]
            position = int.from_bytes(bytes(place), "big")
            if position:
                order[position] = gradient
        if order:
            self._phase = _Phase.MAKING
            self._arrivals.clear()
            self._try(make, [order[position] for position in sorted(order)])
        return []

    def _try(self, make: Maker, order: list[Gradient]) -> None:
        try:
            with torch.no_grad():
                self._buckets = make(order)
        except (RuntimeError, ValueError, MemoryError) as error:
            self._failure = str(error)

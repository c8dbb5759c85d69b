"""An algorithm in a file of its own, as a user has it: `one_algorithm.py [CHECKPOINT]`.

With DIES_AT the rank of the last rows is killed at that step. TRANSPORT chooses how sums travel.
"""

from __future__ import annotations

import os
import signal
import sys
from typing import Any

import torch

from roundelay import _core
from roundelay.algorithms import Algorithm, run, say
from roundelay.algorithms.trees import digest

SHAPE = (999, 7)
seed = torch.Generator().manual_seed(0)
rows = torch.randn(SHAPE, generator=seed) * 10.0 ** torch.randint(-4, 5, SHAPE, generator=seed)


class Rows(list[int]):
    """Slices of the rows. Knows the last one."""

    last: torch.Tensor | None = None

    def __getitem__(self, which: Any) -> Any:
        found = rows[which]
        self.last = found if which.stop == len(rows) else None
        return found


def evaluate(state: dict[str, Any], shard: torch.Tensor) -> dict[str, Any]:
    """A shard's part of the sum."""
    if "DIES_AT" in os.environ and state["step"] == int(os.environ["DIES_AT"]) and shard is data.last:
        os.kill(os.getpid(), signal.SIGKILL)
    return {"sum": (shard * state["weights"]).sum(0), "rows": len(shard)}


def update(state: dict[str, Any], total: dict[str, Any]) -> dict[str, Any]:
    """The next state."""
    return {"weights": state["weights"] - total["sum"] / total["rows"], "step": state["step"] + 1}


first = {"weights": torch.ones(7), "step": 0}
data = Rows(range(len(rows)))
file = sys.argv[1] if len(sys.argv) > 1 else None
by = os.environ.get("TRANSPORT")
result = run(Algorithm(first, evaluate, update), data, 8, checkpoint=file, checkpoint_every=1, transport=by)
say("fabric", _core.transports()["fabric"], "digest", digest(result.state).hex())

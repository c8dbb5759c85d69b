"""``hvd.optim``: optimizers for large batches, whose layer norms the ranks can compute together."""

from __future__ import annotations

from roundelay.torch.optim.lamb import LAMB
from roundelay.torch.optim.lars import LARS
from roundelay.torch.optim.report import NormsReport

__all__ = ["LAMB", "LARS", "NormsReport"]

"""The sampler of elastic training, which is not in this version."""

from __future__ import annotations

from roundelay.torch.elastic.absent import Absent

__all__ = ["ElasticSampler"]


class ElasticSampler(Absent):
    """A sampler that goes on after the ranks have changed: making one raises NotInThisVersionError."""

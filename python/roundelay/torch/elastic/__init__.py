"""Elastic training: ranks come and go, and those that stay go on with their model in memory.

Under ``roundelayrun --min-np N`` (docs/elastic.md). Under another launcher ``run`` trains once, with the
ranks that there are.
"""

from __future__ import annotations

from roundelay.errors import HorovodInternalError
from roundelay.torch.elastic.loop import HostsUpdatedInterrupt, run
from roundelay.torch.elastic.sampler import ElasticSampler
from roundelay.torch.elastic.state import ObjectState, State, TorchState

__all__ = [
    "ElasticSampler",
    "HorovodInternalError",
    "HostsUpdatedInterrupt",
    "ObjectState",
    "State",
    "TorchState",
    "run",
]

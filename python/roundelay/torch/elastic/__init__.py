"""The names of elastic training, which is not in this version: scripts can import them; using them raises."""

from __future__ import annotations

from typing import Any, NoReturn

from roundelay.errors import HorovodInternalError
from roundelay.torch.elastic.absent import absent
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


class HostsUpdatedInterrupt(RuntimeError):  # noqa: N818  Horovod's name
    """The hosts of the job have changed. ``skip_sync``: the state need not be synchronised again."""

    def __init__(self, skip_sync: bool = False) -> None:
        super().__init__(skip_sync)
        self.skip_sync = skip_sync


def run(func: Any) -> NoReturn:
    """Horovod's decorator of an elastic training function: raises NotInThisVersionError."""
    absent("run")

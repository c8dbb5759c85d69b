"""Elastic training, under Horovod's name for its module."""

from roundelay.torch.elastic import HorovodInternalError, HostsUpdatedInterrupt, ObjectState, State
from roundelay.torch.elastic import run as run_fn

__all__ = ["HorovodInternalError", "HostsUpdatedInterrupt", "ObjectState", "State", "run_fn"]

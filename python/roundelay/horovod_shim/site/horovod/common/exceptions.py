"""The exceptions, under Horovod's name for their module."""

from roundelay.errors import HorovodInternalError
from roundelay.torch.elastic import HostsUpdatedInterrupt

__all__ = ["HorovodInternalError", "HorovodVersionMismatchError", "HostsUpdatedInterrupt"]


class HorovodVersionMismatchError(ImportError):
    """Is never raised, as Roundelay is one package with one version."""

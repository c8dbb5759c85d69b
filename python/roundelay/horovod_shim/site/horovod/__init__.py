"""Roundelay in Horovod's place: ``horovod.torch`` is ``roundelay.torch``."""

from horovod.runner import run
from roundelay import __version__ as _own_version
from roundelay import horovod_shim as _horovod_shim

__all__ = ["run"]
__version__ = f"{_horovod_shim.HOROVOD_VERSION}+roundelay.{_own_version}"

_horovod_shim.begin()

"""Roundelay in Horovod's place: ``horovod.torch`` is ``roundelay.torch``."""

from horovod.runner import run
from roundelay import __version__ as _own_version
from roundelay import stand_in as _stand_in

__all__ = ["run"]
__version__ = f"{_stand_in.HOROVOD_VERSION}+roundelay.{_own_version}"

_stand_in.begin()

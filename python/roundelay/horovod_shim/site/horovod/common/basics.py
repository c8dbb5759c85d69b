"""The class behind ``init``, ``rank`` and the like, under Horovod's name for its module."""

from roundelay.torch._internal.basics import HorovodBasics

__all__ = ["HorovodBasics"]

"""``import horovod.run``: the function ``horovod.run`` as the module that it is in Horovod 0.19."""

import sys
from types import ModuleType
from typing import Any

from horovod.runner import run

__all__ = ["run"]


class _Callable(ModuleType):
    """Makes the module what ``horovod.run`` is otherwise."""

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return run(*args, **kwargs)


sys.modules[__name__].__class__ = _Callable

"""`roundelayrun`: starts N ranks, with mpirun or without MPI, shows their output, and ends them together;
`roundelay.run(func)` does the same with a function.

The way of a job: `arguments` reads the command line, `job` decides what is started, `launcher` runs that and
listens to the `agent` beside each rank, `result` says what became of it. What is started is `mpi`'s mpirun,
`starter` on one machine, or `several` with a `host_starter` on each host. `function` is a function's way.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from types import ModuleType
from typing import Any


class _Callable(ModuleType):
    """Makes this package what `roundelay.run` is for the user, too: a function (see `function.api.run`)."""

    @property
    def __wrapped__(self) -> Callable[..., Any]:
        """The function, also for inspect; loaded when asked for, as most who import this package never do."""
        from roundelay.run.function.api import run

        return run

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """See `function.api.run`."""
        return self.__wrapped__(*args, **kwargs)


sys.modules[__name__].__class__ = _Callable

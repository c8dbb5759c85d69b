"""`roundelayrun`: starts N ranks, with mpirun or without MPI, shows their output, and ends them together;
`roundelay.run(func)` does the same with a function.

A job uses these modules: `arguments` reads the command line, `job` decides what to start, `launcher`
starts it and listens to the `agent` beside each rank, `result` finds the exit status. The launcher starts
`mpi`'s mpirun, or `starter` on one machine, or `multi_host` with a `host_starter` on each host. The package
`function` runs a Python function as a job.
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
        """Returns the function, also for inspect. Loads it only now, as most importers never call it."""
        from roundelay.run.function.api import run

        return run

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """See `function.api.run`."""
        return self.__wrapped__(*args, **kwargs)


sys.modules[__name__].__class__ = _Callable

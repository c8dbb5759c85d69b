"""`roundelayrun`: starts N ranks, with mpirun or without MPI, shows their output, and ends them together;
`roundelay.run(func)` does the same with a function.

The way of a job: `arguments` reads the command line, `job` decides what is started, `launcher` runs that and
listens to the `agent` beside each rank, `verdict` says what became of it. What is started is `mpi`'s mpirun,
`starter` on one machine, or `several` with a `host_starter` on each host. `function` is the way of a function.
"""

from __future__ import annotations

import sys
from types import ModuleType

from roundelay.run.function.api import run


class _Callable(ModuleType):
    """Makes this package what `roundelay.run` is for the user, too: a function (see `function.api.run`)."""

    __call__ = staticmethod(run)


__wrapped__ = run  # its signature, for inspect and notebooks
sys.modules[__name__].__class__ = _Callable

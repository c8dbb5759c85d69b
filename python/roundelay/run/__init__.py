"""`roundelayrun`: starts N ranks, with mpirun or without MPI, shows their output, and ends them together;
`roundelay.run(func)` does the same with a function.

The packages are the processes of a job. `launcher` is roundelayrun's own, which reads `arguments`. It starts
an mpirun, or a `starter` in its place: `modes` has these kinds of launch. Those start an `agent` beside each
rank, and the launcher listens to the agents. `system` is for all of them, and `function` runs a Python
function as a job.
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

"""Runs a function on two ranks by horovod.run()."""

from __future__ import annotations

import roundelay.as_horovod  # noqa: F401 (horovod is there from here on)

# isort: split
import horovod


def work() -> str:
    """Runs on each rank."""
    import horovod.torch as hvd

    return str(hvd.__name__)


print(horovod.run(work, np=2))

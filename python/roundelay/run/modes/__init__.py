"""The kinds of launch: how roundelayrun's ranks start. Each has a file here, and a line in MODES.

`mode` says what a kind is, and `choice` takes one for a job. `mpi` is what is known of installed mpiruns.
"""

from __future__ import annotations

from roundelay.run.modes.mode import LaunchMode
from roundelay.run.modes.mpirun import MpirunMode
from roundelay.run.modes.own import OwnMode

# Without a flag, the first that suits starts the job. The last one suits every job.
MODES: tuple[LaunchMode, ...] = (MpirunMode(), OwnMode())

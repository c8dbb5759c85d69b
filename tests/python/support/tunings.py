"""A tuning file's content."""

from __future__ import annotations

from roundelay.tuning.file import Choice, Cluster, Level, Link, Measurement, Tuning

TUNING = Tuning(
    date="2026-01-02T03:04:05Z",
    roundelay="0.1.0",
    cluster=Cluster(2, 4, "mpi", (Level("node", 2), Level("cluster", 2))),
    links=(Link("cluster", 1e-5, 1.25e8, 1e-9, 3e-5, 0.02),),
    measured=(Measurement("cluster", "allreduce", "ring", 2, 4096, 1e-3, 2e-4),),
    table=(
        Choice("cluster", "allreduce", 2, 65536, "recursive_doubling"),
        Choice("cluster", "allreduce", 2, None, "ring"),
        Choice("cluster", "broadcast", 4, None, "pipelined_tree"),
    ),
)

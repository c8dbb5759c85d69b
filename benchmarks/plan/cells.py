"""Cells of the measurement: a rig's shape, its rate, a task and a strategy; measured, and predicted."""

from __future__ import annotations

import dataclasses
import statistics
from collections.abc import Sequence
from typing import Any

from benchmarks import launch
from benchmarks.plan.tasks import TASKS, THETA
from roundelay.buckets import Cuts
from roundelay.plan import ways
from roundelay.plan.machines import Machines, Wire
from roundelay.plan.prediction import predict
from roundelay.plan.workload import Gradient, Workload
from tests.rig import Rig


@dataclasses.dataclass(frozen=True, slots=True)
class Cell:
    """One measured step: the median of the slowest rank's, in seconds."""

    nodes: int
    ranks_per_node: int
    mbit: int
    task: str
    strategy: str
    seconds: float
    alone: dict[str, Any]  # a step without communication


@dataclasses.dataclass(frozen=True, slots=True)
class Constants:
    """What the planner must know of the rig beside its stated rate. Times in seconds."""

    latency: float  # of a message between nodes
    overhead: float  # of an operation
    share: float  # of the stated rate that carries gradients
    inside: float  # bytes a second in the node
    memory: float  # bytes a second of a pass

    def machines(self, nodes: int, ranks_per_node: int, mbit: int) -> Machines:
        """Describe a rig."""
        return Machines(
            nodes,
            ranks_per_node,
            inter=Wire(self.share * mbit * 1e6 / 8, self.latency, overhead=self.overhead),
            intra=Wire(self.inside, 0.0),
            memory=self.memory,
        )


def measure(
    shape: tuple[int, int], mbit: int, tasks: Sequence[str], strategies: Sequence[str], repetitions: int
) -> list[Cell]:
    """Measure one rig's cells. JobError: a rank failed."""
    nodes, ranks_per_node = shape
    spec = {"tasks": list(tasks), "strategies": list(strategies), "repetitions": repetitions}
    with Rig(nodes, mbit) as rig:
        ranks = nodes * ranks_per_node
        found = launch.run_ranks(launch.find_launcher(), "benchmarks.workers.plan", ranks, spec, 600, rig)
    cells = []
    for index, first in enumerate(found[0]["cells"]):
        of_ranks = [one["cells"][index]["seconds"] for one in found]
        slowest = [max(times) for times in zip(*of_ranks, strict=True)]
        median = statistics.median(slowest)
        cells.append(
            Cell(nodes, ranks_per_node, mbit, first["task"], first["strategy"], median, first["alone"])
        )
    return cells


def workload(cell: Cell) -> Workload:
    """Make the planner's workload of a step without communication."""
    task, alone = TASKS[cell.task], cell.alone
    names = enumerate(zip(task.elements, alone["ready"], strict=True))
    return Workload(
        cell.task,
        tuple(Gradient(str(index), elements, ready, (1, elements)) for index, (elements, ready) in names),
        forward=alone["forward"],
        backward=alone["backward"],
        update=alone["update"],
    )


def predicted(cell: Cell, constants: Constants) -> float:
    """Predict a cell's step in seconds."""
    machines = constants.machines(cell.nodes, cell.ranks_per_node, cell.mbit)
    step = workload(cell)
    choice = ways.parse(cell.strategy, step)
    return predict(step, machines.model(), choice, control=machines.control(), cuts=Cuts(THETA)).seconds

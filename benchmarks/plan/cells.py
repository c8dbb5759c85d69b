"""Measures and predicts the cells of the measurement: a rig's shape and rate, a task and a strategy."""

from __future__ import annotations

import argparse
import dataclasses
import os
import statistics
from collections.abc import Sequence
from typing import Any

from benchmarks import launch
from benchmarks.plan.tasks import TASKS, THETA
from roundelay.plan import ways
from roundelay.plan.machines import Machines, Wire
from roundelay.plan.prediction import Prediction, predict
from roundelay.plan.workload import Gradient, Workload
from roundelay.tuning.buckets import Cuts
from tests.rig import RackRig, Rig

_BURST_S = 1e-3  # the burst of a link that was idle: the bytes of this time, in each step
_LIMIT_S = 580
_UPLINK = 4  # a rack's uplink has the rate of a node, divided by this

SHAPES = ((2, 1), (2, 2), (4, 2))  # nodes, and ranks of each
RATES = (100, 300, 1000)  # Mbit/s of a node

Key = tuple[int, int, int, str, str]


@dataclasses.dataclass(frozen=True, slots=True)
class Cell:
    """One measured step: the median over the steps of the slowest rank, in seconds."""

    nodes: int
    ranks_per_node: int
    mbit: int
    task: str
    strategy: str
    seconds: float
    alone: dict[str, Any]  # a step without communication
    sent: float  # bytes of a step that left the busiest node, with headers
    cores: int  # the machine's cores, which all nodes share

    @property
    def key(self) -> Key:
        """Identifies the cell: rig, task and strategy."""
        return self.nodes, self.ranks_per_node, self.mbit, self.task, self.strategy


@dataclasses.dataclass(frozen=True, slots=True)
class Constants:
    """The rig's constants that the planner needs beside the stated rate. Times are seconds."""

    latency: float  # the time of a message between nodes
    overhead: float  # the time of an operation, whatever its size
    share: float  # the part of the stated rate that carries gradients
    turn: float  # a thread's wait for a core, for each rank of a core beyond the first

    def machines(self, nodes: int, ranks_per_node: int, mbit: int, cores: int) -> Machines:
        """Return a rig for the planner. Nodes share the machine's cores: a message's receiver waits, too."""
        turn = self.turn * max(0.0, nodes * ranks_per_node / cores - 1)
        stated = Machines()
        return dataclasses.replace(
            stated,
            nodes=nodes,
            ranks_per_node=ranks_per_node,
            inter=Wire(self.share * mbit * 1e6 / 8, self.latency + turn, overhead=self.overhead),
            intra=dataclasses.replace(stated.intra, latency=turn),
        )


def shape_of(text: str) -> tuple[int, int]:
    """Read nodes and ranks of each from an argument."""
    nodes, _, ranks = text.partition("x")
    try:
        return int(nodes), int(ranks)
    except ValueError:
        raise argparse.ArgumentTypeError(f"{text!r} is not like 2x1: nodes, and ranks of each") from None


def add_rigs(parser: argparse.ArgumentParser) -> None:
    """Add the options that choose rigs and tasks."""
    parser.add_argument(
        "--shapes", type=shape_of, nargs="+", default=list(SHAPES), help="nodes x ranks of a node"
    )
    parser.add_argument("--mbit", type=int, nargs="+", default=list(RATES), help="a node's rate, Mbit/s")
    parser.add_argument("--tasks", nargs="+", choices=list(TASKS), default=list(TASKS))


def run_rig(module: str, shape: tuple[int, int], mbit: int, spec: dict[str, Any]) -> list[dict[str, Any]]:
    """Run a module's ranks on one rig; return their results. JobError: a rank failed."""
    nodes, ranks_per_node = shape
    with Rig(nodes, mbit, burst=int(mbit * 1e6 / 8 * _BURST_S)) as rig:
        ranks = nodes * ranks_per_node
        return launch.run_ranks(launch.find_launcher(), module, ranks, spec, _LIMIT_S, rig)


def run_racks(module: str, mbit: int, spec: dict[str, Any], factors: str) -> list[dict[str, Any]]:
    """Run a module's ranks on two racks of two nodes of two ranks, with plans over levels."""
    with RackRig(2, 2, mbit, mbit // _UPLINK) as rig:
        levels = {"ROUNDELAY_TOPOLOGY": rig.topology, "ROUNDELAY_FACTORS": factors}
        return launch.run_ranks(launch.find_launcher(), module, 8, spec, _LIMIT_S, rig, levels)


def measure(
    shape: tuple[int, int], mbit: int, work: Sequence[tuple[str, str]], repetitions: int
) -> list[Cell]:
    """Measure tasks with strategies on one rig."""
    spec = {"work": list(work), "repetitions": repetitions}
    found = run_rig("benchmarks.workers.plan", shape, mbit, spec)
    cores = len(os.sched_getaffinity(0))
    cells = []
    for (task, strategy), *of_ranks in zip(work, *(one["cells"] for one in found), strict=True):
        slowest = [max(times) for times in zip(*(one["seconds"] for one in of_ranks), strict=True)]
        sent = max(one["sent"] for one in of_ranks)
        alone = of_ranks[0]["alone"]
        cells.append(Cell(*shape, mbit, task, strategy, statistics.median(slowest), alone, sent, cores))
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


def predicted(cell: Cell, constants: Constants) -> Prediction:
    """Predict a cell's step."""
    machines = constants.machines(cell.nodes, cell.ranks_per_node, cell.mbit, cell.cores)
    step = workload(cell)
    choice = ways.parse(cell.strategy, step)
    return predict(step, machines.model(), choice, overhead=machines.overhead(), cuts=Cuts(THETA))

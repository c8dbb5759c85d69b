"""A scalability study: one quantity of training is varied, the others stay (Barrachina et al. 2021).

Their model has compute from a roofline or from learned kernels, a ring's formula and the overlap recursion;
here it is the planner's own.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence

from rich import box
from rich.table import Table

from roundelay.plan import outlook, ways
from roundelay.plan.machines import Machines
from roundelay.plan.outlook import Row
from roundelay.plan.units import PlanError, time_text
from roundelay.plan.workload import Roofline, Workload

FACTORS = (0.25, 0.5, 1.0, 2.0, 4.0)
QUANTITIES = ("batch", "flops", "membw", "link", "nodes")


@dataclasses.dataclass(frozen=True, slots=True)
class Subject:
    """The training whose quantities are varied.

    model: a function that returns the step for a roofline and a number of samples. Without roofline and model
    a step's time follows the arithmetic alone, and not the memory.
    """

    workload: Workload
    machines: Machines
    roofline: Roofline | None = None
    model: Callable[[Roofline, float], Workload] | None = None  # takes a roofline and samples
    of_samples: Callable[[float], Workload] | None = None  # None: a step takes as long as its samples

    def varied(self, quantity: str, factor: float) -> tuple[Workload, Machines]:
        """Return the step and the machines with one quantity `factor` times as large."""
        step, machines = self.workload, self.machines
        if quantity == "nodes":
            if machines.sizes:
                raise PlanError("--study nodes needs nodes of equally many ranks: give --nodes a number")
            return step, machines.on(max(1, round(machines.nodes * factor)))
        if quantity == "link":
            faster = dataclasses.replace(machines.inter, bandwidth=machines.inter.bandwidth * factor)
            return step, dataclasses.replace(machines, inter=faster)
        if quantity == "membw":
            machines = dataclasses.replace(machines, memory=machines.memory * factor)
        return self._step(quantity, factor), machines

    def _step(self, quantity: str, factor: float) -> Workload:
        samples = self.workload.samples * (factor if quantity == "batch" else 1.0)
        if self.roofline is not None and self.model is not None:
            roofline = dataclasses.replace(
                self.roofline,
                flops=self.roofline.flops * (factor if quantity == "flops" else 1.0),
                bandwidth=self.roofline.bandwidth * (factor if quantity == "membw" else 1.0),
            )
            return self.model(roofline, samples)
        if quantity == "batch" and self.of_samples is not None:
            return self.of_samples(samples)
        slower = {"batch": 1 / factor, "flops": factor, "membw": 1.0}[quantity]
        return dataclasses.replace(self.workload.faster(slower), samples=samples)


Study = dict[str, list[tuple[float, list[Row]]]]  # each quantity's factors, each with a row for each strategy


def study(subject: Subject, text: str, strategies: Sequence[str], jitter: float) -> Study:
    """Vary each of the quantities. PlanError: one is unknown."""
    wanted = [part.strip() for part in text.split(",")]
    unknown = next((one for one in wanted if one not in QUANTITIES), None)
    if unknown is not None:
        raise PlanError(f"--study knows no {unknown!r}; it knows {', '.join(QUANTITIES)}")
    found: Study = {}
    for quantity in wanted:
        found[quantity] = []
        for factor in FACTORS:
            step, machines = subject.varied(quantity, factor)
            choices = [ways.parse(strategy, step) for strategy in strategies]
            rows = [outlook.look(step, machines, choice, jitter) for choice in choices]
            found[quantity].append((factor, rows))
    return found


def _cell(row: Row) -> str:
    interval = f"{time_text(row.low)} to {time_text(row.high)}"
    return f"{time_text(row.seconds)}, {row.efficiency:.0%}\n({interval})"


def unvaried(subject: Subject, found: Study) -> list[str]:
    """Return a line that says what a varied memory bandwidth leaves as it is."""
    if "membw" not in found or subject.roofline is not None:
        return []
    return [
        "note: membw varies casts and sums alone: what part of a given time waits for memory is "
        "not known (give --model with --flops and --membw)"
    ]


def tables(found: Study) -> list[Table]:
    """Make a table of each quantity: a step, its efficiency and its interval for each strategy."""
    made = []
    for quantity, lines in found.items():
        table = Table(title=quantity, title_justify="left", box=box.SIMPLE_HEAD, pad_edge=False)
        table.add_column("factor", justify="right")
        for row in lines[0][1]:
            table.add_column(row.strategy, justify="right")
        for factor, rows in lines:
            name = f"{rows[0].nodes} nodes" if quantity == "nodes" else f"x {factor:g}"
            table.add_row(name, *map(_cell, rows))
        made.append(table)
    return made

"""Predicts a workload for each number of nodes and each strategy, with an interval and the step's limit."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence
from statistics import NormalDist

from roundelay._internal.spelling.table import Loss
from roundelay.plan import ways
from roundelay.plan.machines import Machines, Shape
from roundelay.plan.prediction import Choice, Prediction, predict
from roundelay.plan.workload import Workload

MODEL_ERROR = 0.054  # relative; 90th percentile of steps on the rig: error_90 in docs/results/plan.json
_LIKELY = 0.9  # the share of the steps that lie in the interval
_EXPOSED = 0.05  # share of a step; with less exposed communication, compute limits the step
_MOST = 0.5  # share of the exposed time; a cost limits the step if more than this goes when it is taken away


@dataclasses.dataclass(frozen=True, slots=True)
class Row:
    """One line of the table. Times are seconds of a step."""

    machines: Machines
    strategy: str
    loss: Loss
    measured: bool  # MODEL_ERROR was measured with such a strategy
    seconds: float
    low: float  # 90 % of the steps are likely between low and high
    high: float
    compute: float  # the time in which the slowest rank computes
    exposed: float  # communication after backward
    hidden: float  # communication during backward
    samples_per_second: float  # all ranks together
    efficiency: float  # the computing time of a rank that is not late, as a part of `seconds`
    bytes: tuple[float, ...]  # sent in a step by the busiest end of each level, innermost level first
    limit: str  # "compute", "latency", "memory" or the name of a link
    outside: str  # a sentence about the machines' parts that were not measured; "": all were

    @property
    def nodes(self) -> int:
        """The number of nodes."""
        return self.machines.nodes

    def cost(self, samples: float) -> float | None:
        """Return the price of training on so many samples; None without a price."""
        price = self.machines.price
        if price is None:
            return None
        return price * self.nodes * samples / self.samples_per_second / 3600


def slowest(ranks: int, jitter: float, probability: float) -> float:
    """Return the factor of computing time that the slowest of the ranks stays below with this probability.

    Times have a lognormal distribution with mean 1; the maximum of n independent ones is below x with the
    probability F(x)^n. All ranks wait for the slowest, as each step ends with all gradients.
    """
    if jitter == 0:
        return 1.0
    quantile = NormalDist().inv_cdf(probability ** (1 / ranks))
    return math.exp(jitter * quantile - jitter * jitter / 2)


def _slowed(workload: Workload, choice: Choice, ranks: int, jitter: float, probability: float) -> Workload:
    """Return the step of the slowest rank. If ranks wait for each other less often, slow steps even out."""
    spread = jitter / math.sqrt(max(1, choice.every))
    return workload.faster(1 / slowest(ranks, spread, probability))


def _limit(machines: Machines, workload: Workload, choice: Choice, prediction: Prediction) -> str:
    if prediction.exposed <= _EXPOSED * prediction.seconds:
        return "compute"
    wires = {name: getattr(machines, name) for name in ("inter", "intra", "uplink")}
    prompt = {name: dataclasses.replace(wire, latency=0.0, overhead=0.0) for name, wire in wires.items()}
    without = {
        "latency": dataclasses.replace(machines, **prompt),
        "memory": dataclasses.replace(machines, memory=math.inf),
    }
    for name, better in without.items():
        gain = (
            prediction.seconds - predict(workload, better.model(), choice, overhead=better.overhead()).seconds
        )
        if gain > _MOST * prediction.exposed:
            return name
    busiest = max(range(len(prediction.busy)), key=lambda level: prediction.busy[level])
    return machines.level_name(busiest)


def look(workload: Workload, machines: Machines, choice: Choice, jitter: float) -> Row:
    """Predict one line. The point is the median of the slowest rank's steps."""
    ranks = machines.ranks
    usual = _slowed(workload, choice, ranks, jitter, 0.5)
    prediction = predict(usual, machines.model(), choice, overhead=machines.overhead())
    tail = (1 - _LIKELY) / 2
    ends = []
    for probability, factor in ((tail, 1 + machines.error), (1 - tail, 1 / (1 + machines.error))):
        error = 1 + workload.error if probability < 0.5 else 1 / (1 + workload.error)
        slowed = _slowed(workload, choice, ranks, jitter, probability).faster(error)
        end = predict(slowed, machines.model(factor), choice, overhead=machines.overhead(factor))
        ends.append(end.seconds)
    seconds = prediction.seconds
    exposed = max(0.0, seconds - usual.compute)
    return Row(
        machines=machines,
        strategy=choice.text,
        loss=choice.loss,
        measured=choice.measured,
        seconds=seconds,
        low=min(ends[0], seconds),
        high=max(ends[1], seconds),
        compute=usual.compute,
        exposed=exposed,
        hidden=max(0.0, max(prediction.busy, default=0.0) - exposed),
        samples_per_second=ranks * workload.samples / seconds,
        efficiency=min(1.0, workload.compute / seconds),  # the median of one rank's steps is below their mean
        bytes=prediction.bytes,
        limit=_limit(machines, usual, choice, prediction),
        outside=machines.outside(),
    )


def table(
    workload: Workload,
    machines: Machines,
    nodes: Sequence[Shape],
    strategies: Sequence[str],
    jitter: float = 0.0,
) -> list[Row]:
    """Predict all strategies on all nodes. Rows come in the order of these."""
    choices = [ways.parse(text, workload) for text in strategies]
    return [look(workload, machines.on(shape), choice, jitter) for shape in nodes for choice in choices]


def on_most_nodes(rows: Sequence[Row]) -> list[Row]:
    """Return the rows of the machines with the most nodes, and of these those with the most ranks."""
    most = max(row.machines.size for row in rows)
    return [row for row in rows if row.machines.size == most]


def advice(rows: Sequence[Row]) -> str:
    """Return a sentence: the strategy to take with the most nodes, and how sure that is."""
    there = on_most_nodes(rows)
    best = min(there, key=lambda row: row.seconds)
    plain = next((row for row in there if row.strategy == "dense"), there[0])
    where = there[0].machines.nodes_text()
    if best.seconds > 0.98 * plain.seconds:
        return f"On {where} stay with {plain.strategy}: nothing saves 2 % of its step."
    gain = 1 - best.seconds / plain.seconds
    text = (
        f"On {where} take {best.strategy}: a step takes {gain:.0%} less than {plain.strategy} "
        f"({_sureness(best, plain)}).{_CONSEQUENCES[best.loss]}"
    )
    if best.loss is not Loss.PARTS:
        return text
    whole = (row for row in there if row.loss is not Loss.PARTS)
    free = min(whole, key=lambda row: row.seconds, default=best)
    saved = 1 - free.seconds / plain.seconds
    if free is best or saved < 0.005:
        return text
    word = free.loss.value
    return f"{text} Of those that are not lossy {free.strategy} ({word}) is the fastest, {saved:.0%} less."


_CONSEQUENCES = {
    Loss.NONE: "",
    Loss.ROUNDING: " It is rounding: gradients travel in a half type, so compare losses.",
    Loss.PARTS: " It is lossy: it changes what is learned, so compare losses first.",
}


def _sureness(best: Row, plain: Row) -> str:
    """Return how sure it is that one strategy is faster than the other, and why."""
    unknown = [row.strategy for row in (best, plain) if not row.measured]
    if unknown:
        return (
            f"not sure: the model's own error was not measured for {' and '.join(unknown)}, so measure both"
        )
    wrong = f"with the model's own error of {MODEL_ERROR:.1%}"
    if best.high * (1 + MODEL_ERROR) < plain.low / (1 + MODEL_ERROR):
        return f"sure: the intervals do not overlap, {wrong} too"
    return f"not sure: {wrong} the intervals overlap, so measure both"


def errors_known(rows: Sequence[Row]) -> list[str]:
    """Return lines that say for which strategies the model's own error was measured, and for which not."""
    unknown = dict.fromkeys(row.strategy for row in rows if not row.measured)
    known = (
        f"error: 9 of 10 predicted steps were within {MODEL_ERROR:.1%} on one emulated rig, for "
        f"{', '.join(ways.MEASURED)}"
    )
    if not unknown:
        return [known]
    return [
        known,
        f"note: the model's own error was not measured for {', '.join(unknown)}: measure a step first",
    ]

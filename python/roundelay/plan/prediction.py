"""Predicts a step of a workload on a cluster: cuts buckets, asks the model for their ways, simulates."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable

from roundelay import _model
from roundelay._internal.spelling.table import Loss
from roundelay.plan.workload import Workload
from roundelay.tuning.buckets import DEFAULT, Cuts, Extent, cut

_MOST_BUCKET = 1 << 62
# Shards of chunks, and the least chunks of larger shards (csrc/collective/levels/schedule.h).
_SHARD_BYTES, _LONG_SHARD_BYTES, _LONG_CHUNKS = 256 << 10, 1 << 20, 16
ONE_PLACE = 64  # members up to which an allreduce adds in one place (csrc/collective/tuning/select.h)

# Returns the stages of a bucket, from the cluster, the bucket's bytes and the bytes of one element.
Way = Callable[[_model.Cluster, float, int], _model.Program]


def dense(wire: int | None) -> Way:
    """Return the way of one allreduce. wire: the bytes of an element while it travels; None: its own."""

    def way(cluster: _model.Cluster, size: float, element: int) -> _model.Program:
        return in_chunks(_model.dense(cluster, size, element, wire or element), cluster, size)

    return way


def in_chunks(program: _model.Program, cluster: _model.Cluster, size: float) -> _model.Program:
    """Cut an allreduce into the chunks that the levels' fabric takes (csrc/runtime/startup/level_plan.cc).

    With two stages that fabric fixes the size of the last one's part, which grows with the allreduce. With
    more its cost formula chooses the size, and with one stage another fabric cuts nothing.
    """
    parts = [level.parts for level in cluster.levels if level.parts > 1]
    if len(parts) > 2:
        return _model.with_best_chunks(program, cluster)
    if len(parts) < 2:
        return program
    in_node, nodes = parts  # of uneven nodes, the largest one's ranks: so is the chunk
    most = _LONG_SHARD_BYTES if nodes <= ONE_PLACE else _SHARD_BYTES
    share = size / in_node
    shard = min(max(share / _LONG_CHUNKS, _SHARD_BYTES), most)
    return _model.Program(program.stages, max(1, math.ceil(share / shard)))


@dataclasses.dataclass(frozen=True, slots=True)
class Choice:
    """A strategy as the model knows it.

    way: gives the stages of each bucket of gradients. transfer: gives those of the parameters, if they
    travel.
    """

    text: str
    way: Way = dataclasses.field(default=dense(None))
    every: int = 0  # steps between two transfers of parameters; 0: none
    wait: int = 0  # steps that may begin before a transfer must be back
    transfer: Way | None = None
    loss: Loss = Loss.NONE
    measured: bool = True  # the model's error was measured with such a strategy


@dataclasses.dataclass(frozen=True, slots=True)
class Prediction:
    """A mean step. Tuples have an entry for each level, innermost first."""

    seconds: float
    exposed: float  # seconds of communication after backward
    bytes: tuple[float, ...]  # sent by the level's busiest end
    busy: tuple[float, ...]  # seconds in which that end sends
    buckets: int


def ready_buckets(
    workload: Workload, way: Way, cluster: _model.Cluster, cuts: Cuts
) -> list[tuple[float, _model.Program]]:
    """Cut the workload's gradients as a gradient pool does.

    Return the time at which each bucket is full, in seconds from the beginning of backward, and its stages.
    """
    extents: list[Extent] = []
    offset = 0
    for gradient in workload.gradients:
        end = offset + gradient.elements * workload.element
        extents.append(Extent(offset, end, gradient.ready))
        offset = end
    buckets: list[tuple[float, _model.Program]] = []
    for members in cut(extents, cuts, _MOST_BUCKET):
        size = extents[members[-1]].end - extents[members[0]].begin
        ready = max(extents[index].ready for index in members)
        buckets.append((max(ready, buckets[-1][0] if buckets else 0.0), way(cluster, size, workload.element)))
    return buckets


def predict(
    workload: Workload,
    cluster: _model.Cluster,
    choice: Choice,
    *,
    overhead: float = 0.0,
    cuts: Cuts = DEFAULT,
    jitter: float = 0.0,
) -> Prediction:
    """Predict the mean step. If parameters travel, too, the first cycle of transfers does not count.

    overhead: seconds of an operation, whatever its size: for the ranks' agreement on the order of operations.
    """
    cycle = max(1, choice.every)
    warm = cycle if choice.every else 0
    count = 1 if jitter == 0 and not choice.every else 8
    total = warm + cycle * max(1, -(-count // cycle))
    buckets = ready_buckets(workload, choice.way, cluster, cuts)
    number = len(buckets)
    outcome = _model.simulate(
        cluster,
        workload.forward,
        workload.backward,
        workload.update,
        buckets,
        overhead=overhead,
        transfer=choice.transfer(cluster, workload.bytes, workload.element) if choice.transfer else None,
        every=choice.every,
        wait=choice.wait,
        steps=total,
        jitter=jitter,
    )
    begin = outcome.step_ends[warm - 1] if warm else 0.0
    seconds = (outcome.seconds - begin) / (total - warm)
    return Prediction(
        seconds,
        seconds - workload.compute if jitter == 0 else outcome.exposed / total,
        tuple(size / total for size in outcome.bytes),
        tuple(time / total for time in outcome.busy),
        number,
    )


DENSE = Choice("dense")

"""The ways of a bucket in the papers' systems, and the scaling that follows."""

from __future__ import annotations

from benchmarks.papers.constants import Machines
from roundelay import _model
from roundelay.plan import shapes
from roundelay.plan.prediction import Choice, Prediction, Way, predict
from roundelay.plan.workload import Workload, from_shape
from roundelay.tuning.buckets import Cuts

MIB = 1 << 20
PER_TENSOR = (Cuts(1),)
# The papers do not state theta: the model takes the best of these, as autotuning does.
LAZY = tuple(Cuts(theta * MIB) for theta in (4, 8, 16, 32, 64, 128, 1 << 20))


def ring(wire: float) -> Way:
    """Return an allreduce on a ring of all ranks. wire: bytes of an element while it travels."""

    def way(cluster: _model.Cluster, size: float, element: int) -> _model.Program:
        return _model.flat(cluster, "ring", size / element * wire)

    return way


def sparse_ring(keep: float, wire: float) -> Way:
    """Return GradientFlow's CSC: norms by recursive doubling, the chosen chunks on a ring."""

    def way(cluster: _model.Cluster, size: float, element: int) -> _model.Program:
        elements = size / element
        norms = _model.flat(cluster, "recursive_doubling", 4 * max(1.0, elements / 32768))
        chunks = _model.flat(cluster, "ring", elements * keep * wire)
        passes = [
            _model.Stage(_model.Kind.MEMORY, size=3 * size),
            _model.Stage(_model.Kind.MEMORY, size=2 * keep * elements * (element + wire)),
        ]
        return _model.Program([passes[0], *norms.stages, *chunks.stages, passes[1]])

    return way


def levels(wire: float) -> Way:
    """Return an allreduce over the levels by rings, with the best number of chunks."""

    def way(cluster: _model.Cluster, size: float, element: int) -> _model.Program:
        program = _model.over_levels(cluster, "ring", size / element * wire)
        return _model.with_best_chunks(program, cluster)

    return way


def sparse_levels(density: float, value: float, index: float) -> Way:
    """Return HiTopKComm's way. value, index: bytes of a value and of an index."""

    def way(cluster: _model.Cluster, size: float, element: int) -> _model.Program:
        return _model.top_k(cluster, size, element, density=density, value=value, index=index)

    return way


def training(machines: Machines, model: str, element: int = 4) -> Workload:
    """Return one GPU's step of a known model."""
    compute = machines.batch / machines.samples_per_second
    return from_shape(shapes.KNOWN[model](), compute, machines.batch, element=element)


def step(
    machines: Machines, model: str, way: Way, cuts: tuple[Cuts, ...] = LAZY, jitter: float = 0.0
) -> Prediction:
    """Predict a step of the model on all GPUs, with the best of the cuts."""
    workload, cluster = training(machines, model), machines.cluster()
    found = (predict(workload, cluster, Choice(model, way), cuts=c, jitter=jitter) for c in cuts)
    return min(found, key=lambda prediction: prediction.seconds)


def speedup(
    machines: Machines, model: str, way: Way, cuts: tuple[Cuts, ...] = LAZY, jitter: float = 0.0
) -> float:
    """Return how many times as fast as one GPU all of them train."""
    alone = training(machines, model).compute
    return machines.ranks * alone / step(machines, model, way, cuts, jitter).seconds

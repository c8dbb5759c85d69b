"""Gives the model each strategy that it knows, by the texts of docs/strategies.md."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from roundelay import _model
from roundelay._internal.spelling.reading import Reading, read
from roundelay.plan.prediction import Choice, Way, dense, in_chunks
from roundelay.plan.units import PlanError
from roundelay.plan.workload import Workload

DEFAULT = "dense,dense:wire=bf16,csc:keep=0.1,local_sgd:period=8"
# The strategies of the rig's measurements (docs/plan.md#how-accurate-it-is).
MEASURED = ("dense", "dense:wire=bf16", "csc", "topk", "local_sgd")

_BYTES = {"none": None, "fp16": 2, "bf16": 2}  # of an element while it travels; None: those of its type
_LEAST_GAIN = 2  # a matrix is sent as factors if it has at least so many times as many elements as they


def _dense(reading: Reading, workload: Workload) -> Way:
    return dense(_BYTES[reading.value("wire")])


def _csc(reading: Reading, workload: Workload) -> Way:
    keep, chunk, wire = reading.value("keep"), reading.value("chunk_elements"), _BYTES[reading.value("wire")]

    def way(cluster: _model.Cluster, size: float, element: int) -> _model.Program:
        return _model.csc(cluster, size, element, keep, chunk, wire or element)

    return way


def _top_k(reading: Reading, workload: Workload) -> Way:
    density, wire = reading.value("density"), _BYTES[reading.value("wire")]
    index_bytes = reading.value("index_bits") / 8

    def way(cluster: _model.Cluster, size: float, element: int) -> _model.Program:
        return _model.top_k(cluster, size, element, density, wire or element, index_bytes)

    return way


def _power_sgd(reading: Reading, workload: Workload) -> Way:
    """Return PowerSGD's way. It spreads the factors' elements evenly over the bytes of all gradients."""
    rank = reading.value("rank")
    rows, columns = factors(workload, rank)

    def way(cluster: _model.Cluster, size: float, element: int) -> _model.Program:
        part = size / workload.bytes
        return _model.power_sgd(cluster, size, element, rank, rows * part, columns * part)

    return way


def _quantised(reading: Reading, workload: Workload) -> Way:
    return _model.quantised


def factors(workload: Workload, rank: int) -> tuple[float, float]:
    """Return the sums of the rows and of the columns of all matrices. Dense elements count as columns."""
    rows = columns = 0.0
    for gradient in workload.gradients:
        height, width = gradient.shape
        if gradient.elements >= _LEAST_GAIN * rank * (height + width):
            rows, columns = rows + height, columns + width
        else:
            columns += gradient.elements / rank
    return rows, columns


def _nothing(cluster: _model.Cluster, size: float, element: int) -> _model.Program:
    return _model.Program([])


def _in_node(cluster: _model.Cluster, size: float, element: int) -> _model.Program:
    return _model.within_node(cluster, size)


def _average(cluster: _model.Cluster, size: float, element: int) -> _model.Program:
    return in_chunks(_model.average(cluster, size), cluster, size)


def _daso_transfer(cluster: _model.Cluster, size: float, element: int) -> _model.Program:
    return _model.daso_transfer(cluster, size)


def _local_sgd(reading: Reading, choice: Choice) -> Choice:
    pairs = reading.value("period")
    if len(pairs) > 1:
        raise PlanError(f"strategy {choice.text!r}: the model knows one period, not a schedule: give one")
    way = _in_node if reading.value("within_node") == "every_step" else _nothing
    return replace(choice, way=way, every=pairs[0][1], transfer=_average)


def _daso(reading: Reading, choice: Choice) -> Choice:
    every, wait = reading.value("global_skip"), reading.value("batches_to_wait")
    if every == 0:
        return replace(choice, way=_in_node, every=1, transfer=_average)
    return replace(choice, way=_in_node, every=every, wait=min(wait, every - 1), transfer=_daso_transfer)


# Strategies that send gradients, and those that send parameters.
_GRADIENTS: dict[str, Callable[[Reading, Workload], Way]] = {
    "dense": _dense,
    "csc": _csc,
    "topk": _top_k,
    "power_sgd": _power_sgd,
    "quantised": _quantised,
}
_PARAMETERS: dict[str, Callable[[Reading, Choice], Choice]] = {"local_sgd": _local_sgd, "daso": _daso}


def parse(text: str, workload: Workload) -> Choice:
    """Return the strategy that a text means. PlanError: the model does not know it, or a parameter."""
    try:
        reading = read(text)
    except ValueError as error:
        raise PlanError(str(error)) from None
    if reading.name not in {*_GRADIENTS, *_PARAMETERS} or reading.loss is None:
        known = ", ".join((*_GRADIENTS, *_PARAMETERS))
        raise PlanError(f"the model knows no strategy {reading.name!r}; it knows {known}")
    choice = Choice(reading.text, loss=reading.loss, measured=_is_measured(reading))
    if reading.name in _PARAMETERS:
        return _PARAMETERS[reading.name](reading, choice)
    return replace(choice, way=_GRADIENTS[reading.name](reading, workload))


def _is_measured(reading: Reading) -> bool:
    """Return whether the rig's measurements had this strategy, with such a wire if it has one."""
    return any(
        reading.name == one.name and reading.values.get("wire", "none") == one.values.get("wire", "none")
        for one in map(read, MEASURED)
    )


__all__ = ["DEFAULT", "MEASURED", "Way", "factors", "parse"]

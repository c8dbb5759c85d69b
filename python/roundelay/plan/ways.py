"""Gives the model each strategy that it knows, by the texts of docs/strategies.md."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping

from roundelay import _model
from roundelay.plan.prediction import Choice, Way, dense, in_chunks
from roundelay.plan.units import PlanError
from roundelay.plan.workload import Workload

_WIRES = {"none": None, "fp16": 2, "bf16": 2}
_LEAST_GAIN = 2  # a matrix is sent as factors if it has at least so many times as many elements as they
_DASO = {"global_skip": 4, "batches_to_wait": 1}

# The parameters of each strategy: those that change its speed, then those that do not.
_KEYS: dict[str, tuple[str, str]] = {
    "dense": ("wire", ""),
    "bf16": ("", ""),
    "fp16": ("", ""),
    "half": ("wire", ""),
    "csc": ("keep chunk_elements wire", "norms momentum warmup dense_below dense_parameters"),
    "topk": (
        "density index_bits wire samplings",
        "select seed momentum warmup dense_below dense_parameters",
    ),
    "power_sgd": ("rank", "seed momentum warmup wire dense_below dense_parameters"),
    "local_sgd": ("period within_node", "post_local_after"),
    "daso": (
        "global_skip batches_to_wait",
        "local_skip warmup_epochs cooldown_epochs total_epochs batches_per_epoch blocking_wire "
        "merge_momentum",
    ),
}


class _Parameters:
    """The parameters of one text."""

    def __init__(self, text: str, given: Mapping[str, str]) -> None:
        self._text, self._given = text, given

    def number(self, key: str, default: float, least: float, most: float = math.inf) -> float:
        """Return a number between two limits."""
        value = self._given.get(key)
        if value is None:
            return default
        try:
            found = float(value)
        except ValueError:
            raise PlanError(f"strategy {self._text!r}: {key}={value} is no number") from None
        if not least <= found <= most:
            limits = f"at least {least:g}" if math.isinf(most) else f"from {least:g} to {most:g}"
            raise PlanError(f"strategy {self._text!r}: {key} must be {limits}")
        return found

    def whole(self, key: str, default: int, least: int = 1) -> int:
        """Return a whole number."""
        found = self.number(key, default, least)
        if found != int(found):
            raise PlanError(f"strategy {self._text!r}: {key} must be a whole number")
        return int(found)

    def word(self, key: str, default: str, words: tuple[str, ...]) -> str:
        """Return one of some words."""
        value = self._given.get(key, default)
        if value not in words:
            raise PlanError(f"strategy {self._text!r}: {key} must be one of {', '.join(words)}")
        return value

    def wire(self, default: str = "none") -> int | None:
        """Return the bytes of an element while it travels; None: those of the gradient's type."""
        return _WIRES[self.word("wire", default, tuple(_WIRES))]


def _dense(text: str, parameters: _Parameters, workload: Workload) -> Choice:
    return Choice(text, dense(parameters.wire()))


def _half(text: str, parameters: _Parameters, workload: Workload) -> Choice:
    return Choice(text, dense(parameters.wire("bf16")))


def _csc(text: str, parameters: _Parameters, workload: Workload) -> Choice:
    keep = parameters.number("keep", 0.1, 1e-6, 1.0)
    chunk = parameters.whole("chunk_elements", 32768)
    wire = parameters.wire()

    def way(cluster: _model.Cluster, size: float, element: int) -> _model.Program:
        return _model.csc(cluster, size, element, keep, chunk, wire or element)

    return Choice(text, way)


def _top_k(text: str, parameters: _Parameters, workload: Workload) -> Choice:
    density = parameters.number("density", 0.01, 1e-6, 1.0)
    bits = int(parameters.word("index_bits", "32", ("16", "32")))
    passes = parameters.whole("samplings", 20) / 8  # the selection counts for 8 thresholds in one pass
    wire = parameters.wire()

    def way(cluster: _model.Cluster, size: float, element: int) -> _model.Program:
        return _model.top_k(cluster, size, element, density, wire or element, bits / 8, passes)

    return Choice(text, way)


def _power_sgd(text: str, parameters: _Parameters, workload: Workload) -> Choice:
    """Return PowerSGD's way. It spreads the factors' elements evenly over the bytes of all gradients."""
    rank = parameters.whole("rank", 2)
    rows, columns = factors(workload, rank)

    def way(cluster: _model.Cluster, size: float, element: int) -> _model.Program:
        part = size / workload.bytes
        return _model.power_sgd(cluster, size, element, rank, rows * part, columns * part)

    return Choice(text, way)


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


def _local_sgd(text: str, parameters: _Parameters, workload: Workload) -> Choice:
    period = parameters.whole("period", 8)
    inside = parameters.word("within_node", "period", ("period", "every_step")) == "every_step"
    return Choice(text, _in_node if inside else _nothing, every=period, transfer=_average)


def _daso(text: str, parameters: _Parameters, workload: Workload) -> Choice:
    every = parameters.whole("global_skip", _DASO["global_skip"], 0)
    wait = parameters.whole("batches_to_wait", _DASO["batches_to_wait"], 0)
    if every == 0:
        return Choice(text, _in_node, every=1, transfer=_average)
    return Choice(text, _in_node, every=every, wait=min(wait, every - 1), transfer=_daso_transfer)


_MAKERS: dict[str, Callable[[str, _Parameters, Workload], Choice]] = {
    "dense": _dense,
    "bf16": _half,
    "fp16": _half,
    "half": _half,
    "csc": _csc,
    "topk": _top_k,
    "power_sgd": _power_sgd,
    "local_sgd": _local_sgd,
    "daso": _daso,
}
LOSSLESS = ("dense", "bf16", "fp16", "half")
DEFAULT = "dense,bf16,csc:keep=0.1,local_sgd:period=8"


def split(text: str) -> list[str]:
    """Cut a list of strategies at the commas that begin a new one: ``csc:keep=0.1,wire=bf16,dense``."""
    found: list[str] = []
    for part in text.split(","):
        name = part.strip().partition(":")[0]
        if found and "=" in name:
            found[-1] += f",{part.strip()}"
        elif part.strip():
            found.append(part.strip())
    return found


def parse(text: str, workload: Workload) -> Choice:
    """Return the strategy that a text means. PlanError: the model does not know it, or a parameter."""
    name, _, rest = text.partition(":")
    if name not in _MAKERS:
        raise PlanError(f"the model knows no strategy {name!r}; it knows {', '.join(_MAKERS)}")
    pairs = [pair.partition("=") for pair in rest.split(",") if pair]
    given = {key: value for key, _, value in pairs}
    known = " ".join(_KEYS[name]).split()
    wrong = next((key for key, equals, value in pairs if not equals or not value or key not in known), None)
    if wrong is not None:
        raise PlanError(f"strategy {text!r} has no {wrong!r}; it knows {', '.join(known) or 'nothing'}")
    return _MAKERS[name](text, _Parameters(text, given), workload)


def is_lossless(choice: Choice) -> bool:
    """Tell whether all of every gradient reaches all ranks in its step, but for rounding."""
    return choice.text.partition(":")[0] in LOSSLESS


__all__ = ["DEFAULT", "Way", "factors", "is_lossless", "parse", "split"]

"""Fits the rig's constants to one half of the cells, and compares predictions with the other half."""

from __future__ import annotations

import dataclasses
import statistics
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from scipy.optimize import minimize

from benchmarks.plan.cells import Cell, Constants, predicted, workload

START = Constants(latency=3e-4, overhead=1e-3, share=0.95, turn=1e-3)
_LEAST = 1e-6  # seconds: below, a constant says nothing
_REACH = -0.4  # the size of the first simplex, in logarithms; the share must not begin above 1
_MUCH = 0.1  # the part of a step from which on exposed time is long
_NAMES = tuple(field.name for field in dataclasses.fields(Constants))


@dataclasses.dataclass(frozen=True, slots=True)
class Result:
    """The fitted constants, and predictions of the cells that the fit has not seen."""

    constants: Constants
    fitted: list[Cell]
    tested: list[Cell]
    predictions: list[float]  # the predicted seconds of `tested`

    @property
    def exposed_errors(self) -> list[float]:
        """The predictions' errors relative to the time beside computing, of cells where that is long."""
        found = []
        for value, cell in zip(self.predictions, self.tested, strict=True):
            exposed = cell.seconds - workload(cell).compute
            if exposed > _MUCH * cell.seconds:
                found.append((value - cell.seconds) / exposed)
        return found

    @property
    def errors(self) -> list[float]:
        """The predictions' errors relative to the measured times; positive: predicted too slow."""
        pairs = zip(self.predictions, self.tested, strict=True)
        return [value / cell.seconds - 1 for value, cell in pairs]

    def quantile(self, part: float) -> float:
        """Return a quantile of the errors' magnitudes."""
        return float(np.quantile(np.abs(self.errors), part))

    def lines(self) -> list[str]:
        """Return the summary: the constants and the errors."""
        exposed = self.exposed_errors
        found = [
            f"{len(self.fitted)} cells fitted, {len(self.tested)} tested: median error "
            f"{self.quantile(0.5):.1%}, 90th percentile {self.quantile(0.9):.1%}, "
            f"largest {self.quantile(1.0):.1%}",
            f"of the exposed part, in {len(exposed)} cells where it is over {_MUCH:.0%} of the step: median "
            f"error {statistics.median(map(abs, exposed)) if exposed else 0:.1%}",
            f"constants: {self.constants}",
        ]
        for name in ("strategy", "task", "mbit", "nodes", "ranks_per_node"):
            kinds = sorted({getattr(cell, name) for cell in self.tested})
            for kind in kinds:
                own = [
                    e for e, cell in zip(self.errors, self.tested, strict=True) if getattr(cell, name) == kind
                ]
                middle = statistics.median(map(abs, own))
                found.append(f"{name} {kind}: median {middle:.1%}, mean {statistics.fmean(own):+.1%}")
        return found

    def as_json(self) -> dict[str, Any]:
        """Return all cells, those that were tested with their predictions."""
        tested = zip(self.tested, self.predictions, strict=True)
        return {
            "constants": dataclasses.asdict(self.constants),
            "median_error": self.quantile(0.5),
            "error_90": self.quantile(0.9),
            "fitted": [_plain(cell) for cell in self.fitted],
            "tested": [{**_plain(cell), "predicted": value} for cell, value in tested],
        }


def _plain(cell: Cell) -> dict[str, Any]:
    return dataclasses.asdict(cell)


def halves(cells: Sequence[Cell]) -> tuple[list[Cell], list[Cell]]:
    """Deal the cells out like the squares of a chessboard: both halves have all kinds of cells."""
    kinds = [sorted({kind[index] for kind in map(_kinds, cells)}) for index in range(4)]

    def is_white(cell: Cell) -> bool:
        return sum(own.index(kind) for own, kind in zip(kinds, _kinds(cell), strict=True)) % 2 == 0

    return [cell for cell in cells if is_white(cell)], [cell for cell in cells if not is_white(cell)]


def _kinds(cell: Cell) -> tuple[Any, ...]:
    return (cell.nodes, cell.ranks_per_node), cell.mbit, cell.task, cell.strategy


def fit(cells: Sequence[Cell], start: Constants = START) -> Constants:
    """Fit to cells of steps."""
    return least(lambda found: [predicted(cell, found).seconds / cell.seconds for cell in cells], start)


def least(ratios: Callable[[Constants], Sequence[float]], start: Constants = START) -> Constants:
    """Find the constants with the least mean of |log(predicted / measured)|, and of its square."""

    def constants(logs: Any) -> Constants:
        return Constants(*map(float, np.exp(logs)))

    def loss(logs: Any) -> float:
        errors = np.log(ratios(constants(logs)))
        return float(np.mean(np.abs(errors)) + np.mean(np.square(errors)))

    first = np.log([getattr(start, name) for name in _NAMES])
    simplex = np.vstack([first, first + _REACH * np.eye(len(first))])
    bounds = [(np.log(_LEAST), np.log(1.0))] * len(first)
    options = {"maxfev": 800, "xatol": 1e-3, "fatol": 1e-5, "initial_simplex": simplex}
    found = minimize(loss, first, method="Nelder-Mead", bounds=bounds, options=options)
    return constants(found.x)


def evaluate(cells: Sequence[Cell]) -> Result:
    """Fit one half, and predict the other."""
    fitted, tested = halves(cells)
    constants = fit(fitted)
    return Result(constants, fitted, tested, [predicted(cell, constants).seconds for cell in tested])

"""What follows from the losses of the protocol's trainings. Nothing here runs or reads anything."""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from benchmarks.protocol.cells import CELLS, DENSE, RATES, SETTINGS, Cell, Job, Setting

_STUDENT = 2.776  # the quantile for 95 % with 5 pairs


class Difference(NamedTuple):
    """The mean of paired differences of losses, and half of its 95 % interval (Student's t)."""

    mean: float
    half: float

    def __str__(self) -> str:
        return f"{self.mean:+.4f} ± {self.half:.4f}" if math.isfinite(self.mean) else "diverged"


class Losses:
    """The last test losses of stored jobs: of each strategy one for each seed."""

    def __init__(self, jobs: Iterable[Mapping[str, Any]]) -> None:
        self._jobs = {(job["stage"], Cell(*job["cell"]), job["rate"]): job["losses"] for job in jobs}

    def has(self, job: Job) -> bool:
        """Tell whether the job was run."""
        return job.key in self._jobs

    def of(self, stage: str, cell: Cell, rate: float, strategy: str) -> list[float]:
        """Return the losses in the order of seeds; infinity where a training diverged."""
        found = self._jobs[stage, cell, rate][strategy]
        return [loss if math.isfinite(loss) else math.inf for loss in found]

    def rates(self) -> dict[tuple[str, str, bool], float]:
        """Return the rate of each training at which dense ends with the least mean loss."""
        return {
            cell.training: min(RATES, key=lambda rate: statistics.mean(self.of("tune", cell, rate, DENSE)))
            for cell in CELLS
            if cell.ranks == 2
        }

    def score(self, technique: str, setting: Setting, cells: Sequence[Cell] = CELLS) -> float:
        """Return the geometric mean of the cells' mean losses, by which settings are compared."""
        rates = self.rates()
        means = [
            statistics.mean(
                self.of("choose", cell, rates[cell.training], setting.text(technique, cell.optimizer))
            )
            for cell in cells
        ]
        return math.exp(statistics.mean(map(math.log, means))) if math.isfinite(sum(means)) else math.inf

    def chosen(self) -> dict[str, Setting]:
        """Return each technique's setting with the best score."""
        return {
            technique: min(settings, key=lambda setting: self.score(technique, setting))
            for technique, settings in SETTINGS.items()
        }

    def fresh(self, technique: str | None, setting: Setting | None, cell: Cell) -> list[float]:
        """Return the losses of fresh seeds. None: dense."""
        text = setting.text(technique, cell.optimizer) if technique and setting else DENSE
        return self.of("report", cell, self.rates()[cell.training], text)


def difference(these: Sequence[float], those: Sequence[float]) -> Difference:
    """Compare losses of the same seeds."""
    pairs = [this - that for this, that in zip(these, those, strict=True)]
    if not all(map(math.isfinite, pairs)):
        return Difference(math.inf, math.inf)
    return Difference(statistics.mean(pairs), _STUDENT * statistics.stdev(pairs) / math.sqrt(len(pairs)))


def worse(losses: Losses, technique: str) -> list[Cell]:
    """Return the cells in which the chosen setting is worse in the mean than the default."""
    setting = losses.chosen()[technique]
    return [
        cell
        for cell in CELLS
        if statistics.mean(losses.fresh(technique, setting, cell))
        > statistics.mean(losses.fresh(technique, SETTINGS[technique][0], cell))
    ]

"""What the protocol trains: cells, settings of the techniques, and the jobs of its three stages."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator
from typing import NamedTuple

STEPS = {"digits": 300, "characters": 400}  # by task
RATES = (0.25, 0.5, 1.0, 2.0)  # multiples of the task's own learning rate
WARMUP = 60  # dense steps, where a setting has a warm-up
CHOOSING, FRESH = tuple(range(5)), tuple(range(5, 10))  # seeds
DENSE = "dense"


class Cell(NamedTuple):
    """A task, its optimizer, whether the learning rate falls at the end, and the number of ranks."""

    task: str
    optimizer: str
    falls: bool
    ranks: int

    @property
    def training(self) -> tuple[str, str, bool]:
        """Return what has a learning rate of its own."""
        return self.task, self.optimizer, self.falls


class Setting(NamedTuple):
    """What a default may be: SGD's momentum (another optimizer has none), and the dense steps before."""

    momentum: str
    warmup: int

    def text(self, technique: str, optimizer: str) -> str:
        """Return the strategy's text for an optimizer."""
        momentum = self.momentum if optimizer == "sgd" else "none"
        warmup = f",warmup={self.warmup}" if self.warmup else ""
        return f"{BASES[technique]},momentum={momentum}{warmup}"


# The models are small, and so are the chunks.
BASES = {
    "csc": "csc:keep=0.1,dense_below=512,chunk_elements=256",
    "topk": "topk:density=0.01,dense_below=512",
}
_MOMENTA = {
    "csc": ("masked", "local", "local,masking=0", "none"),
    "topk": ("local", "local,masking=0", "none"),
}
# The first of each was the default when the protocol began.
SETTINGS = {
    technique: tuple(itertools.starmap(Setting, itertools.product(momenta, (0, WARMUP))))
    for technique, momenta in _MOMENTA.items()
}
CELLS = tuple(
    Cell(task, optimizer, falls, ranks)
    for task, optimizer, falls, ranks in itertools.product(STEPS, ("sgd", "adamw"), (True, False), (2, 4))
)


class Job(NamedTuple):
    """Trainings of a cell with one rate: each strategy with each seed."""

    stage: str
    cell: Cell
    rate: float
    strategies: tuple[str, ...]
    seeds: tuple[int, ...]

    @property
    def key(self) -> tuple[str, Cell, float]:
        """Return what tells the job from others."""
        return self.stage, self.cell, self.rate


def tuning() -> Iterator[Job]:
    """Yield the jobs that tell the rate of each training: dense, on 2 ranks."""
    for cell in CELLS:
        if cell.ranks == 2:
            for rate in RATES:
                yield Job("tune", cell, rate, (DENSE,), CHOOSING)


def choosing(rates: dict[tuple[str, str, bool], float]) -> Iterator[Job]:
    """Yield the jobs that tell the setting of each technique. rates: what tuning() has told."""
    for cell in CELLS:
        texts = [
            setting.text(technique, cell.optimizer)
            for technique, settings in SETTINGS.items()
            for setting in settings
        ]
        yield Job("choose", cell, rates[cell.training], tuple(dict.fromkeys(texts)), CHOOSING)


def reporting(rates: dict[tuple[str, str, bool], float], chosen: dict[str, Setting]) -> Iterator[Job]:
    """Yield the jobs with fresh seeds: dense, the default settings and the chosen ones."""
    for cell in CELLS:
        texts = [DENSE]
        for technique, setting in chosen.items():
            texts += _both(technique, setting, cell)
        yield Job("report", cell, rates[cell.training], tuple(dict.fromkeys(texts)), FRESH)


def _both(technique: str, setting: Setting, cell: Cell) -> Iterable[str]:
    return (one.text(technique, cell.optimizer) for one in (SETTINGS[technique][0], setting))

"""The tables of docs/results/protocol.md: the rates, the settings, and the losses of fresh seeds."""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from typing import Any

from benchmarks.protocol.cells import (
    CELLS,
    DENSE,
    RATES,
    SETTINGS,
    Cell,
    Setting,
    choosing,
    reporting,
    tuning,
)
from benchmarks.protocol.choices import Losses, difference, worse
from benchmarks.report import page

STORED = page.RESULTS / "protocol.json"
PART = page.part(page.RESULTS / "protocol.md", "protocol")
_JOBS = len(list(tuning())) + 2 * len(CELLS)
_KINDS = (("sgd", True), ("sgd", False), ("adamw", True), ("adamw", False))
_OPTIMIZERS = {"sgd": "SGD", "adamw": "AdamW"}


def text(stored: dict[str, Any]) -> str:
    """Make the page's part of the stages whose trainings are all there."""
    losses, jobs = Losses(stored["jobs"]), len(stored["jobs"])
    lines = [page.host(stored["machine"], "torch", "python") + ".", ""]
    if jobs < _JOBS:
        lines += [f"{jobs} of {_JOBS} jobs are done. A table comes when those of its stage are.", ""]
    if not all(map(losses.has, tuning())):
        return "\n".join(lines)
    lines += [
        "**1. Rates for dense training.** Mean test losses; the least is bold.",
        "",
        *_rates(losses),
        "",
    ]
    if not all(map(losses.has, choosing(losses.rates()))):
        return "\n".join(lines)
    lines += ["**2. Settings.** Geometric means of test losses; the least of all cells is bold.", ""]
    lines += [*_settings(losses), ""]
    if not all(map(losses.has, reporting(losses.rates(), losses.chosen()))):
        return "\n".join(lines)
    lines += ["**3. Fresh seeds.** Mean test losses, and paired differences with their 95 % intervals.", ""]
    for technique in SETTINGS:
        lines += [*_fresh(losses, technique), "", page.folded(_verdict(losses, technique)), ""]
    return "\n".join(lines)


def _schedule(falls: bool) -> str:
    return "falling" if falls else "constant"


def _loss(values: Sequence[float]) -> str:
    bad = sum(not math.isfinite(value) for value in values)
    return f"{bad} of {len(values)} diverged" if bad else f"{statistics.mean(values):.4f}"


def _rates(losses: Losses) -> list[str]:
    rates, lines = losses.rates(), []
    for cell in CELLS:
        if cell.ranks != 2:
            continue
        cells = [_loss(losses.of("tune", cell, rate, DENSE)) for rate in RATES]
        best = RATES.index(rates[cell.training])
        cells[best] = f"**{cells[best]}**"
        lines.append([cell.task, _OPTIMIZERS[cell.optimizer], _schedule(cell.falls), *cells])
    return page.rows(("task", "optimizer", "rate", *(f"{rate:g}x" for rate in RATES)), lines)


def name(setting: Setting) -> str:
    """Return a setting as an option's text."""
    return f"momentum={setting.momentum},warmup={setting.warmup}"


def _settings(losses: Losses) -> list[str]:
    chosen, lines = losses.chosen(), []
    for technique, settings in SETTINGS.items():
        for setting in settings:
            of_kind = [
                losses.score(technique, setting, [c for c in CELLS if (c.optimizer, c.falls) == kind])
                for kind in _KINDS
            ]
            mean = _score(losses.score(technique, setting))
            cells = [*map(_score, of_kind), f"**{mean}**" if setting == chosen[technique] else mean]
            default = ", the default" if setting == settings[0] else ""
            lines.append([technique, f"`{name(setting)}`{default}", *cells])
    kinds = (f"{_OPTIMIZERS[optimizer]}, {_schedule(falls)}" for optimizer, falls in _KINDS)
    return page.rows(("technique", "setting", *kinds, "all"), lines)


def _score(score: float) -> str:
    return f"{score:.4f}" if math.isfinite(score) else "diverged"


def _fresh(losses: Losses, technique: str) -> list[str]:
    chosen = losses.chosen()[technique]
    lines = []
    for cell in CELLS:
        dense = losses.fresh(None, None, cell)
        default = losses.fresh(technique, SETTINGS[technique][0], cell)
        best = losses.fresh(technique, chosen, cell)
        means = map(_loss, (dense, default, best))
        differences = (str(difference(best, default)), str(difference(best, dense)))
        lines.append([*_cell(cell), *means, *differences])
    columns = ("task", "optimizer", "rate", "ranks", "dense", f"{technique}, default", f"`{name(chosen)}`")
    return page.rows((*columns, "minus the default", "minus dense"), lines)


def _cell(cell: Cell) -> tuple[str, str, str, str]:
    return cell.task, _OPTIMIZERS[cell.optimizer], _schedule(cell.falls), str(cell.ranks)


def _verdict(losses: Losses, technique: str) -> str:
    chosen, before = losses.chosen()[technique], SETTINGS[technique][0]
    found = worse(losses, technique)
    if chosen == before:
        return f"{technique}: the default is the best setting, and stays."
    if found:
        cells = f"{len(found)} of {len(CELLS)} cells"
        return f"{technique}: the default stays, as the best setting is worse in {cells}."
    return f"{technique}: `{name(chosen)}` is worse in no cell. It becomes the default."

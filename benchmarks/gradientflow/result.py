"""The rows of the table, from what the ranks measured. Pure."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean
from typing import Any

from benchmarks.contenders import ALONE, DENSE_STEPS, GRADIENTFLOW, least_sent
from benchmarks.table.result import Estimate
from benchmarks.table.samples import Samples

BASE = "ddp"  # the contender that the others are compared with
WARMUPS = DENSE_STEPS + 4  # steps before the measured ones: then all have their pools and orders of buckets


@dataclass(frozen=True)
class Row:
    """One contender on one wire.

    `step` is in seconds, and `exposed` is what it has more than a step without communication. `ratio` is
    DDP's step by this one. `sent` is what a node sent in a step, and `least` what it must send, in bytes.
    `loss` is that of the test images after all steps; None if the ranks did not train together.
    """

    name: str
    step: Estimate
    exposed: Estimate | None
    ratio: Estimate | None
    sent: float
    least: float
    loss: float | None


@dataclass(frozen=True)
class Wire:
    """All contenders on a wire of so many Mbit/s, after `steps` steps each.

    Other processes ran in `disturbed` of `repetitions` repetitions. If more than half of them are left, only
    these count; else all do.
    """

    mbit: int
    steps: int
    repetitions: int
    disturbed: int
    rows: tuple[Row, ...]

    @property
    def counted(self) -> int:
        """Return the number of repetitions that count."""
        left = self.repetitions - self.disturbed
        return left if 2 * left > self.repetitions else self.repetitions

    def as_json(self) -> dict[str, Any]:
        """Return what from_json takes."""
        return dataclasses.asdict(self)


def from_json(found: Mapping[str, Any]) -> Wire:
    """Make a result from what as_json returned."""
    estimates = ("step", "exposed", "ratio")
    rows = [
        Row(**{**row, **{name: row[name] and Estimate(**row[name]) for name in estimates}})
        for row in found["rows"]
    ]
    return Wire(**{**found, "rows": tuple(rows)})


def wire_seconds(size: float, mbit: int) -> float:
    """Return how long a wire takes for so many bytes."""
    return size * 8 / (mbit * 1e6)


def wire(found: Sequence[Mapping[str, Any]], mbit: int, nodes: int, warmups: int) -> Wire:
    """Make the result of one wire from those of all ranks.

    Raises:
        RuntimeError: ranks that trained together have different weights.

    """
    first = found[0]
    all_ = Samples(first["seconds"], first["others"])
    others = [0.0] * all_.of if 2 * len(all_.kept) <= all_.of else first["others"]
    rows = [_row(name, others, found, nodes) for name in first["seconds"]]
    return Wire(mbit, warmups + all_.of, all_.of, all_.of - len(all_.kept), tuple(rows))


def _row(name: str, others: Sequence[float], found: Sequence[Mapping[str, Any]], nodes: int) -> Row:
    contender, seconds = GRADIENTFLOW[name], found[0]["seconds"]
    samples, more = Samples(seconds, others), Samples(seconds, others, {name: ALONE})
    trained = [rank["trained"][name] for rank in found if "loss" in rank["trained"][name]]
    together = name != ALONE
    if together and len({one["weights"] for one in trained}) > 1:
        raise RuntimeError(f"{contender.name}: ranks have different weights")
    if contender.payload is None:
        payload = fmean(trained[0]["messages"])
    else:
        payload = contender.payload(found[0]["shapes"])
    exposed = more.cost(name) if together else None
    ratio = samples.ratio(BASE, name) if BASE in samples and together else None
    loss = trained[0]["loss"] if together else None
    least = least_sent(payload, nodes)
    return Row(contender.name, samples.cost(name), exposed, ratio, _sent(name, found), least, loss)


def _sent(name: str, found: Sequence[Mapping[str, Any]]) -> float:
    """Return the mean bytes of the node that sent more, without those of the ranks' meetings."""

    def most(of: str) -> float:
        return max(fmean(rank["trained"][of]["sent"]) for rank in found)

    return most(name) - most(ALONE)

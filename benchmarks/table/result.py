"""The result of a row, as the pages show it and JSON stores it. Pure."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Estimate:
    """A value and the bounds of its 95 % interval; None if a bound is unknown."""

    value: float
    low: float | None = None
    high: float | None = None


@dataclass(frozen=True)
class Peer:
    """Another library at the same work, and the ratio of its cost to Roundelay's."""

    name: str
    cost: Estimate
    ratio: Estimate | None = None


@dataclass(frozen=True)
class Result:
    """One kind of work: its cost with Roundelay, with the peers, and the least possible cost.

    `unit` is the unit of all costs: "s", "B", "%", or "" (a count). `floor` is the least possible cost,
    `floor_is` its name, and `over_floor` the ratio of Roundelay's cost to it. `tail` is Roundelay's 99th
    percentile. `kept` of `of` repetitions counted. `why` says why there is no result. The picture shows
    results that have a `headline`.
    """

    work: str
    unit: str = "s"
    own: Estimate | None = None
    peers: tuple[Peer, ...] = ()
    floor: Estimate | None = None
    floor_is: str = ""
    over_floor: Estimate | None = None
    tail: Estimate | None = None
    note: str = ""
    kept: int | None = None
    of: int | None = None
    why: str = ""
    headline: str = ""

    def peer(self, name: str) -> Peer | None:
        """Return a peer by its name; None if there is no such peer."""
        return next((peer for peer in self.peers if peer.name == name), None)

    def as_json(self) -> dict[str, Any]:
        """Return what from_json takes: all fields that are not the default."""
        default = dataclasses.asdict(Result(self.work))
        return {
            name: value
            for name, value in dataclasses.asdict(self).items()
            if name == "work" or value != default[name]
        }


def from_json(found: Mapping[str, Any]) -> Result:
    """Make a result from what as_json returned."""
    estimates = ("own", "floor", "over_floor", "tail")
    made: dict[str, Any] = {
        name: _estimate(value) if name in estimates else value for name, value in found.items()
    }
    peers = [
        Peer(one["name"], Estimate(**one["cost"]), _estimate(one["ratio"])) for one in found.get("peers", ())
    ]
    return Result(**{**made, "peers": tuple(peers)})


def _estimate(found: Mapping[str, Any] | None) -> Estimate | None:
    return None if found is None else Estimate(**found)

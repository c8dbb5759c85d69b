"""What a row found, as the pages show it and JSON keeps it. Pure."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Estimate:
    """A value, and the bounds of its 95 % interval; None where there is no telling."""

    value: float
    low: float | None = None
    high: float | None = None


@dataclass(frozen=True)
class Peer:
    """Another library at the same work, and how many times as much as Roundelay it takes."""

    name: str
    cost: Estimate
    ratio: Estimate | None = None


@dataclass(frozen=True)
class Result:
    """One kind of work: what it costs in Roundelay, with its peers, and at least.

    `unit` is that of all costs: "s", "B", "%", or "" (a count). `floor` is what the work takes by itself,
    called `floor_is`, and `over_floor` Roundelay's by that. `tail` is Roundelay's 99th percentile. `kept` of
    `of` repetitions counted. `why` tells why there is nothing. What has a `headline` is in the picture.
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
        """Find a peer by its name."""
        return next((peer for peer in self.peers if peer.name == name), None)

    def as_json(self) -> dict[str, Any]:
        """Make what from_json takes: all that is not the default."""
        default = dataclasses.asdict(Result(self.work))
        return {
            name: value
            for name, value in dataclasses.asdict(self).items()
            if name == "work" or value != default[name]
        }


def from_json(found: Mapping[str, Any]) -> Result:
    """Make a result of what as_json made."""
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

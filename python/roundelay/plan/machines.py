"""The machines of a plan: from options, a cluster file, or what `roundelay tune` measured."""

from __future__ import annotations

import dataclasses
import datetime
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import yaml

from roundelay import _model
from roundelay.plan.units import (
    PlanError,
    age_text,
    bandwidth,
    bandwidth_text,
    count,
    date_text,
    number,
    seconds,
    time_text,
)
from roundelay.tuning import file as tuning_file
from roundelay.tuning.file import Tuning

STATED_ERROR = 0.2  # relative; of links that nobody has measured
_SUMMING = 3  # bytes that move in memory to add one byte: two reads, one write


@dataclasses.dataclass(frozen=True, slots=True)
class Wire:
    """A level's link as users state it."""

    bandwidth: float  # bytes a second that one end sends
    latency: float  # seconds from one end to the other
    reduce: float | None = None  # seconds to add a byte; None: by the memory's bandwidth
    overhead: float = 0.0  # seconds of an operation, whatever its size

    def scaled(self, factor: float) -> Wire:
        """Return a link that is `factor` times as fast in all."""
        return dataclasses.replace(
            self,
            bandwidth=self.bandwidth * factor,
            latency=self.latency / factor,
            overhead=self.overhead / factor,
        )


# A number of equal nodes, or the ranks of each node.
Shape = int | tuple[int, ...]


@dataclasses.dataclass(frozen=True, slots=True)
class Machines:
    """Nodes, maybe in racks, and their links."""

    nodes: int = 1
    ranks_per_node: int = 1  # of the largest node
    inter: Wire = Wire(1.25e9, 30e-6)  # the link out of each node
    intra: Wire = Wire(12.5e9, 3e-6)  # the link out of each rank, in its node
    uplink: Wire = Wire(5e9, 30e-6)  # the link out of each rack
    rack: int = 0  # nodes of a rack; 0: there are no racks
    sizes: tuple[int, ...] = ()  # the ranks of each node, if nodes differ
    memory: float = 20e9  # bytes a second that one rank reads and writes
    price: float | None = None  # the price of a node for an hour
    source: tuple[str, ...] = ()  # the options and files that the numbers come from
    measured: tuple[int, int] | None = None  # nodes, and ranks of each, that the tuning file was measured on
    error: float = STATED_ERROR  # relative error of the links' numbers

    @property
    def ranks(self) -> int:
        """The number of ranks on all nodes."""
        return sum(self.sizes) or self.nodes * self.ranks_per_node

    @property
    def size(self) -> tuple[int, int, Sequence[int]]:
        """What to compare with that of other machines: the nodes, the ranks, the ranks of each node."""
        return self.nodes, self.ranks, self.sizes

    @property
    def shape(self) -> Shape:
        """The nodes, as on() takes them."""
        return self.sizes or self.nodes

    def on(self, shape: Shape) -> Machines:
        """Return the same with other nodes. Equal ones have as many ranks as the largest one here."""
        if isinstance(shape, int):
            return dataclasses.replace(self, nodes=shape, sizes=())
        sizes = shape if len(set(shape)) > 1 else ()
        return dataclasses.replace(self, nodes=len(shape), ranks_per_node=max(shape), sizes=sizes)

    def model(self, factor: float = 1.0) -> _model.Cluster:
        """Return the model's cluster, with links `factor` times as fast. PlanError: a rack is not full."""
        n, rack = self.ranks_per_node, self.rack if 0 < self.rack < self.nodes else self.nodes
        if self.nodes % rack:
            raise PlanError(f"{self.nodes} nodes do not fill racks of {rack}: give a multiple of {rack}")
        sizes = self.sizes or (n,) * self.nodes
        in_rack = max(sum(sizes[first : first + rack]) for first in range(0, self.nodes, rack))
        levels = [
            _model.Level(n, self._link(self.intra.scaled(factor), 1)),
            _model.Level(rack, self._link(self.inter.scaled(factor), n)),
        ]
        if rack < self.nodes:
            levels.append(_model.Level(self.nodes // rack, self._link(self.uplink.scaled(factor), in_rack)))
        return _model.Cluster(levels, self.memory, self.sizes)

    def overhead(self, factor: float = 1.0) -> float:
        """Return the seconds of an operation, whatever its size, with links `factor` times as fast."""
        wire = self.inter if self.nodes > 1 else self.intra
        return wire.overhead / factor

    def _link(self, wire: Wire, sharers: int) -> _model.Link:
        reduce = _SUMMING / self.memory if wire.reduce is None else wire.reduce
        return _model.Link(wire.latency, wire.bandwidth, reduce, sharers)

    def level_name(self, level: int) -> str:
        """Name a level's link in tables."""
        return ("in the node", "node link", "uplink")[level]

    def ranks_text(self) -> str:
        """Name the ranks of each node: 4, or 4+4+2."""
        return "+".join(map(str, self.sizes)) or str(self.ranks_per_node)

    def shape_text(self) -> str:
        """Name the nodes as --nodes takes them."""
        return self.ranks_text() if self.sizes else str(self.nodes)

    def nodes_text(self) -> str:
        """Name the nodes, with their ranks if they differ: "3 nodes", "3 nodes of 4+4+2 ranks"."""
        text = f"{self.nodes} node{'s' if self.nodes != 1 else ''}"
        return f"{text} of {self.ranks_text()} ranks" if self.sizes else text

    def describe(self) -> str:
        """Return a text of the links with their numbers."""
        parts = [
            f"{name} {bandwidth_text(wire.bandwidth)} {time_text(wire.latency)}"
            for name, wire in (("node link", self.inter), ("in the node", self.intra))
        ]
        if self.rack:
            parts.append(f"uplink of {self.rack} nodes {bandwidth_text(self.uplink.bandwidth)}")
        return ", ".join(parts)

    def outside(self) -> str:
        """Return a sentence on what was not measured; "" if a tuning file of such nodes was given."""
        if self.measured is None:
            return "links are stated, not measured: measure them with `roundelay tune`"
        nodes, ranks = self.measured
        if self.nodes <= nodes and self.ranks_per_node <= ranks:
            return ""
        return (
            f"outside of the calibrated range: {self.nodes} nodes of {self.ranks_text()} ranks, measured "
            f"were {nodes} of {ranks}"
        )


def shape(text: str) -> Shape:
    """Read a number of nodes, or the ranks of each node: ``3``, ``4+4+2``. PlanError: it is neither."""
    if "+" not in text:
        return count(text)
    try:
        return tuple(count(part) for part in text.split("+"))
    except PlanError as error:
        raise PlanError(f"{text!r} is not like 4+4+2, the ranks of each node: {error}") from None


def _wire(value: Any, key: str, before: Wire) -> Wire:
    """Read a link of a cluster file: a bandwidth, or a bandwidth and a latency. before: gives the rest."""
    given = value if isinstance(value, dict) else {"bandwidth": value}
    unknown = sorted(set(given) - {"bandwidth", "latency"})
    if unknown:
        raise PlanError(f"{key} has {unknown[0]!r}; it knows bandwidth and latency")
    wire = before
    if "bandwidth" in given:
        wire = dataclasses.replace(wire, bandwidth=bandwidth(str(given["bandwidth"])))
    if "latency" in given:
        wire = dataclasses.replace(wire, latency=seconds(str(given["latency"]), zero=True))
    return wire


_KEYS = ("nodes", "ranks_per_node", "inter", "intra", "uplink", "rack", "memory", "price")


def from_cluster(path: Path) -> Machines:
    """Read a cluster file (docs/plan.md). PlanError: it cannot be read, or has something unknown."""
    try:
        given = yaml.safe_load(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise PlanError(f"cannot read '{path}': {error.strerror}") from None
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        raise PlanError(f"'{path}' is no YAML: {' '.join(str(error).split())}") from None
    if not isinstance(given, dict):
        raise PlanError(f"'{path}' has no keys; it knows {', '.join(_KEYS)}")
    machines = Machines(source=(f"{path} ({age(path)})",))
    # First the nodes: ranks_per_node must not contradict them.
    for key, value in sorted(given.items(), key=lambda item: str(item[0]) != "nodes"):
        try:
            machines = _with(machines, str(key), value)
        except PlanError as error:
            raise PlanError(f"'{path}': {key}: {error}") from None
    return machines


def _with(machines: Machines, key: str, value: Any) -> Machines:
    if key in ("inter", "intra", "uplink"):
        changed: dict[str, Any] = {key: _wire(value, key, getattr(machines, key))}
        return dataclasses.replace(machines, **changed)
    if key == "nodes":
        return machines.on(shape(str(value)))
    if key == "ranks_per_node" and machines.sizes:
        raise PlanError(f"{machines.ranks_text()} has the ranks of each node already: leave out one of them")
    readers: dict[str, Any] = {"memory": bandwidth, "price": number, "ranks_per_node": count, "rack": count}
    if key not in readers:
        raise PlanError(f"unknown; a cluster file knows {', '.join(_KEYS)}")
    return dataclasses.replace(machines, **{key: readers[key](str(value))})


def changed(machines: Machines, text: str) -> Machines:
    """Return the machines with one change, such as ``inter=25Gbit``. PlanError: the text has another form."""
    key, equals, value = text.partition("=")
    if not equals:
        raise PlanError(f"{text!r} is not like inter=25Gbit")
    known = (*_KEYS, "latency")
    if key not in known:
        raise PlanError(f"{key!r} is unknown; known are {', '.join(known)}")
    if key == "latency":
        inter = dataclasses.replace(machines.inter, latency=seconds(value, zero=True))
        return dataclasses.replace(machines, inter=inter)
    return _with(machines, key, value)


def load_tuning(path: Path) -> Tuning:
    """Read a tuning file of `roundelay tune`. PlanError: the file is none."""
    try:
        return tuning_file.load(path)
    except tuning_file.TuningFileError as error:
        raise PlanError(str(error)) from None


def from_tuning(path: Path, machines: Machines) -> Machines:
    """Return the machines with the links that a tuning file has measured. PlanError: it is no tuning file."""
    tuning = load_tuning(path)
    if not tuning.cluster.levels:
        return machines
    members = {level.name: level.members for level in tuning.cluster.levels}
    ranks = members.get("node", 1)
    nodes = max(1, tuning.cluster.hosts)
    # The cluster's level is that of nodes if there are no racks, else that of racks.
    names = {"node": "intra", "rack": "inter", "cluster": "uplink" if "rack" in members else "inter"}
    sharers = {"intra": 1, "inter": ranks, "uplink": ranks * members.get("rack", 1)}
    errors = []
    for link in tuning.links:
        key = names.get(link.level)
        if key is None:
            continue
        wire = Wire(link.bandwidth * sharers[key], link.alpha, 0.0, link.overhead)
        changed: dict[str, Any] = {key: wire}
        machines = dataclasses.replace(machines, **changed)
        errors.append(link.error)
    return dataclasses.replace(
        machines,
        measured=(nodes, ranks),
        error=max(errors, default=STATED_ERROR),
        rack=members.get("rack", machines.rack),
        source=(
            *machines.source,
            f"{path}, links measured on {nodes} nodes of {ranks} ranks ({date_text(tuning.date)})",
        ),
    )


def age(path: Path) -> str:
    """Return a text that tells when a file was changed last, and how long ago that is."""
    changed_at = datetime.datetime.fromtimestamp(path.stat().st_mtime, datetime.timezone.utc)
    return age_text(changed_at)

"""The tuning file: the measurements of ``roundelay tune`` on a cluster, and the algorithms that it chose.

docs/techniques/topology.md describes its use. This module needs no torch, so that the launcher can check a
file.
"""

from __future__ import annotations

import dataclasses
import json
import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from roundelay._internal import launcher_module
from roundelay._internal.json_objects import WrongPartError, object_, objects, text
from roundelay.tuning.kernels import times
from roundelay.tuning.kernels.times import LayerTimes

FORMAT = "roundelay tuning"
VERSION = 1
UNITS = {"time": "s", "size": "B", "bandwidth": "B/s"}
ALGORITHMS = launcher_module.algorithms()  # by operation
GPU = "gpu"  # the level of operations over MPI on GPUs' memory, wherever their ranks are
CURE = "write one with: roundelay tune -np N --output {path}"


class TuningFileError(ValueError):
    """The file cannot be used. The text is one line with the cause and the cure."""


@dataclass(frozen=True)
class Level:
    """One level of the cluster, named after the part that it lies in: ranks of a node, nodes of a rack ...

    The outermost level is "cluster"; it joins nodes, or racks if there are any. Beside them there may be a
    level GPU, which joins all ranks.
    """

    name: str
    members: int  # the size of the largest part: ranks of a node, nodes of a rack ...


@dataclass(frozen=True)
class Cluster:
    """The cluster that was measured."""

    hosts: int
    ranks: int
    fabric: str  # the fabric between nodes, "mpi" or "tcp"; with one node the fabric inside it
    levels: tuple[Level, ...]  # innermost first; levels of one member are left out


@dataclass(frozen=True)
class Link:
    """The constants of a level, fitted to its operations: T = overhead + steps alpha + bytes / bandwidth.

    All ranks work at once: `bandwidth` is one rank's share while those beside it use the level, too. A node,
    or a rack, sends `bandwidth` times its ranks in a second.
    """

    level: str
    alpha: float  # s a message
    bandwidth: float  # B/s of one rank
    gamma: float  # s of CPU time a byte that a rank sends
    overhead: float  # s of an operation, whatever its size
    error: float  # median of |fit - measured| / measured


@dataclass(frozen=True)
class Measurement:
    """One algorithm at one size."""

    level: str
    operation: str
    algorithm: str
    ranks: int  # members of each group
    bytes: int  # the call's size: an allgather's result, the other operations' input
    seconds: float  # the median of the slowest rank
    cpu_seconds: float  # the median of one rank, all threads


@dataclass(frozen=True)
class Choice:
    """The algorithm of an operation of up to `most_bytes` bytes, in groups of `ranks` members and more.

    A group takes the choices with the most `ranks` that it has; without any, the built-in table.
    """

    level: str
    operation: str
    ranks: int
    most_bytes: int | None  # None: any
    algorithm: str


@dataclass(frozen=True)
class Tuning:
    """The content of a file."""

    date: str  # ISO 8601, UTC
    roundelay: str  # version of the package
    cluster: Cluster
    links: tuple[Link, ...]
    measured: tuple[Measurement, ...]
    table: tuple[Choice, ...]
    layers: LayerTimes | None = None  # this machine's; None: they were not measured

    def link(self, level: str) -> Link | None:
        """Returns the constants of a level; None if it has none."""
        return next((link for link in self.links if link.level == level), None)


def save(tuning: Tuning, path: str | os.PathLike[str]) -> None:
    """Writes the file as a whole, or not at all. Raises OSError."""
    content = {"format": FORMAT, "version": VERSION, "units": UNITS, **dataclasses.asdict(tuning)}
    target = Path(path)
    unfinished = target.with_name(f".{target.name}.{os.getpid()}")
    try:
        unfinished.write_text(json.dumps(content, indent=1) + "\n")
        unfinished.replace(target)
    finally:
        unfinished.unlink(missing_ok=True)


def load(path: str | os.PathLike[str]) -> Tuning:
    """Reads and validates a file. Raises TuningFileError."""
    name = os.fspath(path)
    try:
        content = json.loads(Path(path).read_text(encoding="utf-8"))
    except OSError as error:
        raise _refusal(name, (error.strerror or str(error)).lower()) from error
    except ValueError as error:  # also of bytes that are no text
        raise _refusal(name, f"it is not JSON ({error})") from error
    try:
        return _tuning(content)
    except (TuningFileError, WrongPartError) as error:
        raise _refusal(name, str(error)) from error


def agreed_text(tuning: Tuning) -> str:
    """Returns what all ranks agree on, as csrc/collective/tuning/tuning.h reads it; "": it has none."""
    if not tuning.cluster.levels:
        return ""
    lines = [f"fabric {tuning.cluster.fabric}"]
    lines += [f"level {level.name} {level.members}" for level in tuning.cluster.levels]
    lines += [f"link {link.level} {link.alpha!r} {link.bandwidth!r} {link.gamma!r}" for link in tuning.links]
    for choice in tuning.table:
        most = "any" if choice.most_bytes is None else str(choice.most_bytes)
        lines.append(f"choice {choice.level} {choice.operation} {choice.ranks} {most} {choice.algorithm}")
    return "\n".join(lines) + "\n"


def _refusal(path: str, why: str) -> TuningFileError:
    return TuningFileError(f"the tuning file {path!r} cannot be used: {why}; {CURE.format(path=path)}")


def _tuning(content: Any) -> Tuning:
    """Makes the object of a file's JSON. Raises TuningFileError with the reason alone."""
    if not isinstance(content, dict) or content.get("format") != FORMAT:
        raise TuningFileError(f'it is no tuning file: it has no "format": "{FORMAT}"')
    if content.get("version") != VERSION:
        raise TuningFileError(f"it has version {content.get('version')!r}, this Roundelay reads {VERSION}")
    if content.get("units") != UNITS:
        raise TuningFileError(f"its units are {content.get('units')!r}, not {UNITS!r}")
    cluster = object_(Cluster, "cluster", content.get("cluster"))
    tuning = Tuning(
        date=text("date", content.get("date")),
        roundelay=text("roundelay", content.get("roundelay")),
        cluster=dataclasses.replace(cluster, levels=objects(Level, "levels", cluster.levels)),
        links=objects(Link, "links", content.get("links")),
        measured=objects(Measurement, "measured", content.get("measured")),
        table=objects(Choice, "table", content.get("table")),
        layers=times.from_json(content["layers"]) if content.get("layers") is not None else None,
    )
    _check(tuning)
    return tuning


def _check(tuning: Tuning) -> None:
    """Raises TuningFileError if parts of the file contradict each other."""
    levels = [level.name for level in tuning.cluster.levels]
    for name in [*levels, tuning.cluster.fabric]:
        if not name or any(char.isspace() for char in name):
            raise TuningFileError(f"{name!r} is no name of a level or fabric")
    if len(set(levels)) != len(levels):
        raise TuningFileError("two levels have one name")
    parts: list[Link | Measurement | Choice] = [*tuning.links, *tuning.measured, *tuning.table]
    for part in parts:
        if part.level not in levels:
            raise TuningFileError(f"it has no level {part.level!r}; its levels are {', '.join(levels)}")
    for link in tuning.links:
        if link.bandwidth <= 0:
            raise TuningFileError(f"the bandwidth of level {link.level!r} is {link.bandwidth!r}")
    _check_table(tuning.table)


def _check_table(table: Sequence[Choice]) -> None:
    """Raises TuningFileError unless the choices of each group ascend in bytes up to one for any bytes."""
    last: dict[tuple[str, str, int], int | None] = {}
    for choice in table:
        known = ALGORITHMS.get(choice.operation, ())
        if choice.algorithm not in known:
            listed = ", ".join(known) or "none"
            raise TuningFileError(f"{choice.operation} has no {choice.algorithm!r}; there are: {listed}")
        if choice.ranks < 2:
            raise TuningFileError(f"a choice is for groups of {choice.ranks} ranks")
        key = (choice.level, choice.operation, choice.ranks)
        before = last.get(key, -1)
        if before is None or (choice.most_bytes is not None and choice.most_bytes <= before):
            raise TuningFileError(f"the sizes of {' '.join(map(str, key))} ranks do not ascend")
        last[key] = choice.most_bytes
    for key, most in last.items():
        if most is not None:
            raise TuningFileError(f"{' '.join(map(str, key))} ranks lack an algorithm beyond {most} bytes")

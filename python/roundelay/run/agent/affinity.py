"""Chooses the CPUs of a rank: an equal share of the host's, of whole cores, within a NUMA node if possible.

Uses only the standard library, as the agent needs it on hosts that import nothing else of Roundelay.
"""

from __future__ import annotations

import contextlib
import glob
import re

Core = frozenset[int]  # the CPUs of one core: its hardware threads

_LEAST_CPUS = 2  # a smaller share is not bound: the system places the rank's threads better


def share(nodes: list[list[Core]], rank: int, ranks: int) -> set[int] | None:
    """Returns the CPUs of one of `ranks` ranks on a host; None if there are too few to divide.

    nodes: the cores that may be used, by NUMA node. Pure; the shares of a host's ranks are disjoint.
    """
    nodes = [node for node in nodes if node]
    cores = [core for node in nodes for core in node]
    if ranks < 2 or len(cores) < ranks:
        return None
    if ranks < len(nodes):
        shares = _cut(cores, ranks)
    else:
        shares = [
            part
            for node, count in zip(nodes, _spread(nodes, ranks), strict=True)
            for part in _cut(node, count)
        ]
    sets = [set().union(*part) for part in shares]
    return sets[rank] if min(map(len, sets)) >= _LEAST_CPUS else None


def _spread(nodes: list[list[Core]], ranks: int) -> list[int]:
    """Returns how many ranks each node gets. Each rank in turn goes where it has the most cores."""
    counts = [0] * len(nodes)
    for _ in range(ranks):
        best = max(range(len(nodes)), key=lambda index: (len(nodes[index]) / (counts[index] + 1), -index))
        counts[best] += 1
    return counts


def _cut(cores: list[Core], parts: int) -> list[list[Core]]:
    """Cuts into parts of neighbours, which differ by one core at most."""
    return [cores[part * len(cores) // parts : (part + 1) * len(cores) // parts] for part in range(parts)]


def read_nodes(allowed: set[int], root: str = "/sys/devices/system") -> list[list[Core]]:
    """Returns the cores of this machine by NUMA node; each core has only its CPUs in `allowed`."""
    listings = sorted(
        glob.glob(f"{root}/node/node[0-9]*/cpulist"), key=lambda path: int(re.findall(r"\d+", path)[-1])
    )
    nodes = [_read_cpus(path) & allowed for path in listings]
    unplaced = allowed.difference(*nodes)
    return [_cores(node, root) for node in [*nodes, unplaced] if node]


def _cores(cpus: set[int], root: str) -> list[Core]:
    cores: dict[Core, None] = {}
    for cpu in sorted(cpus):
        siblings = _read_cpus(f"{root}/cpu/cpu{cpu}/topology/thread_siblings_list") & cpus
        cores[frozenset(siblings | {cpu})] = None
    return list(cores)


def _read_cpus(path: str) -> set[int]:
    """Returns the CPUs that a file like "0-3,8" lists; none if there is no such file."""
    found: set[int] = set()
    with contextlib.suppress(OSError, ValueError), open(path) as listing:
        for part in listing.read().strip().split(","):
            first, _, last = part.partition("-")
            found.update(range(int(first), int(last or first) + 1))
    return found


def shown(cpus: set[int]) -> str:
    """Returns a set as people write it: "0-3,8"."""
    ranges: list[list[int]] = []
    for cpu in sorted(cpus):
        if ranges and ranges[-1][1] == cpu - 1:
            ranges[-1][1] = cpu
        else:
            ranges.append([cpu, cpu])
    return ",".join(str(first) if first == last else f"{first}-{last}" for first, last in ranges)

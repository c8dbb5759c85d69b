"""Which CPUs the ranks of a host get: disjoint, whole cores, within NUMA nodes."""

from __future__ import annotations

import itertools
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from roundelay.run.agent import affinity
from roundelay.run.agent.affinity import Core, read_nodes, share, shown


def machine(nodes: int, cores: int, threads: int) -> list[list[Core]]:
    """So many nodes of so many cores; a core's second thread has a high number, as on real machines."""
    total = nodes * cores
    numbers = [[core + thread * total for thread in range(threads)] for core in range(total)]
    return [[frozenset(core) for core in numbers[node * cores : (node + 1) * cores]] for node in range(nodes)]


def shares(nodes: list[list[Core]], ranks: int) -> list[set[int] | None]:
    return [share(nodes, rank, ranks) for rank in range(ranks)]


def test_ranks_fill_the_nodes_evenly() -> None:
    assert shares(machine(2, 4, 1), 4) == [{0, 1}, {2, 3}, {4, 5}, {6, 7}]
    assert shares(machine(2, 2, 2), 4) == [{0, 4}, {1, 5}, {2, 6}, {3, 7}]
    assert shares(machine(2, 10, 1), 3) == [set(range(5)), set(range(5, 10)), set(range(10, 20))]


def test_fewer_ranks_than_nodes_get_several() -> None:
    assert shares(machine(4, 2, 1), 2) == [{0, 1, 2, 3}, {4, 5, 6, 7}]


@pytest.mark.parametrize(
    ("nodes", "ranks"),
    [(machine(1, 2, 1), 3), (machine(1, 8, 1), 1), (machine(1, 3, 1), 2), (machine(1, 1, 2), 2), ([], 2)],
    ids=["more ranks than cores", "one rank", "a share of one CPU", "one core with two threads", "unknown"],
)
def test_too_few_cores_are_not_divided(nodes: list[list[Core]], ranks: int) -> None:
    assert shares(nodes, ranks) == [None] * ranks


@given(
    nodes=st.lists(st.integers(0, 9), min_size=1, max_size=5),
    threads=st.integers(1, 2),
    ranks=st.integers(1, 12),
)
def test_shares_are_disjoint_whole_and_fair(nodes: list[int], threads: int, ranks: int) -> None:
    total = sum(nodes)
    numbers = iter(range(total))
    built = [
        [frozenset(range(first, total * threads, total)) for first in itertools.islice(numbers, size)]
        for size in nodes
    ]
    given = shares(built, ranks)
    if any(part is None for part in given):
        assert given == [None] * ranks  # all or none
        return
    sets = [part for part in given if part is not None]
    assert sum(map(len, sets)) == len(set().union(*sets))
    if ranks < len(list(filter(None, nodes))):
        assert set().union(*sets) == set(range(total * threads))
    for part in sets:
        assert len(part) >= 2
        assert all(core <= part or not core & part for node in built for core in node)


def test_reads_what_the_system_says(tmp_path: Path) -> None:
    for node, cpus in enumerate(("0-1,4-5", "2-3,6-7")):
        folder = tmp_path / "node" / f"node{node}"
        folder.mkdir(parents=True)
        (folder / "cpulist").write_text(cpus + "\n")
    for cpu in range(8):
        folder = tmp_path / "cpu" / f"cpu{cpu}" / "topology"
        folder.mkdir(parents=True)
        (folder / "thread_siblings_list").write_text(f"{cpu % 4},{cpu % 4 + 4}\n")
    assert read_nodes(set(range(8)), str(tmp_path)) == machine(2, 2, 2)
    assert read_nodes({0, 1, 5, 6}, str(tmp_path)) == [[{0}, {1, 5}], [{6}]]
    assert read_nodes({0, 1}, str(tmp_path / "nothing")) == [[{0}, {1}]]
    assert affinity.read_nodes({0})


def test_cores_are_shown_as_ranges() -> None:
    assert shown({0, 1, 2, 5, 7, 8}) == "0-2,5,7-8"

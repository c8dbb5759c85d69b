"""NodeSampler: all of the dataset in every epoch, equal numbers for all ranks, each node its own samples."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.utils.data import DataLoader, IterableDataset, TensorDataset

from roundelay.torch.data import NodeSampler

Epoch = list[list[int]]


def epoch_of(length: int, nodes: Sequence[int], epoch: int = 0, **options: Any) -> Epoch:
    """The indices of each rank."""
    found = []
    for rank in range(len(nodes)):
        sampler = NodeSampler(range(length), nodes, rank, **options)
        sampler.set_epoch(epoch)
        found.append(list(sampler))
        assert len(found[-1]) == len(sampler)
    return found


def met(epoch: Epoch, nodes: Sequence[int], node: int) -> set[int]:
    """The samples that a node's ranks meet."""
    return {index for rank, own in enumerate(epoch) if nodes[rank] == node for index in own}


_JOBS = st.tuples(
    st.integers(0, 60),
    st.lists(st.integers(0, 3), min_size=1, max_size=8),
    st.booleans(),
    st.booleans(),
    st.integers(0, 5),
)


@settings(max_examples=300, deadline=None, derandomize=True)
@given(_JOBS)
def test_any_jobs_nodes_share_the_samples(job: tuple[int, list[int], bool, bool, int]) -> None:
    length, nodes, shuffle, drop_last, epoch = job
    options = {"shuffle": shuffle, "drop_last": drop_last, "seed": 3}
    size = len(nodes)
    found = epoch_of(length, nodes, epoch, **options)
    expected = length // size if drop_last else -(-length // size)
    assert [len(own) for own in found] == [expected] * size
    counts = Counter(index for own in found for index in own)
    assert set(counts) <= set(range(length))
    if drop_last:
        assert all(count == 1 for count in counts.values())
    else:
        assert len(counts) == length  # none is left out
        if length >= size:
            assert max(counts.values(), default=0) <= 2
    assert found == epoch_of(length, nodes, epoch, **options)  # the same once more
    if length >= size:  # else nodes without samples repeat those of others
        for first in set(nodes):
            for second in set(nodes) - {first}:
                assert not met(found, nodes, first) & met(found, nodes, second)


_GENERATIONS = st.lists(  # nodes of the ranks, and how many batches they have trained with
    st.tuples(st.lists(st.integers(0, 3), min_size=1, max_size=6), st.integers(0, 4)), min_size=2, max_size=4
)


@settings(max_examples=300, deadline=None, derandomize=True)
@given(st.integers(0, 60), _GENERATIONS, st.integers(1, 4), st.booleans(), st.integers(0, 2))
def test_a_change_of_ranks_loses_no_sample_and_draws_none_twice(
    length: int, generations: list[tuple[list[int], int]], batch: int, shuffle: bool, epoch: int
) -> None:
    state: dict[str, Any] = {"epoch": epoch, "processed_indices": set()}
    for nodes, batches in generations:
        ranks = [NodeSampler(range(length), nodes, rank, shuffle, seed=3) for rank in range(len(nodes))]
        for one in ranks:
            one.load_state_dict(state)
        drawn = [list(one) for one in ranks]
        assert len({len(own) for own in drawn}) == 1
        counts = Counter(index for own in drawn for index in own)
        assert set(counts) == set(range(length)) - state["processed_indices"]
        if len(counts) >= len(nodes):
            assert max(counts.values()) <= 2  # a shard that is too small
        for number in range(batches):
            for one in ranks:
                one.record_batch(number, batch)
        trained = {index for own in drawn for index in own[: batches * batch]}
        after = [one.state_dict() for one in ranks]
        assert all(one == after[0] for one in after)  # all ranks know what all have drawn
        assert after[0]["processed_indices"] == state["processed_indices"] | trained
        assert drawn == [list(one) for one in ranks]  # the division stays until the ranks change
        state = after[0]
    ranks[0].set_epoch(epoch + 1)
    assert sorted(set(ranks[0]._left.tolist())) == list(range(length))


@pytest.mark.parametrize("nodes", [[0, 0, 1, 1], [0, 1, 0, 1], [0, 0, 0, 1], [4, 7]])
def test_a_node_meets_its_own_samples_in_every_epoch(nodes: list[int]) -> None:
    epochs = [epoch_of(103, nodes, epoch) for epoch in range(4)]
    for node in set(nodes):
        shards = [met(epoch, nodes, node) for epoch in epochs]
        assert all(shard == shards[0] for shard in shards)
        ideal = 103 * nodes.count(node) / len(nodes)
        assert abs(len(shards[0]) - ideal) <= nodes.count(node)
    orders = [tuple(map(tuple, epoch)) for epoch in epochs]
    assert len(set(orders)) == len(epochs)
    # Within a node ranks exchange samples.
    first, later = (set(epoch[nodes.index(nodes[0])]) for epoch in epochs[:2])
    assert nodes.count(nodes[0]) == 1 or first != later


def test_dropped_samples_differ_from_epoch_to_epoch() -> None:
    dropped = set()
    for epoch in range(20):
        seen = {index for own in epoch_of(11, [0, 0, 1, 1], epoch, drop_last=True) for index in own}
        dropped |= set(range(11)) - seen
    assert len(dropped) > 3


def test_shards_are_a_mixture_of_the_dataset_and_follow_the_seed() -> None:
    shards = [met(epoch_of(1000, [0, 1], seed=seed), [0, 1], 0) for seed in (1, 2)]
    assert shards[0] != shards[1]
    assert 200 < len(shards[0] & set(range(500))) < 300


def test_without_shuffling_in_the_datasets_order() -> None:
    assert epoch_of(8, [0, 0, 1, 1], shuffle=False) == [[0, 2], [1, 3], [4, 6], [5, 7]]
    assert epoch_of(7, [0, 0, 1, 1], 5, shuffle=False) == [[0, 2], [1, 3], [4, 6], [5, 4]]


def test_a_data_loader_takes_the_sampler() -> None:
    dataset = TensorDataset(torch.arange(10))
    sampler = NodeSampler(dataset, [0, 0], 1)
    loader = DataLoader(dataset, batch_size=2, sampler=sampler)
    assert len(loader) == 3
    assert [int(index) for (batch,) in loader for index in batch] == list(sampler)


class Endless(IterableDataset[int]):
    """It has no length."""

    def __iter__(self) -> Iterator[int]:
        return iter(())


@pytest.mark.parametrize(
    ("arguments", "error", "text"),
    [
        ((Endless(), [0], 0), TypeError, "Endless"),
        (([1], [0, 0], 2), ValueError, "from 0 to 1"),
        (([1], [0, 0], None), ValueError, "rank must be"),
        (([1], None, 3), ValueError, "needs nodes="),
        (([1],), ValueError, "hvd.init"),
    ],
)
def test_bad_arguments(arguments: tuple[Any, ...], error: type[Exception], text: str) -> None:
    with pytest.raises(error, match=text):
        NodeSampler(*arguments)

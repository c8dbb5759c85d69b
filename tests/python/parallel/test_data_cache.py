"""One cache for all ranks of a node and their workers, and the sampler that learns the nodes from the job."""

from __future__ import annotations

import gc
import re
import tempfile
from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from unittest import mock

import pytest
import torch
from torch.utils.data import DataLoader, Subset, TensorDataset
from torch.utils.data.distributed import DistributedSampler

import roundelay.torch as hvd
from far_source import FarSource, check
from ranks import Check, run_check
from roundelay.torch._internal.topology import Level, Part, Topology
from roundelay.torch.data import DataCache, NodeSampler, job, sampler

LENGTH, NUMBERS = 40, 100_000  # 400 kB each


@pytest.mark.parametrize("np", [2, pytest.param(3, marks=pytest.mark.nightly)])
def test_data_cache(np: int, check: Check) -> None:
    run_check(check, np)


def check_subsets_of_ranks_are_no_cache_of_the_node() -> None:
    part = Subset(TensorDataset(torch.arange(8)), range(hvd.rank(), 8, hvd.size()))
    cache, objection = None, ""
    try:
        cache = DataCache(part)
    except ValueError as error:
        objection = str(error)
    assert (cache is None) == ("dataset is 'torch.utils.data.dataset.Subset with indices" in objection)
    made = hvd.allgather_object(cache is not None)
    assert made.count(True) == 1


@contextmanager
def _folder() -> Iterator[Path]:
    """One folder for all ranks."""
    with tempfile.TemporaryDirectory() as own:
        yield Path(hvd.broadcast_object(own, 0))
        hvd.barrier()


def _proportional_bytes(folder: Path) -> tuple[int, int]:
    """How much of the files in a folder this process has in memory: its share of it, and all of it."""
    text = Path("/proc/self/smaps").read_text()
    share = whole = 0
    for part in re.split(r"\n(?=[0-9a-f]+-[0-9a-f]+ )", text):
        if str(folder) in part.splitlines()[0]:
            numbers = dict(re.findall(r"^(\w+): +(\d+) kB", part, re.MULTILINE))
            share += int(numbers["Pss"]) * 1024
            whole += int(numbers["Rss"]) * 1024
    return share, whole


def check_ranks_and_workers_share_one_copy() -> None:
    with _folder() as folder:
        source = FarSource(folder, LENGTH, NUMBERS)
        cache = DataCache(source)
        shard = NodeSampler(cache, seed=1)
        for epoch in range(3):
            shard.set_epoch(epoch)
            loader = DataLoader(cache, 4, sampler=shard, num_workers=2, collate_fn=list)
            check([one for batch in loader for one in batch], source, list(shard))
            hvd.barrier()
        if hvd.rank() == 0:
            reads = source.take_reads()
            assert len(reads) == LENGTH
            # Padding may give a sample to two ranks, which then may both read it before it is kept.
            assert sum(reads.values()) <= LENGTH + hvd.size()
        stats = cache.stats()
        samples = 3 * len(shard) * hvd.size()
        assert stats.memory.hits + stats.source.hits == samples
        assert stats.memory.kept == LENGTH
        once = LENGTH * NUMBERS * 4
        assert once < stats.memory.kept_bytes < 1.1 * once
        hvd.barrier()
        check(cache, source)  # now every rank has mapped all of it
        hvd.barrier()
        share, whole = _proportional_bytes(cache._cache._storage.folder)
        hvd.barrier()
        assert whole > once
        assert share < 1.2 * whole / hvd.size()
        del cache, loader
        gc.collect()
        hvd.barrier()


def check_ranks_that_disagree_get_one_text() -> None:
    last = hvd.size() - 1
    for rank in range(last):  # one after the other, the one that differs at last
        if hvd.rank() == rank:
            cache = DataCache([1, 2, 3])
        hvd.barrier()
    text = "none"
    try:
        if hvd.rank() == last:
            DataCache([1, 2, 3, 4])
        hvd.barrier()
        assert hvd.rank() != last
        cache[0]
    except ValueError as error:
        text = str(error)
    if hvd.rank() == last:
        hvd.barrier()
    texts = set(hvd.allgather_object(text))
    assert len(texts) == 1
    assert re.search(rf"length is 3 on rank 0 .* and 4 on rank {last} ", texts.pop())


def check_the_job_tells_the_sampler_its_nodes() -> None:
    nodes = [rank // 2 for rank in range(hvd.size())]
    with _nodes(nodes):
        found = NodeSampler(range(30))
    assert list(found) == list(NodeSampler(range(30), nodes, hvd.rank()))
    together = hvd.allgather(torch.tensor(list(found)), name="all")
    assert sorted(together.tolist()) == list(range(30))


def check_each_sample_is_read_by_one_node_alone() -> None:
    nodes = [(rank + 1) // 2 for rank in range(hvd.size())]
    with _folder() as folder, _nodes(nodes), _own_node():
        source = FarSource(folder, LENGTH, 100)
        cache = DataCache(source)
        shard = NodeSampler(cache)
        for epoch in range(3):
            shard.set_epoch(epoch)
            check([cache[index] for index in shard], source, list(shard))
            hvd.barrier()
        if hvd.rank() == 0:
            reads = source.take_reads()
            assert len(reads) == LENGTH
            assert sum(reads.values()) <= LENGTH + hvd.size()  # padding, as above
        hvd.barrier()
        kept = cache.stats().memory.kept
        ranks = nodes.count(nodes[hvd.rank()])
        assert abs(kept - LENGTH * ranks / hvd.size()) <= ranks
        del cache
        gc.collect()
        hvd.barrier()


def check_what_other_nodes_hold_comes_from_the_source() -> None:
    """A plain DistributedSampler gives a node other samples in every epoch."""
    with _folder() as folder, _own_node() as node:
        source = FarSource(folder, LENGTH, 100)
        cache = DataCache(source)
        share: DistributedSampler[int] = DistributedSampler(cache, hvd.size(), hvd.rank(), seed=1)
        held: dict[str, set[int]] = defaultdict(set)
        for epoch in range(3):
            share.set_epoch(epoch)
            check([cache[index] for index in share], source, list(share))
            missing = 0
            for other, indices in hvd.allgather_object((node, list(share))):
                missing += len(set(indices) - held[other])
                held[other] |= set(indices)
            assert missing > 0
            if hvd.rank() == 0:
                reads = sum(source.take_reads().values())
                assert missing <= reads <= missing + hvd.size()  # padding, as above
            hvd.barrier()
        del cache, share
        gc.collect()
        hvd.barrier()


@contextmanager
def _nodes(nodes: list[int]) -> Iterator[None]:
    """Lets the sampler take these for the ranks' nodes."""
    parts = (
        Part(f"node {node}", tuple(rank for rank, own in enumerate(nodes) if own == node))
        for node in sorted(set(nodes))
    )
    with mock.patch.object(sampler, "topology", return_value=Topology((Level("node", tuple(parts)),))):
        yield


@contextmanager
def _own_node() -> Iterator[str]:
    """Lets rank 0 take itself for a node, ranks 1 and 2 for another; returns its name."""
    node = f"node {(hvd.rank() + 1) // 2}"
    with mock.patch.object(job, "node_name", return_value=node):
        yield node

"""DataCache's errors: a directory that is taken, ranks that disagree, bad arguments and samples."""

from __future__ import annotations

import gc
import itertools
import os
import pickle
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from torch.utils.data import IterableDataset

from far_source import FarSource, another_job, check, node_memory, source
from roundelay.torch.data import DataCache, disk_folder, locks
from roundelay.torch.data import cache as cache_module
from roundelay.torch.data.arguments import bytes_of

__all__ = ["node_memory", "source"]

MIB = 1 << 20


class Absent(FarSource):
    """Cannot be read."""

    def __getitem__(self, index: int) -> Any:
        raise ConnectionError("the store does not answer")


@pytest.mark.usefixtures("node_memory")
def test_a_directory_belongs_to_one_cache(
    tmp_path: Path, source: FarSource, monkeypatch: pytest.MonkeyPatch
) -> None:
    cache = DataCache(source, tmp_path / "disk")
    with pytest.raises(
        RuntimeError, match=rf"DataCache number \d+ of this job on node .*, rank 0 .process {os.getpid()}"
    ):
        DataCache(source, tmp_path / "disk")
    another_job(monkeypatch)
    monkeypatch.setattr(disk_folder, "_ENDING_LIMIT_S", 0.1)
    with pytest.raises(RuntimeError, match=r"is in use by another job that runs, rank 0 .*of its own"):
        DataCache(source, tmp_path / "disk")
    check(cache, source)
    del cache
    gc.collect()
    DataCache(source, tmp_path / "disk")


@pytest.mark.usefixtures("node_memory")
def test_a_killed_job_that_still_has_its_lock_is_waited_for(
    tmp_path: Path, source: FarSource, monkeypatch: pytest.MonkeyPatch
) -> None:
    DataCache(source, tmp_path / "disk")  # writes who has the directory, and is gone at once
    still = locks.lock(disk_folder.inside(tmp_path / "disk"), 0.0, shared=True)
    another_job(monkeypatch)
    pauses: list[float] = []

    def sleep(seconds: float) -> None:
        pauses.append(seconds)
        if len(pauses) == 3:
            locks.release(still)

    monkeypatch.setattr("roundelay.torch.data.locks.time.sleep", sleep)
    cache = DataCache(source, tmp_path / "disk")
    assert len(pauses) == 3
    check(cache, source)


@pytest.mark.usefixtures("node_memory")
def test_a_cache_that_could_not_be_made_leaves_its_directory(tmp_path: Path, source: FarSource) -> None:
    with pytest.raises(ConnectionError):
        DataCache(Absent(tmp_path), tmp_path / "disk")  # it has no record yet
    check(DataCache(source, tmp_path / "disk"), source)


@pytest.mark.usefixtures("node_memory")
def test_a_cache_that_could_not_be_flushed_leaves_its_directory(
    tmp_path: Path, source: FarSource, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(_folder: Path) -> None:
        flushed.append(1)
        raise OSError("no space left on device")

    flushed: list[int] = []
    cache = DataCache(source, tmp_path / "disk")
    with monkeypatch.context() as patched:
        patched.setattr("roundelay.torch.data.disk_folder.flush", full)
        del cache
        gc.collect()
    assert flushed
    check(DataCache(source, tmp_path / "disk"), source)


class Ranks:
    """Makes caches as one rank or another of a node; each counts its own."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self._monkeypatch = monkeypatch
        self._numbers: dict[int, tuple[Iterator[int], list[int]]] = {}

    def make(self, rank: int, dataset: FarSource, **options: Any) -> DataCache:
        another_job(self._monkeypatch, rank=rank)
        numbers, free = self._numbers.setdefault(rank, (itertools.count(1), []))
        self._monkeypatch.setattr(cache_module, "_numbers", numbers)
        self._monkeypatch.setattr(cache_module, "_free", free)
        return DataCache(dataset, **options)


@pytest.mark.usefixtures("node_memory")
def test_ranks_with_different_arguments_all_hear_of_it(
    source: FarSource, monkeypatch: pytest.MonkeyPatch
) -> None:
    ranks = Ranks(monkeypatch)
    caches = [ranks.make(0, source), ranks.make(1, source)]
    assert caches[0]._cache._storage == caches[1]._cache._storage
    text = rf"number 1 of the ranks on node node .* memory is 4294967296 on rank 0 .* and {MIB} on rank 2 "
    with pytest.raises(ValueError, match=text):
        ranks.make(2, source, memory=MIB)
    with pytest.raises(ValueError, match=text):  # the first text
        ranks.make(3, source, version="2")
    for cache in caches:
        with pytest.raises(ValueError, match=text):
            cache[0]


@pytest.mark.usefixtures("node_memory")
def test_an_attempt_that_failed_on_one_rank_does_not_count(
    tmp_path: Path, source: FarSource, monkeypatch: pytest.MonkeyPatch
) -> None:
    ranks, disk = Ranks(monkeypatch), tmp_path / "disk"
    with pytest.raises(ConnectionError):
        ranks.make(0, Absent(tmp_path), directory=disk)
    first, again = ranks.make(1, source, directory=disk), ranks.make(0, source, directory=disk)
    assert again._cache._storage == first._cache._storage
    assert DataCache(source)._cache._storage.folder != again._cache._storage.folder  # the number is taken
    check(again, source)


@pytest.mark.usefixtures("node_memory")
def test_after_a_disagreement_the_ranks_make_the_next_cache_together(
    source: FarSource, monkeypatch: pytest.MonkeyPatch
) -> None:
    ranks = Ranks(monkeypatch)
    refused = ranks.make(0, source)
    with pytest.raises(ValueError, match="different arguments"):
        ranks.make(1, source, memory=MIB)
    first, again = ranks.make(0, source), ranks.make(1, source)
    assert again._cache._storage == first._cache._storage != refused._cache._storage
    check(again, source)


class Endless(IterableDataset[int]):
    """Has neither length nor index."""

    def __iter__(self) -> Iterator[int]:
        return iter(())


class Unmeasured:
    """Has an index and no length."""

    def __getitem__(self, index: int) -> int:
        return index


MISUSE: dict[str, tuple[Any, dict[str, Any], type[Exception], str]] = {
    "iterable": (Endless(), {}, TypeError, "map-style dataset.*Endless"),
    "no length": (Unmeasured(), {}, TypeError, "with a length.*Unmeasured"),
    "memory": ([1], {"memory": "much"}, ValueError, "memory must be .*'much'"),
    "little memory": ([1], {"memory": 1000}, ValueError, "at least 1 MiB"),
    "no room": ([1], {"memory": 0}, ValueError, "memory=0 needs directory="),
    "no memory": ([1], {"memory": None}, TypeError, "memory must be .*None"),
    "version": ([1], {"version": 3}, TypeError, "version must be a string"),
    "directory": ([1], {"directory": 3}, TypeError, "directory must be a path"),
    "a file": (
        [1],
        {"directory": __file__},
        ValueError,
        "cannot use directory=.*_misuse.py' on node",
    ),
    "unwritable": ([1], {"directory": "/proc/none"}, ValueError, "cannot use directory='/proc/none'"),
}


@pytest.mark.parametrize("case", MISUSE)
@pytest.mark.usefixtures("node_memory")
def test_bad_arguments(case: str) -> None:
    dataset, options, error, text = MISUSE[case]
    with pytest.raises(error, match=text):
        DataCache(dataset, **options)


@pytest.mark.usefixtures("node_memory")
def test_bad_samples_and_indices() -> None:
    cache = DataCache([1, (i for i in range(3))])
    assert cache[0] == 1
    with pytest.raises(TypeError, match=r"sample 1 of builtins.list .* type builtins.generator"):
        cache[1]
    for index in (2, -3):
        with pytest.raises(IndexError, match=rf"no sample {index}, only 2"):
            cache[index]
    with pytest.raises(TypeError):
        cache["a"]  # type: ignore[index]


def test_without_lmdb_the_error_names_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "lmdb", None)
    with pytest.raises(RuntimeError, match=r"pip install 'roundelay\[data\]'"):
        DataCache([1])


@pytest.mark.usefixtures("node_memory")
def test_after_its_end_a_cache_says_so(source: FarSource) -> None:
    cache = DataCache(source)
    copy = pickle.dumps(cache)
    del cache
    gc.collect()
    with pytest.raises(RuntimeError, match="is gone"):
        pickle.loads(copy)[0]


def test_sizes_of_memory_are_parsed_or_refused() -> None:
    assert bytes_of("4 GiB") == bytes_of("4G") == bytes_of("4 gb") == bytes_of(4 << 30) == 4 << 30
    assert bytes_of("1.5 MiB") == bytes_of("1536K") == 3 << 19
    assert bytes_of("0") == bytes_of(0) == 0
    for text in ("", "-1", "4 GiB 2", "GiB", "1e9"):
        with pytest.raises(ValueError, match="memory must be"):
            bytes_of(text)

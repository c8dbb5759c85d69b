"""DataCache in one process and its workers: what is read where, limits, full levels, the next job, misuse."""

from __future__ import annotations

import copy
import errno
import gc
import itertools
import os
import pickle
import subprocess
import sys
import warnings
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch.utils.data import DataLoader

from far_source import FarSource, another_job, check, node_memory, source
from programs import full_disk
from rank_program import program
from roundelay.torch.data import DataCache, disk_folder, node_cache
from roundelay.torch.data import cache as cache_module

__all__ = ["node_memory", "source"]

MIB = 1 << 20
LARGE = 40_000  # numbers of a sample: some 6 fit into 1 MiB


class Own(list[Any]):
    """A type that only pickle takes."""


@pytest.mark.usefixtures("node_memory")
def test_the_source_is_read_once(source: FarSource) -> None:
    cache = DataCache(source)
    assert len(cache) == len(source)
    check(cache, source)
    assert set(source.take_reads().values()) == {1}
    for _ in range(2):
        check([cache[i] for i in range(len(source))], source)
        check(cache.__getitems__([3, 3, -1]), source, [3, 3, 23])
    assert not source.take_reads()
    stats = cache.stats()
    assert (stats.source.hits, stats.memory.hits, stats.disk.hits) == (24, 2 * 27, 0)
    assert stats.memory.kept == 24
    assert stats.source.bytes >= 24 * 1200
    assert stats.memory.kept_bytes >= stats.source.bytes
    assert stats.memory.samples_per_second > 0
    assert "memory" in str(stats)


@pytest.mark.usefixtures("node_memory")
def test_samples_are_new_objects_of_one_type_in_every_epoch(tmp_path: Path) -> None:
    kept = torch.zeros(3)
    cache = DataCache([[kept, Own([1])]])
    for _ in range(3):
        sample = cache[0]
        assert sample[0].sum() == 0
        sample[0] += 1
        assert isinstance(sample[1], Own)
    assert kept.sum() == 0


@pytest.mark.usefixtures("node_memory")
def test_copies_in_one_process_share_the_cache(source: FarSource) -> None:
    cache = DataCache(source)
    check([cache[1]], source, [1])
    for other in (copy.deepcopy(cache), copy.copy(cache), pickle.loads(pickle.dumps(cache))):
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            check([other[1]], source, [1])
    assert source.take_reads() == {1: 1}


def test_only_own_folders_of_dead_jobs_are_removed(
    node_memory: Path, tmp_path: Path, source: FarSource, monkeypatch: pytest.MonkeyPatch
) -> None:
    prefix = f"roundelay-data-{os.getuid()}-"
    dead, foreign, elsewhere = node_memory / f"{prefix}dead", node_memory / f"{prefix}link", tmp_path / "else"
    for folder in (dead, elsewhere):
        folder.mkdir()
        (folder / "data").write_text("samples")
    foreign.symlink_to(elsewhere)
    cache = DataCache(source)
    another_job(monkeypatch)
    DataCache(source)
    check([cache[0]], source, [0])  # a job that runs
    assert not dead.exists()
    assert (foreign / "data").exists()
    foreign.unlink()


@pytest.mark.usefixtures("node_memory")
def test_only_transform_runs_anew(source: FarSource) -> None:
    calls: list[int] = []

    def transform(sample: Any) -> Any:
        calls.append(sample[1])
        return sample[0] * len(calls)

    cache = DataCache(source, transform=transform)
    assert torch.equal(cache[2], torch.full((300,), 2.0))
    assert torch.equal(cache[2], torch.full((300,), 4.0))
    assert source.take_reads() == {2: 1}


# A spawned worker takes seconds to start.
@pytest.mark.parametrize(
    ("context", "workers", "epochs"), [("fork", 2, 3), pytest.param("spawn", 1, 1, marks=pytest.mark.slow)]
)
@pytest.mark.usefixtures("node_memory")
def test_workers_share_one_copy(source: FarSource, context: str, workers: int, epochs: int) -> None:
    cache = DataCache(source)
    check([cache[5]], source, [5])  # open in this process, too
    for _ in range(epochs):
        loader = DataLoader(
            cache, batch_size=4, num_workers=workers, multiprocessing_context=context, collate_fn=list
        )
        check([sample for batch in loader for sample in batch], source)
    assert set(source.take_reads().values()) == {1}
    stats = cache.stats()
    assert stats.memory.hits + stats.source.hits == 1 + epochs * 24
    assert stats.memory.kept == 24
    check([cache[5]], source, [5])


@pytest.mark.usefixtures("node_memory")
def test_the_batch_reader_of_the_source_is_used(source: FarSource) -> None:
    class Batched(FarSource):
        def __getitems__(self, indices: list[int]) -> list[Any]:
            asked.append(indices)
            return [self.sample(index) for index in indices]

    asked: list[list[int]] = []
    cache = DataCache(Batched(source.log.parent))
    cache.__getitems__([1, 2])
    cache.__getitems__([1, 2, 3, 0])
    assert asked == [[1, 2], [3, 0]]


@pytest.mark.usefixtures("node_memory")
def test_what_memory_has_no_room_for_goes_to_the_disk(tmp_path: Path) -> None:
    source = FarSource(tmp_path, numbers=LARGE)
    cache = DataCache(source, tmp_path / "disk", memory=MIB)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        check(cache, source)
        check(cache, source)
    assert set(source.take_reads().values()) == {1}
    stats = cache.stats()
    assert stats.memory.kept_bytes <= MIB
    assert stats.memory.kept >= 4
    assert stats.memory.kept + stats.disk.kept == 24  # each once
    assert stats.memory.hits + stats.disk.hits == 24 + 8  # the 8 probes were there in the first epoch


def test_full_memory_is_one_warning(node_memory: Path, tmp_path: Path) -> None:
    source = FarSource(tmp_path, numbers=LARGE)
    cache = DataCache(source, memory=MIB)
    with pytest.warns(RuntimeWarning, match=r"FarSource is full \(its limit of 1 MiB"):
        check(cache, source)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        check(cache, source)
        pickle.loads(pickle.dumps(cache._cache)).keep(99, bytes(MIB))  # as another process does
    kept = cache.stats().memory.kept
    assert 4 <= kept < 24
    assert sum(source.take_reads().values()) == 2 * 24 - kept
    assert (node_memory / cache._cache._storage.folder.name / "memory" / "data.mdb").stat().st_size <= MIB


@pytest.mark.usefixtures("node_memory")
def test_room_is_left_for_other_programs(
    tmp_path: Path, source: FarSource, monkeypatch: pytest.MonkeyPatch
) -> None:
    cache = DataCache(source, tmp_path / "disk", memory=0)
    little = SimpleNamespace(f_bavail=5, f_frsize=4096, f_blocks=120)
    with monkeypatch.context() as patched:
        patched.setattr(os, "statvfs", lambda _path: little)
        with pytest.warns(RuntimeWarning, match=r"has only 0.01953 MiB left"):
            check(cache, source)
    assert cache.stats().disk.kept == 8  # the probes


def test_without_room_no_file_is_mapped(
    node_memory: Path, source: FarSource, monkeypatch: pytest.MonkeyPatch
) -> None:
    """LMDB's lock file is mapped: on a full file system a write to it would be a SIGBUS."""
    cache = DataCache(source)
    little = SimpleNamespace(f_bavail=0, f_frsize=4096, f_blocks=120)
    monkeypatch.setattr(os, "statvfs", lambda _path: little)
    with warnings.catch_warnings(record=True) as warned:
        warnings.simplefilter("always")
        for _ in range(2):
            check(cache, source)
    assert ["has only 0 MiB left" in str(one.message) for one in warned] == [True]
    assert not list(node_memory.glob("*/memory/*"))
    assert sum(source.take_reads().values()) == 48


@pytest.mark.parametrize("full", ["owner.new", "record.new"])
@pytest.mark.usefixtures("node_memory")
def test_a_disk_that_is_full_at_the_start_is_left_out(
    tmp_path: Path, source: FarSource, monkeypatch: pytest.MonkeyPatch, full: str
) -> None:
    """By all ranks of the node: only the first one has written there."""

    def opened(path: Path, *given: Any, **named: Any) -> Any:
        if path.name == full:
            raise OSError(errno.ENOSPC, "no space left on device")
        return open(path, *given, **named)

    for first in (True, False):
        another_job(monkeypatch, rank=0 if first else 1)
        monkeypatch.setattr(cache_module, "_numbers", itertools.count(1))
        monkeypatch.setattr(cache_module, "_free", [])
        with monkeypatch.context() as patched, warnings.catch_warnings(record=True) as warned:
            warnings.simplefilter("always")
            if first:
                patched.setattr(Path, "open", opened)
            cache = DataCache(source, tmp_path / "disk")
        assert ["is full (" in str(one.message) for one in warned] == [True] * first
        check(cache, source)
        stats = cache.stats()
        assert (stats.memory.kept, stats.disk.kept) == (24, 0)
        if first:
            kept = cache  # the node's cache stays
    assert set(source.take_reads().values()) <= {1, 2}  # the second read is that of a probe
    del kept, cache
    gc.collect()
    another_job(monkeypatch, "third")
    check(DataCache(source, tmp_path / "disk"), source)  # nobody has the folder


@pytest.mark.usefixtures("node_memory")
def test_a_write_that_fails_ends_the_keeping_and_not_the_job(tmp_path: Path) -> None:
    """RLIMIT_FSIZE makes the kernel refuse to write, as a full disk does."""
    words = program(full_disk.keeps_until_the_disk_is_full).words(tmp_path)
    run = subprocess.run([sys.executable, *words], capture_output=True, text=True, check=False)
    assert run.returncode == 0, run.stderr


@pytest.mark.usefixtures("node_memory")
def test_a_stopped_writer_is_not_waited_for(source: FarSource, monkeypatch: pytest.MonkeyPatch) -> None:
    cache = DataCache(source)
    cache[0]
    monkeypatch.setattr(node_cache, "_WRITER_LIMIT_S", 0.05)
    from roundelay.torch.data.locks import held

    with (
        held(cache._cache._storage.folder / "writer", 0),
        pytest.warns(RuntimeWarning, match="another process has locked"),
    ):
        check(cache, source)
    check(cache, source)
    assert cache.stats().memory.kept == 1


@pytest.mark.usefixtures("node_memory")
def test_the_next_job_finds_what_is_on_disk(
    tmp_path: Path, source: FarSource, monkeypatch: pytest.MonkeyPatch
) -> None:
    for number in range(3):
        another_job(monkeypatch, str(number))
        cache = DataCache(source, tmp_path / "disk", memory=0, version="1")
        check(cache, source)
        reads = source.take_reads()
        assert sum(reads.values()) == (24 if number == 0 else 8)  # the probes
        del cache
        gc.collect()


CHANGES: dict[str, tuple[dict[str, int], str, str]] = {
    "a sample": ({"state": 1}, "1", "sample 0 of the source has changed"),
    "length": ({"length": 23}, "1", "the length was 24 and is 23"),
    "version": ({}, "2", "version was '1' and is '2'"),
}


@pytest.mark.parametrize("change", CHANGES)
@pytest.mark.usefixtures("node_memory")
def test_a_changed_source_is_read_anew(
    tmp_path: Path, source: FarSource, monkeypatch: pytest.MonkeyPatch, change: str
) -> None:
    changes, version, text = CHANGES[change]
    check(DataCache(source, tmp_path / "disk", memory=0, version="1"), source)
    gc.collect()
    another_job(monkeypatch)
    other = FarSource(tmp_path, **changes)
    other.take_reads()
    with pytest.warns(RuntimeWarning, match=text):
        cache = DataCache(other, tmp_path / "disk", memory=0, version=version)
    check(cache, other)
    assert sum(other.take_reads().values()) == len(other)


@pytest.mark.parametrize("damage", ["garbage", "short", "crash", "record"])
@pytest.mark.usefixtures("node_memory")
def test_damage_is_discarded(
    tmp_path: Path, source: FarSource, monkeypatch: pytest.MonkeyPatch, damage: str
) -> None:
    cache = DataCache(source, tmp_path / "disk", memory=0)
    check(cache, source)
    folder = cache._cache._storage.disk
    assert folder is not None
    data = folder / "data.mdb"
    if damage == "crash":  # the system goes down while the job runs
        before = (folder / "record.json").read_text()
    del cache
    gc.collect()
    if damage == "crash":
        (folder / "record.json").write_text(before)
        boot = tmp_path / "boot"
        boot.write_text("another\n")
        monkeypatch.setattr(disk_folder, "_BOOT_ID", boot)
    elif damage == "garbage":
        data.write_bytes(os.urandom(data.stat().st_size))
    elif damage == "short":
        os.truncate(data, 3 * 4096)
    else:
        (folder / "record.json").write_text("{")
    another_job(monkeypatch)
    source.take_reads()
    with warnings.catch_warnings(record=True) as warned:
        warnings.simplefilter("always")
        cache = DataCache(source, tmp_path / "disk", memory=0)
    assert ["is discarded" in str(one.message) for one in warned] == [True] * (damage != "record")
    check(cache, source)
    assert sum(source.take_reads().values()) == 24


@pytest.mark.usefixtures("node_memory")
def test_a_restart_of_the_system_after_an_orderly_end_loses_nothing(
    tmp_path: Path, source: FarSource, monkeypatch: pytest.MonkeyPatch
) -> None:
    check(DataCache(source, tmp_path / "disk", memory=0), source)
    gc.collect()
    boot = tmp_path / "boot"
    boot.write_text("another\n")
    monkeypatch.setattr(disk_folder, "_BOOT_ID", boot)
    source.take_reads()
    check(DataCache(source, tmp_path / "disk", memory=0), source)
    assert sum(source.take_reads().values()) == 8

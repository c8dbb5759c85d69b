"""Kills jobs of three processes that fill a cache, at seeded moments: `killed_caches.py FOLDER SEED KILLS`.

After each kill another job opens the cache: no warning may come, every sample must be right, and all samples
that a process had kept when it was killed must be there. Each job is forked, which saves importing PyTorch.
"""

from __future__ import annotations

import mmap
import os
import random
import signal
import sys
import time
import traceback
import warnings
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch.utils.data import Dataset

from roundelay.run.system.processes import adopt_orphans, end_orphans
from roundelay.torch.data import DataCache, memory_folder

LENGTH, NUMBERS = 400, 3000  # 12 kB each: every write has overflow pages
PROCESSES = 3
MEMORY = 1 << 20  # some 80 samples; the others go to the disk


class Made(Dataset[Any]):
    """Samples that tell their index in every number."""

    def __len__(self) -> int:
        return LENGTH

    def __getitem__(self, index: int) -> Any:
        return torch.full((NUMBERS,), index, dtype=torch.int32), index


def forked(work: Callable[[], None]) -> int:
    """Runs `work` in a child; returns its id."""
    pid = os.fork()
    if pid == 0:
        status = 1
        try:
            work()
            status = 0
        except BaseException:
            traceback.print_exc()
        finally:
            sys.stderr.flush()
            os._exit(status)
    return pid


def fill(folder: Path, progress: mmap.mmap, seed: int) -> None:
    """Keeps samples in random orders in three processes, and tells after each one that it is kept."""
    os.setpgid(0, 0)
    cache = DataCache(Made(), folder / "disk", memory=MEMORY)
    place = 0
    for number in range(1, PROCESSES):
        if os.fork() == 0:
            place = number
            break
    progress[LENGTH] = 1  # the filling has begun
    for index in random.Random(seed * PROCESSES + place).sample(range(LENGTH), LENGTH):
        cache[index]
        progress[index] = 1
    while True:
        time.sleep(1)


def verify(folder: Path, progress: mmap.mmap) -> None:
    """Opens what the killed job left, as the next job."""
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        cache = DataCache(Made(), folder / "disk", memory=0)
    kept = cache.stats().disk.kept
    told = sum(progress[:LENGTH])
    progress[LENGTH + 1] = kept < LENGTH  # it was killed in the middle
    # What a process had kept, but for what was in memory alone.
    in_memory = MEMORY // (4 * NUMBERS)
    assert kept >= told - in_memory, (kept, told)
    for index in range(LENGTH):
        tensor, label = cache[index]
        assert label == index
        assert bool((tensor == index).all())
    stats = cache.stats()
    assert stats.disk.hits == kept, (stats.disk.hits, kept)
    del cache
    assert not list(memory_folder.NODE_MEMORY.iterdir()), "this job or the killed one left memory behind"


def ended(pid: int) -> int:
    """Waits for a child; returns its exit status."""
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


def main(folder: Path, seed: int, kills: int) -> None:
    """Kills `kills` jobs; prints in how many of them the cache was only partly filled."""
    memory_folder.NODE_MEMORY = folder / "shm"
    memory_folder.NODE_MEMORY.mkdir()
    adopt_orphans()
    choice = random.Random(seed)
    torch.set_num_threads(1)
    partly = 0
    for kill in range(kills):
        progress = mmap.mmap(-1, LENGTH + 2)
        place = folder / str(kill)
        place.mkdir()
        job = forked(partial(fill, place, progress, choice.randrange(1000)))
        enough = choice.randrange(LENGTH // 2)
        while not progress[LENGTH] or sum(progress[:LENGTH]) < enough:
            time.sleep(0.0005)
        os.killpg(job, signal.SIGKILL)
        assert ended(job) == -signal.SIGKILL
        end_orphans()  # the job's other processes: killed too, but perhaps not dead yet
        assert list(memory_folder.NODE_MEMORY.iterdir()), "nothing was left to remove"
        assert ended(forked(partial(verify, place, progress))) == 0, kill
        partly += progress[LENGTH + 1]
    assert partly > kills // 2, "the jobs were ready before they were killed"
    print(f"{kills} jobs killed, {partly} of them with a cache that was partly filled")


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3]))

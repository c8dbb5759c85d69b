"""Trains elastically with a NodeSampler and a DataCache, and checks that an epoch has each sample once.

Argument: FOLDER. Rank 1 of the first generation kills itself in the middle of the epoch. The job ends with
the first epoch that begins when its replacement has joined.
"""

from __future__ import annotations

import os
import signal
import sys
import time
from collections import Counter
from pathlib import Path
from typing import Any

import torch
from torch.utils.data import DataLoader

import roundelay.torch as hvd
from roundelay.torch.data import DataCache, NodeSampler

SAMPLES, BATCH, KILLED_AT, STEPS_BETWEEN_COMMITS = 240, 4, 7, 5


class Source:
    """Writes each read of a sample to a file."""

    def __init__(self, folder: Path) -> None:
        self._reads = folder / f"reads{os.getpid()}"

    def __len__(self) -> int:
        return SAMPLES

    def __getitem__(self, index: int) -> int:
        with self._reads.open("a") as file:
            file.write(f"{index}\n")
        return index


def main() -> None:
    """Train to the end."""
    folder = Path(sys.argv[1])
    hvd.init()
    cache = DataCache(Source(folder))
    sampler = NodeSampler(cache)
    state = hvd.elastic.TorchState(sampler=sampler, seen=[], step=0, resets=0, joined_at=-1)

    def count() -> None:
        state.resets += 1

    state.register_reset_callbacks([count])

    def train_epoch() -> None:
        for number, batch in enumerate(DataLoader(cache, BATCH, sampler=sampler)):
            every = hvd.allgather(batch)
            state.step += 1
            if state.resets == 0 and state.step == KILLED_AT and hvd.rank() == 1:
                os.kill(os.getpid(), signal.SIGKILL)
            state.seen += every.tolist()
            sampler.record_batch(number, BATCH)
            if state.step % STEPS_BETWEEN_COMMITS == 0:
                state.commit()
            time.sleep(0.01)  # so that a replacement is there before millions of steps

    @hvd.elastic.run
    def train(state: Any) -> None:
        if state.resets > 0 and hvd.size() == 3 and state.joined_at < 0:
            state.joined_at = sampler.epoch
        while state.joined_at < 0 or sampler.epoch <= state.joined_at + 1:
            train_epoch()
            seen = Counter(state.seen)
            assert set(seen) == set(range(SAMPLES)), sampler.epoch
            # A part that does not divide by the ranks repeats a sample for each of them, once a change.
            assert len(state.seen) - SAMPLES <= 3 * 3, sampler.epoch
            state.seen = []
            sampler.set_epoch(sampler.epoch + 1)
            state.commit()

    train(state)
    hvd.barrier()
    reads = Counter(index for file in folder.glob("reads*") for index in file.read_text().split())
    assert len(reads) == SAMPLES
    # A step that was lost has been read twice, and two ranks may read one sample at the same time.
    assert sum(reads.values()) <= SAMPLES + 3 * BATCH * STEPS_BETWEEN_COMMITS, sum(reads.values())
    print(f"each sample was drawn once, with {hvd.size()} ranks after {state.resets} changes", flush=True)
    assert torch.equal(torch.tensor(cache[7]), torch.tensor(7))


if __name__ == "__main__":
    main()

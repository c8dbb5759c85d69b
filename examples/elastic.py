"""Trains the digits classifier of digits.py while ranks come and go.

roundelayrun -np 2 --min-np 1 --max-np 2 python examples/elastic.py
roundelayrun -np 2 --min-np 1 --max-np 2 python examples/elastic.py --lose-one-every 5

The second line kills a rank every 5 s. The others go on, and the launcher replaces it.
"""

from __future__ import annotations

import argparse
import os
import signal
import time
from typing import Any

import torch
from digits import digits, make_model
from torch import nn

import roundelay.torch as hvd


def main() -> None:
    """Trains, and prints what rank 0 saw."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--epochs", type=int, default=4)
    parser.add_argument("--batch", type=int, default=64, help="images of a step, over all ranks")
    parser.add_argument("--lose-one-every", type=float, metavar="S", help="seconds between losses of a rank")
    arguments = parser.parse_args()

    hvd.init()
    torch.manual_seed(0)
    images, labels, test_images, test_labels = digits()
    model = make_model(16)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
    optimizer = hvd.DistributedOptimizer(optimizer, named_parameters=model.named_parameters())
    sampler = hvd.elastic.ElasticSampler(images)
    state = hvd.elastic.TorchState(model=model, optimizer=optimizer, sampler=sampler, epoch=0, steps=0)
    started = time.monotonic()

    @hvd.elastic.run
    def train(state: Any) -> None:
        """Trains from the state's epoch and sample on. It is called anew whenever the ranks have changed."""
        batch = max(1, arguments.batch // hvd.size())
        while state.epoch < arguments.epochs:
            for number, mine in enumerate(torch.tensor(state.sampler.indices).split(batch)):
                optimizer.zero_grad()
                nn.functional.cross_entropy(model(images[mine]), labels[mine]).backward()
                optimizer.step()
                state.steps += 1
                state.sampler.record_batch(number, batch)
                if state.steps % 10 == 0:
                    state.commit()
                lose_one(arguments.lose_one_every, started)
            state.epoch += 1
            state.sampler.set_epoch(state.epoch)
            state.commit()

    train(state)
    if hvd.rank() == 0:
        with torch.no_grad():
            accuracy = (model(test_images).argmax(1) == test_labels).float().mean().item()
        print(f"test accuracy  {accuracy:.4f}  ({state.steps} steps, {hvd.size()} ranks at the end)")


def lose_one(every: float | None, started: float) -> None:
    """Ends the last rank, if there are others, when it is so old."""
    is_last = hvd.size() > 1 and hvd.rank() == hvd.size() - 1
    if every is not None and is_last and time.monotonic() - started > every:
        os.kill(os.getpid(), signal.SIGKILL)


if __name__ == "__main__":
    main()

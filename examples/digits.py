"""Trains a classifier of handwritten digits, with as many processes as you start.

    python examples/digits.py                            # one process, no launcher
    roundelayrun -np 2 python examples/digits.py         # two; plain mpirun does too

The lines marked 1 to 5 are all that data-parallel training adds to an ordinary training script. The batch
of a step is the same for any number of processes (each takes its share), and so is the loss of each step.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from pathlib import Path

import torch
from torch import nn

import roundelay
import roundelay.torch as hvd  # 1: the library
from roundelay.timeline.overlap import hidden_share

try:
    from sklearn.datasets import load_digits
except ImportError:
    sys.exit("this example needs scikit-learn: pip install 'roundelay[examples]'")

CLASSES = 10


def digits() -> tuple[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor]:
    """Training images (n, 1, 8, 8) with labels (n,), then test images with labels; the same on every rank."""
    data = load_digits()
    images = torch.tensor(data.images, dtype=torch.float32).unsqueeze(1) / 16.0
    labels = torch.tensor(data.target)
    order = torch.randperm(len(labels), generator=torch.Generator().manual_seed(1))
    train, test = order[360:], order[:360]
    return images[train], labels[train], images[test], labels[test]


def make_model(width: int) -> nn.Module:
    """Convolutions, which compute much, then a linear layer with nearly all weights (width 64: 17 MiB)."""
    return nn.Sequential(
        *(nn.Conv2d(1, width, 3, padding=1), nn.ReLU()),
        *(nn.Conv2d(width, 2 * width, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2)),
        *(nn.Conv2d(2 * width, 2 * width, 3, padding=1), nn.ReLU()),
        *(nn.Flatten(), nn.Linear(32 * width, 32 * width), nn.ReLU(), nn.Linear(32 * width, CLASSES)),
    )


def my_share(batch: torch.Tensor) -> torch.Tensor:
    """Gives this rank's part of a batch of indices."""
    return batch.tensor_split(hvd.size())[hvd.rank()]


def communication(counters: dict[str, int], steps: int) -> tuple[float, float]:
    """How long it was under way in a step, and exposed of that: milliseconds, averaged over the ranks."""
    own = torch.tensor([counters["under_way_ns"], counters["exposed_ns"]], dtype=torch.float64)
    under_way, exposed = (hvd.allreduce(own, name="communication") / steps / 1e6).tolist()
    return under_way, exposed


def report(
    steps: int, seconds: float, accuracy: float, counters: dict[str, int], under_way: float, exposed: float
) -> None:
    """Prints what rank 0 saw."""
    print(f"test accuracy  {accuracy:.4f}  ({steps} steps in {seconds:.1f} s, {hvd.size()} processes)")
    if hvd.size() == 1:
        return
    print(
        f"fusion         {counters['tensors']} tensors in, {counters['operations']} fused operations out, "
        f"{counters['bytes'] / 2**20:.1f} MiB"
    )
    print(
        f"hidden         {hidden_share(under_way, exposed):.0%} of communication: "
        f"under way {under_way:.2f} ms a step, of it exposed {exposed:.2f} ms"
    )


class Help(argparse.RawDescriptionHelpFormatter, argparse.ArgumentDefaultsHelpFormatter):
    """Shows the text above as it is, and the defaults."""


def main() -> None:
    """Trains, tests, reports."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=Help)
    parser.add_argument("--epochs", type=int, default=6, help="how often every image is seen")
    parser.add_argument("--batch", type=int, default=32, help="images a step, over all processes")
    parser.add_argument("--rate", type=float, default=0.1, help="the highest learning rate")
    parser.add_argument("--width", type=int, default=64, help="channels of the first layer")
    parser.add_argument("--save-losses", type=Path, metavar="FILE", help="the loss of each step, as JSON")
    parser.add_argument("--save-steps", type=int, default=50, help="how many steps --save-losses keeps")
    options = parser.parse_args()

    hvd.init()  # 2: join the job
    torch.manual_seed(0)
    torch.set_num_threads(1)  # the layers are small, and processes share the cores
    train_images, train_labels, test_images, test_labels = digits()
    model = make_model(options.width)
    optimizer = torch.optim.SGD(model.parameters(), lr=options.rate, momentum=0.9, weight_decay=5e-4)
    steps_per_epoch = len(train_labels) // options.batch
    scheduler = torch.optim.lr_scheduler.OneCycleLR(
        optimizer, options.rate, total_steps=options.epochs * steps_per_epoch
    )

    optimizer = hvd.DistributedOptimizer(optimizer, named_parameters=model.named_parameters())  # 3: wrap
    hvd.broadcast_parameters(model.state_dict(), root_rank=0)  # 4: start alike
    hvd.broadcast_optimizer_state(optimizer, root_rank=0)

    losses: list[float] = []
    shuffle = torch.Generator().manual_seed(2)  # the same on every rank
    begin_counters, begin = hvd.stats(), time.perf_counter()
    for _ in range(options.epochs):
        order = torch.randperm(len(train_labels), generator=shuffle)
        for batch in order[: steps_per_epoch * options.batch].split(options.batch):
            mine = my_share(batch)  # 5: each rank its share
            optimizer.zero_grad()
            outputs = model(train_images[mine])
            # Shares may differ by one image: weighted so that the average over ranks is the batch's mean.
            weight = hvd.size() / options.batch
            loss = nn.functional.cross_entropy(outputs, train_labels[mine], reduction="sum") * weight
            loss.backward()
            optimizer.step()
            scheduler.step()
            if len(losses) < options.save_steps:
                losses.append(hvd.allreduce(loss.detach(), name="loss").item())
    seconds = time.perf_counter() - begin
    counters = {name: value - begin_counters[name] for name, value in hvd.stats().items()}

    with torch.no_grad():
        accuracy = (model(test_images).argmax(dim=1) == test_labels).float().mean().item()
    steps = options.epochs * steps_per_epoch
    under_way, exposed = communication(counters, steps)
    if hvd.rank() == 0:
        report(steps, seconds, accuracy, counters, under_way, exposed)
        timeline = roundelay.config.timeline
        if timeline not in ("", "DYNAMIC"):
            print(f"timeline       {timeline}  (see it: roundelay timeline {timeline})")
        if options.save_losses is not None:
            options.save_losses.write_text(json.dumps(losses))
    hvd.shutdown()


if __name__ == "__main__":
    main()

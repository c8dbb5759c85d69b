"""Trains a convolutional network: warm-up, accumulation, gradients of half the size, checkpoints.

    roundelayrun -np 2 python examples/image_classification.py
    roundelayrun -np 2 python examples/image_classification.py --checkpoints out   # goes on from out
    roundelayrun -np 2 python examples/image_classification.py --cache   # reads each image once on a node

The data are scikit-learn's handwritten digits, 8 x 8 pixels. Every rank reads its own part of an epoch; the
learning rate grows with the number of ranks, and is warmed up to that value. Batch statistics are those of
the batch over all ranks.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset, TensorDataset, random_split
from torch.utils.data.distributed import DistributedSampler

import roundelay.torch as hvd
from roundelay.torch.data import DataCache, NodeSampler

try:
    from sklearn.datasets import load_digits
except ImportError:
    sys.exit("this example needs scikit-learn: pip install 'roundelay[examples]'")

CLASSES = 10
TEST_IMAGES = 360
Images = Dataset[tuple[torch.Tensor, ...]]
Sampled = DistributedSampler[tuple[torch.Tensor, ...]]


def digits() -> tuple[Images, Images]:
    """Training and test images (1, 8, 8) with their labels; the same on every rank."""
    data = load_digits()
    images = torch.tensor(data.images, dtype=torch.float32).unsqueeze(1) / 16.0
    everything = TensorDataset(images, torch.tensor(data.target))
    sizes = [len(everything) - TEST_IMAGES, TEST_IMAGES]
    train, test = random_split(everything, sizes, torch.Generator().manual_seed(1))
    return train, test


class Block(nn.Module):
    """Two convolutions with a way around them. Images of shape (batch, channels, height, width)."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.body = nn.Sequential(
            nn.Conv2d(channels, channels, 3, padding=1, bias=False),
            hvd.SyncBatchNorm(channels),
            nn.ReLU(),
            nn.Conv2d(channels, channels, 3, padding=1, bias=False),
            hvd.SyncBatchNorm(channels),
        )

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        """Keep the shape."""
        return torch.relu(images + self.body(images))


def make_model(width: int) -> nn.Module:
    """A small residual network."""
    return nn.Sequential(
        *(nn.Conv2d(1, width, 3, padding=1, bias=False), hvd.SyncBatchNorm(width), nn.ReLU()),
        *(Block(width), nn.MaxPool2d(2), Block(width), nn.AdaptiveAvgPool2d(2)),
        *(nn.Flatten(), nn.Linear(4 * width, CLASSES)),
    )


class Metric:
    """The mean of a value over all ranks, each batch weighted by its size."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.total = torch.zeros(2, dtype=torch.float64)  # sum, count

    def update(self, mean: torch.Tensor, count: int) -> None:
        """Adds a batch of this rank."""
        self.total += torch.tensor([mean.item() * count, count], dtype=torch.float64)

    def result(self) -> float:
        """Collective: all ranks call it."""
        total, count = hvd.allreduce(self.total, name=self.name, op=hvd.Sum).tolist()
        return float(total / count)


class RateSchedule:
    """Sets the learning rate of each step; `epoch` counts in fractions."""

    def __init__(self, optimizer: torch.optim.Optimizer, options: argparse.Namespace) -> None:
        self.optimizer = optimizer
        self.single = options.rate  # what suits one rank and one pass
        self.scale = hvd.size() * options.passes
        self.warmup, self.epochs = options.warmup_epochs, options.epochs

    def set(self, epoch: float) -> None:
        """From the rate of one rank up to the scaled one, then down in two steps."""
        if epoch < self.warmup:
            scale = 1 + (self.scale - 1) * epoch / self.warmup
        elif epoch < 0.6 * self.epochs:
            scale = self.scale
        else:
            scale = self.scale * (0.1 if epoch < 0.85 * self.epochs else 0.01)
        for group in self.optimizer.param_groups:
            group["lr"] = self.single * scale


def train_epoch(
    model: nn.Module,
    optimizer: torch.optim.Optimizer,
    schedule: RateSchedule,
    loader: DataLoader[tuple[torch.Tensor, ...]],
    epoch: int,
    batch: int,
) -> float:
    """Returns the mean loss. A step takes `batch` images at a time, and what is left of them at last."""
    model.train()
    train_loss = Metric("train_loss")
    for step, (images, labels) in enumerate(loader):
        schedule.set(epoch + step / len(loader))
        optimizer.zero_grad()
        for some_images, some_labels in zip(images.split(batch), labels.split(batch), strict=True):
            loss = nn.functional.cross_entropy(model(some_images), some_labels)
            train_loss.update(loss.detach(), len(some_labels))
            (loss * len(some_labels) / len(labels)).backward()
        optimizer.step()
    return train_loss.result()


@torch.no_grad()
def test_accuracy(model: nn.Module, loader: DataLoader[tuple[torch.Tensor, ...]]) -> float:
    """The part of test images that are recognised; each rank looks at its own."""
    model.eval()
    accuracy = Metric("test_accuracy")
    for images, labels in loader:
        accuracy.update((model(images).argmax(dim=1) == labels).float().mean(), len(labels))
    return accuracy.result()


def newest_checkpoint(folder: Path | None) -> tuple[int, Path | None]:
    """Epochs that are done and where they are saved, as rank 0 sees it: others may lack the folder."""
    saved = () if folder is None else folder.glob("epoch-*.pt")
    files = {int(path.stem.split("-")[1]): path for path in saved}
    newest = max(files, default=0)
    done = int(hvd.broadcast(torch.tensor(newest), root_rank=0, name="resume_from_epoch").item())
    return done, files.get(done)


class Help(argparse.ArgumentDefaultsHelpFormatter, argparse.RawDescriptionHelpFormatter):
    """Shows the text as it is written, and defaults."""


def parse_options() -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=Help)
    parser.add_argument("--epochs", type=int, default=12, help="passes over the data")
    parser.add_argument("--batch", type=int, default=32, help="images a pass on each rank")
    parser.add_argument("--passes", type=int, default=2, help="backward passes a step")
    parser.add_argument("--rate", type=float, default=0.02, help="learning rate of one rank and one pass")
    parser.add_argument("--warmup-epochs", type=float, default=2, help="until the full learning rate")
    parser.add_argument("--width", type=int, default=32, help="channels")
    parser.add_argument(
        "--compression", choices=["none", "fp16", "bf16"], default="bf16", help="of gradients on the wire"
    )
    parser.add_argument(
        "--checkpoints", type=Path, metavar="DIR", help="save each epoch; go on from the last"
    )
    parser.add_argument("--cache", action="store_true", help="keep the training images in node memory")
    parser.add_argument("--quick", action="store_true", help="a small network for a few epochs")
    options = parser.parse_args()
    if options.quick:
        options.epochs, options.warmup_epochs, options.width = min(options.epochs, 4), 1, 8
    return options


def main() -> None:
    """Trains, tests after each epoch, saves."""
    options = parse_options()
    hvd.init()
    torch.manual_seed(42)
    torch.set_num_threads(1)  # the layers are small, and processes share the cores

    train_images, test_images = digits()
    train_sampler: Sampled | NodeSampler
    if options.cache:
        train_images = DataCache(train_images)  # the digits stand for images that are far away
        train_sampler = NodeSampler(train_images)
    else:
        train_sampler = DistributedSampler(train_images, num_replicas=hvd.size(), rank=hvd.rank())
    test_sampler: Sampled = DistributedSampler(
        test_images, num_replicas=hvd.size(), rank=hvd.rank(), shuffle=False
    )
    train_loader = DataLoader(train_images, options.batch * options.passes, sampler=train_sampler)
    test_loader = DataLoader(test_images, options.batch, sampler=test_sampler)

    model = make_model(options.width)
    optimizer = torch.optim.SGD(model.parameters(), lr=options.rate, momentum=0.9, weight_decay=1e-4)
    optimizer = hvd.DistributedOptimizer(
        optimizer,
        named_parameters=model.named_parameters(),
        compression=getattr(hvd.Compression, options.compression),
        backward_passes_per_step=options.passes,
    )
    done, checkpoint = newest_checkpoint(options.checkpoints)
    if hvd.rank() == 0 and checkpoint is not None:
        saved = torch.load(checkpoint, weights_only=True)
        model.load_state_dict(saved["model"])
        optimizer.load_state_dict(saved["optimizer"])
        print(f"going on from {checkpoint}")
    hvd.broadcast_parameters(model.state_dict(), root_rank=0)
    hvd.broadcast_optimizer_state(optimizer, root_rank=0)

    schedule = RateSchedule(optimizer, options)
    accuracy = test_accuracy(model, test_loader)
    for epoch in range(done, options.epochs):
        train_sampler.set_epoch(epoch)  # another order
        loss = train_epoch(model, optimizer, schedule, train_loader, epoch, options.batch)
        accuracy = test_accuracy(model, test_loader)
        if hvd.rank() == 0:
            rate = optimizer.param_groups[0]["lr"]
            print(
                f"epoch {epoch + 1:2}  loss {loss:.4f}  test accuracy {accuracy:.4f}  rate {rate:.4f}",
                flush=True,
            )
            if options.checkpoints is not None:
                options.checkpoints.mkdir(parents=True, exist_ok=True)
                state = {"model": model.state_dict(), "optimizer": optimizer.state_dict()}
                torch.save(state, options.checkpoints / f"epoch-{epoch + 1}.pt")
    if hvd.rank() == 0:
        if isinstance(train_images, DataCache):
            print(train_images.stats())
        print(f"test accuracy  {accuracy:.4f}  ({hvd.size()} processes)")
    hvd.shutdown()


if __name__ == "__main__":
    main()

"""Trains two networks against each other: one draws digits, the other tells drawn from real.

    roundelayrun -np 2 python examples/gan.py

Two models, two optimizers, one after the other in each step. The measure is the Frechet distance between
the drawn and the real images as they are (64 pixels): 0 where mean and covariance agree.
"""

from __future__ import annotations

import argparse
import sys

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset
from torch.utils.data.distributed import DistributedSampler

import roundelay.torch as hvd

try:
    from sklearn.datasets import load_digits
except ImportError:
    sys.exit("this example needs scikit-learn: pip install 'roundelay[examples]'")

SIDE = 8
NOISE = 16
SHADES = " .:-=+*#%@"


def make_generator(width: int) -> nn.Module:
    """From noise (batch, NOISE) to images (batch, 1, 8, 8) with pixels from 0 to 1."""
    return nn.Sequential(
        *(nn.Linear(NOISE, width), nn.ReLU(), nn.Linear(width, width), nn.ReLU()),
        *(nn.Linear(width, SIDE * SIDE), nn.Sigmoid(), nn.Unflatten(1, (1, SIDE, SIDE))),
    )


def make_discriminator(width: int) -> nn.Module:
    """From images (batch, 1, 8, 8) to (batch, 1): above 0 for those that look real."""
    return nn.Sequential(
        *(nn.Flatten(), nn.Linear(SIDE * SIDE, width), nn.LeakyReLU(0.2), nn.Dropout(0.3)),
        *(nn.Linear(width, width), nn.LeakyReLU(0.2), nn.Dropout(0.3), nn.Linear(width, 1)),
    )


def frechet_distance(some: torch.Tensor, others: torch.Tensor) -> float:
    """Between two sets of images, as if each were drawn from a normal distribution."""
    some, others = some.flatten(1).double(), others.flatten(1).double()
    covariances = some.T.cov(), others.T.cov()
    root = torch.linalg.eigvals(covariances[0] @ covariances[1]).real.clamp(min=0).sqrt().sum()
    means = (some.mean(0) - others.mean(0)).square().sum()
    return float(means + covariances[0].trace() + covariances[1].trace() - 2 * root)


@torch.no_grad()
def draw(generator: nn.Module, count: int) -> torch.Tensor:
    """Images of shape (count, 1, 8, 8), the same on each rank, of which every rank draws its share."""
    mine = len(range(hvd.rank(), count, hvd.size()))  # some ranks one more than others
    return hvd.allgather(generator(torch.randn(mine, NOISE)), name="images")


def show(images: torch.Tensor) -> None:
    """Prints images beside each other."""
    shades = (images.squeeze(1) * (len(SHADES) - 1)).round().int()
    for row in range(SIDE):
        print("   ".join("".join(2 * SHADES[pixel] for pixel in image[row].tolist()) for image in shades))


class Game:
    """Both networks with their optimizers."""

    def __init__(self, width: int, rate: float) -> None:
        self.generator, self.discriminator = make_generator(width), make_discriminator(width)
        self.draws = torch.optim.Adam(self.generator.parameters(), lr=rate, betas=(0.5, 0.999))
        self.judges = torch.optim.Adam(self.discriminator.parameters(), lr=4 * rate, betas=(0.5, 0.999))
        for model, optimizer in ((self.generator, self.draws), (self.discriminator, self.judges)):
            hvd.DistributedOptimizer(optimizer, named_parameters=model.named_parameters())
            hvd.broadcast_parameters(model.state_dict(), root_rank=0)
            hvd.broadcast_optimizer_state(optimizer, root_rank=0)

    def step(self, real: torch.Tensor) -> torch.Tensor:
        """One step of each; real of shape (batch, 1, 8, 8). The losses: of the judge, of who draws."""
        judge = nn.functional.binary_cross_entropy_with_logits
        drawn = self.generator(torch.randn(len(real), NOISE))
        yes, no = torch.ones(len(real), 1), torch.zeros(len(real), 1)

        self.judges.zero_grad()  # also of what the last draw_loss left there
        judge_loss = judge(self.discriminator(real), 0.9 * yes) + judge(
            self.discriminator(drawn.detach()), no
        )
        judge_loss.backward()
        self.judges.step()

        self.draws.zero_grad()
        draw_loss = judge(self.discriminator(drawn), yes)
        draw_loss.backward()
        self.draws.step()
        return torch.stack([judge_loss.detach(), draw_loss.detach()])


class Help(argparse.ArgumentDefaultsHelpFormatter, argparse.RawDescriptionHelpFormatter):
    """Shows the text as it is written, and defaults."""


def main() -> None:
    """Plays, and looks at what is drawn."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=Help)
    parser.add_argument("--epochs", type=int, default=100, help="passes over the data")
    parser.add_argument("--batch", type=int, default=32, help="images a step on each rank")
    parser.add_argument("--rate", type=float, default=5e-4, help="the generator's learning rate on one rank")
    parser.add_argument("--width", type=int, default=128, help="features of a layer")
    parser.add_argument("--quick", action="store_true", help="fewer epochs")
    options = parser.parse_args()
    if options.quick:
        options.epochs = min(options.epochs, 16)

    hvd.init()
    torch.manual_seed(1 + hvd.rank())  # noise of its own for each rank; broadcasting makes the models equal
    torch.set_num_threads(1)  # the layers are small, and processes share the cores
    images = torch.tensor(load_digits().images, dtype=torch.float32).unsqueeze(1) / 16.0
    data = TensorDataset(images)
    sampler: DistributedSampler[tuple[torch.Tensor, ...]] = DistributedSampler(
        data, num_replicas=hvd.size(), rank=hvd.rank()
    )
    loader = DataLoader(data, options.batch, sampler=sampler, drop_last=True)

    game = Game(options.width, options.rate * hvd.size() ** 0.5)
    drawn = draw(game.generator, len(images))
    distance = frechet_distance(drawn, images)
    if hvd.rank() == 0:
        print(f"distance before training  {distance:.3f}", flush=True)
    for epoch in range(options.epochs):
        sampler.set_epoch(epoch)
        losses = torch.stack([game.step(real) for (real,) in loader]).mean(0)
        losses = hvd.allreduce(losses, name="losses")  # the mean over ranks
        if (epoch + 1) % 10 == 0 or epoch + 1 == options.epochs:
            drawn = draw(game.generator, len(images))
            distance = frechet_distance(drawn, images)
            if hvd.rank() == 0:
                judge, draws = losses.tolist()
                print(f"epoch {epoch + 1:3}  judge {judge:.3f}  draws {draws:.3f}  distance {distance:.3f}")
    if hvd.rank() == 0:
        show(drawn[:6])
        print(f"distance  {distance:.3f}  ({hvd.size()} processes)")
    hvd.shutdown()


if __name__ == "__main__":
    main()

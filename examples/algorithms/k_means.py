"""Groups the images of handwritten digits by k-means, written without ranks.

roundelayrun -np 4 python examples/algorithms/k_means.py
"""

from __future__ import annotations

import sys
from dataclasses import dataclass

import torch

from roundelay.algorithms import Algorithm, Result, run, say

try:
    from sklearn.datasets import load_digits
except ImportError:
    sys.exit("this example needs scikit-learn: pip install 'roundelay[examples]'")


@dataclass(frozen=True)
class Groups:
    """The centres of the groups (k, 64), the sum of squared distances to them, and whether it still falls."""

    centres: torch.Tensor
    distance: float = float("inf")
    falls: bool = True


@dataclass(frozen=True)
class Partial:
    """Of some images: sums (k, 64) and numbers (k) by group, and the sum of squared distances."""

    sums: torch.Tensor
    counts: torch.Tensor
    distance: torch.Tensor


def evaluate(groups: Groups, images: torch.Tensor) -> Partial:
    """Puts each image (n, 64) into the group with the nearest centre."""
    nearest = torch.cdist(images, groups.centres).min(dim=1)
    members = torch.nn.functional.one_hot(nearest.indices, len(groups.centres))  # (n, k)
    return Partial(members.to(images.dtype).T @ images, members.sum(0), nearest.values.square().sum())


def update(groups: Groups, total: Partial) -> Groups:
    """Moves each centre to the mean of its group; the centre of an empty group stays."""
    means = total.sums / total.counts.clamp(min=1)[:, None]
    distance = float(total.distance)
    centres = torch.where(total.counts[:, None] > 0, means, groups.centres)
    return Groups(centres, distance, distance < groups.distance)


def main(steps: int = 100, k: int = 10) -> Result[Groups]:
    """Groups the images, and returns the last state."""
    images = torch.tensor(load_digits().data, dtype=torch.float32)
    algorithm = Algorithm(Groups(images[:k]), evaluate, update)
    return run(algorithm, images, steps, until=lambda groups: not groups.falls)


if __name__ == "__main__":
    result = main()
    say(f"{result.steps} steps, sum of squared distances {result.state.distance:.6g}")

"""Fits a linear classifier of handwritten digits by conjugate gradients, written without ranks.

roundelayrun -np 4 python examples/algorithms/conjugate_gradients.py
"""

from __future__ import annotations

import sys
from dataclasses import dataclass, replace

import torch
from torch.nn.functional import cross_entropy, pad
from torch.utils.data import TensorDataset

from roundelay.algorithms import Algorithm, Result, run, say

try:
    from sklearn.datasets import load_digits
except ImportError:
    sys.exit("this example needs scikit-learn: pip install 'roundelay[examples]'")


@dataclass(frozen=True)
class Line:
    """A line from a point (65, 10), with loss and gradient there, its direction, and how far to try."""

    point: torch.Tensor
    gradient: torch.Tensor
    direction: torch.Tensor
    loss: float = float("inf")
    slope: float = 0.0
    length: float = 1.0


def evaluate(line: Line, shard: tuple[torch.Tensor, torch.Tensor]) -> tuple[torch.Tensor, torch.Tensor, int]:
    """Returns the sums over some images (n, 65) of gradient and loss at the place to try, and n."""
    place = (line.point + line.length * line.direction).requires_grad_()
    loss = cross_entropy(shard[0] @ place, shard[1], reduction="sum")
    return torch.autograd.grad(loss, place)[0], loss, len(shard[0])


def update(line: Line, total: tuple[torch.Tensor, torch.Tensor, torch.Tensor]) -> Line:
    """Halves the length until the loss falls enough (Armijo), then turns (Polak and Ribiere)."""
    gradient, loss = total[0] / total[2], float(total[1] / total[2])
    if not loss <= line.loss + 1e-4 * line.length * line.slope:
        return replace(line, length=line.length / 2)
    beta = (gradient * (gradient - line.gradient)).sum().clamp(min=0.0) / line.gradient.square().sum()
    direction = beta * line.direction - gradient
    if (gradient * direction).sum() >= 0:
        direction = -gradient
    point, slope = line.point + line.length * line.direction, float((gradient * direction).sum())
    return Line(point, gradient, direction, loss, slope, 2 * line.length)


def main(steps: int = 100) -> Result[Line]:
    """Fits, and returns the last state."""
    images, classes = map(torch.tensor, load_digits(return_X_y=True))
    data = TensorDataset(pad(images.float() / 16, (0, 1), value=1.0), classes)
    first = Line(torch.zeros(65, 10), torch.ones(65, 10), torch.zeros(65, 10))
    return run(Algorithm(first, evaluate, update), data, steps)


if __name__ == "__main__":
    say(f"loss {main().state.loss:.6g}")

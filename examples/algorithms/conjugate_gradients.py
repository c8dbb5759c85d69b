"""Fits a linear classifier of handwritten digits by conjugate gradients, written without ranks.

python examples/algorithms/conjugate_gradients.py                       # one process
roundelayrun -np 4 python examples/algorithms/conjugate_gradients.py    # four, and the same bits
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import torch
from sklearn.datasets import load_digits
from torch.utils.data import TensorDataset

from roundelay.algorithms import Algorithm, Result, run, say


@dataclass(frozen=True)
class Search:
    """A line from a point (65, 10), with loss and gradient there, its direction, and how far to try."""

    point: torch.Tensor
    gradient: torch.Tensor
    direction: torch.Tensor
    loss: float = float("inf")
    slope: float = 0.0  # of the loss along the line
    length: float = 1.0


def evaluate(search: Search, shard: tuple[torch.Tensor, torch.Tensor]) -> dict[str, Any]:
    """Returns the sums over some images (n, 65) of loss and gradient at the place to try."""
    images, classes = shard
    place = (search.point + search.length * search.direction).requires_grad_()
    loss = torch.nn.functional.cross_entropy(images @ place, classes, reduction="sum")
    return {"gradient": torch.autograd.grad(loss, place)[0], "loss": loss, "images": len(images)}


def update(search: Search, total: dict[str, Any]) -> Search:
    """Halves the length until the loss falls enough (Armijo), then turns (Polak and Ribiere)."""
    loss, gradient = float(total["loss"] / total["images"]), total["gradient"] / total["images"]
    if not loss <= search.loss + 1e-4 * search.length * search.slope:
        return replace(search, length=search.length / 2)
    before, change = search.gradient.square().sum(), gradient - search.gradient
    beta = (gradient * change).sum().clamp(min=0.0) / before if before > 0 else 0.0
    direction = beta * search.direction - gradient
    slope = float((gradient * direction).sum())
    point = search.point + search.length * search.direction
    return Search(point, gradient, direction, loss, slope, 2 * search.length)


def main(steps: int = 100) -> Result[Search]:
    """Fits, and returns the last state."""
    digits, zeros = load_digits(), torch.zeros(65, 10)
    images = torch.nn.functional.pad(torch.tensor(digits.data / 16, dtype=torch.float32), (0, 1), value=1.0)
    data = TensorDataset(images, torch.tensor(digits.target))
    return run(Algorithm(Search(zeros, zeros, zeros), evaluate, update), data, steps)


if __name__ == "__main__":
    say(f"loss {main().state.loss:.6g}")

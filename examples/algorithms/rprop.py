"""Trains a classifier of handwritten digits by full-batch Rprop, written without ranks.

roundelayrun -np 4 python examples/algorithms/rprop.py
"""

from __future__ import annotations

import sys
from typing import Any, NamedTuple

import torch
from torch.nn.functional import cross_entropy
from torch.utils.data import TensorDataset

from roundelay.algorithms import Algorithm, Result, run, say

try:
    from sklearn.datasets import load_digits
except ImportError:
    sys.exit("this example needs scikit-learn: pip install 'roundelay[examples]'")

GROW, SHRINK, LEAST, MOST = 1.2, 0.5, 1e-6, 1.0  # of the rates; Riedmiller and Braun, ICNN 1993


class State(NamedTuple):
    """Of each parameter: its value, its rate, and the gradient of the step before; and the loss."""

    weights: list[torch.Tensor]
    rates: list[torch.Tensor]
    gradients: list[torch.Tensor]
    loss: float = 0.0


def evaluate(state: State, shard: tuple[torch.Tensor, torch.Tensor]) -> dict[str, Any]:
    """Returns the sums over some images (n, 64) of the loss and of its gradients."""
    images, classes = shard
    first, bias, second = weights = [weight.clone().requires_grad_() for weight in state.weights]
    loss = cross_entropy(torch.tanh(images @ first + bias) @ second, classes, reduction="sum")
    return {"gradients": list(torch.autograd.grad(loss, weights)), "loss": loss, "images": len(images)}


def update(state: State, total: dict[str, Any]) -> State:
    """Takes a step of each rate's length. Rates grow where the gradient keeps its sign, else they shrink."""
    new = State([], [], [], float(total["loss"] / total["images"]))
    for weight, rate, before, now in zip(*state[:3], total["gradients"], strict=True):
        turns = before * now  # negative: the sign has changed
        factor = torch.where(turns > 0, GROW, 1.0).where(turns >= 0, SHRINK)
        new.rates.append((rate * factor).clamp(LEAST, MOST))
        new.gradients.append(now.where(turns >= 0, 0.0))
        new.weights.append(weight - new.rates[-1] * new.gradients[-1].sign())
    return new


def main(steps: int = 60) -> Result[State]:
    """Returns the last state."""
    digits, seed = load_digits(), torch.Generator().manual_seed(0)
    data = TensorDataset(torch.tensor(digits.data / 16, dtype=torch.float32), torch.tensor(digits.target))
    weights = [torch.randn(size, generator=seed) / 8 for size in ((64, 32), (32,), (32, 10))]
    first = State(weights, [0 * weight + 0.01 for weight in weights], [0 * weight for weight in weights])
    return run(Algorithm(first, evaluate, update), data, steps)


if __name__ == "__main__":
    say(f"loss {main().state.loss:.6g}")

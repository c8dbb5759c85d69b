"""Trains a classifier of handwritten digits by SGD with momentum, written without ranks.

roundelayrun -np 4 python examples/algorithms/sgd_by_shards.py

A batch has some images of each shard. The step's number says which: no generator keeps a state of its own.
"""

from __future__ import annotations

import sys
from typing import Any, NamedTuple

import torch
from torch.utils.data import TensorDataset

from roundelay.algorithms import Algorithm, Result, run, say

try:
    from sklearn.datasets import load_digits
except ImportError:
    sys.exit("this example needs scikit-learn: pip install 'roundelay[examples]'")

RATE, MOMENTUM, SHARDS, OF_A_SHARD = 0.1, 0.9, 16, 4


class State(NamedTuple):
    """The parameters of a network with one hidden layer, their velocities, and the number of the step."""

    weights: list[torch.Tensor]
    velocities: list[torch.Tensor]
    step: int = 0
    loss: float = float("inf")


def evaluate(state: State, shard: tuple[torch.Tensor, torch.Tensor]) -> dict[str, Any]:
    """Returns the sums of loss and gradients over the images of the shard that are in the batch."""
    images, classes = shard
    batch = (torch.arange(OF_A_SHARD) + state.step * OF_A_SHARD) % len(images)
    first, bias, second = weights = [weight.clone().requires_grad_() for weight in state.weights]
    outputs = torch.relu(images[batch] @ first + bias) @ second
    loss = torch.nn.functional.cross_entropy(outputs, classes[batch], reduction="sum")
    return {"gradients": list(torch.autograd.grad(loss, weights)), "loss": loss, "images": len(batch)}


def update(state: State, total: dict[str, Any]) -> State:
    """Takes a step of SGD with momentum."""
    mean = [gradient / total["images"] for gradient in total["gradients"]]
    velocities = [MOMENTUM * old + new for old, new in zip(state.velocities, mean, strict=True)]
    weights = [weight - RATE * new for weight, new in zip(state.weights, velocities, strict=True)]
    return State(weights, velocities, state.step + 1, float(total["loss"] / total["images"]))


def main(steps: int = 150) -> Result[State]:
    """Trains, and returns the last state."""
    digits, seed = load_digits(), torch.Generator().manual_seed(0)
    data = TensorDataset(torch.tensor(digits.data / 16, dtype=torch.float32), torch.tensor(digits.target))
    weights = [torch.randn(size, generator=seed) / 8 for size in ((64, 64), (64,), (64, 10))]
    first = State(weights, [torch.zeros_like(weight) for weight in weights])
    return run(Algorithm(first, evaluate, update), data, steps, shards=SHARDS)


if __name__ == "__main__":
    say(f"loss {main().state.loss:.6g}")

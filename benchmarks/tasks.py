"""Small tasks on which training converges within a minute: the examples' data and models, with SGD."""

from __future__ import annotations

import dataclasses
import math
import sysconfig
from collections.abc import Callable, Iterator
from pathlib import Path

import torch
from torch import nn

from examples import digits as digits_example
from examples import masked_language_model as language

BATCH = 32  # of a step, over all ranks
_WARM_UP = 0.1  # part of the steps in which the learning rate rises; then it falls to zero, or stays


@dataclasses.dataclass(frozen=True)
class Task:
    """A model and its data. `loss` and `test` take the model; results are means over samples.

    `loss(model, samples)` has the sum of the losses of training samples, by number, each weighted alike.
    """

    model: nn.Module
    samples: int
    rate: float  # the highest learning rate of SGD
    adam_rate: float  # and of AdamW
    loss: Callable[[nn.Module, torch.Tensor], torch.Tensor]
    test: Callable[[nn.Module], tuple[float, float]]  # loss and accuracy


def digits() -> Task:
    """Build a convolutional classifier of images of 8 x 8; nearly all weights are in a linear layer."""
    images, labels, test_images, test_labels = digits_example.digits()

    def loss(model: nn.Module, samples: torch.Tensor) -> torch.Tensor:
        return nn.functional.cross_entropy(model(images[samples]), labels[samples], reduction="sum")

    def test(model: nn.Module) -> tuple[float, float]:
        out = model(test_images)
        right = (out.argmax(dim=1) == test_labels).float().mean()
        return nn.functional.cross_entropy(out, test_labels).item(), right.item()

    return Task(digits_example.make_model(16), len(images), 0.1, 2e-3, loss, test)


def characters() -> Task:
    """Build a transformer that fills in masked characters of the standard library's docstrings."""
    length, folder = 32, Path(sysconfig.get_paths()["stdlib"])
    modules = sorted(folder.glob("[a-z]*.py"))[:40]
    tested, learned = (
        language.sequences(some, length)
        for some in (
            modules[:: language.TEST_EVERY],
            [m for i, m in enumerate(modules) if i % language.TEST_EVERY],
        )
    )
    with torch.random.fork_rng():
        torch.manual_seed(0)
        test_inputs, test_labels = language.masked(tested[:256])

    def loss_of(model: nn.Module, inputs: torch.Tensor, labels: torch.Tensor, how: str) -> torch.Tensor:
        logits = model(inputs).flatten(0, 1)
        return nn.functional.cross_entropy(logits, labels.flatten(), reduction=how)

    def loss(model: nn.Module, samples: torch.Tensor) -> torch.Tensor:
        inputs, labels = language.masked(learned[samples])
        return loss_of(model, inputs, labels, "sum") / (length * language.MASKED_PART)

    def test(model: nn.Module) -> tuple[float, float]:
        known = test_labels != language.IGNORED
        right = model(test_inputs).argmax(dim=2)[known] == test_labels[known]
        return loss_of(model, test_inputs, test_labels, "mean").item(), right.float().mean().item()

    return Task(language.Encoder(64, 2, length), len(learned), 0.2, 2e-3, loss, test)


TASKS: dict[str, Callable[[], Task]] = {"digits": digits, "characters": characters}


def batches(task: Task, steps: int, seed: int) -> Iterator[torch.Tensor]:
    """Yield the numbers of each step's samples, the same on every rank."""
    shuffle = torch.Generator().manual_seed(seed)
    done = 0
    while done < steps:
        order = torch.randperm(task.samples, generator=shuffle)
        for batch in order[: task.samples // BATCH * BATCH].split(BATCH)[: steps - done]:
            yield batch
            done += 1


def rate_at(step: int, steps: int, falls: bool = True) -> float:
    """Return the part of the highest learning rate that a step has. falls: it does not stay there."""
    rising = max(1, round(_WARM_UP * steps))
    if step < rising:
        return (step + 1) / rising
    if not falls:
        return 1.0
    return 0.5 * (1.0 + math.cos(math.pi * (step - rising) / max(1, steps - rising)))

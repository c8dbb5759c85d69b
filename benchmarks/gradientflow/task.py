"""A model of AlexNet's proportions, and the digits that it learns."""

from __future__ import annotations

import itertools

import torch
from torch import nn

from benchmarks.models import Batch, Task, task_loss

_BATCH = 16  # images of a rank
_TEST = 360  # images that are not trained on
_CHANNELS = (1, 32, 80, 104, 144)
_DENSE = (144 * 16, 1280, 768)  # the two layers with 94 % of the bytes


def make_model() -> nn.Sequential:
    """Build four convolutions and three dense layers: 4.2 million parameters, 16 MiB in fp32."""
    layers: list[nn.Module] = []
    for inputs, outputs in itertools.pairwise(_CHANNELS):
        layers += [nn.Conv2d(inputs, outputs, 3, padding=1), nn.ReLU()]
    layers += [nn.MaxPool2d(2), nn.Flatten()]
    for inputs, outputs in itertools.pairwise(_DENSE):
        layers += [nn.Linear(inputs, outputs), nn.ReLU()]
    model = nn.Sequential(*layers, nn.Linear(_DENSE[-1], 10))
    for layer in model:
        if isinstance(layer, nn.Conv2d | nn.Linear):
            nn.init.kaiming_normal_(layer.weight, nonlinearity="relu")
    return model


class Digits(Task):
    """Scikit-learn's 1,797 handwritten digits: batches to train with, and images that are kept for a test."""

    def __init__(self, model: nn.Module | None = None) -> None:
        """model: what learns them; None: the one of make_model()."""
        from sklearn.datasets import load_digits

        data = load_digits()
        images = torch.tensor(data.images, dtype=torch.float32).unsqueeze(1) / 16.0
        classes = torch.tensor(data.target)
        self._images, self._classes = images[_TEST:], classes[_TEST:]
        self._test = images[:_TEST], classes[:_TEST]
        super().__init__(model or make_model(), self._draw)

    def _draw(self, generator: torch.Generator) -> Batch:
        chosen = torch.randint(len(self._classes), (_BATCH,), generator=generator)
        return self._images[chosen], self._classes[chosen]

    def test_loss(self, model: nn.Module) -> float:
        """Compute the mean cross entropy of the test images."""
        with torch.no_grad():
            return float(task_loss(model, *self._test))

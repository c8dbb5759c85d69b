"""Whole steps of models beside their predictions: `python -m benchmarks.layers --tuning tuning.json`.

Trains AlexNet, VGG-16 and ResNet-50 on this machine alone, and compares the time of a step with the sum of
its kernels' learned times, and with their rooflines alone. `roundelay tune --layers` wrote the file here.
It measured random shapes: the models taught nothing.
"""

from __future__ import annotations

import argparse
import dataclasses
import statistics
import time
from collections.abc import Callable
from pathlib import Path

import torch
from rich.console import Console
from rich.table import Table
from torch import nn

from roundelay import tuning_file
from roundelay.layers import timing
from roundelay.layers.times import LayerTimes
from roundelay.plan import learned, shapes

_CLASSES = 1000


class _Bottleneck(nn.Module):
    """Three convolutions beside a shortcut (He et al. 2015), the stride in the middle one."""

    def __init__(self, inputs: int, width: int, stride: int) -> None:
        super().__init__()
        outputs = 4 * width
        self.body = nn.Sequential(
            *_normed(inputs, width, 1),
            nn.ReLU(),
            *_normed(width, width, 3, stride),
            nn.ReLU(),
            *_normed(width, outputs, 1),
        )
        same = inputs == outputs and stride == 1
        self.shortcut = nn.Identity() if same else nn.Sequential(*_normed(inputs, outputs, 1, stride))

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        return nn.functional.relu(self.body(images) + self.shortcut(images))


def _normed(inputs: int, outputs: int, kernel: int, stride: int = 1) -> list[nn.Module]:
    padding = (kernel - 1) // 2
    return [nn.Conv2d(inputs, outputs, kernel, stride, padding, bias=False), nn.BatchNorm2d(outputs)]


def _resnet50() -> nn.Module:
    layers: list[nn.Module] = [*_normed(3, 64, 7, 2), nn.ReLU(), nn.MaxPool2d(3, 2, 1)]
    inputs = 64
    for stage, (count, width) in enumerate(zip((3, 4, 6, 3), (64, 128, 256, 512), strict=True)):
        for block in range(count):
            layers.append(_Bottleneck(inputs, width, 2 if stage > 0 and block == 0 else 1))
            inputs = 4 * width
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(inputs, _CLASSES))


def _classifier(inputs: int) -> list[nn.Module]:
    hidden = [nn.Linear(inputs, 4096), nn.ReLU(), nn.Linear(4096, 4096), nn.ReLU()]
    return [nn.Flatten(), *hidden, nn.Linear(4096, _CLASSES)]


def _alexnet() -> nn.Module:
    pool = nn.MaxPool2d(3, 2)
    layers: list[nn.Module] = [nn.Conv2d(3, 64, 11, 4, 2), nn.ReLU(), pool]
    layers += [nn.Conv2d(64, 192, 5, padding=2), nn.ReLU(), pool]
    for inputs, outputs in ((192, 384), (384, 256), (256, 256)):
        layers += [nn.Conv2d(inputs, outputs, 3, padding=1), nn.ReLU()]
    return nn.Sequential(*layers, pool, *_classifier(256 * 6 * 6))


def _vgg16() -> nn.Module:
    layers: list[nn.Module] = []
    inputs = 3
    for outputs, count in ((64, 2), (128, 2), (256, 3), (512, 3), (512, 3)):
        for _ in range(count):
            layers += [nn.Conv2d(inputs, outputs, 3, padding=1), nn.ReLU()]
            inputs = outputs
        layers.append(nn.MaxPool2d(2))
    return nn.Sequential(*layers, *_classifier(512 * 7 * 7))


_MODELS: dict[str, tuple[Callable[[], nn.Module], tuple[int, ...]]] = {
    "alexnet": (_alexnet, (8, 64)),
    "vgg16": (_vgg16, (2, 8)),
    "resnet50": (_resnet50, (4, 16)),
}


def measured_step(model: nn.Module, samples: int, steps: int) -> float:
    """Return the median seconds of a step of training; the first two do not count."""
    on = timing.device()
    model.to(on).train()
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-4, momentum=0.9)
    images = torch.randn(samples, 3, 224, 224, device=on)
    classes = torch.randint(_CLASSES, (samples,), device=on)
    seconds = []
    for step in range(steps + 2):
        begin = time.perf_counter()
        optimizer.zero_grad()
        loss = nn.functional.cross_entropy(model(images), classes)
        loss.backward()
        optimizer.step()
        loss.item()  # waits for a GPU
        if step >= 2:
            seconds.append(time.perf_counter() - begin)
    return statistics.median(seconds)


def rooflines(layers: LayerTimes) -> LayerTimes:
    """Return the same without networks."""
    return dataclasses.replace(
        layers, kernels=tuple(dataclasses.replace(one, network=()) for one in layers.kernels)
    )


def main() -> None:
    """Measure, and print the table."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--tuning", type=Path, required=True, help="a file of roundelay tune --layers")
    parser.add_argument("--models", nargs="+", choices=list(_MODELS), default=list(_MODELS))
    parser.add_argument("--steps", type=int, default=3, help="that count, for each model and batch")
    given = parser.parse_args()
    layers = tuning_file.load(given.tuning).layers
    if layers is None:
        parser.error(f"{given.tuning} has no layers: run roundelay tune --layers --output {given.tuning}")
    table = Table("model", "batch", "measured", "learned", "error", "roofline", "error")
    for name in given.models:
        make, batches = _MODELS[name]
        for batch in batches:
            measured = measured_step(make(), batch, given.steps)
            row = [name, str(batch), f"{measured:.3f} s"]
            for known in (layers, rooflines(layers)):
                predicted = learned.from_times(shapes.KNOWN[name](), known, batch, "").compute
                row += [f"{predicted:.3f} s", f"{predicted / measured - 1:+.0%}"]
            table.add_row(*row)
    Console(width=100).print(table)
    print(f"{layers.device}, {layers.threads} threads in the file, {torch.get_num_threads()} here")


if __name__ == "__main__":
    main()

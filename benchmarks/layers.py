"""Shows the errors of learned layer times, and whole steps beside predictions: `python -m benchmarks.layers`.

It learns the times of kernels as `roundelay tune --layers` does. Then it trains AlexNet, VGG-16 and ResNet-50
on this machine alone, and compares the time of a step with the sum of its kernels' learned times, and with
their rooflines alone. Kernels of random shapes were measured, and none of these models.
"""

from __future__ import annotations

import argparse
import dataclasses
import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import nn

from benchmarks import launch, show
from benchmarks.report import page
from roundelay.plan import learned, shapes
from roundelay.tuning.kernels import layer_command, timing
from roundelay.tuning.kernels.times import LayerTimes

STORED, PART = page.RESULTS / "layers.json", page.part(page.RESULTS / "plan.md", "layers")
_MODELLED = ("network", "roofline")
_MODEL_COLUMNS = ("model", "batch", "step", *_MODELLED)
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


def resnet50() -> nn.Module:
    """Build ResNet-50 for 1,000 classes."""
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
    "resnet50": (resnet50, (4, 16)),
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
    kernels = tuple(dataclasses.replace(one, network=()) for one in layers.kernels)
    return dataclasses.replace(layers, kernels=kernels)


def compare(layers: LayerTimes, models: Sequence[str], steps: int) -> list[dict[str, Any]]:
    """Measure a step of each model and batch; times in seconds."""
    found = []
    for name in models:
        make, batches = _MODELS[name]
        for batch in batches:
            row = {"model": name, "batch": batch, "measured": measured_step(make(), batch, steps)}
            for how, known in (("network", layers), ("roofline", rooflines(layers))):
                row[how] = learned.from_times(shapes.KNOWN[name](), known, batch, "").compute
            found.append(row)
    return found


def model_rows(models: Sequence[Mapping[str, Any]]) -> list[list[str]]:
    """Make the rows of whole steps."""
    return [
        [
            one["model"],
            str(one["batch"]),
            show.seconds_text(one["measured"]),
            *(f"{show.seconds_text(one[how])}, {one[how] / one['measured'] - 1:+.0%}" for how in _MODELLED),
        ]
        for one in models
    ]


def document(layers: LayerTimes, found: Mapping[str, Any]) -> str:
    """Make the page's text of learned times and the result to store."""
    lines = [
        f"{page.host(found['machine'])}; device: {layers.device}, "
        f"threads: {layers.threads}, {found['minutes']:g} minutes.",
        "",
        *page.rows(layer_command.COLUMNS, layer_command.rows(layers.kernels)),
        "",
        *page.rows(_MODEL_COLUMNS, model_rows(found["models"])),
    ]
    return "\n".join(lines) + "\n"


def _summary(layers: LayerTimes, minutes: float, models: list[dict[str, Any]]) -> dict[str, Any]:
    """Make the result to store: all but the networks' weights."""
    kernels = []
    for one in layers.kernels:
        fields = dataclasses.asdict(dataclasses.replace(one, inputs=(), network=()))
        kernels.append({**fields, "networked": bool(one.network)})
    about = {"device": layers.device, "threads": layers.threads, "minutes": minutes}
    return {"machine": launch.machine(launch.find_launcher()), **about, "kernels": kernels, "models": models}


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--minutes", type=float, default=4.0, help="the minutes for which kernels are measured (default: 4)"
    )
    parser.add_argument("--models", nargs="+", choices=list(_MODELS), default=list(_MODELS))
    parser.add_argument("--steps", type=int, default=3, help="that count, for each model and batch")
    parser.add_argument("--docs", action="store_true", help="store JSON and tables in docs")
    parser.add_argument("--output", type=Path, default=Path("out"), help="folder of the JSON")
    return parser


def main(argv: Sequence[str] | None = None) -> None:
    """Run the command."""
    given = _parser().parse_args(argv)
    console = show.console()
    layers = layer_command.run(60 * given.minutes, console)
    found = _summary(layers, given.minutes, compare(layers, given.models, given.steps))
    console.print(show.table(layer_command.COLUMNS, layer_command.rows(layers.kernels), texts=2))
    console.print(show.table(_MODEL_COLUMNS, model_rows(found["models"]), texts=1))
    show.save(STORED if given.docs else given.output / "layers.json", found)
    if given.docs:
        PART.write(document(layers, found))


if __name__ == "__main__":
    with launch.ending_in_one_line():
        main()

"""What the measurements in Python have in common: their arguments, and the device."""

from __future__ import annotations

import argparse
from collections.abc import Collection, Sequence
from dataclasses import dataclass

import torch

import roundelay.torch as hvd

_FAKE = "fakegpu"
_FAKE_MODEL = "mlp"


@dataclass(frozen=True)
class Wanted:
    """What to measure. The fake device is slow: there, one small thing shows that a measurement works."""

    device: torch.device
    repetitions: int
    models: Sequence[str]

    @property
    def fake(self) -> bool:
        """Return whether the times mean nothing."""
        return self.device.type == _FAKE


def begin(
    parser: argparse.ArgumentParser,
    argv: Sequence[str] | None,
    repetitions: int,
    models: Sequence[str] = (),
    known: Collection[str] = (),
) -> Wanted:
    """Read the arguments, prepare the device, and call init(). Models are an argument if some are `known`."""
    parser.add_argument("--device", default="cuda", help="its kind (default: cuda)")
    parser.add_argument("--repetitions", type=int, help=f"of each measurement (default: {repetitions})")
    if known:
        parser.add_argument("--models", choices=known, nargs="+", help=f"default: {' '.join(models)}")
    arguments = parser.parse_args(argv)
    chosen = arguments.models if known else None
    kind = arguments.device
    fake = kind == _FAKE
    if fake:
        import gpu_device

        gpu_device.use()
    hvd.init()
    return Wanted(
        torch.device(kind, 0) if kind != "cpu" else torch.device(kind),
        arguments.repetitions or (1 if fake else repetitions),
        chosen or ([_FAKE_MODEL] if fake else models),
    )


def drain(device: torch.device) -> None:
    """Wait until the device is idle."""
    if device.type != "cpu":
        torch.accelerator.synchronize()

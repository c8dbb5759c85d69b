"""Measures the selection of the largest magnitudes on a GPU: radix and MSTopK beside torch.topk.

`python -m benchmarks.gpu.selection --device cuda` prints JSON. A turn is some selections: it
begins when the device is idle, and ends when the device has done the last one.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch

import roundelay.torch as hvd
from benchmarks import measure
from benchmarks.gpu.measuring import begin, drain

PEER = "torch.topk"
_VALUES, _FAKE_VALUES = 64 << 20, 64 << 10
_DENSITY = 0.01
_TOGETHER = 5
_WARMUPS = 2
_SEED = 1


def ways(values: torch.Tensor, k: int) -> Mapping[str, Callable[[], object]]:
    """Return the ways to select k values. The peer only finds their places."""
    return {
        "radix": lambda: hvd.mstopk(values, k, select="radix"),
        "mstopk": lambda: hvd.mstopk(values, k),
        PEER: lambda: values.abs().topk(k, sorted=False).indices,
    }


def _turn(select: Callable[[], object], device: torch.device) -> measure.Turn:
    def some() -> None:
        for _ in range(_TOGETHER):
            select()
        drain(device)

    def turn() -> list[float]:
        drain(device)
        return [measure.timed(some) / _TOGETHER]

    return turn


def measured(values: int, device: torch.device, repetitions: int) -> dict[str, Any]:
    """Measure all ways to select 1 % of so many values, in turns."""
    tensor = torch.randn(values, generator=torch.Generator("cpu").manual_seed(_SEED), device="cpu").to(device)
    turns: dict[str, measure.Turn] = {}
    missing: dict[str, str] = {}
    for way, select in ways(tensor, int(values * _DENSITY)).items():
        try:
            select()
        except RuntimeError as error:
            missing[way] = str(error)
        else:
            turns[way] = _turn(select, device)
    times = measure.in_turn(turns, repetitions, _WARMUPS)
    return {
        "values": values,
        "seconds": {way: measure.summary(own) for way, own in times.single().items()},
        "missing": missing,
    }


def main(argv: Sequence[str] | None = None) -> None:
    """Run the command."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.gpu.selection", description=__doc__)
    wanted = begin(parser, argv, 21)
    values = _FAKE_VALUES if wanted.fake else _VALUES
    print(json.dumps(measured(values, wanted.device, wanted.repetitions)))


if __name__ == "__main__":
    main()

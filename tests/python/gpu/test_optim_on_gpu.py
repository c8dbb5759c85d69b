"""LARS and LAMB on GPUs: one call works on all layers, and the trial of shared norms waits for the device."""

from __future__ import annotations

import threading
from typing import Any
from unittest import mock

import pytest
import torch
from torch import nn

import gpu_device
import roundelay.torch as hvd
from ranks import Check, run_check
from roundelay.torch.optim import LAMB, LARS
from roundelay.torch.optim.trial import PAIRS, Trial

pytestmark = pytest.mark.slow

LAYERS = 5
HELD_S = 0.5  # the device starts no work for so long


@pytest.mark.parametrize(("np", "seed"), [(2, 1)])
def test_optim_on_gpu(np: int, seed: int, check: Check) -> None:
    run_check(check, np, env={"RANKS_DEVICE": gpu_device.NAME, "FAKE_GPU_SEED": str(seed)}, fresh=True)


def _layers(device: str) -> list[nn.Parameter]:
    seed = torch.Generator("cpu").manual_seed(1)
    made = [torch.randn(3 + layer, 4, generator=seed, device="cpu") for layer in range(LAYERS)]
    return [nn.Parameter(tensor.to(device)) for tensor in made]


def _step(optimizer: torch.optim.Optimizer, layers: list[nn.Parameter], step: int) -> None:
    for number, layer in enumerate(layers):
        layer.grad = torch.full_like(layer, 0.25 * (step + 1) + number)
    optimizer.step()


def _trained(kind: Any, device: str, steps: int, **settings: Any) -> list[torch.Tensor]:
    layers = _layers(device)
    optimizer = kind(layers, lr=0.1, **settings)
    for step in range(steps):
        _step(optimizer, layers, step)
    return [layer.detach().cpu() for layer in layers]


def check_a_gpu_has_the_numbers_of_a_cpu() -> None:
    for kind in (LARS, LAMB):
        for foreach in (None, False):
            own = _trained(kind, gpu_device.NAME, 4, foreach=foreach)
            for found, expected in zip(own, _trained(kind, "cpu", 4), strict=True):
                torch.testing.assert_close(found, expected)


def check_both_ways_have_the_same_bits() -> None:
    steps = 1 + 2 * PAIRS + 2
    for kind in (LARS, LAMB):
        local, *others = (
            _trained(kind, gpu_device.NAME, steps, distributed_norms=mode) for mode in (False, True, "auto")
        )
        for other in others:
            assert all(torch.equal(*pair) for pair in zip(local, other, strict=True))


def check_one_call_works_on_all_layers_of_a_gpu() -> None:
    for device, foreach, expected in (
        (gpu_device.NAME, None, [LAYERS]),
        (gpu_device.NAME, False, [1] * LAYERS),
        ("cpu", None, [1] * LAYERS),
    ):
        layers = _layers(device)
        optimizer = LARS(layers, 0.1, foreach=foreach)
        with mock.patch.object(optimizer, "_apply", wraps=optimizer._apply) as applied:
            _step(optimizer, layers, 0)
        assert [len(call.args[1]) for call in applied.call_args_list] == expected, (device, foreach)


def check_a_trial_waits_for_the_device_first() -> None:
    """Work of the backward pass must not count as work on norms."""
    began = threading.Event()
    done = []

    def hold() -> None:
        with gpu_device.held():
            began.set()
            ended.wait(HELD_S)

    def ratios() -> list[float]:
        done.append(event.query())
        return []

    device = torch.zeros(1).device
    trial = Trial(hvd.global_process_set, "trial.on.gpu")
    ended = threading.Event()
    holder = threading.Thread(target=hold)
    holder.start()
    began.wait()
    torch.zeros(1).add_(1)
    event = torch.Event(device)
    event.record()
    trial.run([device], ratios)
    ended.set()
    holder.join()
    assert done == [True]

"""The selection of the largest magnitudes on a GPU: the CPU's, without a job, in the current stream."""

from __future__ import annotations

import torch

import gpu_device
import roundelay.torch as hvd
from ranks import Check, run_check
from roundelay.torch._internal.mstopk import Select

_SELECTS: tuple[Select, ...] = ("mstopk", "radix", "auto")


def test_mstopk_on_gpu(check: Check) -> None:
    run_check(check, 1, env={"RANKS_DEVICE": gpu_device.NAME}, fresh=True)


def check_a_gpu_selects_what_the_cpu_selects() -> None:
    generator = torch.Generator("cpu").manual_seed(3)
    normal = torch.randn(70_001, generator=generator, device="cpu")
    overflow = normal.clone()
    overflow[::97] = torch.inf
    for values in (normal, normal.bfloat16(), normal.half(), overflow):
        for select in _SELECTS:
            chosen, indices = hvd.mstopk(values.to(gpu_device.NAME), 700, select=select, seed=5)
            assert chosen.device.type == indices.device.type == gpu_device.NAME
            expected, places = hvd.mstopk(values, 700, select=select, seed=5)
            assert torch.equal(chosen.cpu(), expected)
            assert torch.equal(indices.cpu(), places)


def check_no_values_are_chosen_on_a_gpu() -> None:
    chosen, indices = hvd.mstopk(torch.ones(3, device=gpu_device.NAME), 0)
    assert (chosen.numel(), indices.numel()) == (0, 0)


def check_a_stream_orders_the_selection() -> None:
    """The values are not there yet when the host calls."""
    values = torch.zeros(5000, device=gpu_device.NAME)
    values += torch.arange(5000.0, device=gpu_device.NAME)
    _, indices = hvd.mstopk(values, 10, select="radix")
    assert indices.tolist() == list(range(4990, 5000))

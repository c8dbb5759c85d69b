"""Tensors on devices that do not fit: errors with a cure, the same on all ranks, and the job goes on."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch

import gpu_device
import roundelay.torch as hvd
from ranks import Check, needs_ranks, run_check

CPU, GPU = "cpu", gpu_device.NAME


def _one_gpu() -> bool:
    return torch.accelerator.device_count() == 1


@pytest.mark.slow
@pytest.mark.parametrize("np", [1, 2, 4])
def test_devices(np: int, check: Check) -> None:
    run_check(check, np, env={"RANKS_DEVICE": GPU, "FAKE_GPU_DEVICES": "2"}, fresh=True)


def _goes_on() -> None:
    for device in (CPU, GPU):
        result = hvd.allreduce(torch.ones(5, device=device), op=hvd.Sum)
        assert result.device.type == device
        assert result.tolist() == [hvd.size()] * 5


def check_cpu_and_gpu_in_one_job() -> None:
    _goes_on()
    handles = [
        hvd.allreduce_async(torch.full((100,), float(number), device=(CPU, GPU)[number % 2]), op=hvd.Sum)
        for number in range(10)
    ]
    for number, handle in enumerate(handles):
        assert hvd.synchronize(handle).unique().tolist() == [number * hvd.size()]


@needs_ranks(2)
def check_ranks_with_different_devices() -> None:
    mine = torch.ones(3, device=GPU if hvd.rank() == 1 else CPU)
    with pytest.raises(hvd.HorovodInternalError) as raised:
        hvd.allreduce(mine, name="elsewhere")
    text = str(raised.value)
    assert "'elsewhere'" in text
    assert "the CPU" in text
    assert "a GPU" in text
    assert len(set(hvd.allgather_object(text))) == 1
    _goes_on()


def _raises_on_one(call: Callable[[], object], *words: str) -> None:
    """The last rank makes the call, which is wrong; the others, who wait for it, get its text."""
    last = hvd.rank() == hvd.size() - 1
    with pytest.raises(ValueError if last else hvd.HorovodInternalError) as raised:
        call() if last else hvd.allreduce(torch.ones(3), name="wrong")
    for word in words:
        assert word in str(raised.value), raised.value
    _goes_on()


def check_a_group_on_two_devices() -> None:
    group = [torch.ones(3, device=GPU), torch.ones(3, device=CPU)]
    _raises_on_one(lambda: hvd.grouped_allreduce(group, name="wrong"), "tensor 1", "cpu", f"{GPU}:0")


def check_another_gpu_than_the_first() -> None:
    if _one_gpu():
        return
    other = torch.ones(3, device=f"{GPU}:1")
    _raises_on_one(lambda: hvd.allreduce(other, name="wrong"), "GPU 1", "set_device(hvd.local_rank())")


def check_join_names_a_gpu_that_is_there() -> None:
    if hvd.size() > 1 or _one_gpu():
        return
    for device in (2, 17, -2):
        with pytest.raises(ValueError, match=f"device is {device}, but this process sees GPUs 0 to 1"):
            hvd.join(device)
    for device in (-1, 0, 1):
        assert hvd.join(device) == 0


@needs_ranks(2)
def check_batch_normalisation_on_different_devices() -> None:
    device = GPU if hvd.rank() == 1 else CPU
    with pytest.raises(hvd.HorovodInternalError, match="sync_batch_norm"):
        hvd.SyncBatchNorm(3).to(device)(torch.ones(4, 3, device=device))
    assert hvd.SyncBatchNorm(3)(torch.ones(4, 3)).abs().max().item() == 0.0
    _goes_on()


def check_splits_may_be_on_either() -> None:
    rows = torch.arange(2.0 * hvd.size())
    for device in (CPU, GPU):
        splits = torch.full((hvd.size(),), 2, dtype=torch.int32, device=device)
        output, received = hvd.alltoall(rows, splits)
        assert output.device.type == GPU
        assert received.device.type == device
        assert hvd.synchronize(hvd.alltoall_async(rows, splits))[1].device.type == device
        assert received.tolist() == [2] * hvd.size()


def check_a_new_job_may_have_the_other_gpu() -> None:
    if _one_gpu():
        return
    hvd.shutdown()
    hvd.init()
    mine = torch.ones(3, device=f"{GPU}:1")
    assert hvd.allreduce(mine, op=hvd.Sum).tolist() == [hvd.size()] * 3
    hvd.shutdown()
    hvd.init()

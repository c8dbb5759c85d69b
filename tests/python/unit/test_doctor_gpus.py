"""The doctor's rows of GPUs, with a torch and a core that say what is asked of them."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
import torch

from roundelay import _core
from roundelay._internal import backend, gpu
from roundelay.doctor.check import State
from roundelay.doctor.gpus import check_gpus, nccl_text


@pytest.fixture
def machine(monkeypatch: pytest.MonkeyPatch) -> pytest.MonkeyPatch:
    """Two H100s of which neither reaches the other, and NCCL 2.28.9."""
    card = SimpleNamespace(name="NVIDIA H100 80GB HBM3", major=9, minor=0, total_memory=85_000_000_000)
    monkeypatch.setattr(backend, "cuda_module", lambda: "there")
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda _: card)
    monkeypatch.setattr(torch.cuda, "can_device_access_peer", lambda _one, _other: False)
    monkeypatch.setattr(gpu, "load", lambda: None)
    monkeypatch.setattr(_core, "nccl_version", lambda _: 22809)
    monkeypatch.setattr(_core, "gpu_description", lambda: "CUDA 13.0, driver 580.65.06, kernels for 9.0")
    return monkeypatch


def test_a_version_of_nccl() -> None:
    assert [nccl_text(code) for code in (22809, 21403, 23007)] == ["2.28.9", "2.14.3", "2.30.7"]


def test_the_cards_and_what_lies_between_them(machine: pytest.MonkeyPatch) -> None:
    rows = {row.name: row for row in check_gpus()}
    assert list(rows) == ["GPUs", "GPU 0", "GPU 1", "peer access"]
    assert rows["GPUs"].found == (
        "2, which reduce by NCCL 2.28.9; CUDA 13.0, driver 580.65.06, kernels for 9.0"
    )
    assert rows["GPU 1"].found == "NVIDIA H100 80GB HBM3, compute capability 9.0, 79 GiB"
    assert rows["peer access"].state is State.OFF
    assert "not between GPUs 0 and 1" in rows["peer access"].found
    machine.setattr(torch.cuda, "can_device_access_peer", lambda _one, _other: True)
    assert list(check_gpus())[-1].state is State.OK


def test_a_build_for_other_gpus_is_broken(machine: pytest.MonkeyPatch) -> None:
    def refuse() -> None:
        raise RuntimeError("GPU 0 has compute capability 9.0, but this build is for 8.0: build it with ...")

    machine.setattr(gpu, "load", refuse)
    row = next(check_gpus())
    assert row.state is State.BROKEN
    assert "this build is for 8.0" in row.found


def test_no_nccl_is_no_fault(machine: pytest.MonkeyPatch) -> None:
    machine.setattr(_core, "nccl_version", lambda _: 0)
    row = next(check_gpus())
    assert row.state is State.OK
    assert "host memory, as there is no NCCL" in row.found


def test_a_machine_without_gpus(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(backend, "cuda_module", lambda: None)
    assert [row.state for row in check_gpus()] == [State.OFF]
    monkeypatch.setattr(backend, "cuda_module", lambda: "there")
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    assert [row.found for row in check_gpus()] == ["PyTorch finds none that it can use"]

"""PyTorch's device "fakegpu": a simulated GPU (tests/cpp/fake_gpu) whose streams run late.

After `use()`, the next `hvd.init()` uses it. Every operator waits for the work in the current stream and for
nothing else, so that a missing wait for an event gives wrong values. With RANKS_DEVICE=cuda a real GPU takes
its place (tools/gpu_check.sh).
"""

from __future__ import annotations

import ctypes
import os
import types
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from torch.utils import backend_registration

from roundelay._internal import gpu

NAME = os.environ.get("RANKS_DEVICE", "fakegpu")
_LONG = 2_000_000_000  # cycles
_LOCAL_RANKS = ("LOCAL_RANK", "OMPI_COMM_WORLD_LOCAL_RANK", "MPI_LOCALRANKID")  # before init()
LIBRARY = Path(__file__).with_name("fake_gpu.so")


class _Device(types.ModuleType):
    """The functions that torch needs of a device's module, `torch.fakegpu`."""

    def device_count(self) -> int:
        return int(os.environ.get("FAKE_GPU_DEVICES", "1"))  # as tests/cpp/fake_gpu/device.cc

    def is_available(self) -> bool:
        return True

    def current_device(self) -> int:
        return int(torch.accelerator.current_device_index())

    def device(self, device: torch.device) -> torch.accelerator.device_index:
        """Makes `device` the current device inside the block."""
        return torch.accelerator.device_index(device.index)

    def get_amp_supported_dtype(self) -> list[torch.dtype]:
        return [torch.float16, torch.bfloat16]

    def manual_seed_all(self, seed: int) -> None:
        """Does nothing: all operators run on the CPU and use its generator."""

    def empty_cache(self) -> None:
        """Returns unused memory to the device. Waits for the device, as CUDA's function does."""
        _call("fake_gpu_empty_cache")

    def _is_in_bad_fork(self) -> bool:
        return False


def use() -> None:
    """Registers the device with torch, as its default, and with the core at the next `init()`."""
    if NAME == "cuda":
        rank = next((int(os.environ[name]) for name in _LOCAL_RANKS if name in os.environ), 0)
        os.environ["NCCL_HOSTID"] = f"rank{rank}"  # otherwise NCCL refuses several ranks on one GPU
        torch.cuda.set_device(rank % torch.cuda.device_count())
    else:
        _use_fake()
    torch.set_default_device(NAME)


def _use_fake() -> None:
    assert LIBRARY.exists(), f"no {LIBRARY.name}: cmake --build build/dev --target fake_gpu"
    torch.ops.load_library(str(LIBRARY))
    backend_registration.rename_privateuse1_backend(NAME)
    torch._register_device_module(NAME, _Device(NAME))
    gpu.use(str(LIBRARY), NAME)


def _call(name: str, *arguments: Any) -> None:
    getattr(ctypes.CDLL(str(LIBRARY)), name)(*arguments)


@contextmanager
def held() -> Iterator[None]:
    """Keeps all streams from starting work in the block. A real GPU delays its current stream by a second."""
    if NAME == "cuda":
        torch.cuda._sleep(_LONG)
        yield
        return
    _call("fake_gpu_hold", True)
    try:
        yield
    finally:
        _call("fake_gpu_hold", False)


def hold_stream(stream: torch.Stream, held: bool) -> None:
    """Keeps a stream of device 0 from starting work, or lets it work again."""
    _call("fake_gpu_hold_stream", ctypes.c_int64(stream.stream_id), held)


@contextmanager
def full() -> Iterator[None]:
    """Makes allocations on the device fail inside the block. torch may still use the memory in its cache."""
    _call("fake_gpu_limit_memory", ctypes.c_size_t(0))
    try:
        yield
    finally:
        _call("fake_gpu_limit_memory", ctypes.c_size_t(-1))


@contextmanager
def used_up() -> Iterator[None]:
    """Limits the device inside the block to the memory that torch holds now, its cache included."""
    _call("fake_gpu_use_up_memory")
    try:
        yield
    finally:
        _call("fake_gpu_limit_memory", ctypes.c_size_t(-1))


@contextmanager
def on(stream: torch.Stream) -> Iterator[None]:
    """Makes `stream` the current stream inside the block."""
    before = torch.accelerator.current_stream()
    torch.accelerator.set_stream(stream)
    try:
        yield
    finally:
        torch.accelerator.set_stream(before)


@contextmanager
def captured() -> Iterator[None]:
    """Captures a graph from another stream, which is the current one inside the block."""
    if NAME == "cuda":
        with torch.cuda.graph(torch.cuda.CUDAGraph()):
            yield
        return
    stream = torch.Stream(NAME)
    with on(stream):
        _call("fake_gpu_capture", ctypes.c_int64(stream.stream_id), True)
        try:
            yield
        finally:
            _call("fake_gpu_capture", ctypes.c_int64(stream.stream_id), False)

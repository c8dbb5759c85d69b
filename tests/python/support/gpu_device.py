"""PyTorch's device "fakegpu": a GPU without a GPU (tests/cpp/fake_gpu), whose streams run late.

`use()` before `hvd.init()` lets the core work on it. Every operator waits for what is enqueued in the current
stream, and for nothing else: a wait for an event that is missing gives wrong values.
With RANKS_DEVICE=cuda it is a real one (tools/gpu_check.sh).
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

from roundelay import _gpu

NAME = os.environ.get("RANKS_DEVICE", "fakegpu")
_LONG = 2_000_000_000  # cycles
LIBRARY = Path(__file__).with_name("fake_gpu.so")


class _Device(types.ModuleType):
    """What torch asks of a device's module, `torch.fakegpu`."""

    def device_count(self) -> int:
        return int(os.environ.get("FAKE_GPU_DEVICES", "1"))  # as tests/cpp/fake_gpu/device.cc

    def is_available(self) -> bool:
        return True

    def current_device(self) -> int:
        return int(torch.accelerator.current_device_index())

    def device(self, device: torch.device) -> torch.accelerator.device_index:
        """Inside, it is the current one."""
        return torch.accelerator.device_index(device.index)

    def get_amp_supported_dtype(self) -> list[torch.dtype]:
        return [torch.float16, torch.bfloat16]

    def manual_seed_all(self, seed: int) -> None:
        """All is computed on the CPU, with its generator."""

    def empty_cache(self) -> None:
        """Waits for the device, as CUDA's does."""
        _call("fake_gpu_empty_cache")

    def _is_in_bad_fork(self) -> bool:
        return False


def use() -> None:
    """Makes the device known to torch, and to the core at the next `init()`; by default tensors are there."""
    if NAME == "cuda":
        rank = int(os.environ.get("LOCAL_RANK", "0"))
        os.environ["NCCL_HOSTID"] = f"rank{rank}"  # or it refuses several on one GPU
        torch.cuda.set_device(rank % torch.cuda.device_count())
    else:
        _use_fake()
    torch.set_default_device(NAME)


def _use_fake() -> None:
    assert LIBRARY.exists(), f"no {LIBRARY.name}: cmake --build build/dev --target fake_gpu"
    torch.ops.load_library(str(LIBRARY))
    backend_registration.rename_privateuse1_backend(NAME)
    torch._register_device_module(NAME, _Device(NAME))
    _gpu.use(str(LIBRARY), NAME)


def _call(name: str, *arguments: Any) -> None:
    getattr(ctypes.CDLL(str(LIBRARY)), name)(*arguments)


@contextmanager
def held() -> Iterator[None]:
    """Inside, no stream begins any work; on a real device the current one does not, for a second or so."""
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
    """From now on this stream, of device 0, begins no work; or does again."""
    _call("fake_gpu_hold_stream", ctypes.c_int64(stream.stream_id), held)


@contextmanager
def full() -> Iterator[None]:
    """Inside, there is no memory on the device but what torch has had before and keeps."""
    _call("fake_gpu_limit_memory", ctypes.c_size_t(0))
    try:
        yield
    finally:
        _call("fake_gpu_limit_memory", ctypes.c_size_t(-1))


@contextmanager
def used_up() -> Iterator[None]:
    """Inside, there is no memory on the device but what torch has, in its cache too."""
    _call("fake_gpu_use_up_memory")
    try:
        yield
    finally:
        _call("fake_gpu_limit_memory", ctypes.c_size_t(-1))


@contextmanager
def on(stream: torch.Stream) -> Iterator[None]:
    """Inside, it is the current stream."""
    before = torch.accelerator.current_stream()
    torch.accelerator.set_stream(stream)
    try:
        yield
    finally:
        torch.accelerator.set_stream(before)

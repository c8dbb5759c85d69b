"""Loads the core's module for GPUs at the first init() of a process that has a GPU."""

from __future__ import annotations

import importlib.util
from dataclasses import dataclass
from pathlib import Path

import torch

from roundelay import _core
from roundelay._internal import backend


@dataclass
class _Module:
    """The module that init() loads: its path, the device type that it serves, and whether it is loaded."""

    path: str | None = None  # None: the module beside the package
    device_type: str = "cuda"
    loaded: bool = False


_module = _Module()


def use(path: str, device_type: str) -> None:
    """Makes the next ``init()`` load another module than CUDA's. Tests call it, for torch's fake device."""
    _module.path, _module.device_type = path, device_type


def module() -> str | None:
    """Returns the module's path, or None if this build has none."""
    return _module.path or backend.cuda_module()


def nccl_library() -> str:
    """Returns the path of the NCCL that came with torch; "" lets the loader search."""
    found = importlib.util.find_spec("nvidia") and importlib.util.find_spec("nvidia.nccl")
    for folder in (found and found.submodule_search_locations) or ():
        path = Path(folder, "lib", "libnccl.so.2")
        if path.exists():
            return str(path)
    return ""


def load() -> None:
    """Loads the module once, if there is a GPU to use. RuntimeError if the module does not fit."""
    path = module()
    if path is None or _module.loaded or (_module.path is None and not torch.cuda.is_available()):
        return
    _core.load_gpu(path, nccl_library(), _module.device_type)
    _module.loaded = True


def serves(device: torch.device) -> bool:
    """Returns whether the core works on tensors of this device, which is the CPU or a GPU."""
    return device.type == "cpu" or (_module.loaded and device.type == _module.device_type)


def is_available() -> bool:
    """Returns whether this process sees a GPU, before ``init`` too."""
    return bool(torch.get_device_module(_module.device_type).is_available())


def devices() -> int | None:
    """Returns how many GPUs this process sees; None before ``init``, and where it cannot use any."""
    return torch.get_device_module(_module.device_type).device_count() if _module.loaded else None

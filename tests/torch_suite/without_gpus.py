"""Lets PyTorch's tests of GPUs run on the CPU: most of its tests of DDP ask for GPUs, and need none.

Where a test names a GPU, it gets the CPU. A test that does need one, for streams or memory, fails with every
backend alike, and so says nothing.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from types import ModuleType
from typing import Any

import torch
from torch.overrides import TorchFunctionMode

_CPU = torch.device("cpu")


def allow_tests(common: ModuleType) -> None:
    """Make the decorators that look for GPUs pass. Before the tests are imported."""

    def passes(*_args: Any) -> Callable[[Any], Any]:
        return lambda test: test

    for name in ("skip_if_lt_x_gpu", "nccl_skip_if_lt_x_gpu", "require_n_gpus_for_nccl_backend"):
        setattr(common, name, passes)
    common.skip_if_no_gpu = lambda test: test  # type: ignore[attr-defined]
    common.requires_nccl_version = passes  # type: ignore[attr-defined]
    common.init_multigpu_helper = lambda size, _backend: {rank: [rank] for rank in range(size)}  # type: ignore[attr-defined]


def enter() -> None:
    """Put the CPU in place of all GPUs, for the rest of this process."""
    _OnCpu().__enter__()  # type: ignore[no-untyped-call]
    for name in ("set_device", "synchronize"):
        setattr(torch.cuda, name, lambda *_args, **_more: None)
    torch.cuda.current_device = lambda: _CPU  # type: ignore[assignment, return-value]
    parallel = torch.nn.parallel.DistributedDataParallel
    init = parallel.__init__

    @functools.wraps(init)
    def without_devices(self: Any, module: Any, device_ids: Any = None, *args: Any, **more: Any) -> None:
        more.pop("output_device", None)
        init(self, module, None, *args, **more)

    parallel.__init__ = without_devices  # type: ignore[method-assign]


class _OnCpu(TorchFunctionMode):
    def __torch_function__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        more = dict(kwargs or {})
        if func is torch.Tensor.cuda:
            return args[0]
        if func in {torch.Tensor.to, torch._C._nn._parse_to}:
            args = tuple(map(_place, args))
        if "device" in more:
            more["device"] = _place(more["device"])
        return func(*args, **more)


def _place(device: Any) -> Any:
    """Return the CPU for a GPU, whether a name, a device or a number; anything else as it is."""
    is_gpu = type(device) is int or (
        isinstance(device, str | torch.device) and str(device).startswith("cuda")
    )
    return _CPU if is_gpu else device

"""Checks this machine's GPUs: their properties, the build's kernels, NCCL, and the ways between them."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import combinations

import torch

from roundelay import _core
from roundelay._internal import backend, gpu
from roundelay.doctor.check import REBUILD, Check, State, first_line

_GIB = 1 << 30


def nccl_text(code: int) -> str:
    """Returns the version whose code this is: 2.28.9 of 22809."""
    return f"{code // 10000}.{code // 100 % 100}.{code % 100}"


def check_gpus() -> Iterator[Check]:
    """Yields a row for all GPUs, one for each, and one for what lies between them."""
    if backend.cuda_module() is None:
        yield Check("GPUs", State.OFF, f"no CUDA module in this build: put nvcc on PATH, then {REBUILD}")
        return
    if not torch.cuda.is_available():
        yield Check("GPUs", State.OFF, "PyTorch finds none that it can use")
        return
    yield _all_of_them()
    count = torch.cuda.device_count()
    for index in range(count):
        yield Check(f"GPU {index}", State.OK, _described(index))
    if count > 1:
        yield _peers(count)


def _all_of_them() -> Check:
    """Returns whether the build's kernels run on them, and the library that reduces their tensors."""
    try:
        gpu.load()
    except RuntimeError as error:
        return Check("GPUs", State.BROKEN, first_line(str(error)), "do as the line above says")
    code = _core.nccl_version(gpu.nccl_library())
    without = "host memory, as there is no NCCL: pip install nvidia-nccl-cu13"
    by = f"NCCL {nccl_text(code)}" if code else without
    count = torch.cuda.device_count()
    return Check("GPUs", State.OK, f"{count}, which reduce by {by}; {_core.gpu_description()}")


def _described(index: int) -> str:
    found = torch.cuda.get_device_properties(index)
    memory = f"{found.total_memory / _GIB:.0f} GiB"
    return f"{found.name}, compute capability {found.major}.{found.minor}, {memory}"


def _peers(count: int) -> Check:
    """Returns which GPUs cannot read each other's memory."""
    reach = torch.cuda.can_device_access_peer
    pairs = combinations(range(count), 2)
    apart = [f"{one} and {other}" for one, other in pairs if not (reach(one, other) and reach(other, one))]
    if not apart:
        return Check("peer access", State.OK, "all GPUs reach each other's memory")
    text = f"not between GPUs {', '.join(apart)}: NCCL goes through host memory there"
    return Check("peer access", State.OFF, text)

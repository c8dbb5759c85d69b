"""One rank of `python -m benchmarks.gpu.mpi`: allreduces of GPUs' memory, by each fabric that there is."""

from __future__ import annotations

import ctypes
import statistics
from typing import Any

import torch

import gpu_device
import roundelay.torch as hvd
from benchmarks.measure import worker
from roundelay.tuning.cluster import measure

_SIZES = (4 << 10, 64 << 10, 1 << 20, 16 << 20, 64 << 20)
_ROUNDS = 3  # in each of which all ways are measured; medians count
_SECONDS = 0.1  # for a size
_FAKE = gpu_device.NAME != "cuda"  # it is slow, so its times mean nothing


def _takes() -> dict[str, Any]:
    with measure.job(GPU_FABRIC="mpi"):
        try:
            hvd.allreduce_(torch.zeros(1, device=measure.own_gpu()), name="takes")
        except hvd.HorovodInternalError as error:
            return {"why_not": str(error)}
    return {"why_not": ""}


def _time_sizes() -> dict[int, float]:
    """Return the seconds of an allreduce by size, by this job's fabric."""
    device = measure.own_gpu()
    found = {}
    for size in _SIZES[:2] if _FAKE else _SIZES:
        tensor = torch.zeros(size // 4, device=device)  # sums stay as they are

        def sum_up(tensor: torch.Tensor = tensor) -> None:
            hvd.allreduce_(tensor, name="time", op=hvd.Sum)

        call = measure.until_done(sum_up, device)
        found[size] = measure.times_of(call, 0.0 if _FAKE else _SECONDS, hvd.size()).seconds
    return found


def _time(ways: list[str]) -> dict[str, Any]:
    rounds: dict[str, list[dict[int, float]]] = {way: [] for way in ways}
    missing: dict[str, str] = {}
    for _ in range(1 if _FAKE else _ROUNDS):
        for way in ways:
            if way in missing:
                continue
            with measure.job(GPU_FABRIC=way):
                try:
                    rounds[way].append(_time_sizes())
                except hvd.HorovodInternalError as error:
                    missing[way] = str(error)
    seconds = {
        way: {size: statistics.median(one[size] for one in own) for size in own[0]}
        for way, own in rounds.items()
        if own and way not in missing
    }
    return {"seconds": seconds, "missing": missing, "questions": _questions()}


def _questions() -> dict[str, int] | None:
    """Return the questions of this process, and those that reached the driver; None: nobody counts them."""
    try:
        counts = ctypes.CDLL(None).roundelay_pointer_counts  # of libroundelay_pointer_cache.so
    except AttributeError:
        return None
    asked, passed_on = ctypes.c_int64(), ctypes.c_int64()
    counts(ctypes.byref(asked), ctypes.byref(passed_on))
    return {"asked": asked.value, "passed_on": passed_on.value}


def main(spec: dict[str, Any]) -> dict[str, Any]:
    """Do the work of the spec."""
    gpu_device.use()
    return _takes() if spec["work"] == "takes" else _time(spec["ways"])


if __name__ == "__main__":
    worker(main)

"""What is checked, in this order. The ranks' checks are those of tests/python/gpu."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence

from benchmarks.gpu import figures
from benchmarks.gpu.runner import ROOT, Step

_BUILT = "a dry run takes what is built"
_ON_DEVICE = "it needs a GPU"
_TWO_ARE_ENOUGH = "a dry run has 2 ranks at most"
_CONFIGURE = (
    *("cmake", "-S", str(ROOT), "-B", "{build}", "-G", "Ninja", "-DCMAKE_BUILD_TYPE=RelWithDebInfo"),
    *(
        "-DROUNDELAY_IN_TREE=ON",
        "-DROUNDELAY_TESTS=ON",
        "-DROUNDELAY_WITH_TORCH=ON",
        "-DROUNDELAY_WITH_MPI=OFF",
        "-DROUNDELAY_WITH_CUDA=ON",
    ),
    *(f"-DPython3_EXECUTABLE={sys.executable}", "-DROUNDELAY_CUDA_ARCHITECTURES=native"),
)
_BUILD = ("cmake", "--build", "{build}", "-j", str(os.cpu_count()), "--target")


def _ranks(name: str, file: str, ranks: int, budget_s: float) -> Step:
    """All checks of a test file, by so many ranks on one GPU."""
    work = ("tests/python/ranks.py", f"tests/python/gpu/{file}")
    said = f"{name}, {ranks} rank{'s' if ranks > 1 else ''}"
    dry = _TWO_ARE_ENOUGH if ranks > 2 else ""
    return Step(said, budget_s, (sys.executable, *work), ranks=ranks, dry=dry)


STEPS: Sequence[Step] = (
    Step("configure", 60, _CONFIGURE, dry=_BUILT, vital=True),
    Step("build", 240, (*_BUILD, "modules"), dry=_BUILT, vital=True),
    Step("build of the C++ checks", 120, (*_BUILD, "test_cuda", "bench_gpu_kernels"), dry=_BUILT),
    Step("kernels and runtime", 60, ("{build}/tests/cpp/test_cuda",), dry=_ON_DEVICE),
    Step(
        "bandwidth of kernels", 60, ("{build}/csrc/bench_gpu_kernels",), dry=_ON_DEVICE, lines=figures.kernels
    ),
    *(_ranks("operations", "test_operations.py", ranks, 60) for ranks in (1, 2, 4)),
    *(_ranks("training parity", "test_parity.py", ranks, 60) for ranks in (2, 4)),
    Step(
        "host time of a step",
        60,
        (sys.executable, "-m", "benchmarks.gpu.host_time", "--device", "{device}"),
        lines=figures.host_time,
    ),
)

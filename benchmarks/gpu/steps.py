"""The steps in their order: the build, what is timed, the rest side by side, MPI.

The ranks' checks are those of tests/python, with tensors on the GPU. Where steps run side by side, the
longest begin first.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence

from benchmarks.gpu import figures
from benchmarks.gpu.runner import ROOT, Phase, Step

_BUILT = "a dry run takes what is built"
_ON_DEVICE = "it needs a GPU"
_MPI = (sys.executable, "-m", "benchmarks.gpu.mpi")
_TECHNIQUES = (sys.executable, "-m", "benchmarks.gpu.techniques", "--device", "{device}")
_SELECTION = (sys.executable, "-m", "benchmarks.gpu.selection", "--device", "{device}")
_HOST_TIME = (sys.executable, "-m", "benchmarks.gpu.host_time", "--device", "{device}")
_PYTEST = (sys.executable, "-m", "pytest", "-q", "tests/python/gpu/test_faults.py")
_MATRIX = "matrix/test_matrix.py"
_CELLS = "*-world"  # without those of a second process set
_DYNAMIC = {"HOROVOD_DYNAMIC_PROCESS_SETS": "1"}
_BY_MPI = {**_DYNAMIC, "ROUNDELAY_GPU_FABRIC": "mpi"}
_SECONDS = ((1, 60), (2, 60), (4, 120))  # (ranks, seconds); there may be more ranks than cores
_CORES = os.cpu_count() or 1
_AT_ONCE = max(1, min(5, _CORES // 3))  # on 16 cores five took 140 s for what one by one takes ten minutes
_ALL_S = 300.0  # for all but MPI, the build included
_MPI_S = 240.0
_BUILD = ("cmake", "--build", "{build}", "-j", str(_CORES), "--target")


def _configure(mpi: str) -> Sequence[str]:
    """Make the command that prepares the build, with MPI ON or OFF."""
    return (
        *("cmake", "-S", str(ROOT), "-B", "{build}", "-G", "Ninja", "-DCMAKE_BUILD_TYPE=RelWithDebInfo"),
        *("-DROUNDELAY_IN_TREE=ON", "-DROUNDELAY_TESTS=ON", "-DROUNDELAY_WITH_TORCH=ON"),
        *(f"-DROUNDELAY_WITH_MPI={mpi}", "-UROUNDELAY_MPICXX", "-UMPI*"),  # finds PATH's, whatever it was
        "-DROUNDELAY_WITH_CUDA=ON",
        *(f"-DPython3_EXECUTABLE={sys.executable}", "-DROUNDELAY_CUDA_ARCHITECTURES=native"),
    )


def _ranks(
    name: str, file: str, ranks: int, budget_s: float, flags: Sequence[str] = ("--gloo",), **environment: str
) -> Step:
    """Make the step that runs all checks of a test file with that many ranks on one GPU."""
    work = (sys.executable, "tests/python/support/rank_checks.py", f"tests/python/{file}")
    named = f"{name}, {ranks} rank{'s' if ranks > 1 else ''}"
    says = "all checks passed on rank "
    return Step(named, budget_s, work, ranks=ranks, flags=flags, says=says, environment=environment)


_BUILDING = (
    Step("configure", 60, _configure("OFF"), dry=_BUILT, vital=True),
    Step("build", 240, (*_BUILD, "modules"), dry=_BUILT, vital=True),
    Step(
        "build of the C++ checks",
        120,
        (*_BUILD, "test_cuda", "test_techniques", "bench_gpu_kernels", "bench_gpu_pointers"),
        dry=_BUILT,
    ),
)
_TIMED = (
    Step(
        "bandwidth of kernels", 60, ("{build}/csrc/bench_gpu_kernels",), dry=_ON_DEVICE, lines=figures.kernels
    ),
    Step(
        "questions where memory lies, and sums",
        60,
        ("{build}/csrc/bench_gpu_pointers",),
        dry=_ON_DEVICE,
        lines=figures.pointers,
    ),
    Step("selection beside torch.topk", 60, _SELECTION, lines=figures.selections),
    Step("host time of a step", 60, _HOST_TIME, lines=figures.host_time),
    Step("what techniques add to a step", 60, _TECHNIQUES, lines=figures.techniques),
)
_OPERATIONS = (
    _ranks("all operations through host memory", _MATRIX, 2, 200, ROUNDELAY_GPU_FABRIC="staged", **_DYNAMIC),
    _ranks("all operations", _MATRIX, 2, 200, **_DYNAMIC),
    _ranks("all operations", _MATRIX, 1, 150, **_DYNAMIC),
    # The other set averages over 3. NCCL's average does not divide, so it may be an ulp off.
    _ranks("all operations", _MATRIX, 4, 90, MATRIX_CELL=_CELLS, **_DYNAMIC),
    Step("ranks that die or stop", 180, _PYTEST),
    Step("kernels and runtime", 60, ("{build}/tests/cpp/test_cuda",), dry=_ON_DEVICE),
    *(_ranks("streams and early frees", "gpu/test_streams.py", r, s) for r, s in _SECONDS),
    _ranks("CPU and GPU in one job", "gpu/test_wrong_devices.py", 2, 60),
)
_TRAINING = (
    *(_ranks("training as one process", "gpu/test_training.py", r, s) for r, s in _SECONDS),
    _ranks("training of more models", "parity/test_torch_parity.py", 2, 60),
    _ranks("SyncBatchNorm", "parallel/test_sync_batch_norm.py", 2, 60),
    _ranks("broadcast of states", "parallel/test_torch_functions.py", 2, 60),
    _ranks("techniques negate, cyclic and csc", "gpu/test_techniques_on_gpu.py", 2, 60),
    _ranks("top-k", "gpu/test_topk_on_gpu.py", 2, 60),
    _ranks("LARS and LAMB", "gpu/test_optim_on_gpu.py", 2, 60),
    _ranks("algorithms without ranks", "gpu/test_algorithms_on_gpu.py", 2, 60),
    _ranks("strategies of buckets", "parallel/test_strategies.py", 2, 60, ROUNDELAY_THETA="64"),
    _ranks("selection of the largest values", "gpu/test_mstopk_on_gpu.py", 1, 60),
)
# The last ones: where there is no such MPI, all others have run.
_OVER_MPI = (
    Step("which MPI", 30, (*_MPI, "which"), lines=figures.mpi_refuses, vital=True),
    Step("configure with MPI", 60, _configure("ON"), dry=_BUILT, vital=True),
    Step("build with MPI", 120, (*_BUILD, "modules"), dry=_BUILT, vital=True),
    Step("MPI takes the GPU's memory", 60, (*_MPI, "takes"), lines=figures.mpi_refuses, vital=True),
    _ranks("all operations over MPI", _MATRIX, 2, 120, ("--mpi",), MATRIX_CELL=_CELLS, **_BY_MPI),
    *(
        Step(
            f"allreduce over MPI, {ranks} ranks",
            90,
            (*_MPI, "allreduce", "--ranks", str(ranks)),
            lines=figures.over_mpi,
        )
        for ranks in (2, 4)
    ),
)

PHASES: Sequence[Phase] = (
    Phase((*_BUILDING, *_TIMED), _ALL_S),
    Phase((*_OPERATIONS, *_TRAINING), _ALL_S, _AT_ONCE),
    Phase(_OVER_MPI, _ALL_S + _MPI_S),
)
STEPS: Sequence[Step] = [step for phase in PHASES for step in phase.steps]

"""What takes turns in the benchmarks: libraries that sum a tensor in place, and ways to train."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

import torch
import torch.distributed as dist

if TYPE_CHECKING:
    from roundelay import _core


class Contender(Protocol):
    """One library's blocking allreduce of a CPU tensor."""

    name: str

    def why_not(self, dtype: torch.dtype) -> str | None:
        """Return why it cannot reduce this type; None if it can."""

    def make(self, count: int, dtype: torch.dtype) -> torch.Tensor:
        """Make a tensor where this library reduces tensors. All ranks call it alike."""
        return torch.empty(count, dtype=dtype)

    def prepare(self, tensor: torch.Tensor) -> Callable[[], object]:
        """Return a call that sums `tensor` over all ranks in place and waits for the result."""


class Roundelay(Contender):
    """`hvd.allreduce_`."""

    name = "roundelay"

    def __init__(self) -> None:
        import roundelay.torch as hvd

        hvd.init()
        self._hvd = hvd

    def why_not(self, dtype: torch.dtype) -> str | None:
        """Return None: it can reduce all types."""
        return None

    def prepare(self, tensor: torch.Tensor) -> Callable[[], object]:
        """Use one name for each shape and type, as a training loop does."""
        name = f"bench.{tensor.dtype}.{tensor.numel()}"
        return lambda: self._hvd.allreduce_(tensor, name=name, op=self._hvd.Sum)


class Pool(Contender):
    """Roundelay's sum of a gradient in a pool, as DistributedOptimizer has them."""

    name = "pool"

    def __init__(self) -> None:
        from roundelay import _core
        from roundelay.torch._internal.operations import Sum

        self._core = _core
        self._sum = Sum
        self._keys = itertools.count(1)
        self._pools: dict[int, _core.GradientPool] = {}  # by the tensor's address

    def why_not(self, dtype: torch.dtype) -> str | None:
        """Return None: it can reduce all types."""
        return None

    def make(self, count: int, dtype: torch.dtype) -> torch.Tensor:
        """Make a pool with one entry."""
        pool = self._core.GradientPool(next(self._keys), count * dtype.itemsize, 0, torch.device("cpu"))
        tensor = pool.fill(pool.add(0, torch.empty(count, dtype=dtype), dtype), None)
        self._pools[tensor.data_ptr()] = pool
        return tensor

    def prepare(self, tensor: torch.Tensor) -> Callable[[], object]:
        """Use one name for each shape, type and place."""
        pool = self._pools.pop(tensor.data_ptr())
        name = f"pool.{tensor.dtype}.{next(self._keys)}"
        size, dtype = tensor.numel() * tensor.itemsize, tensor.dtype
        return lambda: self._core.synchronize(pool.allreduce_async(size, dtype, name, self._sum))


class Gloo(Contender):
    """`torch.distributed.all_reduce`."""

    name = "gloo"

    def why_not(self, dtype: torch.dtype) -> str | None:
        """Return None: it can reduce all types."""
        return None

    def prepare(self, tensor: torch.Tensor) -> Callable[[], object]:
        """Use the default group."""
        return lambda: dist.all_reduce(tensor)


class Mpi(Contender):
    """`MPI_Allreduce`, through mpi4py's buffer interface."""

    name = "mpi"

    def __init__(self) -> None:
        import mpi4py

        mpi4py.rc.finalize = False  # if Roundelay has started MPI, it also ends it
        from mpi4py import MPI

        self._mpi = MPI
        self._world = MPI.COMM_WORLD

    def why_not(self, dtype: torch.dtype) -> str | None:
        """Refuse half types: MPI's predefined types end at float."""
        return None if dtype == torch.float32 else "MPI has no reduction of this type"

    def prepare(self, tensor: torch.Tensor) -> Callable[[], object]:
        """Reduce in place."""
        buffer = [tensor.numpy(), self._mpi.FLOAT]
        return lambda: self._world.Allreduce(self._mpi.IN_PLACE, buffer, op=self._mpi.SUM)


def enter() -> tuple[list[Contender], dict[str, str]]:
    """Start all contenders of this process; return them, and the reason for each that is missing."""
    found: list[Contender] = [Roundelay(), Pool(), Gloo()]
    missing = {}
    try:
        found.append(Mpi())
    except ImportError:
        missing["mpi"] = "mpi4py is not installed: pip install mpi4py"
    return found, missing


Shape = Sequence[int]
# Returns the bytes of an allreduce of all gradients, from the shapes of the parameters.
Payload = Callable[[Sequence[Shape]], float]

FP32, HALF = 4, 2  # bytes of an element on the wire
DENSE_STEPS = 20  # the first ones of CSC, top-k and PowerSGD, when gradients change most
_LEAST_CYCLE = 4  # steps, of a contender that communicates in each step or not at all


def dense(width: float) -> Payload:
    """Send every element, in so many bytes."""
    return lambda shapes: float(width * sum(map(math.prod, shapes)))


def low_rank(rank: int, least_gain: float = 2.0) -> Payload:
    """Send the two factors of every matrix that these make so many times as small, and all the rest."""

    def size(shape: Shape) -> int:
        whole = math.prod(shape)
        factors = rank * (shape[0] + whole // shape[0])
        return factors if len(shape) > 1 and factors * least_gain < whole else whole

    return lambda shapes: float(FP32 * sum(map(size, shapes)))


def pairs(density: float, least: int = 4096) -> Payload:
    """Send a part of the elements, each in half a type with 16 bits of an index, and small parameters whole.

    They are gathered. On two nodes that sends as many bytes as an allreduce of them.
    """

    def size(shape: Shape) -> float:
        whole = math.prod(shape)
        return 2 * HALF * density * whole if whole >= least else HALF * whole

    return lambda shapes: float(sum(map(size, shapes)))


def least_sent(payload: float, nodes: int) -> float:
    """Return the bytes that a node must send in an allreduce of so many bytes: 2 (m - 1) / m of them."""
    return 2 * (nodes - 1) / nodes * payload


@dataclass(frozen=True)
class Training:
    """One way to train.

    `library` is "none", "roundelay", "gloo", "ddp" or "powersgd" (DDP with its hook). `setting` is the text
    of Roundelay's strategy, the name of DDP's hook, or the rank of PowerSGD. `payload` is None if no formula
    tells it. `apart`: each gradient is an operation of its own, outside of a pool. Such settings belong to
    the process, so this contender has processes of its own. `bucket_mib` is the size of DDP's buckets; None:
    its default, with a smaller first bucket. `backend` is that of DDP's process group; `plain`: DDP has its
    default options otherwise; `silent`: it does all but communicate. Every `every`-th step puts gradients (or
    parameters) on the wire; 0: none does. Training waits for them `wait` steps later.
    """

    name: str
    library: str = "none"
    setting: str = ""
    payload: Payload | None = None
    apart: bool = False
    bucket_mib: int | None = None
    backend: str = "gloo"
    plain: bool = False
    silent: bool = False
    every: int = 1
    wait: int = 0

    @property
    def cycle(self) -> int:
        """Return the number of steps after which communication repeats; a few if it is the same in all."""
        return max(self.every, _LEAST_CYCLE)

    def seconds(self, alone: float, wire: float) -> float:
        """Return the time of a step, in seconds.

        It is `alone`, the step without communication, and the part of a transfer's time `wire` that exceeds
        the wait.
        """
        if self.every == 0:
            return alone
        return alone + max(0.0, wire - self.wait * alone) / self.every

    def bytes(self, message: float) -> float:
        """Return the bytes that must leave a node in a step. message: those of a transfer."""
        return message / self.every if self.every else 0.0


def daso(every: int, wait: int) -> Training:
    """Return DASO with a transfer in every `every`-th step, without a warm-up and a cool-down."""
    ends = "warmup_epochs=0,cooldown_epochs=0,total_epochs=1"
    text = f"daso:global_skip={every},batches_to_wait={wait},{ends}"
    return Training(f"DASO, B = {every}, S = {wait}", "roundelay", text, every=every, wait=wait)


def _local_sgd(period: int) -> Training:
    text = f"local_sgd:period={period}"
    return Training(f"local SGD, period {period}", "roundelay", text, every=period)


def _csc(keep: float, name: str, more: str = "") -> Training:
    text = f"csc:keep={keep}{more},warmup={DENSE_STEPS},wire=bf16"
    return Training(name, "roundelay", text)


def _power_sgd(rank: int) -> Training:
    text = f"power_sgd:rank={rank},warmup={DENSE_STEPS},dense_below=0"
    return Training(f"PowerSGD rank {rank}", "roundelay", text, low_rank(rank))


def _power_sgd_of_ddp(rank: int) -> Training:
    return Training(f"DDP, PowerSGD rank {rank}", "powersgd", str(rank), low_rank(rank))


def _topk(density: float, name: str, more: str = "") -> Training:
    text = f"topk:density={density},index_bits=16,select=auto{more},warmup={DENSE_STEPS},wire=bf16"
    return Training(name, "roundelay", text, pairs(density))


ALONE, NODE, DENSE = "alone", "node", "dense"
_ALONE = Training("no communication", payload=lambda _: 0.0, every=0)
_FP16_HOOK = "fp16_compress_hook"

# benchmarks.train_step and benchmarks.two_nodes_train
STEPS = {
    one.name: one
    for one in (
        Training("none"),
        Training("roundelay", "roundelay", "dense"),
        Training("roundelay bf16", "roundelay", "dense:wire=bf16"),
        Training("gloo", "gloo"),
        Training("ddp", "ddp", bucket_mib=25),
        Training("ddp 5 MiB", "ddp", bucket_mib=5),
        Training("ddp 100 MiB", "ddp", bucket_mib=100),
        Training("ddp fp16", "ddp", _FP16_HOOK, bucket_mib=25),
        Training("ddp on roundelay", "ddp", bucket_mib=25, backend="roundelay"),
        Training("silent ddp", "ddp", bucket_mib=25, silent=True),
        Training("plain ddp", "ddp", plain=True),
        Training("silent plain ddp", "ddp", plain=True, silent=True),
        Training("plain ddp on roundelay", "ddp", plain=True, backend="roundelay"),
    )
}

# benchmarks.averaging
AVERAGING = {
    ALONE: _ALONE,
    NODE: Training("gradients in the node alone", "roundelay", "local_sgd:period=1000000", every=0),
    DENSE: Training("dense", "roundelay", "dense"),
    "local-4": _local_sgd(4),
    "local-8": _local_sgd(8),
    "daso-4-1": daso(4, 1),
    "daso-4-4": daso(4, 4),
    "daso-8-4": daso(8, 4),
    "daso-8-8": daso(8, 8),
    "daso-16-16": daso(16, 16),
}

# benchmarks.gradientflow
GRADIENTFLOW = {
    ALONE: _ALONE,
    "per-tensor": Training("per tensor", "roundelay", "dense", dense(FP32), apart=True),
    "lazy": Training("lazy allreduce", "roundelay", "dense", dense(FP32)),
    "bf16": Training("lazy allreduce, bf16", "roundelay", "dense:wire=bf16", dense(HALF)),
    "csc-10": _csc(0.1, "CSC 10 %, bf16"),
    "csc-10-previous": _csc(0.1, "CSC 10 %, bf16, previous norms", ",norms=previous"),
    "csc-1": _csc(0.01, "CSC 1 %, bf16"),
    "topk-10": _topk(0.1, "top-k 10 %, bf16"),
    "topk-1": _topk(0.01, "top-k 1 %, bf16"),
    "topk-1-momentum": _topk(0.01, "top-k 1 %, bf16, SGD's momentum", ",momentum=none"),
    "quantised": Training("8 bits", "roundelay", "quantised:bits=8", dense(65 / 64)),
    "power-sgd-4": _power_sgd(4),
    "power-sgd-2": _power_sgd(2),
    "power-sgd-1": _power_sgd(1),
    "ddp": Training("DDP", "ddp", "", dense(FP32)),
    "ddp-fp16": Training("DDP, fp16 hook", "ddp", _FP16_HOOK, dense(HALF)),
    "powersgd-4": _power_sgd_of_ddp(4),
    "powersgd-2": _power_sgd_of_ddp(2),
    "powersgd-1": _power_sgd_of_ddp(1),
}

# benchmarks.time_to_loss: chunks suit its small model, and the ends of DASO's training its epochs
EPOCHS = 20
_SMALL = f"dense_below=512,warmup={3 * DENSE_STEPS}"
TIME_TO_LOSS = {
    "dense": Training("dense", "roundelay", "dense"),
    "bf16": Training("bf16", "roundelay", "dense:wire=bf16"),
    "csc": Training("CSC 10 %", "roundelay", f"csc:keep=0.1,chunk_elements=256,{_SMALL},wire=bf16"),
    "topk": Training("top-k 1 %", "roundelay", f"topk:density=0.01,{_SMALL},wire=bf16"),
    "topk-none": Training(
        "top-k 1 %, momentum=none", "roundelay", f"topk:density=0.01,{_SMALL},wire=bf16,momentum=none"
    ),
    "power-sgd": Training("PowerSGD, rank 2", "roundelay", f"power_sgd:rank=2,{_SMALL}"),
    "daso": Training(
        "DASO, B = 4, S = 1",
        "roundelay",
        f"daso:global_skip=4,batches_to_wait=1,warmup_epochs=2,cooldown_epochs=2,total_epochs={EPOCHS}",
    ),
    "quantised": Training("8 bits", "roundelay", "quantised:bits=8"),
    "local-8": Training("local SGD, period 8", "roundelay", "local_sgd:period=8"),
    "ddp": Training("DDP", "ddp", bucket_mib=25),
    "ddp-fp16": Training("DDP, fp16 hook", "ddp", _FP16_HOOK, bucket_mib=25),
    "ddp-power-sgd": _power_sgd_of_ddp(2),
}

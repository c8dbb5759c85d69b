"""The ways to synchronise gradients that take turns, and the bytes that each has to sum. Pure."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

Shape = Sequence[int]
# Returns the bytes of a step's allreduces, from the shapes of the parameters.
Payload = Callable[[Sequence[Shape]], float]

FP32, HALF = 4, 2  # bytes of an element on the wire
DENSE_STEPS = 20  # the first ones of CSC, top-k and PowerSGD, when gradients change most
WARMUPS = DENSE_STEPS + 4  # steps before the measured ones: then all have their pools and orders of buckets


def dense(width: int) -> Payload:
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


@dataclass(frozen=True)
class Contender:
    """One way to synchronise.

    `library` is "none", "roundelay", "ddp" or "powersgd". `setting` is the text of Roundelay's strategy, the
    name of DDP's hook, or the rank of PowerSGD. `apart`: each gradient is an operation of its own, outside of
    a pool. Such settings belong to the process, so this contender has processes of its own. `payload` is None
    if each step has its own: then the ranks count the bytes (message.py).
    """

    name: str
    library: str
    setting: str
    payload: Payload | None
    apart: bool = False

    @property
    def own(self) -> bool:
        """Return whether this is Roundelay."""
        return self.library == "roundelay"


ALONE = Contender("no communication", "none", "", lambda _: 0.0)
PER_TENSOR = Contender("per tensor", "roundelay", "dense", dense(FP32), apart=True)
LAZY = Contender("lazy allreduce", "roundelay", "dense", dense(FP32))
DDP = Contender("DDP", "ddp", "", dense(FP32))


def _csc(keep: float, name: str, more: str = "") -> Contender:
    text = f"csc:keep={keep}{more},warmup={DENSE_STEPS},wire=bf16"
    return Contender(name, "roundelay", text, None)


def _power_sgd(rank: int) -> Contender:
    text = f"power_sgd:rank={rank},warmup={DENSE_STEPS},dense_below=0"
    return Contender(f"PowerSGD rank {rank}", "roundelay", text, low_rank(rank))


def _topk(density: float, name: str, more: str = "") -> Contender:
    text = f"topk:density={density},index_bits=16,select=auto{more},warmup={DENSE_STEPS},wire=bf16"
    return Contender(name, "roundelay", text, pairs(density))


CONTENDERS = {
    "alone": ALONE,
    "per-tensor": PER_TENSOR,
    "lazy": LAZY,
    "bf16": Contender("lazy allreduce, bf16", "roundelay", "dense:wire=bf16", dense(HALF)),
    "csc-10": _csc(0.1, "CSC 10 %, bf16"),
    "csc-10-previous": _csc(0.1, "CSC 10 %, bf16, previous norms", ",norms=previous"),
    "csc-1": _csc(0.01, "CSC 1 %, bf16"),
    "topk-10": _topk(0.1, "top-k 10 %, bf16"),
    "topk-1": _topk(0.01, "top-k 1 %, bf16"),
    "topk-1-momentum": _topk(0.01, "top-k 1 %, bf16, SGD's momentum", ",momentum=none"),
    "power-sgd-4": _power_sgd(4),
    "power-sgd-2": _power_sgd(2),
    "power-sgd-1": _power_sgd(1),
    "ddp": DDP,
    "ddp-fp16": Contender("DDP, fp16 hook", "ddp", "fp16_compress_hook", dense(HALF)),
    "powersgd-4": Contender("DDP, PowerSGD rank 4", "powersgd", "4", low_rank(4)),
    "powersgd-2": Contender("DDP, PowerSGD rank 2", "powersgd", "2", low_rank(2)),
    "powersgd-1": Contender("DDP, PowerSGD rank 1", "powersgd", "1", low_rank(1)),
}


def least_sent(payload: float, nodes: int) -> float:
    """Return the bytes that a node must send in an allreduce of so many bytes: 2 (m - 1) / m of them."""
    return 2 * (nodes - 1) / nodes * payload

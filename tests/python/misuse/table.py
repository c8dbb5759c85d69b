"""The misuse table: wrong calls with what they must say, and calls that ranks make differently.

A mistake is a ValueError where it is made; the peers that use the name get its text. A disagreement is a
HorovodInternalError with one text on all ranks.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import torch

import roundelay.torch as hvd

Name = str | None
Use = Callable[[Name], object]
Arguments = dict[str, Any]


@dataclass(frozen=True)
class Mistake:
    """`says`: parts of the text, beside the name. `shared`: whether the peers can learn of it."""

    id: str
    wrong: Use
    right: Use
    says: tuple[str, ...]
    shared: bool = True


@dataclass(frozen=True)
class Disagreement:
    """The last rank calls otherwise; each side's words after "rank N has"."""

    id: str
    operation: str
    last: Use
    others: Use
    last_has: str
    others_have: str


def wait(handle: int) -> object:
    return hvd.synchronize(handle)


def rows(count: int = 1, *rest: int, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    """Ones, of as many rows for each rank."""
    return torch.ones(count * hvd.size(), *rest, dtype=dtype)


# Every operation as a use of one tensor under a name.
OPERATIONS: dict[str, Callable[..., object]] = {
    "allreduce": lambda tensor, name, **more: hvd.allreduce(tensor, name=name, **more),
    "allreduce_": lambda tensor, name, **more: hvd.allreduce_(tensor, name=name, **more),
    "allreduce_async": lambda tensor, name, **more: wait(hvd.allreduce_async(tensor, name=name, **more)),
    "allreduce_async_": lambda tensor, name, **more: wait(hvd.allreduce_async_(tensor, name=name, **more)),
    "grouped_allreduce": lambda tensor, name, **more: hvd.grouped_allreduce(
        [rows(), tensor], name=name, **more
    ),
    "grouped_allreduce_": lambda tensor, name, **more: hvd.grouped_allreduce_(
        [rows(), tensor], name=name, **more
    ),
    "allgather": lambda tensor, name, **more: hvd.allgather(tensor, name=name, **more),
    "allgather_async": lambda tensor, name, **more: wait(hvd.allgather_async(tensor, name=name, **more)),
    "grouped_allgather": lambda tensor, name, **more: hvd.grouped_allgather(
        [rows(), tensor], name=name, **more
    ),
    "broadcast": lambda tensor, name, root_rank=0, **more: hvd.broadcast(
        tensor, root_rank, name=name, **more
    ),
    "broadcast_": lambda tensor, name, root_rank=0, **more: hvd.broadcast_(
        tensor, root_rank, name=name, **more
    ),
    "alltoall": lambda tensor, name, **more: hvd.alltoall(tensor, name=name, **more),
    "alltoall_async": lambda tensor, name, **more: wait(hvd.alltoall_async(tensor, name=name, **more)),
    "reducescatter": lambda tensor, name, **more: hvd.reducescatter(tensor, name=name, **more),
    "grouped_reducescatter": lambda tensor, name, **more: hvd.grouped_reducescatter(
        [rows(), tensor], name=name, **more
    ),
}

# What no operation takes, and what it must be called.
TENSORS: dict[str, tuple[Callable[[], Any], tuple[str, ...]]] = {
    "complex32": (
        lambda: torch.view_as_complex(rows(1, 2, dtype=torch.float16)),
        ("complex32", "view_as_real"),
    ),
    "sparse": (lambda: rows().to_sparse(), ("sparse", "to_dense()")),
    "mkldnn": (lambda: rows().to_mkldnn(), ("MKL-DNN", "to_dense()")),
    "meta": (lambda: torch.ones(hvd.size(), device="meta"), ("meta",)),
    "list": (lambda: [1.0] * hvd.size(), ("torch.Tensor", "list")),
    "none": (lambda: None, ("torch.Tensor", "NoneType")),
}

REDUCING = ("allreduce", "allreduce_async_", "grouped_allreduce", "reducescatter", "grouped_reducescatter")
WITH_ROWS = ("allgather", "grouped_allgather", "alltoall", "reducescatter", "grouped_reducescatter")
NO_FACTORS: Arguments = {"nan": math.nan, "inf": math.inf, "minus-inf": -math.inf}


def use(operation: str, make: Callable[[], Any] = rows, more: Arguments | None = None) -> Use:
    return lambda name: OPERATIONS[operation](make(), name, **(more or {}))


def mistakes() -> Iterator[Mistake]:
    for operation in OPERATIONS:
        for kind, (make, says) in TENSORS.items():
            yield Mistake(f"{operation}-{kind}", use(operation, make), use(operation), says)
    yield from _reductions()
    yield from _shapes()
    yield from _roots()
    yield from _splits()
    yield from _groups_and_sparse()
    yield from _names_and_sets()


def _moved(operation: str) -> Iterator[Mistake]:
    """Types that are only moved."""
    for kind, dtype in (("UInt16", torch.uint16), ("Float8", torch.float8_e4m3fn)):
        moved = use(operation, lambda dtype=dtype: rows().to(dtype))  # type: ignore[misc]
        yield Mistake(f"{operation}-{kind}", moved, use(operation), (kind, "supported are"))


def _reductions() -> Iterator[Mistake]:
    for operation in REDUCING:
        right = use(operation)
        for value in (17, -1, "Sum", 1.5):
            yield Mistake(
                f"{operation}-op-{value}", use(operation, more={"op": value}), right, ("op is", repr(value))
            )
        for which in ("prescale_factor", "postscale_factor"):
            for kind, value in NO_FACTORS.items():
                wrong = use(operation, more={"op": hvd.Sum, which: value})
                yield Mistake(f"{operation}-{which}-{kind}", wrong, right, ("finite",))
            for text in ("two", None):
                wrong = use(operation, more={"op": hvd.Sum, which: text})
                yield Mistake(f"{operation}-{which}-{text}", wrong, right, (which, repr(text)))
        yield from _moved(operation)
        boolean = use(operation, lambda: rows().bool(), more={"op": hvd.Average})
        yield Mistake(f"{operation}-average-of-bool", boolean, right, ("bool", "Average"))
    for dtype in (torch.int64, torch.uint8, torch.bool):
        adasum = use("allreduce", lambda dtype=dtype: rows(dtype=dtype), more={"op": hvd.Adasum})  # type: ignore[misc]
        yield Mistake(f"allreduce-adasum-of-{dtype}", adasum, use("allreduce"), ("Adasum", "float"))
    for op in ("Min", "Max", "Product", "Adasum"):
        wrong = use("reducescatter", more={"op": getattr(hvd, op)})
        yield Mistake(f"reducescatter-{op}", wrong, use("reducescatter"), ("op", "Average", "Sum"))
    both = use("allreduce", more={"average": True, "op": hvd.Sum})
    yield Mistake("allreduce-average-and-op", both, use("allreduce"), ("op", "average"))


def _shapes() -> Iterator[Mistake]:
    for operation in WITH_ROWS:
        wrong = use(operation, lambda: torch.tensor(1.0))
        yield Mistake(f"{operation}-of-a-scalar", wrong, use(operation), ("dimension",))
    for operation in ("allreduce_", "allreduce_async_", "grouped_allreduce_", "broadcast_"):
        wrong = use(operation, lambda: torch.ones(1).expand(hvd.size() + 1))
        right = use(operation, lambda: torch.ones(hvd.size() + 1))
        yield Mistake(f"{operation}-into-an-expanded-tensor", wrong, right, ("share memory", "clone()"))
        for kind, shape, strides in (("windows", (3, 2), (1, 1)), ("interleaved", (3, 4), (3, 2))):
            overlapping = use(operation, lambda s=shape, t=strides: torch.ones(99).as_strided(s, t))  # type: ignore[misc]
            right = use(operation, lambda s=shape: torch.ones(s))  # type: ignore[misc]
            yield Mistake(f"{operation}-into-{kind}", overlapping, right, ("share memory", "clone()"))


def _roots() -> Iterator[Mistake]:
    for operation in ("broadcast", "broadcast_"):
        for value in (-1, 1000, "0", None, 0.5):
            wrong = use(operation, more={"root_rank": value})
            yield Mistake(f"{operation}-root-{value}", wrong, use(operation), ("root_rank is", repr(value)))


def _splits() -> Iterator[Mistake]:
    def splits(make: Callable[[int], Any]) -> Use:
        return lambda name: OPERATIONS["alltoall"](rows(2), name, splits=make(hvd.size()))

    wrong: dict[str, tuple[Callable[[int], Any], tuple[str, ...]]] = {
        "negative": (lambda size: [-1, *[2] * (size - 2), 5][:size], ("-1",)),
        "too-few-rows": (lambda size: [1] * size, ("splits",)),
        "too-many-rows": (lambda size: [3] * size, ("splits",)),
        "too-short": (lambda size: [2] * (size - 1), ("splits", "{size}")),
        "too-long": (lambda size: [2] * size + [0], ("splits", "{size}")),
        "fractions": (lambda size: [2.0] * size, ("splits",)),
        "float-tensor": (lambda size: torch.full((size,), 2.0), ("splits",)),
        "matrix": (lambda size: torch.full((size, 1), 2), ("splits",)),
        "meta": (lambda size: torch.full((size,), 2, device="meta"), ("splits", "meta")),
        "number": (lambda size: 2, ("splits",)),
        "text": (lambda size: "2" * size, ("splits",)),
    }
    for kind, (make, says) in wrong.items():
        yield Mistake(f"alltoall-splits-{kind}", splits(make), splits(lambda size: [2] * size), says)
    uneven = use("alltoall", lambda: torch.ones(hvd.size() + 1))
    if hvd.size() > 1:
        yield Mistake("alltoall-rows-not-divisible", uneven, use("alltoall"), ("splits",))


def _groups_and_sparse() -> Iterator[Mistake]:
    for function in ("grouped_allreduce", "grouped_allgather", "grouped_reducescatter"):
        group = getattr(hvd, function)
        right = use(function)
        for kind, value in {"number": 3, "none": None, "text": "ab"}.items():
            yield Mistake(
                f"{function}-of-{kind}",
                lambda name, group=group, value=value: group(value, name=name),  # type: ignore[misc]
                right,
                ("tensor",),
            )

    def sparse(make: Callable[[], Any], **more: Any) -> Use:
        return lambda name: hvd.sparse_allreduce_async(make(), name, **{"op": hvd.Sum, **more})()

    right = sparse(lambda: torch.eye(3).to_sparse())
    yield Mistake("sparse-of-dense", sparse(lambda: torch.ones(3, 3)), right, ("sparse",))
    yield Mistake("sparse-of-none", sparse(lambda: None), right, ("NoneType",))
    for op in ("Min", "Adasum"):
        wrong = sparse(lambda: torch.eye(3).to_sparse(), op=getattr(hvd, op))
        yield Mistake(f"sparse-{op}", wrong, right, ("Average", "Sum"))


def _names_and_sets() -> Iterator[Mistake]:
    sets: dict[str, tuple[Callable[[], Any], tuple[str, ...]]] = {
        "number": (lambda: 1, ("process_set", "1")),
        "text": (lambda: "all", ("process_set", "'all'")),
        "new": (lambda: hvd.ProcessSet([0]), ("add_process_set",)),
    }
    for operation, call in OPERATIONS.items():
        for value in (5, b"weight", "weight\ud800"):
            yield Mistake(
                f"{operation}-name-{value!r}",
                lambda name, call=call, value=value: call(rows(), value),  # type: ignore[misc]
                use(operation),
                ("name", repr(value)),
                shared=False,
            )
        for kind, (make, says) in sets.items():
            yield Mistake(
                f"{operation}-set-{kind}",
                lambda name, call=call, make=make: call(rows(), name, process_set=make()),  # type: ignore[misc]
                use(operation),
                says,
                shared=False,
            )


def disagreements() -> Iterator[Disagreement]:
    for operation in OPERATIONS:
        plain = operation.removeprefix("grouped_").removesuffix("_").removesuffix("_async")
        which = " of tensor 1" if operation.startswith("grouped") else ""
        yield Disagreement(
            f"{operation}-dtype",
            plain,
            use(operation, lambda: rows(dtype=torch.float64)),
            use(operation),
            f"dtype{which} float64",
            f"dtype{which} float32",
        )
        for kind, last, others in (("extent", (4,), (3,)), ("dimensions", (3, 1), (3,))):
            yield Disagreement(
                f"{operation}-shape-{kind}",
                plain,
                use(operation, lambda last=last: rows(1, *last)),  # type: ignore[misc]
                use(operation, lambda others=others: rows(1, *others)),  # type: ignore[misc]
                f"shape{which} {[hvd.size(), *last]}",
                f"shape{which} {[hvd.size(), *others]}",
            )
    yield from _different_arguments()
    yield from _different_operations()


def _different_arguments() -> Iterator[Disagreement]:
    for operation in REDUCING:
        plain = operation.removeprefix("grouped_").removesuffix("_").removesuffix("_async")
        last, others = use(operation, more={"op": hvd.Sum}), use(operation, more={"op": hvd.Average})
        yield Disagreement(f"{operation}-op", plain, last, others, "reduction Sum", "reduction Average")
        for which in ("prescale", "postscale"):
            uses = [use(operation, more={"op": hvd.Sum, f"{which}_factor": factor}) for factor in (0.5, 2.0)]
            has = [f"{which} factor {value}" for value in ("0.5", "2")]
            yield Disagreement(f"{operation}-{which}", plain, uses[0], uses[1], has[0], has[1])
    for operation in ("broadcast", "broadcast_"):
        last, others = use(operation, more={"root_rank": 1}), use(operation)
        yield Disagreement(f"{operation}-root", "broadcast", last, others, "root rank 1", "root rank 0")
    for function in ("grouped_allreduce", "grouped_allgather", "grouped_reducescatter"):
        group = getattr(hvd, function)
        yield Disagreement(
            f"{function}-number-of-tensors",
            function.removeprefix("grouped_"),
            lambda name, group=group: group([rows()] * 3, name=name),  # type: ignore[misc]
            lambda name, group=group: group([rows()] * 2, name=name),  # type: ignore[misc]
            "3 tensors",
            "2 tensors",
        )


def _different_operations() -> Iterator[Disagreement]:
    kinds = ("allreduce", "allgather", "broadcast", "alltoall", "reducescatter")
    for last, others in zip((*kinds, "grouped_allgather"), (*kinds[1:], kinds[0], "allreduce"), strict=True):
        names = (last.removeprefix("grouped_"), others)
        has = [f"operation {name}" for name in names]
        yield Disagreement(f"{last}-and-{others}", f"{others}|{names[0]}", use(last), use(others), *has)

"""The helpers of ``horovod.common.util`` that scripts import."""

import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import pairwise
from typing import Any, TypeVar

from horovod.common.exceptions import HorovodVersionMismatchError
from roundelay.torch._internal.global_state import ccl_built, ddl_built, gloo_built, mpi_built, nccl_built
from roundelay.torch.mpi_ops import gpu_available, num_rank_is_power_2

__all__ = [
    "HorovodVersionMismatchError",
    "ccl_built",
    "check_extension",
    "ddl_built",
    "env",
    "extension_available",
    "gloo_built",
    "gpu_available",
    "is_iterable",
    "mpi_built",
    "nccl_built",
    "num_rank_is_power_2",
    "split_list",
]

T = TypeVar("T")


def extension_available(ext_base_name: str, verbose: bool = False) -> bool:
    """Returns whether there is support for a framework: only for ``torch``."""
    return ext_base_name == "torch"


def check_extension(ext_name: str, *args: Any) -> None:
    """Raises ImportError for a framework without support, such as ``horovod.tensorflow``."""
    if not extension_available(ext_name.removeprefix("horovod.")):
        raise ImportError(f"Roundelay stands in for horovod.torch alone, there is no {ext_name}")


def is_iterable(x: Any) -> bool:
    """Returns whether ``x`` can be looped over."""
    return isinstance(x, Iterable)


def split_list(items: Sequence[T], parts: int) -> list[Sequence[T]]:
    """Returns the items in their order, in so many parts, whose lengths differ by at most one."""
    cuts = [len(items) * part // parts for part in range(parts + 1)]
    return [items[begin:end] for begin, end in pairwise(cuts)]


@contextmanager
def env(**variables: str | None) -> Iterator[None]:
    """Sets environment variables inside ``with``; None unsets one."""
    before = {name: os.environ.get(name) for name in variables}
    _set(variables)
    try:
        yield
    finally:
        _set(before)


def _set(variables: Mapping[str, str | None]) -> None:
    for name, value in variables.items():
        if value is None:
            os.environ.pop(name, None)
        else:
            os.environ[name] = value

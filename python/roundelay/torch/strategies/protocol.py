"""The base of strategies: a strategy chooses each bucket's technique, and works before and after a step.

A technique is what the core does to a full bucket instead of one allreduce (csrc/compress). A strategy says
which bucket takes which. It works on all ranks of its process set; nothing is called on a set of one rank.

Where a technique does not apply, the core reduces densely, alike on all ranks, and leaves the technique's
state as it is: while a rank has joined (``hvd.join``), in a second backward before ``step()``, for a bucket
of which only a part is ready (unused layers), and for gradients outside the pool (docs/gradient_pool.md).
"""

from __future__ import annotations

import math
import weakref
from collections.abc import Callable, Collection, Iterable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple, Protocol

import torch

from roundelay import _core
from roundelay.torch.compression import Compressor
from roundelay.torch.operations import Adasum
from roundelay.torch.process_sets import ProcessSet
from roundelay.torch.tuning.gate import Cost, Plan

Value = bool | int | float | str | tuple[str, ...] | list[str]
_RESERVED = ":,="


@dataclass(frozen=True, init=False)
class Spec:
    """A technique of the core and its parameters: ``Spec("cyclic", parts=4)``. Immutable."""

    name: str
    parameters: tuple[tuple[str, str], ...]  # by key

    def __init__(self, name: str, **parameters: Value) -> None:
        """ValueError if the name or a value cannot be written as text."""
        given = tuple(sorted((key, _written(value)) for key, value in parameters.items()))
        for word in (name, *(word for pair in given for word in pair)):
            if not word or any(mark in word for mark in _RESERVED):
                raise ValueError(f"{word!r} is no name or value: it is empty or has one of {_RESERVED}")
        object.__setattr__(self, "name", name)
        object.__setattr__(self, "parameters", given)

    @property
    def text(self) -> str:
        """The name and all parameters, in one form: ``cyclic:parts=4``."""
        values = ",".join(f"{key}={value}" for key, value in self.parameters)
        return f"{self.name}:{values}" if values else self.name

    @classmethod
    def parse(cls, text: str) -> Spec:
        """Reads ``name`` or ``name:key=value,key=value``. ValueError for anything else."""
        name, colon, rest = text.strip().partition(":")
        pairs = [pair.partition("=") for pair in rest.split(",")] if colon else []
        if not name or any(not key or not value for key, _, value in pairs):
            raise ValueError(f"{text!r} is not of the form name:key=value,key=value")
        keys = [key for key, _, _ in pairs]
        twice = next((key for key in keys if keys.count(key) > 1), None)
        if twice is not None:
            raise ValueError(f"{text!r} has {twice!r} more than once")
        return cls(name, **{key: value for key, _, value in pairs})


def _written(value: Value) -> str:
    if isinstance(value, tuple | list):
        return "+".join(value)
    if isinstance(value, bool):
        return str(int(value))
    return repr(value).removesuffix(".0") if isinstance(value, float) else str(value)


class Shape(NamedTuple):
    """The form of a parameter, and how its elements lie in the bucket, without gaps."""

    sizes: tuple[int, ...]
    strides: tuple[int, ...]  # in elements

    @property
    def elements(self) -> int:
        """The number of elements."""
        return math.prod(self.sizes)


@dataclass(frozen=True)
class Bucket:
    """A bucket, as strategies see it. It is the same on all ranks, but for the device."""

    index: int  # among the optimizer's buckets, in the order of backward
    name: str
    bytes: int  # its size in the pool, which holds the type that travels
    dtype: torch.dtype  # that type
    device: torch.device
    parameters: tuple[str, ...]  # their names, in the order of backward
    pool: int = 0  # its number among the optimizer's pools: one for each device and type
    ranges: tuple[range, ...] = ()  # the elements of each parameter in the bucket; padding may lie between
    shapes: tuple[Shape, ...] = ()  # of each parameter


class Part(NamedTuple):
    """The part of a bucket that a technique has sent, the same on all ranks. Everything else is zero."""

    chunk: int  # elements of a chunk; the chunks begin at the bucket's first element
    chunks: torch.Tensor  # the numbers of those that were sent, int32, ascending, on the bucket's device
    dense: Collection[int]  # the bucket's parameters that were sent whole, by number


class Sent(NamedTuple):
    """A bucket that has a technique, and what came of it in this step."""

    bucket: Bucket
    parameters: tuple[torch.Tensor | None, ...]  # None: it no longer exists
    part: Part | None  # None: all was sent, or another operation has added to it


class Keeper(Protocol):
    """Keeps what techniques hold back: roundelay.torch.optimizer.techniques."""

    def flush(self) -> None:
        """Makes the next submission of each bucket a flush."""

    def sent(self) -> list[Sent]:
        """Returns the buckets that have a technique; for before_step()."""

    def rescale(self, factor: float) -> None:
        """Multiplies what techniques keep back on this rank."""

    def state_dict(self) -> dict[str, Any]:
        """Returns what the techniques keep on this rank."""

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Takes back what state_dict() returned."""


class Choices(Protocol):
    """What a strategy leaves to the search of its optimizer, on rank 0 (gradients/pool_tuner.py)."""

    choice: str  # what the search has chosen, and why

    @property
    def costs(self) -> Sequence[Cost | None]:
        """Those of the candidates, dense first; None: the model does not know it."""

    @property
    def mixed(self) -> Sequence[bool]:
        """Whether a candidate may stand beside others, bucket by bucket."""

    @property
    def trial_steps(self) -> int:
        """Steps that count for each setting, twice."""

    @property
    def plan(self) -> Plan:
        """The number of each bucket's candidate, in use."""

    def named(self, plan: Plan) -> str:
        """Names a plan for logs."""

    def want(self, plan: Plan, new_buckets: bool) -> None:
        """Proposes a plan to all ranks, for the buckets of now or for the next ones."""


@dataclass(frozen=True)
class Context:
    """The surroundings of a strategy, for operations of its own."""

    process_set: ProcessSet
    compression: type[Compressor]  # the form in which gradients travel
    number: int  # the optimizer's number among those of the process set
    # Returns the tensor that the optimizer steps for a parameter: its fp32 master, or the parameter itself.
    stepped: Callable[[torch.Tensor], torch.Tensor]
    keeper: Callable[[], Keeper]  # returns the one that keeps gradients back now
    # Surrounds a change of the tensors that the optimizer steps, between two steps: masters take changes of
    # the parameters before it, and are rounded into the parameters afterwards.
    between_steps: Callable[[], AbstractContextManager[None]]
    regroup: Callable[[], None]  # makes the optimizer ask Strategy.gradient_set() again; between two steps
    # Makes the gradients of the next steps stay on this rank (True), or be reduced again; between two steps.
    keep_local: Callable[[bool], None]

    def name(self, of: str) -> str:
        """Returns a name for an operation of this optimizer's, the same on all ranks."""
        return f"{of}{self.number}" if self.number else of


class Strategy:
    """The base of all strategies. It sends every bucket densely; override what you need.

    All ranks make the same strategy with the same parameters, and each optimizer has one of its own.
    """

    wire: torch.dtype | None = None  # gradients travel in this type; None: as compression= says
    reduces_gradients: ClassVar[bool] = True  # False: gradients stay local, and the strategy combines steps
    takes_sparse: bool = True  # False: a sparse gradient is an error, unless it is made dense
    shares_parameters: ClassVar[bool] = True  # False: no other wrapped optimizer may have one of them

    _context: Context | None = None
    _optimizer: weakref.ref[torch.optim.Optimizer] | None = None

    @property
    def text(self) -> str:
        """The strategy's name in reports and errors."""
        return type(self).__name__

    @property
    def context(self) -> Context:
        """The strategy's surroundings. RuntimeError before DistributedOptimizer has the strategy."""
        if self._context is None:
            raise RuntimeError(f"strategy {self.text} has no optimizer: give it to DistributedOptimizer")
        return self._context

    # -- to override

    def accept(self, optimizer: torch.optim.Optimizer, op: int) -> None:
        """Raises ValueError if it cannot work for this optimizer or op. Nothing was changed yet."""
        if op == Adasum:
            raise ValueError(f"op=hvd.Adasum is the strategy 'adasum': it excludes strategy {self.text}")

    def accept_gradients(self, names: Collection[str], passes: int) -> None:
        """Raises ValueError if it cannot work for parameters of these names, or so many passes in a step.

        Called after accept(), and when the number of passes changes. Nothing was changed yet.
        """

    def accept_set(self, process_set: ProcessSet) -> None:
        """Raises ValueError if it cannot work for the ranks of this set. Nothing was changed yet."""

    def accept_closure(self) -> None:
        """Raises ValueError if ``step()`` must not be given a closure. Nothing was changed yet."""

    def accept_end(self) -> None:
        """Raises ValueError, on all ranks, if the optimizer must not get another strategy now."""

    def gradient_set(self) -> ProcessSet | None:
        """Returns the ranks over which gradients are reduced now; None: they stay on this rank.

        It is the context's set, or a part of it. DistributedOptimizer asks after attach(), and when the
        strategy calls ``context.regroup()``, which all ranks of both sets do between the same two steps.
        """
        return self.context.process_set if self.reduces_gradients else None

    @property
    def choices(self) -> Choices | None:
        """What the search of sizes (ROUNDELAY_AUTOTUNE) is to choose too; None: nothing."""
        return None

    def own_sets(self) -> Iterable[ProcessSet]:
        """Returns further process sets of this rank that the strategy uses; hvd.join joins them, too."""
        return ()

    def report(self) -> Iterable[str]:
        """Returns lines for hvd.report() about the work of this rank."""
        return ()

    def use_buckets(self, buckets: Sequence[Bucket]) -> None:
        """Called on all ranks when there are new buckets, before technique() is asked about them."""

    def technique(self, bucket: Bucket, step: int) -> Spec | None:
        """Returns what happens to the bucket in this step; None: a dense allreduce.

        DistributedOptimizer calls it on every rank for each bucket: when buckets are made, and after each
        step. step: the number of steps that the optimizer has taken. The result must be the same on all
        ranks, so it may depend on the bucket, the step and what agreed() and use_buckets() were given, and on
        nothing else. A technique with state changes only after flush steps, in which the bucket is sent
        densely.
        """

    def before_step(self, optimizer: torch.optim.Optimizer) -> None:
        """Works before ``step()``, which calls it when gradients are complete, or before a closure."""

    def after_step(self, optimizer: torch.optim.Optimizer) -> None:
        """Works after ``step()``, which calls it at its end."""

    def abandon_step(self) -> None:
        """Undoes before_step() where ``step()`` has raised after it. zero_grad() calls it every time."""

    def propose(self) -> bytes | None:
        """Returns what rank 0 of the process set wants all ranks to know, at most 256 bytes; None: nothing.

        Rank 0 is asked at the end of each backward, and repeats a proposal until agreed() gets it.
        """
        return None

    def agreed(self, proposal: bytes) -> None:
        """Takes rank 0's proposal, on all ranks at the end of the same backward."""

    def joined(self, optimizer: torch.optim.Optimizer) -> None:
        """Works when all ranks have joined (hvd.join), maybe after different numbers of steps.

        All ranks of the context's set call it, and may run operations.
        """

    def restart(self) -> None:
        """Begins a new job, of which the optimizer is a part: init() was called again. Runs no operation."""

    def layout_will_change(self) -> None:
        """Tells all ranks that gradients move to other buckets now. Techniques keep nothing back then."""

    def agree_on_overflow(self, found: dict[torch.device, torch.Tensor]) -> None:
        """Makes GradScaler's findings (not 0: overflow), by device, equal on all ranks, in place.

        Override it where gradients stay local. Reduced ones overflow alike anyway.
        """

    def state_dict(self) -> dict[str, Any]:
        """Returns this rank's state, to be loaded on the same rank of a job of the same size.

        Call it between steps. A strategy with a state of its own adds it to the base's.
        """
        return self._kept().state_dict()

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Takes back what state_dict() returned, bit for bit. All ranks call it, before the first step.

        ValueError: it is the state of another rank, model, world size or strategy, or buckets are in use.
        """
        self._kept().load_state_dict(state)

    # -- to call

    def flush(self) -> None:
        """Makes the next step send all that techniques keep back; they keep nothing after it.

        Every rank calls it, between two steps. Call it a step before a checkpoint that shall do without
        state_dict(), and before the optimizer gets another strategy. If GradScaler skips that step, all that
        was kept back is lost: it was sent with the infinite gradients.
        """
        self._kept().flush()

    def rescale(self, factor: float) -> None:
        """Multiplies what techniques keep back by a factor, the same on all ranks: the loss has a new scale.

        GradScaler's update() calls it. Call it between two steps.
        """
        self._kept().rescale(factor)

    def _kept(self) -> Keeper:
        return self.context.keeper()

    # -- for DistributedOptimizer

    def check(
        self,
        optimizer: torch.optim.Optimizer,
        op: int,
        predivide_factor: float,
        names: Collection[str],
        passes: int,
        process_set: ProcessSet,
    ) -> None:
        """Raises ValueError if it cannot be this optimizer's, with these arguments."""
        owner = self._optimizer() if self._optimizer is not None else None
        if owner is not None and owner is not optimizer:
            raise ValueError(f"strategy {self.text} belongs to another optimizer: make one for each")
        if predivide_factor != 1.0 and not self.reduces_gradients:
            raise ValueError(f"gradient_predivide_factor has no meaning with strategy {self.text}")
        self.accept(optimizer, op)
        self.accept_gradients(names, passes)
        self.accept_set(process_set)

    def attach(self, optimizer: torch.optim.Optimizer, context: Context) -> None:
        """Becomes the strategy of the optimizer. All ranks of the set call it, and may run operations."""
        self._optimizer, self._context = weakref.ref(optimizer), context

    def detach(self) -> None:
        """Stops being an optimizer's strategy."""
        self._optimizer = self._context = None


def techniques() -> dict[str, str]:
    """Returns the descriptions of the core's techniques, by name."""
    return dict(_core.techniques())

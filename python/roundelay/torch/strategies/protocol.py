"""The base of strategies: a strategy chooses each bucket's technique, and works before and after a step.

The core applies a technique to a full bucket instead of one allreduce (csrc/compress). A strategy says which
bucket takes which technique. It works on all ranks of its process set. On a set of one rank
DistributedOptimizer calls none of its functions.

If a technique does not apply, the core reduces densely, alike on all ranks, and leaves the technique's state
as it is: while a rank has joined (``hvd.join``), in a second backward before ``step()``, if only a part of a
bucket is ready (unused layers), and if gradients lie outside the pool (docs/gradient_pool.md).
"""

from __future__ import annotations

import math
import weakref
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple, Protocol

import torch

from roundelay.torch._internal.operations import Adasum
from roundelay.torch._internal.tuning.gate import Cost, Plan
from roundelay.torch.compression import Compressor
from roundelay.torch.process_sets import ProcessSet
from roundelay.torch.strategies.spec import Spec


class Shape(NamedTuple):
    """The form of a parameter, and how its elements lie in the bucket, without gaps."""

    sizes: tuple[int, ...]
    strides: tuple[int, ...]  # count elements

    @property
    def elements(self) -> int:
        """The number of elements."""
        return math.prod(self.sizes)


@dataclass(frozen=True)
class Bucket:
    """A bucket, as strategies see it. It is the same on all ranks, but for the device."""

    index: int  # its number among the optimizer's buckets, in the order of backward
    name: str
    bytes: int  # its size in the pool, which holds the type that travels
    dtype: torch.dtype  # the type that travels
    device: torch.device
    parameters: tuple[str, ...]  # their names, in the order of backward
    pool: int = 0  # its number among the optimizer's pools: one for each device and type
    ranges: tuple[range, ...] = ()  # the elements of each parameter in the bucket; padding may lie between
    shapes: tuple[Shape, ...] = ()  # one for each parameter


class Part(NamedTuple):
    """The part of a bucket that a technique has sent, the same on all ranks. Everything else is zero."""

    chunk: int  # elements of a chunk; the chunks begin at the bucket's first element
    chunks: torch.Tensor  # the numbers of those that were sent, int32, ascending, on the bucket's device
    dense: Collection[int]  # the bucket's parameters that were sent whole, by number


class Sent(NamedTuple):
    """A bucket that has a technique, and the part of it that this step has sent."""

    bucket: Bucket
    parameters: tuple[torch.Tensor | None, ...]  # None: it no longer exists
    part: Part | None  # None: all was sent, or another operation has added to it
    applied: bool = True  # False: it is the step's own sum, to which no technique with a state has added


class Keeper(Protocol):
    """Keeps the gradients that techniques hold back (_internal/optimizer/techniques.py implements it)."""

    def flush(self) -> None:
        """Makes the next submission of each bucket a flush."""

    def sent(self) -> list[Sent]:
        """Returns the buckets that have a technique; for before_step()."""

    def rescale(self, factor: float) -> None:
        """Multiplies the gradients that techniques keep back on this rank."""

    def state_dict(self) -> dict[str, Any]:
        """Returns the techniques' state on this rank."""

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Takes back what state_dict() returned."""


class Choices(Protocol):
    """The candidates of a strategy, among which its optimizer's search chooses on rank 0 (pool_tuner.py)."""

    choice: str  # the search writes its choice and the reason here, for reports

    @property
    def costs(self) -> Sequence[Cost | None]:
        """The candidates' costs, dense first; None: the model does not know the candidate."""

    @property
    def mixed(self) -> Sequence[bool]:
        """True for each candidate that may take some buckets while others take the rest."""

    @property
    def trial_steps(self) -> int:
        """The number of steps of a trial. Each setting has two trials."""

    @property
    def plan(self) -> Plan:
        """The number of the candidate that each bucket uses now."""

    def named(self, plan: Plan) -> str:
        """Names a plan for logs."""

    def want(self, plan: Plan, new_buckets: bool) -> None:
        """Proposes a plan to all ranks, for the present buckets or for the next ones."""


@dataclass(frozen=True)
class Context:
    """Gives a strategy its process set, and the functions by which it acts on its optimizer."""

    process_set: ProcessSet
    compression: type[Compressor]  # the form in which gradients travel
    number: int  # the optimizer's number among those of the process set
    # Returns the tensor that the optimizer steps for a parameter: its fp32 master, or the parameter itself.
    stepped: Callable[[torch.Tensor], torch.Tensor]
    keeper: Callable[[], Keeper]  # returns the present keeper of gradients that techniques hold back
    # Surrounds a change of the tensors that the optimizer steps, between two steps: masters take changes of
    # the parameters before it, and are rounded into the parameters afterwards.
    between_steps: Callable[[], AbstractContextManager[None]]
    regroup: Callable[[], None]  # makes the optimizer ask Strategy.gradient_set() again; between two steps
    # Makes the gradients of the next steps stay on this rank (True), or be reduced again; between two steps.
    keep_local: Callable[[bool], None]
    # Raises MismatchError, on all ranks, if these tensors, by name and in the canonical order
    # (parameter_names.py), are others on some. All ranks of the set call it.
    check_parameters: Callable[[Mapping[str, torch.Tensor]], None]

    def name(self, of: str) -> str:
        """Returns a name for an operation of this optimizer's, the same on all ranks."""
        return f"{of}{self.number}" if self.number else of


class Strategy:
    """The base of all strategies. It sends every bucket densely; override what you need.

    All ranks make the same strategy with the same parameters, and each optimizer has one of its own.
    """

    wire: torch.dtype | None = None  # gradients travel in this type; None: in that of compression=
    reduces_gradients: ClassVar[bool] = True  # False: gradients stay local, and the strategy combines steps
    takes_sparse: bool = True  # False: a sparse gradient is an error, unless it is made dense
    takes_complex: ClassVar[bool] = True  # False: a complex parameter is an error
    counts_steps: ClassVar[bool] = True  # False: it needs no step() of the optimizer
    shares_parameters: ClassVar[bool] = True  # False: no other wrapped optimizer may have one of them
    # Of technique, propose and joined, those that the class overrides: DistributedOptimizer calls no others.
    overrides: ClassVar[frozenset[str]] = frozenset()

    _context: Context | None = None
    _optimizer: weakref.ref[torch.optim.Optimizer] | None = None

    def __init_subclass__(cls, **arguments: Any) -> None:
        super().__init_subclass__(**arguments)
        calls = ("technique", "propose", "joined")
        cls.overrides = frozenset(name for name in calls if getattr(cls, name) is not getattr(Strategy, name))

    @property
    def text(self) -> str:
        """The strategy's name in reports and errors."""
        return type(self).__name__

    @property
    def context(self) -> Context:
        """The context that attach() was given. RuntimeError: DistributedOptimizer has not called it yet."""
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
        """The candidates for the optimizer's search (ROUNDELAY_AUTOTUNE chooses sizes); None: it has none."""
        return None

    def own_sets(self) -> Iterable[ProcessSet]:
        """Returns further process sets of this rank that the strategy uses; hvd.join joins them, too."""
        return ()

    def report(self) -> Iterable[str]:
        """Returns lines for hvd.report() about the work of this rank."""
        return ()

    def use_buckets(self, buckets: Sequence[Bucket]) -> None:
        """Takes new buckets. DistributedOptimizer calls it on all ranks, before technique() for these."""

    def technique(self, bucket: Bucket, step: int) -> Spec | None:
        """Returns the technique that the bucket takes in this step; None: a dense allreduce.

        DistributedOptimizer calls it on every rank for each bucket: when buckets are made, and after each
        step. step: the number of steps that the optimizer has taken. The result must be the same on all
        ranks. So it may depend on the bucket, the step, and the arguments of agreed() and use_buckets(), and
        on nothing else. If a bucket leaves a technique with state, a flush step comes first, in which the
        bucket is sent densely.
        """

    def before_step(self, optimizer: torch.optim.Optimizer) -> None:
        """Works before ``step()``, which calls it when gradients are complete, or before a closure."""

    def after_step(self, optimizer: torch.optim.Optimizer) -> None:
        """Works after ``step()``, which calls it at its end."""

    def abandon_step(self) -> None:
        """Undoes before_step() if ``step()`` has raised after it. zero_grad() calls it every time."""

    def propose(self) -> bytes | None:
        """Returns rank 0's proposal to all ranks of the process set, at most 256 bytes; None: it has none.

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
        """Begins a new job with the same optimizer: init() was called again. It must run no operation."""

    def layout_will_change(self) -> None:
        """Hears, on all ranks, that gradients move to other buckets. Techniques keep nothing back then."""

    def agree_on_overflow(self, found: dict[torch.device, torch.Tensor]) -> None:
        """Makes GradScaler's findings (not 0: overflow), by device, equal on all ranks, in place.

        Override it if gradients stay local. Reduced gradients overflow alike anyway.
        """

    def state_dict(self) -> dict[str, Any]:
        """Returns this rank's state, to be loaded on the same rank of a job of the same size.

        Call it between steps. A strategy with a state of its own adds it to the base's.
        """
        return self._kept().state_dict()

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Takes back what state_dict() returned, bit for bit. All ranks call it, before the first step.

        It makes the buckets of the state, and asks technique() for them: a strategy with a state of its own
        takes that first. It sends no message. Ranks whose states do not belong together get a MismatchError
        in the first backward.

        ValueError: it is the state of another rank, model, world size or strategy, or buckets are in use.
        RuntimeError: there is no memory for its buckets; nothing is loaded.
        """
        self._kept().load_state_dict(state)

    def forget_state(self) -> None:
        """Forgets what load_state_dict() took. All ranks call it if theirs do not belong together."""

    # -- to call

    def flush(self) -> None:
        """Makes the next step send all gradients that techniques keep back; they keep nothing after it.

        Every rank calls it, between two steps. Call it a step before a checkpoint that shall do without
        state_dict(), and before the optimizer gets another strategy. If GradScaler skips that step, the
        gradients that were kept back are lost: they were sent with the infinite ones.
        """
        self._kept().flush()

    def rescale(self, factor: float) -> None:
        """Multiplies the gradients that techniques keep back by a factor: the loss has a new scale.

        The factor is the same on all ranks.

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
            raise ValueError(
                f"gradient_predivide_factor has no meaning with strategy {self.text}: leave it out"
            )
        self.accept(optimizer, op)
        self.accept_gradients(names, passes)
        self.accept_set(process_set)

    def attach(self, optimizer: torch.optim.Optimizer, context: Context) -> None:
        """Becomes the strategy of the optimizer. All ranks of the set call it, and may run operations."""
        self._optimizer, self._context = weakref.ref(optimizer), context

    def detach(self) -> None:
        """Stops being an optimizer's strategy."""
        self._optimizer = self._context = None

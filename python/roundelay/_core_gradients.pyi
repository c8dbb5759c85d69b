"""The classes of gradients in roundelay._core (csrc/bindings/gradient*.cc).

_core.pyi imports them from here. No module has this file's name.
"""

from collections.abc import Callable
from typing import Any

import torch

class KnownTensors:
    """Remembers the tensors in an optimizer's groups, and whether each requires a gradient."""

    def __init__(self) -> None: ...
    # Takes the groups' tensors. Returns whether they are those of the last call, each as trainable as then.
    def follow(self, groups: list[dict[str, Any]]) -> bool: ...

class GradientPool:
    """Memory, zero at first, in which a process set reduces gradients in place until shutdown().

    Offsets and sizes are in bytes. On a GPU all work is enqueued in the current stream.
    """

    # Every rank makes one with the same key (from 1 on, below 2**22) and size. No rank uses its pool before
    # all ranks have theirs. RuntimeError if there is no memory. results: the parameters' type, and the size
    # of a second memory for as many elements, which only this rank uses: buckets are cast into it; None:
    # results stay in place.
    def __init__(
        self,
        key: int,
        size: int,
        process_set: int,
        device: torch.device,
        results: tuple[torch.dtype, int] | None = None,
    ) -> None: ...
    # Adds an entry for the gradient of `parameter`, in this dtype. Returns the entry's number.
    def add(self, offset: int, parameter: torch.Tensor, dtype: torch.dtype) -> int: ...
    # Removes all entries. Tensors of them that somebody holds move out of the pool, with their values. The
    # pool is zero then.
    def clear(self) -> None: ...
    @property
    def counters(self) -> dict[str, int]: ...  # those of hvd.stats(), for this pool
    # Copies `gradient` (None: zeros) into the entry. Returns a tensor of it with the parameter's strides;
    # `gradient` itself if it is the entry. Earlier tensors of the entry move out as in clear().
    def fill(self, entry: int, gradient: torch.Tensor | None) -> torch.Tensor: ...
    def trim(self) -> None: ...  # returns the C library's free memory to the system; does nothing on a GPU
    # Call it when results are complete in the current stream: later fill() calls in other streams wait for
    # this point. Does nothing on the CPU.
    def record_event(self) -> None: ...
    # Returns the number of buckets that were submitted since the last call, and ends the step.
    def take_turns(self) -> int: ...
    # Reduces the first `size` bytes in place. _core.allreduce_async() describes `op` and the handle.
    def allreduce_async(self, size: int, dtype: torch.dtype, name: str, op: int) -> int: ...

class HookRules:
    """The settings that the hooks of one optimizer's gradients share. Python writes, the hooks read them."""

    passes_per_step: int  # backward_passes_per_step
    no_sync_depth: int  # the number of no_sync() blocks that are open
    marking: bool  # the timeline records each gradient's arrival
    recording: bool  # AfterHook calls `arrived` for every gradient
    graph_task: int  # the backward whose end Python waits for; -1: none
    def __init__(self) -> None: ...

class Gradient:
    """The only writer of one parameter's `.grad`: local (this rank's part), in flight or reduced."""

    # `additive`: the results of several reductions may be added.
    def __init__(self, parameter: torch.Tensor, name: str, additive: bool) -> None: ...
    @property
    def parameter(self) -> torch.Tensor | None: ...  # None if it no longer exists
    # False if the parameter no longer exists, is frozen, or belongs to another optimizer.
    @property
    def wanted(self) -> bool: ...
    @property
    def reductions(self) -> int: ...  # operations that were submitted and have no result yet
    # Returns `.grad` if it is local.
    def local(self) -> torch.Tensor | None: ...
    # Sets the number of backward passes in `.grad` that no reduction has taken. The hooks count on from here.
    def set_passes(self, passes: int) -> None: ...
    # Takes a local `.grad` for a reduction. A reduced one is set aside. RuntimeError: not additive.
    def take(self) -> torch.Tensor | None: ...
    # Makes this tensor `.grad`, in flight.
    def send(self, tensor: torch.Tensor) -> None: ...
    # Counts a submitted operation. complete() adds its result to others; the last puts the sum into `.grad`.
    def submitted(self) -> None: ...
    def complete(self, result: torch.Tensor) -> None: ...
    def new_step(self) -> None: ...  # makes `.grad` local again, and forgets what was in flight
    def give_up(self) -> None: ...  # marks the parameter as another optimizer's

# Returns whether DistributedDataParallel reduces the parameter's gradients.
def reducer_hooks(parameter: torch.Tensor) -> bool: ...

class BeforeHook:
    """Hook of a parameter: sets a reduced gradient aside if autograd adds to `.grad` next."""

    def __init__(self, gradient: Gradient) -> None: ...
    def __call__(self, gradient: torch.Tensor | None) -> None: ...

class AfterHook:
    """Hook of a parameter: counts the pass, copies the gradient into its bucket, and submits a full one.

    Does nothing if BeforeHook has found that nothing would be added. Calls `arrived` instead for a backward's
    first gradient, and for one that is sparse or in no bucket.
    """

    def __init__(self, gradient: Gradient, rules: HookRules, arrived: Callable[[], None]) -> None: ...
    def __call__(self, parameter: torch.Tensor) -> None: ...

class GradientGroup:
    """Gradients that one operation reduces. A gradient is in the group that it was added to last."""

    def __init__(self, name: str) -> None: ...
    def add(self, gradient: Gradient) -> None: ...
    # Marks the gradient as ready; `kind` 1: dense, 1 + n: sparse in n dimensions. Returns whether the group
    # is full (all wanted gradients are ready and dense). The caller then submits it.
    def mark_ready(self, gradient: Gradient, kind: int) -> bool: ...
    def unmark(self, gradient: Gradient) -> None: ...
    def unmark_all(self) -> None: ...
    def any_ready(self) -> bool: ...
    # Returns a byte for each gradient: its kind; 0: it is not ready.
    def kinds(self) -> bytes: ...
    # Returns a byte for each gradient: 1 if it is wanted.
    def wanted(self) -> bytes: ...
    # Returns the indices of wanted gradients that have so many backward passes and are not ready.
    def overdue(self, passes: int) -> list[int]: ...
    # Puts back each gradient that was set aside for a backward that has raised before it added to `.grad`.
    def put_back(self) -> None: ...
    # Makes a GPU's current stream wait for the streams that produced the ready gradients.
    def wait_for_producers(self) -> None: ...
    # Returns the name of the next operation: `name`, with a number from the second operation of a step on.
    def next_name(self, name: str) -> str: ...
    @property
    def operations(self) -> int: ...  # since the last step
    @property
    def filled(self) -> int: ...  # the number of times that the group was full since the last take_filled()
    # Returns `filled`, and counts from 0 again.
    def take_filled(self) -> int: ...
    # Call it after the optimizer's step and zero_grad(): all gradients begin anew.
    def new_step(self) -> None: ...

class Bucket(GradientGroup):
    """A range of a pool, reduced in the pool once in a step. Later reductions of the step are Python's."""

    def __init__(
        self,
        name: str,
        pool: GradientPool,
        op: int,
        prescale_factor: float,
        postscale_factor: float,
    ) -> None: ...
    def add(self, gradient: Gradient, entry: int) -> None: ...  # type: ignore[override]
    # Copies a ready gradient in, made dense, and submits the bucket if it is full. Returns False, and does
    # nothing, if the pool contains this step's result already.
    def arrived(self, gradient: Gradient) -> bool: ...
    # Submits the bucket, with zeros for gradients that are not there.
    def submit(self) -> None: ...
    # Waits for the operation in flight, if there is one, and gives each gradient its result.
    def finish(self) -> None: ...
    # Call it after a failure: waits for the operation in flight, and drops its results.
    def abandon(self) -> None: ...
    @property
    def turn(self) -> int: ...  # its position among the pool's buckets of this step, from 1 on; 0: none
    # Chooses the technique from now on, equal on all ranks; None or "dense": none. The same one keeps its
    # state, another gets new state. Errors change nothing. ValueError: the text is wrong. RuntimeError: the
    # bucket is in flight, or its state may keep gradients: send them with flush_next() first.
    def set_technique(self, text: str | None) -> None: ...
    @property
    def technique(self) -> str | None: ...  # its canonical text; None: dense
    # This rank's state, uint8; None: there is none. Do not use it while the bucket is in flight. A write
    # counts as gradients that are kept.
    @property
    def state(self) -> torch.Tensor | None: ...
    # Counts the runs that used the state since it was clear; 0 after a flush. A restored state needs its
    # number. Setting it, and rescale(): RuntimeError while the bucket is in flight.
    @property
    def run(self) -> int: ...
    @run.setter
    def run(self, number: int) -> None: ...
    # Multiplies what is kept, after the scale of gradients has changed.
    def rescale(self, factor: float) -> None: ...
    # Describes the chunks that the last operation has sent: the elements of a chunk; the indices of the
    # chunks, which count from the bucket's first element (int32, on its device; the next operation overwrites
    # them); the numbers of the parameters that went densely. None: it was dense, there was none, or the
    # technique has no chunks.
    def sent(self) -> tuple[int, torch.Tensor, list[int]] | None: ...
    # Returns whether the technique has carried out the last operation, as a run or as a flush. False: the
    # result is a dense sum.
    @property
    def applied(self) -> bool: ...
    def flush_next(self) -> None: ...  # the next submission is dense, and sends what the state keeps, too
    @property
    def unflushed(self) -> bool: ...  # the state may keep gradients
    # For each technique ("dense": none, or it did not apply): operations, bytes of gradients, bytes sent.
    @property
    def traffic(self) -> list[tuple[str, int, int, int]]: ...

def techniques() -> list[tuple[str, str]]: ...  # (name, description) of those that set_technique() knows
def technique_text(text: str) -> str: ...  # its canonical form. ValueError: set_technique() would refuse it

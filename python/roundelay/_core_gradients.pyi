"""The classes of gradients in roundelay._core (csrc/bindings: gradient*.cc, reducer.cc, master_pairs.cc).

_core.pyi imports them from here. No module has this file's name.
"""

from collections.abc import Callable, Sequence
from typing import Any

import torch

from roundelay._core import Merge

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
    def place(self, entry: int) -> tuple[int, int]: ...  # where it begins and ends
    # Removes all entries. Tensors of them that somebody holds move out of the pool, with their values. The
    # pool is zero then.
    def clear(self) -> None: ...
    @property
    def counters(self) -> dict[str, int]: ...  # those of hvd.stats(), for this pool
    # Copies `gradient` (None: zeros) into the entry. Returns a tensor of it with the parameter's strides;
    # `gradient` itself if it is the entry. Earlier tensors of the entry move out as in clear().
    def fill(self, entry: int, gradient: torch.Tensor | None) -> torch.Tensor: ...
    def trim(self) -> None: ...  # returns the C library's free memory to the system; does nothing on a GPU
    # Returns the number of buckets that were submitted since the last call, and ends the step.
    def take_submissions(self) -> int: ...
    # Reduces the first `size` bytes in place. _core.allreduce_async() describes `op` and the handle.
    def allreduce_async(self, size: int, dtype: torch.dtype, name: str, op: int) -> int: ...

class HookRules:
    """The settings that the hooks of one optimizer's gradients share. Python writes, the hooks read them."""

    passes_per_step: int  # backward_passes_per_step
    no_sync_depth: int  # the number of no_sync() blocks that are open
    marking: bool  # the timeline records each gradient's arrival

class BatchWeights:
    """Weighs a rank's gradients by the size of its batch, for an average over samples instead of ranks."""

    # weight: returns this rank's weight; NaN: it has none. refuse: raises what is wrong with the weights of
    # the ranks, which all call it with the names of their operations in flight.
    def __init__(self, weight: Callable[[], float], refuse: Callable[[list[str]], None]) -> None: ...
    # Forgets earlier weights. size: the number of ranks. All ranks call it between the same two steps.
    def restart(self, size: int) -> None: ...

class Rule:
    """How the gradients of one optimizer are reduced, equal on all ranks. It belongs to one init()."""

    # additive: results of several reductions of a gradient may be added. sparse_as_dense: sparse gradients
    # are made dense; else takes_sparse: they are reduced as they are, or are an error. wire: the type in
    # which fp32 and fp64 gradients travel. compressor: a torch.compression.Compressor for those in no pool.
    # weights: an average over samples.
    def __init__(
        self,
        *,
        op: int,
        prescale_factor: float = 1.0,
        postscale_factor: float = 1.0,
        process_set: int = 0,
        additive: bool = True,
        sparse_as_dense: bool = True,
        takes_sparse: bool = False,
        wire: torch.dtype | None = None,
        compressor: Any = None,
        weights: BatchWeights | None = None,
    ) -> None: ...

class Gradient:
    """The only writer of one parameter's `.grad`: local (this rank's part), in flight or reduced."""

    # `additive`: the results of several reductions may be added.
    def __init__(self, parameter: torch.Tensor, name: str, additive: bool) -> None: ...
    @property
    def name(self) -> str: ...
    @property
    def parameter(self) -> torch.Tensor | None: ...  # None if it no longer exists
    # False if the parameter no longer exists, is frozen, or belongs to another optimizer.
    @property
    def wanted(self) -> bool: ...
    # True while backward adds to `.grad` and a result of this step, which is added later, was put aside.
    @property
    def has_set_aside(self) -> bool: ...
    # The number of backward passes in `.grad` that no reduction has taken. The hooks count on from here.
    local_passes: int
    def new_step(self) -> None: ...  # makes `.grad` local again, and forgets what was in flight
    def give_up(self) -> None: ...  # marks the parameter as another optimizer's

# Returns whether DistributedDataParallel reduces the parameter's gradients.
def reducer_hooks(parameter: torch.Tensor) -> bool: ...

class BeforeHook:
    """Hook of a parameter: sets a reduced gradient aside if autograd adds to `.grad` next."""

    def __init__(self, gradient: Gradient) -> None: ...
    # Keeps this key of the parameter's hooks, an OrderedDict, behind all others.
    def keep_last(self, hooks: Any, key: int) -> None: ...
    def __call__(self, gradient: torch.Tensor | None) -> None: ...

class AfterHook:
    """Hook of a parameter: counts the pass, copies the gradient into its bucket, and submits a full one.

    Does nothing if BeforeHook has found that nothing would be added.
    """

    def __init__(self, gradient: Gradient, reducer: Reducer) -> None: ...
    def __call__(self, parameter: torch.Tensor) -> None: ...

class GradientMarks:
    """Records in the timeline when gradients come that nobody reduces."""

    def __init__(self) -> None: ...
    @property
    def rules(self) -> HookRules: ...

class MarkHook:
    """Hook of a parameter whose gradient nobody reduces: counts the pass, and records the arrival."""

    def __init__(self, gradient: Gradient, marks: GradientMarks) -> None: ...
    def __call__(self, parameter: torch.Tensor) -> None: ...

class BackwardListener:
    """Calls owner.backward_ended() when the outermost backward ends, before ranks wait for each other.

    It does not keep the owner alive.
    """

    def __init__(self, owner: Any) -> None: ...

class LocalHook:
    """Hook of a parameter: makes the listener hear of the end of this backward."""

    def __init__(self, listener: BackwardListener) -> None: ...
    def __call__(self, parameter: torch.Tensor) -> None: ...

class StepWatch:
    """Compares versions with those of the last backward (csrc/gradients/step_watch.h)."""

    # stepped: what the optimizer steps for a parameter: its master or itself. It is not kept alive.
    def __init__(self, stepped: torch.Tensor) -> None: ...
    def forget(self) -> None: ...  # changes until the next backward are expected

class WatchHook:
    """Hook of a parameter: calls the owner's changed(number) if the watch finds a change.

    It does not keep the owner alive. It does nothing in compiled autograd.
    """

    def __init__(self, watch: StepWatch, owner: Any, number: int) -> None: ...
    def __call__(self, parameter: torch.Tensor) -> None: ...

def queue_backward_end() -> None: ...  # makes the running backward end the listeners
def backward_ns() -> int: ...  # the time from backwards' first gradients to their ends, in nanoseconds

class GradientGroup:
    """Gradients that one operation reduces. A gradient is in the group that it was added to last."""

    def __init__(self, name: str, rule: Rule) -> None: ...
    @property
    def name(self) -> str: ...
    @property
    def gradients(self) -> list[Gradient]: ...
    def add(self, gradient: Gradient) -> None: ...

class Bucket(GradientGroup):
    """A range of a pool, reduced in the pool once in a step; later in that step, outside of it."""

    def __init__(self, name: str, pool: GradientPool, rule: Rule) -> None: ...
    def add(self, gradient: Gradient, entry: int) -> None: ...  # type: ignore[override]
    @property
    def bytes(self) -> int: ...
    # Returns the first element of each gradient and their number, counted from the bucket's first one.
    @property
    def slices(self) -> list[tuple[int, int]]: ...
    # Makes the next operation the step's second one: its gradients were reduced in this step already.
    def join_step(self) -> None: ...
    # Submits the bucket, with zeros for gradients that are not there.
    def submit(self) -> None: ...
    # Waits for what is in flight, and gives each gradient its result.
    def finish(self) -> None: ...
    # Call it after a failure: waits for what is in flight, and drops its results.
    def abandon(self) -> None: ...
    @property
    def number_in_step(self) -> int: ...  # among the pool's buckets, from 1 on; 0: not submitted
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
    # The elements that the technique keeps back, at the beginning of its state: the first one, their number,
    # and the factor that makes them this rank's part of the sum. place: of this rank in its node; shards: the
    # places that have one; even: nodes have equally many ranks; divisor: the operation's, for Average the
    # set's size.
    def residual(self, place: int, shards: int, even: bool, ranks: int) -> tuple[int, int, float]: ...
    # Multiplies what is kept, after the scale of gradients has changed.
    def rescale(self, factor: float) -> None: ...
    # Describes the chunks that this step's only operation has sent: the elements of a chunk; the indices of
    # the chunks, which count from the bucket's first element (int32, on its device; the next operation
    # overwrites them); the numbers of the parameters that went densely. None: it was dense, there was none,
    # or the technique has no chunks.
    def sent(self) -> tuple[int, torch.Tensor, list[int]] | None: ...
    # Returns whether the technique has carried out this step's last operation, as a run or as a flush. False:
    # the result is a dense sum.
    @property
    def applied(self) -> bool: ...
    def flush_next(self) -> None: ...  # the next submission is dense, and sends what the state keeps, too
    @property
    def unflushed(self) -> bool: ...  # the state may keep gradients
    # For each technique ("dense": none, or it did not apply): operations, bytes of gradients, bytes sent.
    @property
    def traffic(self) -> list[tuple[str, int, int, int]]: ...
    def new_step(self) -> None: ...  # after the optimizer's step: all gradients begin anew

class Reducer:
    """Keeps the gradients of one optimizer equal on all ranks (csrc/gradients/reducer.h)."""

    # order: reducers are waited for in this order, equal on all ranks. prefix: that of the optimizer's names.
    # root: the world rank that leads the process set. policy: has the methods agreed(), differs(), new_step()
    # and reduce_sparse() of GradientSync (_internal/optimizer/gradient_sync.py); it is not kept alive.
    def __init__(self, order: tuple[int, int], prefix: str, rule: Rule, root: int, policy: Any) -> None: ...
    @property
    def rules(self) -> HookRules: ...
    # The groups of all gradients from now on. All ranks have the same, in this order.
    def set_groups(self, groups: Sequence[GradientGroup]) -> None: ...
    def set_rule(self, rule: Rule) -> None: ...  # that of a new init()
    def set_compared(self, digest: bytes) -> None: ...  # 8 bytes, which have to be equal on all ranks
    # This rank's values of Python's fields in the next rounds. always: agreed() is called after each round;
    # else after one in which a rank has joined, or with a merged value that is not zero, but for equal ones.
    def set_policy(self, values: Sequence[tuple[Merge, bytes]], always: bool) -> None: ...
    # A tensor on the CPU that the next round brings to its greatest value of all ranks; None: none.
    def attach(self, tensor: torch.Tensor | None) -> None: ...
    recording: bool  # ready_times are recorded
    # The gradients of this step that were ready while recording, with the steady clock's nanoseconds.
    @property
    def ready_times(self) -> list[tuple[Gradient, int]]: ...
    # Completes everything for this step. Raises what its operations raise, and what the policy raises.
    def synchronize(self) -> None: ...
    def new_step(self) -> None: ...  # after the optimizer's step, and zero_grad()
    def abandon(
        self,
    ) -> None: ...  # drops what is in flight, and calls the policy's new_step()
    def has_submitted(self) -> bool: ...  # the ranks have something to agree on
    def outstanding(self) -> bool: ...  # gradients are in flight or wait for others
    @property
    def rounds(self) -> int: ...  # since the last step
    def names_in_flight(self) -> list[str]: ...  # of the operations submitted since the last round

class MasterPair:
    """A half parameter and its fp32 master (csrc/gradients/master_pair.h). Its owner keeps both alive."""

    # The master has the parameter's values. label: names the parameter in messages.
    def __init__(self, parameter: torch.Tensor, master: torch.Tensor, label: str) -> None: ...
    @property
    def parameter(self) -> torch.Tensor: ...
    @property
    def master(self) -> torch.Tensor: ...
    @property
    def label(self) -> str: ...
    # Gives the master these values where the parameter has them, rounded, and elsewhere the parameter's own.
    def take_where_equal(self, values: torch.Tensor) -> None: ...

class MasterPairs:
    """The fp32 masters of one optimizer (csrc/gradients/master_pairs.h)."""

    def __init__(self) -> None: ...
    def set(self, pairs: Sequence[MasterPair]) -> None: ...  # from now on
    # Gives the masters their gradients where the parameters have newer ones. arrived: a backward has ended.
    # RuntimeError, and no master has got a gradient: one was changed on both sides.
    def take_gradients(self, arrived: bool = True) -> None: ...
    def note_unscaled(self) -> None: ...  # GradScaler has changed the masters' gradients
    def begin_gradients(self) -> None: ...  # after zero_grad() of both sides
    def refresh(self) -> None: ...  # gives the masters what was changed in the parameters since the last step
    def write_back(self) -> None: ...  # rounds the masters into the parameters
    def end_step(self) -> None: ...  # write_back(), after the optimizer's step

def techniques() -> list[tuple[str, str]]: ...  # (name, description) of those that set_technique() knows
def technique_text(text: str) -> str: ...  # its canonical form. ValueError: set_technique() would refuse it

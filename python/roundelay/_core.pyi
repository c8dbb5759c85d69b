"""The C++ core (csrc/bindings). The headers in csrc have the full contracts.

Calls before init() raise ValueError, in a forked child RuntimeError.
"""

from collections.abc import Callable
from typing import Final

import torch

__version__: str

class HorovodInternalError(RuntimeError): ...
class MismatchError(HorovodInternalError): ...

class Config:
    """The settings that one init() read; read-only. Times are in seconds, cycle_time too; sizes in bytes."""

    # one line a knob: tools/config_docs.py
    fusion_threshold: Final[int]
    theta: Final[int]
    gradient_pool: Final[bool]
    strategy: Final[str]
    autotune: Final[bool]
    autotune_log: Final[str]
    autotune_steps_per_sample: Final[int]
    cycle_time: Final[float]
    cache_capacity: Final[int]
    schedule_lock: Final[bool]
    deterministic: Final[bool]
    exact_gradients: Final[bool]
    stall_check_disable: Final[bool]
    stall_check_time: Final[float]
    stall_shutdown_time: Final[float]
    stall_stacks: Final[bool]
    progress_timeout: Final[float]
    start_timeout: Final[float]
    bootstrap: Final[str]
    channel: Final[str]
    fabric: Final[str]
    gpu_fabric: Final[str]
    node_id: Final[str]
    interface: Final[str]
    timeline: Final[str]
    timeline_mark_cycles: Final[bool]
    log_level: Final[str]
    log_hide_time: Final[bool]
    # end of the knobs
    theta_auto: Final[bool]  # ROUNDELAY_THETA is "auto"
    # Returns (variable, value, source, meaning) for every knob.
    @property
    def lines(self) -> list[tuple[str, str, str, str]]: ...
    # Returns a sentence, with the reason, for each HOROVOD_ variable that is set and does nothing here.
    @property
    def no_effect(self) -> list[str]: ...
    # Returns (variable, value, allowed values, complaint) for each bad variable.
    @property
    def bad(self) -> list[tuple[str, str, str, str]]: ...

# Reads the environment. ValueError with the first bad variable's complaint.
def load_config() -> Config: ...

# Reads bad variables as if they were not set; Config.bad lists them.
def read_config() -> Config: ...

# Describes the store at which ranks meet without MPI. csrc/bootstrap/rendezvous.h has the fields.
class Rendezvous:
    def __init__(
        self,
        *,
        rank: int,
        size: int,
        host: str,
        port: int,
        serve: bool,
        listener: int | None,
        job: str,
        local_rank: int | None,
        local_size: int | None,
    ) -> None: ...

# Joins the job; does nothing if the process is in one. `backend_path`: the module that finds the other ranks;
# None for a single process. `ranks`: the launched ranks that are the job, in its order; empty: all. MPI only:
# `communicator`, the Fortran handle of the job's communicator. RuntimeError if the ranks do not meet.
def init(
    backend_path: str | None,
    rendezvous: Rendezvous | None = None,
    ranks: list[int] = ...,
    communicator: int | None = None,
) -> None: ...

# Loads the module for GPUs, for all later inits; it serves torch's devices of `device_type`. An empty
# `nccl_path` lets the loader search. RuntimeError if the module does not fit; a missing NCCL is no error.
def load_gpu(module_path: str, nccl_path: str, device_type: str) -> None: ...

# Returns the version code of the NCCL at this path; 0 if there is none.
def nccl_version(nccl_path: str) -> int: ...
def shutdown() -> None: ...  # leaves the job and joins all threads; does nothing before init
def is_initialized() -> bool: ...  # False in a forked child, too
def after_fork() -> None: ...  # makes later calls in this child raise; os.register_at_fork calls it
def config() -> Config: ...  # what init() has read

# Writes one line to stderr, at level INFO (ROUNDELAY_LOG_LEVEL).
def log_info(message: str) -> None: ...

# Return this process's place in the job: csrc/bootstrap/rank_info.h describes the numbers.
def rank() -> int: ...
def size() -> int: ...
def local_rank() -> int: ...
def local_size() -> int: ...
def cross_rank() -> int: ...
def cross_size() -> int: ...
def is_homogeneous() -> bool: ...

# Returns the names of the world's "bootstrap", "channel" and "fabric".
def transports() -> dict[str, str]: ...

# Tells all ranks that this process dies of `why`, as the first cause. Does nothing before init.
def fail(why: str) -> None: ...

class GradientPool:
    """Memory, zero at first, in which a process set reduces gradients in place until shutdown().

    Offsets and sizes are in bytes. On a GPU all work is enqueued in the current stream.
    """

    # Every rank makes one with the same key (from 1 on, below 2**22) and size. No rank uses its pool before
    # all ranks have theirs. RuntimeError if there is no memory.
    def __init__(self, key: int, size: int, process_set: int, device: torch.device) -> None: ...
    # Adds an entry for the gradient of `parameter`, in this dtype. Returns the entry's number.
    def add(self, offset: int, parameter: torch.Tensor, dtype: torch.dtype) -> int: ...
    # Removes all entries. Tensors of them that somebody holds move out of the pool, with their values.
    def clear(self) -> None: ...
    @property
    def moved_out(self) -> int: ...  # the number of entries that have moved out so far
    # Copies `gradient` (None: zeros) into the entry. Returns a tensor of it with the parameter's strides;
    # `gradient` itself if it is the entry. Earlier tensors of the entry move out as in clear().
    def fill(self, entry: int, gradient: torch.Tensor | None) -> torch.Tensor: ...
    def trim(self) -> None: ...  # returns the C library's free memory to the system; does nothing on a GPU
    # Call it when results are complete in the current stream: later fill() calls in other streams wait for
    # this point. Does nothing on the CPU.
    def settle(self) -> None: ...
    # Returns the number of buckets that were submitted since the last call, and ends the step.
    def take_turns(self) -> int: ...
    # Reduces the first `size` bytes in place. allreduce_async() below describes `op` and the handle.
    def allreduce_async(self, size: int, dtype: torch.dtype, name: str, op: int) -> int: ...

class HookRules:
    """The settings that the hooks of one optimizer's gradients share. Python writes, the hooks read them."""

    passes_per_step: int  # backward_passes_per_step
    no_sync_depth: int  # the number of no_sync() blocks that are open
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

class BeforeHook:
    """Hook of a parameter: sets a reduced gradient aside before autograd adds to `.grad`."""

    def __init__(self, gradient: Gradient) -> None: ...
    def __call__(self, gradient: torch.Tensor) -> None: ...

class AfterHook:
    """Hook of a parameter: counts the pass, copies the gradient into its bucket, and submits a full one.

    Calls `arrived` instead for a backward's first gradient, and for one that is sparse or in no bucket.
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
        self, name: str, pool: GradientPool, op: int, prescale_factor: float, postscale_factor: float
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
    def flush_next(self) -> None: ...  # the next submission is dense, and sends what the state keeps, too
    @property
    def unflushed(self) -> bool: ...  # the state may keep gradients
    # For each technique ("dense": none, or it did not apply): operations, bytes of gradients, bytes sent.
    @property
    def traffic(self) -> list[tuple[str, int, int, int]]: ...

def techniques() -> list[tuple[str, str]]: ...  # (name, description) of those that set_technique() knows
def technique_text(text: str) -> str: ...  # its canonical form. ValueError: set_technique() would refuse it

# These start an operation and return a handle; synchronize() waits for it. `name` None: a counter of
# (operation, process set) names it. `output` may be `tensor` (in place). The operation keeps both alive; do
# not change them before it is done. `op` is 0 Average, 1 Sum, 2 Adasum, 3 Min, 4 Max, 5 Product. `root` is a
# world rank, `process_set` an id. Lists of tensors are grouped operations: one handle, all or nothing.
def allreduce_async(
    tensor: torch.Tensor,
    output: torch.Tensor,
    name: str | None,
    op: int,
    prescale_factor: float,
    postscale_factor: float,
    process_set: int,
) -> int: ...
def grouped_allreduce_async(
    tensors: list[torch.Tensor],
    outputs: list[torch.Tensor],
    name: str | None,
    op: int,
    prescale_factor: float,
    postscale_factor: float,
    process_set: int,
) -> int: ...
def broadcast_async(
    tensor: torch.Tensor, output: torch.Tensor, root: int, name: str | None, process_set: int
) -> int: ...
def barrier_async(process_set: int) -> int: ...

# The core allocates the outputs of the next three; synchronize() returns them.
def allgather_async(tensors: list[torch.Tensor], name: str | None, process_set: int) -> int: ...

# `splits`: the rows for each member of the set. Outputs: the tensor, and received splits (int32).
def alltoall_async(tensor: torch.Tensor, splits: list[int], name: str | None, process_set: int) -> int: ...
def reducescatter_async(
    tensors: list[torch.Tensor],
    name: str | None,
    op: int,
    prescale_factor: float,
    postscale_factor: float,
    process_set: int,
) -> int: ...

# The output is an int64 tensor with the world rank that joined last.
def join_async(process_set: int) -> int: ...

# These are like the ones with _async, followed by synchronize(): they wait without the GIL, and return the
# outputs that the core allocated. This thread does the work if it can; the background threads then sleep.
def allreduce(
    tensor: torch.Tensor,
    output: torch.Tensor,
    name: str | None,
    op: int,
    prescale_factor: float,
    postscale_factor: float,
    process_set: int,
) -> list[torch.Tensor]: ...
def grouped_allreduce(
    tensors: list[torch.Tensor],
    outputs: list[torch.Tensor],
    name: str | None,
    op: int,
    prescale_factor: float,
    postscale_factor: float,
    process_set: int,
) -> list[torch.Tensor]: ...
def broadcast(
    tensor: torch.Tensor, output: torch.Tensor, root: int, name: str | None, process_set: int
) -> list[torch.Tensor]: ...
def barrier(process_set: int) -> list[torch.Tensor]: ...
def allgather(tensors: list[torch.Tensor], name: str | None, process_set: int) -> list[torch.Tensor]: ...
def alltoall(
    tensor: torch.Tensor, splits: list[int], name: str | None, process_set: int
) -> list[torch.Tensor]: ...
def reducescatter(
    tensors: list[torch.Tensor],
    name: str | None,
    op: int,
    prescale_factor: float,
    postscale_factor: float,
    process_set: int,
) -> list[torch.Tensor]: ...
def join(process_set: int) -> list[torch.Tensor]: ...

# Make and remove process sets, collective over all ranks. `ranks`: world ranks, ascending. Returns the id.
def add_process_set(ranks: list[int]) -> int: ...
def remove_process_set(process_set: int) -> None: ...
def process_set_ranks(process_set: int) -> list[int]: ...

# Returns the sizes of the levels of the set's fabric, innermost first: [4, 2] for two nodes of four ranks.
def levels(process_set: int) -> list[int]: ...

# Tells the peers that a call under this name failed this rank's own checks. `text`: the error.
def submit_error(operation: str, name: str | None, text: str, process_set: int) -> None: ...

# Returns whether the handle is done, on a GPU too (it may have failed). ValueError if it is unknown.
def poll(handle: int) -> bool: ...

# Sleeps without the GIL until done, then forgets the handle and raises its error, or returns the outputs that
# the core allocated. ValueError for an unknown handle.
def synchronize(handle: int) -> list[torch.Tensor]: ...

# Lets ready tensors start without waiting for more. Call it when a step's last tensor is submitted.
def flush() -> None: ...

# Marks a block in which the caller waits for communication and computes nothing. synchronize() and blocking
# operations do so themselves.
class Waiting:
    def __enter__(self) -> None: ...
    def __exit__(self, *exception: object) -> None: ...

# Returns counters since init, by name. roundelay.torch.measure.stats describes them.
def stats() -> dict[str, int]: ...

# Starts the whole job's timeline; does nothing but on rank 0. ValueError: the path cannot be written.
def start_timeline(path: str, mark_cycles: bool) -> None: ...
def stop_timeline() -> None: ...
def timeline_enabled() -> bool: ...

# Marks a phase of this thread ("backward", "step") from begin to end, in nanoseconds of the steady clock.
def timeline_mark(name: str, begin_ns: int, end_ns: int) -> None: ...
def backend_description(path: str) -> str: ...  # the library of a bootstrap's module and its version
def torch_build_version() -> str: ...

class testing:
    """The pure parts of the core, for property tests."""

    # Returns whether the bytes are a control message. RuntimeError if they are, but encode to other bytes.
    @staticmethod
    def codec_roundtrip(message: bytes) -> bool: ...
    # tensors: (name, shape); cached: ascending positive ids. RuntimeError: what is malformed.
    @staticmethod
    def encode_report(tensors: list[tuple[str, list[int]]], cached: list[int], flush: bool) -> bytes: ...
    @staticmethod
    def decode_report(message: bytes) -> tuple[list[tuple[str, list[int]]], list[int], bool]: ...

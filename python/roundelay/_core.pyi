"""The C++ core (csrc/bindings). Only translation: see the headers in csrc for contracts."""

from collections.abc import Callable
from typing import Final

import torch

__version__: str

class HorovodInternalError(RuntimeError): ...
class MismatchError(HorovodInternalError): ...

class Config:
    """What one init() read from the environment; read-only."""

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
    # (variable, value, source, meaning) for every knob
    @property
    def lines(self) -> list[tuple[str, str, str, str]]: ...
    # HOROVOD_ variables that are set but do nothing here, with the reason
    @property
    def no_effect(self) -> list[str]: ...
    # (variable, value, what is allowed, complaint) for each variable that was read as if it were not set
    @property
    def bad(self) -> list[tuple[str, str, str, str]]: ...

# ValueError with the first bad variable's complaint.
def load_config() -> Config: ...

# Reads on over bad variables: Config.bad lists them.
def read_config() -> Config: ...

# The place where ranks meet without MPI. csrc/bootstrap/rendezvous.h describes the fields.
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

# Joins the job. `backend_path`: the module that finds the other ranks, or None for a single process.
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
def shutdown() -> None: ...
def is_initialized() -> bool: ...
def after_fork() -> None: ...
def config() -> Config: ...

# Writes one line to stderr, at level INFO (ROUNDELAY_LOG_LEVEL).
def log_info(message: str) -> None: ...
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
    """Zeros that ranks of a process set reduce where they lie; of one init(). Offsets and sizes in bytes.

    On a GPU all is enqueued in the current stream.
    """

    # Every rank makes one with the same key (from 1 on, below 2**22) and size, and uses it when all have.
    # RuntimeError if there is no memory.
    def __init__(self, key: int, size: int, process_set: int, device: torch.device) -> None: ...
    # A place for the gradient of `parameter`, in this dtype. The number of the entry.
    def add(self, offset: int, parameter: torch.Tensor, dtype: torch.dtype) -> int: ...
    # Takes all entries out; what somebody still has of them moves out of the pool.
    def clear(self) -> None: ...
    @property
    def moved_out(self) -> int: ...  # entries so far
    # The entry as a tensor with the parameter's strides, holding `gradient` (None: zeros): the same object if
    # it is the entry already. Earlier tensors of the entry that somebody still has move out of the pool.
    def fill(self, entry: int, gradient: torch.Tensor | None) -> torch.Tensor: ...
    # The C library gives back what is free: gradients that entries have replaced. Nothing on a GPU.
    def trim(self) -> None: ...
    # On a GPU: what other streams fill is behind what is in this one now. After results came into it.
    def settle(self) -> None: ...
    # How many buckets were submitted since the last call.
    def take_turns(self) -> int: ...
    # Reduces the first `size` bytes in place; `op` and handle as below.
    def allreduce_async(self, size: int, dtype: torch.dtype, name: str, op: int) -> int: ...

class HookRules:
    """The settings that the hooks of one optimizer's gradients share."""

    passes_per_step: int
    no_sync_depth: int  # the number of no_sync() blocks that are open
    recording: bool  # AfterHook is to hand every gradient to Python
    graph_task: int  # the backward whose end Python waits for; -1: none
    def __init__(self) -> None: ...

class Gradient:
    """The state of one parameter's gradient between two steps. Changes `.grad`."""

    # `additive`: the results of several reductions may be added.
    def __init__(self, parameter: torch.Tensor, name: str, additive: bool) -> None: ...
    @property
    def parameter(self) -> torch.Tensor | None: ...  # None if it no longer exists
    # Whether its optimizer is to reduce it: it is not frozen, nor another optimizer's by now.
    @property
    def wanted(self) -> bool: ...
    @property
    def reductions(self) -> int: ...  # operations in flight
    # This rank's contribution, where `.grad` is one.
    def local(self) -> torch.Tensor | None: ...
    # How many backward passes `.grad` has that no reduction has taken. The hooks count on from here.
    def set_passes(self, passes: int) -> None: ...
    # This rank's contribution, for a reduction. A reduced `.grad` is set aside. RuntimeError: not additive.
    def take(self) -> torch.Tensor | None: ...
    # `.grad` is this tensor now, and in flight.
    def send(self, tensor: torch.Tensor) -> None: ...
    # An operation was submitted. complete() adds its result to others; the last puts the sum into `.grad`.
    def submitted(self) -> None: ...
    def complete(self, result: torch.Tensor) -> None: ...
    # `.grad` is local again, and nothing is in flight.
    def new_step(self) -> None: ...
    # The parameter is another optimizer's now.
    def give_up(self) -> None: ...

class BeforeHook:
    """Hook of a parameter: sets a reduced gradient aside before autograd adds to `.grad`."""

    def __init__(self, gradient: Gradient) -> None: ...
    def __call__(self, gradient: torch.Tensor) -> None: ...

class AfterHook:
    """Hook of a parameter: counts the pass and reduces the gradient; calls `arrived` if it is special."""

    def __init__(self, gradient: Gradient, rules: HookRules, arrived: Callable[[], None]) -> None: ...
    def __call__(self, parameter: torch.Tensor) -> None: ...

class GradientGroup:
    """Gradients that one operation reduces. A gradient is in the group that it was added to last."""

    def __init__(self, name: str) -> None: ...
    def add(self, gradient: Gradient) -> None: ...
    # The gradient is ready; `kind` 1: dense, 1 + n: sparse in n dimensions. Whether the group is full: all
    # wanted gradients are ready and dense.
    def mark_ready(self, gradient: Gradient, kind: int) -> bool: ...
    def unmark(self, gradient: Gradient) -> None: ...
    def unmark_all(self) -> None: ...
    def any_ready(self) -> bool: ...
    # A byte for each gradient: its kind; 0: it is not ready.
    def kinds(self) -> bytes: ...
    # A byte for each gradient: 1 if it is wanted.
    def wanted(self) -> bytes: ...
    # The numbers of wanted gradients with so many passes that are not ready.
    def overdue(self, passes: int) -> list[int]: ...
    # On a GPU: the current stream waits for the streams that produced the ready gradients.
    def wait_for_producers(self) -> None: ...
    # The name of the next operation: `name`, with a number from the second operation of a step on.
    def next_name(self, name: str) -> str: ...
    @property
    def operations(self) -> int: ...  # since the last step
    @property
    def filled(self) -> int: ...  # how often the group was full since the last take_filled()
    def take_filled(self) -> int: ...
    # After the optimizer's step, or zero_grad().
    def new_step(self) -> None: ...

class Bucket(GradientGroup):
    """A range of a pool. Its gradients are reduced in the pool once in a step."""

    def __init__(
        self, name: str, pool: GradientPool, op: int, prescale_factor: float, postscale_factor: float
    ) -> None: ...
    def add(self, gradient: Gradient, entry: int) -> None: ...  # type: ignore[override]
    # The gradient is ready: copies it in, made dense, and submits the bucket if it is full. False: the pool
    # contains this step's result already, and nothing was done.
    def arrived(self, gradient: Gradient) -> bool: ...
    # Submits the bucket, with zeros for gradients that are not there.
    def submit(self) -> None: ...
    # Waits for what was submitted, and gives each gradient its result.
    def finish(self) -> None: ...
    # After a failure: waits for what was submitted, and drops it.
    def abandon(self) -> None: ...
    @property
    def turn(self) -> int: ...  # its position among the pool's buckets of this step, from 1 on; 0: none
    # The technique from now on; None or "dense": none; equal on all ranks. The same one keeps its state,
    # another gets new state. ValueError: the text is wrong. RuntimeError: the bucket is in flight, or its
    # state may keep gradients: send them with flush_next() first. Then nothing has changed.
    def set_technique(self, text: str | None) -> None: ...
    @property
    def technique(self) -> str | None: ...  # its canonical text; None: dense
    # This rank's state, uint8; None: there is none. Not for use while the bucket is in flight. A write counts
    # as gradients that are kept.
    @property
    def state(self) -> torch.Tensor | None: ...
    # How many runs of the technique have used the state since it was clear; 0 after a flush. A restored state
    # needs its number. Setting it, and rescale(): RuntimeError while the bucket is in flight.
    @property
    def run(self) -> int: ...
    @run.setter
    def run(self, number: int) -> None: ...
    # Multiplies what is kept, after the scale of gradients has changed.
    def rescale(self, factor: float) -> None: ...
    # What the last operation has sent: the elements of a chunk; the indices of the chunks, which count from
    # the bucket's first element (int32, on its device; the next operation overwrites them); the numbers of
    # the parameters that went densely. None: it was dense, there was none, or the technique has no chunks.
    def sent(self) -> tuple[int, torch.Tensor, list[int]] | None: ...
    def flush_next(self) -> None: ...  # the next submission is dense, and sends what the state keeps, too
    @property
    def unflushed(self) -> bool: ...  # the state may keep gradients
    # By technique ("dense": none, or it did not apply): operations, bytes of gradients, bytes sent.
    @property
    def traffic(self) -> list[tuple[str, int, int, int]]: ...

def techniques() -> list[tuple[str, str]]: ...  # those that set_technique() knows: name, description
def technique_text(text: str) -> str: ...  # its canonical form. ValueError: set_technique() would refuse it

# Operations return a handle. `name` None: a counter of (operation, process set) names it. `output` may be
# `tensor` (in place). `op` is 0 Average, 1 Sum, 2 Adasum, 3 Min, 4 Max, 5 Product. `root` is a world rank,
# `process_set` an id. Lists of tensors are grouped operations: one handle, all or nothing.
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

# Like the ones with _async and synchronize(): they wait and return the outputs that the core allocated.
# If this thread can negotiate itself, the coordination thread stays asleep.
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

# Returns the new set's id. Collective over all ranks. `ranks`: world ranks, ascending.
def add_process_set(ranks: list[int]) -> int: ...
def remove_process_set(process_set: int) -> None: ...
def process_set_ranks(process_set: int) -> list[int]: ...
def levels(process_set: int) -> list[int]: ...  # ranks of this rank's groups in the network, innermost first

# Tells the peers that a call under this name failed this rank's own checks. `text`: the error.
def submit_error(operation: str, name: str | None, text: str, process_set: int) -> None: ...

# Returns whether the handle is done (it may have failed). ValueError if it is unknown.
def poll(handle: int) -> bool: ...

# Sleeps without the GIL until done, then forgets the handle and raises its error, or returns the outputs that
# the core allocated. ValueError for an unknown handle.
def synchronize(handle: int) -> list[torch.Tensor]: ...

# Makes the core order at once what is submitted, as the step's last gradient is.
def flush() -> None: ...

# Marks a block in which the caller waits for communication and computes nothing. synchronize() and blocking
# operations do so themselves.
class Waiting:
    def __enter__(self) -> None: ...
    def __exit__(self, *exception: object) -> None: ...

# Returns counters since init, by name. roundelay.torch.measure.stats describes them.
def stats() -> dict[str, int]: ...
def start_timeline(path: str, mark_cycles: bool) -> None: ...
def stop_timeline() -> None: ...
def timeline_enabled() -> bool: ...

# Marks a phase of this thread ("backward", "step") from begin to end, in nanoseconds of the steady clock.
def timeline_mark(name: str, begin_ns: int, end_ns: int) -> None: ...
def backend_description(path: str) -> str: ...
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

"""The C++ core (csrc/bindings). The headers in csrc have the full contracts.

_core_gradients.pyi has the classes of gradients.

Calls before init() raise ValueError, in a forked child RuntimeError.
"""

from collections.abc import Sequence
from datetime import timedelta
from enum import Enum
from typing import Final

import torch
from torch._C._distributed_c10d import Backend as GroupBackend
from torch.distributed.distributed_c10d import Backend, Store, Work

from roundelay._core_gradients import *

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
    check_weights: Final[bool]
    autotune: Final[bool]
    autotune_log: Final[str]
    autotune_steps_per_sample: Final[int]
    cycle_time: Final[float]
    cache_capacity: Final[int]
    schedule_lock: Final[bool]
    fan_out: Final[int]
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
    streams: Final[int]
    gpu_fabric: Final[str]
    algorithm: Final[str]
    tuning: Final[str]
    node_id: Final[str]
    topology: Final[str]
    factors: Final[str]
    interface: Final[str]
    timeline: Final[str]
    timeline_mark_cycles: Final[bool]
    log_level: Final[str]
    log_hide_time: Final[bool]
    # end of the knobs
    # Measurements choose the sizes of buckets: ROUNDELAY_THETA is "auto", and ROUNDELAY_DETERMINISTIC is off.
    sizes_are_measured: Final[bool]
    # Returns "VARIABLE=value" for each knob that must be alike on all ranks and is not at its default.
    @property
    def shared_settings(self) -> list[str]: ...
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
# `communicator`, the Fortran handle of the job's communicator. `launcher_rack`: _launch.rack() returns it.
# `tuning`: the text of this rank's tuning file (tuning_file.agreed_text()), `tuning_error`: why it has none.
# `generation`: the number that an elastic job's launcher gave to these ranks; 0: it counts its inits.
# RuntimeError if the ranks do not meet, or rank 0 has a tuning error; ValueError if the statements about the
# topology are wrong, or the tuning is of another cluster.
def init(
    backend_path: str | None,
    rendezvous: Rendezvous | None = None,
    ranks: list[int] = ...,
    communicator: int | None = None,
    launcher_rack: str = ...,
    tuning: str = ...,
    tuning_error: str = ...,
    secret: bytes = ...,
    generation: int = ...,
) -> None: ...

# Ends the init() of this generation of an elastic job, running or yet to come, with a RuntimeError. Any
# thread may call it.
def give_up_generation(generation: int) -> None: ...

# Loads the module for GPUs, for all later inits; it serves torch's devices of `device_type`. An empty
# `nccl_path` lets the loader search. RuntimeError if the module does not fit, or is compiled for none of the
# GPUs that this process sees; a missing NCCL is no error.
def load_gpu(module_path: str, nccl_path: str, device_type: str) -> None: ...

# Returns the version code of the NCCL at this path; 0 if there is none.
def nccl_version(nccl_path: str) -> int: ...

# Returns the versions, and the compute capabilities that the kernels are compiled for: "CUDA 13.0, driver
# 580.65.06, kernels for 8.0, 9.0 and later"; "": no module is loaded.
def gpu_description() -> str: ...
def shutdown() -> None: ...  # leaves the job and joins all threads; does nothing before init
def is_initialized() -> bool: ...  # False in a forked child, too
def after_fork() -> None: ...  # makes later calls in this child raise; os.register_at_fork calls it
def config() -> Config: ...  # what init() has read

# Write one line to stderr, at level INFO or WARNING (ROUNDELAY_LOG_LEVEL).
def log_info(message: str) -> None: ...
def log_warning(message: str) -> None: ...

# Return this process's place in the job: csrc/bootstrap/rank_info.h describes the numbers.
def rank() -> int: ...
def size() -> int: ...
def local_rank() -> int: ...
def local_size() -> int: ...
def cross_rank() -> int: ...
def cross_size() -> int: ...
def is_homogeneous() -> bool: ...

# Returns the levels, innermost first: the name of each, and its parts' names and ranks.
def topology() -> list[tuple[str, list[tuple[str, list[int]]]]]: ...

# Returns the levels, innermost first: parts, alpha and W; the plans, of which the first one is used: members,
# first and last level of each stage, innermost first; and the algorithm between nodes, "" in shared memory.
def allreduce_ways() -> tuple[list[tuple[int, float, float]], list[list[tuple[int, int, int]]], str]: ...

# Returns the names of the world's "bootstrap", "channel" and "fabric".
def transports() -> dict[str, str]: ...

# Makes this member's part of a process group of torch.distributed (csrc/process_group/backend.h). All members
# call it; `name` is the group's in the store. RuntimeError if they cannot meet.
def make_c10d_backend(
    store: Store,
    rank: int,
    size: int,
    name: str,
    timeout: timedelta,
    secret: bytes,
) -> Backend: ...

class TechniqueBucket:
    """A bucket of DDP's that takes techniques (csrc/process_group/technique_bucket.h)."""

    # ValueError: the group has another backend, or the core cannot reduce the type.
    def __init__(self, group: GroupBackend, dtype: torch.dtype, sizes: Sequence[int]) -> None: ...
    def choose(self, text: str) -> None: ...
    def forget(self) -> None: ...
    @property
    def text(self) -> str: ...  # empty: dense
    def average(self, elements: torch.Tensor) -> Work: ...
    def applied(self) -> bool: ...
    def kept(self) -> torch.Tensor | None: ...
    def rescale(self, factor: float) -> None: ...

# Sets the classes of their exceptions, once: `mismatch` is for calls that differ between ranks.
def set_c10d_errors(error: type[Exception], mismatch: type[Exception]) -> None: ...

# Leave all such groups; tell their members that this rank has done `what`, which ends communication there.
def stop_c10d_backends() -> None: ...
def fail_c10d_backends(what: str) -> None: ...

# Tells all ranks that this process dies of `why`, as the first cause. Does nothing before init.
def fail(why: str) -> None: ...

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

# How the ranks' values of a field of an agreement become one (csrc/base/agreement.h).
class Merge(Enum):
    EQUAL = 0  # all have to be equal; if not, the result is that of the lowest rank
    AND = 1  # bitwise and
    OR = 2  # bitwise or
    MAX = 3  # the largest of each byte
    ROOT = 4  # the root's; zeros if the root takes no part
    SUM = 5  # the sums of doubles, 8 bytes each, in the machine's form

class Agreed:
    """The result of an agreement, equal on all ranks."""

    values: Final[bytes]  # of all fields, one after the other
    # For each field that had to be equal and was not: its index, and two ranks with their values.
    differences: Final[list[tuple[int, tuple[int, bytes], tuple[int, bytes]]]]
    absent: Final[list[int]]  # the world ranks that have joined and took no part

# Merges values of all ranks of the set, which give the same fields: merges, lengths and root (a world rank;
# -1 if no field has Merge.ROOT). Waits without the GIL. Values that stay as they were under this name cost
# next to nothing. ValueError: over 255 fields or 1 MiB, or the root is not in the set. MismatchError: the
# ranks' fields or roots differ.
def agree(name: str, fields: list[tuple[Merge, bytes]], root: int, process_set: int) -> Agreed: ...
def agree_async(name: str, fields: list[tuple[Merge, bytes]], root: int, process_set: int) -> int: ...
def agreed(handle: int) -> Agreed: ...  # waits for an agree_async()

# Make and remove process sets, collective over all ranks. `ranks`: world ranks, ascending. Returns the id.
def add_process_set(ranks: list[int]) -> int: ...
def remove_process_set(process_set: int) -> None: ...

# Returns when all ranks of the job have called it. MismatchError, on all: some add or remove a set instead,
# and would wait for the others for ever.
def end_process_set_changes() -> None: ...

# Returns the sizes of the levels of the set's fabric for tensors on CPUs or on GPUs, the node first: [4, 2]
# for two nodes of four ranks, [4] for one, [1, 4] for a fabric without levels over several nodes.
def levels(process_set: int, on_gpu: bool) -> list[int]: ...

# Tells the peers that a call under this name failed this rank's own checks. `text`: the error.
def submit_error(operation: str, name: str | None, text: str, process_set: int) -> None: ...

# Returns whether the handle is done, on a GPU too (it may have failed). ValueError if it is unknown.
def poll(handle: int) -> bool: ...

# Sleeps without the GIL until done, then forgets the handle and raises its error, or returns the outputs that
# the core allocated. ValueError for an unknown handle.
def synchronize(handle: int) -> list[torch.Tensor]: ...

# Lets ready tensors start without waiting for more. Call it when a step's last tensor is submitted.
def end_linger() -> None: ...

# Returns counters since init, by name. roundelay.torch._internal.measure.stats describes them.
def stats() -> dict[str, int]: ...

# Starts the whole job's timeline; does nothing but on rank 0. ValueError: the path cannot be written.
def start_timeline(path: str, mark_cycles: bool) -> None: ...
def stop_timeline() -> None: ...
def timeline_enabled() -> bool: ...

# Marks a phase of this thread ("backward", "step") from begin to end, in nanoseconds of the steady clock.
def timeline_mark(name: str, begin_ns: int, end_ns: int) -> None: ...
def backend_description(path: str) -> str: ...  # the library of a bootstrap's module and its version
def torch_build_version() -> str: ...

# Returns k of the values, of which `values` has at least as many, and their int64 indices, ascending: by
# MSTopK, or the exact k largest magnitudes (csrc/kernels/top_k.h). `values`: fp32, contiguous, on the CPU or
# on a GPU that load_gpu() serves. ValueError: on another device.
def top_k(
    values: torch.Tensor, k: int, exact: bool, samplings: int, seed: int
) -> tuple[torch.Tensor, torch.Tensor]: ...

class testing:
    """The pure parts of the core, for property tests."""

    # Returns whether the bytes are a control message. RuntimeError if they are, but encode to other bytes.
    @staticmethod
    def codec_roundtrip(message: bytes) -> bool: ...
    # tensors: (name, shape); cached: ascending positive ids. RuntimeError: what is malformed.
    @staticmethod
    def encode_report(tensors: list[tuple[str, list[int]]], cached: list[int], end_linger: bool) -> bytes: ...
    @staticmethod
    def decode_report(message: bytes) -> tuple[list[tuple[str, list[int]]], list[int], bool]: ...

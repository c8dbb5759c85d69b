"""What libraries and scripts import of Horovod, and that it is Roundelay's own, not a copy."""

# ruff: noqa: E402, F401, F811, I001, N813 (the imports, in the order and the forms that scripts have)
import importlib.util

import roundelay.as_horovod
import horovod
import horovod.torch as hvd
import horovod.torch.optimizer
import roundelay.torch
import roundelay.torch.optimizer

assert hvd is roundelay.torch
assert roundelay.torch.__spec__.name == "roundelay.torch"
assert horovod.torch.optimizer is roundelay.torch.optimizer
from horovod.torch.mpi_ops import (
    Adasum,
    Average,
    Max,
    Min,
    Product,
    Sum,
    ProcessSet,
    Compression,
    HorovodInternalError,
    allreduce,
    allreduce_async_,
    broadcast_,
    barrier,
    poll,
    synchronize,
    global_process_set,
    init,
    shutdown,
    rank,
    size,
    local_rank,
    local_size,
    cross_rank,
    cross_size,
    is_homogeneous,
    is_initialized,
    mpi_threads_supported,
    mpi_built,
    nccl_built,
    start_timeline,
    stop_timeline,
)

assert rank is hvd.rank
assert allreduce is hvd.allreduce
assert HorovodInternalError is hvd.HorovodInternalError
from horovod.torch.compression import Compressor, NoneCompressor, FP16Compressor, Compression
from horovod.torch.functions import broadcast_object, broadcast_optimizer_state, broadcast_parameters
from horovod.torch.functions import allgather_object
from horovod.torch.optimizer import DistributedOptimizer
from horovod.torch.sync_batch_norm import SyncBatchNorm
from horovod.torch.elastic import run, TorchState, ElasticSampler
from horovod.torch.elastic.state import State, ObjectState, TorchState
from horovod.torch.elastic.sampler import ElasticSampler
from horovod.common.elastic import run_fn, State, ObjectState
from horovod.common.exceptions import HorovodInternalError as same, HostsUpdatedInterrupt

assert same is hvd.HorovodInternalError
from horovod.common.exceptions import HorovodVersionMismatchError
from horovod.common.process_sets import ProcessSet, global_process_set
from horovod.common.util import (
    check_extension,
    env,
    extension_available,
    gpu_available,
    is_iterable,
    mpi_built,
    nccl_built,
    num_rank_is_power_2,
    split_list,
)
from horovod.runner import run as by_runner

assert by_runner is horovod.run is horovod.runner.run
import horovod.run

assert horovod.run.run is by_runner
assert callable(horovod.run)
from horovod.common.basics import HorovodBasics

assert HorovodBasics("path", "mpi_lib_v2").rank is hvd.rank
from horovod.torch import _DistributedOptimizer
from horovod.torch.optimizer import _DistributedOptimizer

assert horovod.__version__.startswith("0.28.1+roundelay.")
assert importlib.util.find_spec("horovod.torch")
assert not importlib.util.find_spec("horovod.tensorflow")
hvd.init()
assert hvd.size() == 1
assert hvd.mpi_ops._basics.size() == 1
assert hvd.mpi_ops._basics._get_process_set_ids_and_ranks() == {0: [0]}
print("all is there")

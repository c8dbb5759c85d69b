"""Tensors and parameters that something else of PyTorch keeps or reduces: a ValueError with the cure."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest
import torch
import torch.distributed as dist
from torch._subclasses.fake_tensor import FakeTensorMode
from torch._subclasses.functional_tensor import FunctionalTensor, FunctionalTensorMode
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import FullyShardedDataParallel, fully_shard
from torch.distributed.tensor import Shard, distribute_tensor
from torch.nn.parallel import DistributedDataParallel

import roundelay.torch as hvd
from ranks import Check, run_check


@pytest.mark.parametrize("np", [1, 2, 4])
def test_unfit_tensors(np: int, check: Check) -> None:
    run_check(check, np)


OPERATIONS: dict[str, Callable[[torch.Tensor], object]] = {
    "allreduce": lambda x: hvd.allreduce(x, name="f"),
    "allreduce_": lambda x: hvd.allreduce_(x, name="f"),
    "allreduce_async": lambda x: hvd.allreduce_async(x, name="f"),
    "allreduce_async_": lambda x: hvd.allreduce_async_(x, name="f"),
    "grouped_allreduce": lambda x: hvd.grouped_allreduce([torch.ones(2), x], name="f"),
    "grouped_allreduce_async_": lambda x: hvd.grouped_allreduce_async_([x], name="f"),
    "allgather": lambda x: hvd.allgather(x, name="f"),
    "grouped_allgather": lambda x: hvd.grouped_allgather([x], name="f"),
    "broadcast": lambda x: hvd.broadcast(x, 0, name="f"),
    "broadcast_": lambda x: hvd.broadcast_(x, 0, name="f"),
    "alltoall": lambda x: hvd.alltoall(x, name="f"),
    "reducescatter": lambda x: hvd.reducescatter(x, name="f"),
    "grouped_reducescatter": lambda x: hvd.grouped_reducescatter([x], name="f"),
    "sparse allreduce": lambda x: hvd.sparse_allreduce_async(x, "f", hvd.Sum),
}


@contextmanager
def _process_group() -> Iterator[Any]:
    """Yields a mesh of all ranks: PyTorch's own communication."""
    folder = hvd.broadcast_object(tempfile.mkdtemp() if hvd.rank() == 0 else None, 0)
    dist.init_process_group(
        "gloo", init_method=f"file://{folder}/store", rank=hvd.rank(), world_size=hvd.size()
    )
    try:
        yield init_device_mesh("cpu", (hvd.size(),))
        hvd.barrier()
    finally:
        dist.destroy_process_group()
        if hvd.rank() == 0:
            shutil.rmtree(folder)


def _refused(call: Callable[[], object], *parts: str) -> None:
    with pytest.raises(ValueError, match=parts[0]) as caught:
        call()
    assert all(part in str(caught.value) for part in parts), str(caught.value)
    ones = hvd.allreduce(torch.ones(2), name="f", op=hvd.Sum)  # the job goes on, under the same name
    assert ones.tolist() == [hvd.size()] * 2


def _linear() -> torch.nn.Linear:
    return torch.nn.Linear(3, 3)  # does not divide evenly between 2 or 4 ranks


def _sgd(module: torch.nn.Module) -> torch.optim.SGD:
    return torch.optim.SGD(module.parameters(), lr=0.5, momentum=0.5)


def check_tensors_without_values() -> None:
    with FakeTensorMode():
        fake = torch.ones(4)
    with FunctionalTensorMode():
        functional = FunctionalTensor.to_functional(torch.ones(4))
    bare = torch.ones(4)
    bare.untyped_storage().resize_(0)
    for operation, call in OPERATIONS.items():
        _refused(lambda call=call: call(fake), "FakeTensor", "of 'f'", "no values")  # type: ignore[misc]
        _refused(lambda call=call: call(functional), "FunctionalTensor", "traces")  # type: ignore[misc]
        if operation != "sparse allreduce":
            _refused(lambda call=call: call(bare), "'f'", "has no memory")  # type: ignore[misc]
            wrapped = torch._to_functional_tensor(torch.ones(4))
            _refused(lambda call=call, x=wrapped: call(x), "'f'", "has no memory")  # type: ignore[misc]


def check_a_tensor_of_one_rank_is_an_error_on_all() -> None:
    """Nobody waits for the rank that has refused."""
    last = hvd.rank() == hvd.size() - 1
    with FakeTensorMode():
        fake = torch.ones(4)
    with pytest.raises(ValueError if last else hvd.HorovodInternalError, match="FakeTensor") as caught:
        hvd.allreduce(fake if last else torch.ones(4), name="f")
    assert last or str(caught.value).startswith(f"rank {hvd.size() - 1}: ")


def check_distributed_tensors() -> None:
    with _process_group() as mesh:
        tensor = distribute_tensor(torch.ones(hvd.size(), 2), mesh, [Shard(0)])
        for call in OPERATIONS.values():
            _refused(lambda call=call: call(tensor), "DTensor", "Shard(dim=0)", "to_local()")  # type: ignore[misc]
        module: Any = fully_shard(_linear(), mesh=mesh)
        for use in _uses(module):
            _refused(use, "DTensor", "Shard(dim=0)", "fully_shard() (FSDP2)", "leave hvd out")


def _uses(module: torch.nn.Module) -> list[Callable[[], object]]:
    return [
        lambda: hvd.DistributedOptimizer(_sgd(module), module.named_parameters()),
        lambda: hvd.broadcast_parameters(module, 0),
        lambda: hvd.broadcast_optimizer_state(_sgd(module), 0),
        lambda: _added(module),
    ]


def _added(module: torch.nn.Module) -> None:
    """Adds the module's parameters to an optimizer, which stays as it was."""
    optimizer = hvd.DistributedOptimizer(_sgd(_linear()))
    try:
        optimizer.add_param_group({"params": module.parameters()})
    finally:
        assert len(optimizer.param_groups) == 1


def check_flat_parameters() -> None:
    with _process_group():
        for original in (False, True):
            module = FullyShardedDataParallel(
                _linear(), device_id=torch.device("cpu"), use_orig_params=original
            )
            for call in _uses(module):
                _refused(call, "parameter '", "FullyShardedDataParallel (FSDP1)", "leave hvd out")
            flat = next(module.parameters())
            _refused(lambda flat=flat: hvd.allreduce_(flat, name="f"), "'f'", "(FSDP1)")  # type: ignore[misc]


def check_parameters_of_ddp() -> None:
    with _process_group():
        module = _linear()
        optimizer = hvd.DistributedOptimizer(_sgd(module))
        before = [parameter.detach().clone() for parameter in module.parameters()]
        ddp = DistributedDataParallel(module)
        for call in (_uses(ddp)[0], _uses(ddp)[3]):
            _refused(call, "DistributedDataParallel", "without DistributedDataParallel")
        hvd.broadcast_parameters(ddp.state_dict(), 0)
        ddp(torch.ones(1, 3)).sum().backward()  # wrapped after the optimizer was
        _refused(optimizer.step, "DistributedDataParallel", "without DistributedDataParallel")
        for parameter, old in zip(module.parameters(), before, strict=True):
            assert torch.equal(parameter, hvd.broadcast(old, 0))
    hvd.DistributedOptimizer(_sgd(_linear())).step()


def check_the_peers_of_a_refused_optimizer_do_not_wait() -> None:
    with _process_group():
        module = DistributedDataParallel(_linear())
        if hvd.rank() == 0:
            with pytest.raises(ValueError, match="DistributedDataParallel"):
                hvd.DistributedOptimizer(_sgd(module))
        else:
            own = torch.nn.Linear(3, 3)
            optimizer = hvd.DistributedOptimizer(_sgd(own))
            with pytest.raises(hvd.HorovodInternalError, match=r"rank 0: .*DistributedDataParallel"):
                own(torch.ones(1, 3)).sum().backward()
            del optimizer
        hvd.barrier()


def check_inside_transforms() -> None:
    for name, call in OPERATIONS.items():

        def reduced(x: torch.Tensor, call: Any = call) -> torch.Tensor:
            call(x)
            return x.sum()

        for transformed in (torch.func.grad(reduced), torch.vmap(reduced), torch.func.functionalize(reduced)):
            _refused(
                lambda f=transformed: f(torch.ones(4, 2)),  # type: ignore[misc]
                "torch.func transform",
                "call it outside",
                name.split("_")[0] if "grouped" not in name and "sparse" not in name else "'f'",
            )
    module = _linear()
    parameters = {name: torch.ones_like(one) for name, one in module.named_parameters()}
    result = torch.func.functional_call(module, parameters, torch.ones(1, 3))  # this is no transform
    assert hvd.allreduce(result, op=hvd.Sum).tolist() == [[4.0 * hvd.size()] * 3]
    gradient = torch.func.grad(lambda x: (x * x).sum())(torch.ones(3))
    assert hvd.allreduce(gradient).tolist() == [2.0] * 3

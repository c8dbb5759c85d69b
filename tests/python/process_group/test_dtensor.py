"""DTensor over roundelay: its operations with PyTorch's own helpers, and a model cut both ways."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence

import pytest
import torch
import torch.distributed as dist
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor import DTensor, Partial, Placement, Replicate, Shard, distribute_tensor
from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module

from against_gloo import Model, assert_as_gloo, batches
from process_groups import world
from ranks import Check, needs_ranks, run_check


@pytest.mark.parametrize("np", [2, 4])
def test_one_node(np: int, check: Check) -> None:
    run_check(check, np)


def mesh() -> DeviceMesh:
    return init_device_mesh("cpu", (dist.get_world_size(),))


def values(*shape: int) -> torch.Tensor:
    """The same on all ranks."""
    return torch.randn(*shape, generator=torch.Generator().manual_seed(sum(shape)))


OPERATIONS: dict[str, tuple[Callable[..., torch.Tensor], tuple[torch.Tensor, ...]]] = {
    "mm": (torch.mm, (values(8, 12), values(12, 16))),
    "addmm": (torch.addmm, (values(16), values(8, 12), values(12, 16))),
    "sum": (torch.sum, (values(8, 12),)),
    "softmax": (lambda x: torch.softmax(x, -1), (values(8, 12),)),
    "layer norm": (lambda x: torch.nn.functional.layer_norm(x, (12,)), (values(8, 12),)),
    "bmm": (torch.bmm, (values(4, 8, 12), values(4, 12, 8))),
    "cat": (lambda x, y: torch.cat([x, y], 0), (values(8, 12), values(8, 12))),
    "transpose": (lambda x: (x.t() * 2).contiguous(), (values(8, 12),)),
}


def check_operations_of_every_placement() -> None:
    """Each operand whole or cut along each dimension, as PyTorch's DTensorConverter chooses."""
    from torch.testing._internal.distributed._tensor.common_dtensor import DTensorConverter

    with world():
        for name, (call, operands) in OPERATIONS.items():
            converter = DTensorConverter(mesh(), operands, {})
            want = call(*operands)
            for args, _ in converter:
                got = call(*args)
                assert isinstance(got, DTensor)
                torch.testing.assert_close(got.full_tensor(), want, msg=name)
            assert converter.successful()


def check_placements_become_others() -> None:
    """Each placement becomes each other one: by gathers, reductions, exchanges, with uneven shards."""
    placements: Sequence[Placement] = (Replicate(), Shard(0), Shard(1))
    with world():
        size = dist.get_world_size()
        whole = values(2 * size + 1, size + 2)
        for before, after in itertools.permutations(placements, 2):
            tensor = distribute_tensor(whole, mesh(), [before]).redistribute(placements=[after])
            assert torch.equal(tensor.full_tensor(), whole)
        for after in placements:
            partial = DTensor.from_local(whole, mesh(), [Partial()]).redistribute(placements=[after])
            torch.testing.assert_close(partial.full_tensor(), whole * size)


@needs_ranks(4, 4)
def check_placements_on_two_dimensions() -> None:
    whole = values(7, 9)
    kinds: Sequence[Placement] = (Replicate(), Shard(0), Shard(1))
    with world():
        grid = init_device_mesh("cpu", (2, 2))
        for before, after in itertools.product(itertools.product(kinds, repeat=2), repeat=2):
            tensor = distribute_tensor(whole, grid, list(before)).redistribute(placements=list(after))
            assert torch.equal(tensor.full_tensor(), whole)


def cut(model: Model, mesh: DeviceMesh) -> Model:
    """Cuts the first two layers into columns and rows."""
    plan = {"first": ColwiseParallel(), "second": RowwiseParallel()}
    parallelize_module(model, mesh, plan)
    return model


def trained(model: torch.nn.Module, rank: int) -> Sequence[torch.Tensor]:
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for batch in batches(rank=rank):
        model(batch).square().mean().backward()
        optimizer.step()
        optimizer.zero_grad()
    return [
        (value.full_tensor() if isinstance(value, DTensor) else value).detach().clone()
        for value in model.parameters()
    ]


def check_a_model_in_columns_and_rows() -> None:
    assert_as_gloo(lambda: trained(cut(Model(), mesh()), rank=0))


@needs_ranks(4, 4)
def check_a_model_cut_both_ways() -> None:
    """Tensor parallel inside of pairs, fully sharded between them."""

    def both() -> Sequence[torch.Tensor]:
        grid = init_device_mesh("cpu", (2, 2), mesh_dim_names=("data", "tensor"))
        model = cut(Model(), grid["tensor"])
        fully_shard(model, mesh=grid["data"])
        return trained(model, rank=grid.get_local_rank("data"))

    assert_as_gloo(both)

"""FSDP2 over roundelay trains to the weights that it has over gloo, and its checkpoints load elsewhere."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.checkpoint import state_dict_loader, state_dict_saver
from torch.distributed.checkpoint.state_dict import get_model_state_dict, set_model_state_dict
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh
from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard

import roundelay.torch as hvd
from against_gloo import Model, assert_as_gloo, batches
from process_groups import world
from ranks import Check, needs_ranks, run_check, two_by_two


@pytest.mark.parametrize("np", [2, 4])
def test_one_node(np: int, check: Check) -> None:
    run_check(check, np)


@pytest.mark.slow
@pytest.mark.parametrize("np", [4])
def test_two_nodes(np: int, check: Check) -> None:
    run_check(check, np, each=two_by_two(), mpi=False)


def one_row() -> DeviceMesh:
    return init_device_mesh("cpu", (dist.get_world_size(),))


def rows() -> DeviceMesh:
    """Replicas of shards: HSDP."""
    return init_device_mesh("cpu", (2, 2), mesh_dim_names=("replicas", "shards"))


def sharded(mesh: DeviceMesh, **options: Any) -> nn.Module:
    model = Model()
    for layer in model.children():
        fully_shard(layer, mesh=mesh, **options)
    fully_shard(model, mesh=mesh, **options)
    return model


def whole(model: nn.Module) -> list[torch.Tensor]:
    """Returns the parameters, each gathered from its shards."""
    return [parameter.detach().full_tensor().clone() for parameter in model.parameters()]  # type: ignore[attr-defined]


def trained(mesh: Callable[[], DeviceMesh], **options: Any) -> Sequence[torch.Tensor]:
    model = sharded(mesh(), **options)
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
    for batch in batches():
        model(batch).float().square().mean().backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()
    return whole(model)


def check_fully_sharded() -> None:
    assert_as_gloo(lambda: trained(one_row))


def check_sharded_after_forward() -> None:
    assert_as_gloo(lambda: trained(one_row, reshard_after_forward=False))


def check_mixed_precision() -> None:
    """Parameters travel in bfloat16, gradients are summed in float32."""
    policy = MixedPrecisionPolicy(param_dtype=torch.bfloat16, reduce_dtype=torch.float32)
    assert_as_gloo(lambda: trained(one_row, mp_policy=policy))


@needs_ranks(4, 4)
def check_replicas_of_shards() -> None:
    assert_as_gloo(lambda: trained(rows))


def check_a_checkpoint_loads_on_another_world() -> None:
    """What all ranks save, half of them load, and the other way round."""
    folder = Path(hvd.broadcast_object(tempfile.mkdtemp() if hvd.rank() == 0 else None, 0))
    with world():
        model = sharded(one_row())
        for batch in batches(1):
            model(batch).sum().backward()
            torch.optim.SGD(model.parameters(), lr=0.1).step()
        want = whole(model)
        state_dict_saver.save(get_model_state_dict(model), checkpoint_id=folder / "all")
        members = list(range(dist.get_world_size() // 2))
        group = dist.new_group(members)
        if dist.get_rank() in members:
            mesh = DeviceMesh.from_group(group, "cpu")
            fewer = sharded(mesh)
            assert_loads(fewer, folder / "all", want, group)
            state_dict_saver.save(
                get_model_state_dict(fewer), checkpoint_id=folder / "half", process_group=group
            )
        dist.barrier()
        assert_loads(sharded(one_row()), folder / "half", want, None)
        dist.barrier()
        if dist.get_rank() == 0:
            shutil.rmtree(folder)


def assert_loads(
    model: nn.Module, path: Path, want: Sequence[torch.Tensor], group: dist.ProcessGroup | None
) -> None:
    state = get_model_state_dict(model)
    state_dict_loader.load(state, checkpoint_id=path, process_group=group)
    set_model_state_dict(model, state)
    for got, saved in zip(whole(model), want, strict=True):
        assert torch.equal(got, saved)

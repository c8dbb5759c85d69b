"""The strategy PowerSGD on several ranks, of one node and of two: what it computes, sends and keeps."""

from __future__ import annotations

import copy
from typing import Any

import pytest
import torch
from torch import nn

import roundelay.torch as hvd
from exact_training import Training, until_buckets
from random_values import normal
from ranks import Check, one_and_more, run_check, two_by_two
from roundelay.errors import MismatchError
from roundelay.torch._internal.nodes import Levels
from roundelay.torch._internal.optimizer.distributed import wrapper_of

THETA = {"ROUNDELAY_THETA": "2048"}  # several buckets
FINE = "dense_below=6"
SIZES = ((12, 20), (30, 8), (5,), (16, 3, 2, 2), (40,), (24, 24))
ROWS, COLUMNS = 40, 24


@pytest.mark.parametrize("np", [2, pytest.param(4, marks=pytest.mark.nightly)])
def test_power_sgd(np: int, check: Check) -> None:
    run_check(check, np, env=THETA)


@pytest.mark.slow
@pytest.mark.parametrize("nodes", [2, pytest.param(3, marks=pytest.mark.nightly)])
def test_power_sgd_on_several_nodes(nodes: int, check: Check) -> None:
    run_check(check, 2 * nodes, env=THETA, each=two_by_two(), mpi=False)


@pytest.mark.slow
def test_power_sgd_on_uneven_nodes(check: Check) -> None:
    run_check(check, 4, env=THETA, each=one_and_more(), mpi=False)


def training_of(strategy: str = f"power_sgd:rank=1,{FINE}", **settings: Any) -> Training:
    return until_buckets(Training(strategy, SIZES, **settings))


def alike(tensors: list[Any]) -> bool:
    """Whether all ranks have the same bits."""
    return len(set(hvd.allgather_object(str([one.tolist() for one in tensors])))) == 1


def check_what_came_is_sent_or_kept() -> None:
    for wire, tolerance in (("none", 1e-2), ("bf16", 1e-2)):
        training = training_of(f"power_sgd:rank=1,{FINE},wire={wire},dense_parameters=noname.0.4")
        for number in range(40):
            training.flush() if number % 15 == 7 else training.step()
            assert alike([one.detach() for one in training.parameters])
        assert training.techniques.table.keeps_something()
        training.flush()
        assert not training.techniques.table.keeps_something()
        for parameter, given in zip(training.parameters, training.given, strict=True):
            came = hvd.allreduce(given, op=hvd.Sum)
            rounding = 0.0 if wire == "none" or parameter.dim() > 1 else 0.02 * came.abs().max().item() + 1
            assert torch.allclose(-parameter.detach(), came, rtol=0, atol=tolerance + rounding)


def _levels() -> Levels:
    """Those of the fabric for tensors of the default device."""
    return Levels.of(hvd.global_process_set, on_gpu=torch.get_default_device().type != "cpu")


def _state(optimizer: Any) -> tuple[torch.Tensor, torch.Tensor]:
    """What all ranks together keep of the only matrix, and its right factors, in fp64."""
    wrapper = wrapper_of(optimizer)
    assert wrapper is not None
    (bucket,) = wrapper.techniques().table.buckets  # type: ignore[union-attr]
    state = bucket.core.state
    assert state is not None
    levels = _levels()
    count = ROWS * COLUMNS
    each = -(-count // levels.members)
    numbers = state.view(torch.float32).double()
    kept = torch.zeros(levels.members * each, dtype=torch.float64)
    if levels.place < levels.members:
        kept[levels.place * each : (levels.place + 1) * each] = numbers[:each]
    together = hvd.allreduce(kept, op=hvd.Sum)[:count].view(ROWS, COLUMNS)
    return together, numbers[each:].view(-1, COLUMNS).t()


def check_it_is_the_papers_algorithm() -> None:
    """Algorithms 1 and 2 in fp64, from the state of a step on. op=Average: what is sent is the mean."""
    for rank in (1, 2, 3):
        parameter = nn.Parameter(torch.zeros(ROWS, COLUMNS))
        plain = torch.optim.SGD([parameter], lr=1.0)
        optimizer = hvd.DistributedOptimizer(plain, strategy=f"power_sgd:rank={rank},dense_below=0")
        chance = torch.Generator().manual_seed(hvd.rank())
        kept, right = None, None
        for _ in range(12):
            gradient = normal(chance, ROWS, COLUMNS)
            before = parameter.detach().clone()
            optimizer.zero_grad()
            (parameter * gradient).sum().backward()
            optimizer.step()
            if not wrapper_of(optimizer).techniques().table.keeps_something():  # type: ignore[union-attr]
                continue
            sent = (before - parameter.detach()).double()
            if kept is not None and right is not None:
                total = hvd.allreduce(gradient.double(), op=hvd.Sum) + kept
                left, _ = torch.linalg.qr(total @ right)
                expected = left @ (left.t() @ total)
                assert torch.allclose(sent * hvd.size(), expected, rtol=0, atol=1e-4)
                kept, right = _state(optimizer)
                assert torch.allclose(kept, total - expected, rtol=0, atol=1e-4)
            else:
                kept, right = _state(optimizer)
        assert right is not None
        assert right.shape == (COLUMNS, rank)
        assert torch.allclose(right.norm(dim=0), torch.ones(rank, dtype=torch.float64))


def check_bytes_that_a_rank_gives_to_the_fabrics() -> None:
    """Node sums, and for all ranks factors and dense elements: nothing else."""
    rank = 2
    training = training_of(f"power_sgd:rank={rank},{FINE}")
    levels = _levels()
    for _ in range(3):
        before = hvd.stats()["technique_called_bytes"]
        training.step()
        expected = 0
        for bucket in training.techniques.table.buckets:
            views = (view for view, _ in training.techniques.table.traffic())
            view = next(one for one in views if one.bytes == bucket.core.bytes)
            spec = training.strategy.technique(view, 99)
            if spec is None:
                continue
            columns = [int(one) for one in dict(spec.parameters)["columns"].split("+")]
            for place, width in zip(view.ranges, columns, strict=True):
                rows = len(place) // width if width else 0
                expected += 4 * (min(rank, rows, width) * (rows + width) if width else len(place))
            expected += view.bytes if levels.nodes < hvd.size() else 0
        called = hvd.stats()["technique_called_bytes"] - before
        assert abs(called - expected) <= 0.02 * expected


def check_any_optimizer_and_layout() -> None:
    torch.manual_seed(3)
    model: Any = nn.Sequential(nn.Conv2d(8, 64, 3), nn.Flatten(), nn.Linear(64 * 4, 40), nn.Linear(40, 30))
    model.to(memory_format=torch.channels_last)
    hvd.broadcast_parameters(model.state_dict(), root_rank=0)
    plain = torch.optim.AdamW(model.parameters(), lr=1e-2)
    optimizer = hvd.DistributedOptimizer(
        plain, model.named_parameters(), strategy="power_sgd:rank=2,dense_below=512,warmup=4"
    )
    chance = torch.Generator().manual_seed(hvd.rank())
    losses = []
    for _ in range(30):
        optimizer.zero_grad()
        inputs = normal(chance, 8, 8, 4, 4).to(memory_format=torch.channels_last)
        loss = (model(inputs) - 1.0).square().mean()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    assert alike([one.detach() for one in model.parameters()])
    assert losses[-1] < 0.5 * losses[0]
    used = {row[0] for _, rows in wrapper_of(optimizer).techniques().table.traffic() for row in rows}  # type: ignore[union-attr]
    assert any(one.startswith("power_sgd") for one in used)


def check_a_state_loads_back_bit_for_bit() -> None:
    first = training_of()
    for _ in range(3):
        first.step()
    state = first.strategy.state_dict()
    trained = []
    for _ in range(2):
        again = Training(f"power_sgd:rank=1,{FINE}", SIZES)
        again.strategy.load_state_dict(copy.deepcopy(state))
        again.chance.set_state(first.chance.get_state())
        for parameter, weight in zip(again.parameters, first.parameters, strict=True):
            parameter.data.copy_(weight.detach())
        again.given = [one.clone() for one in first.given]
        for name, bucket in again.strategy.state_dict()["buckets"].items():
            assert bucket["run"] == state["buckets"][name]["run"]
            assert torch.equal(bucket["state"], state["buckets"][name]["state"])
        for _ in range(7):
            again.step()
        trained.append(again)
    assert trained[0].techniques.table.keeps_something()
    assert all(map(torch.equal, trained[0].parameters, trained[1].parameters))
    trained[0].flush()
    for parameter, given in zip(trained[0].parameters, trained[0].given, strict=True):
        came = hvd.allreduce(given, op=hvd.Sum)
        assert torch.allclose(-parameter.detach(), came, rtol=0, atol=1e-2)


def check_the_loss_scale_changes_without_a_trace() -> None:
    """Powers of two: the weights are those without a scaler, whose every change rescales what is kept."""

    def trained(scaler: torch.amp.GradScaler) -> Training:
        training = Training(f"power_sgd:rank=1,{FINE}", SIZES, momentum=0.5)
        for _ in range(14):
            training.optimizer.zero_grad()
            training.backward(scaler=scaler)
            scaler.step(training.optimizer)
            scaler.update()
        return training

    plain = trained(torch.amp.GradScaler("cpu", enabled=False))
    scaler = torch.amp.GradScaler("cpu", init_scale=4.0, growth_interval=2)
    scaled = trained(scaler)
    assert scaler.get_scale() == 4.0 * 2.0**7
    assert all(map(torch.equal, scaled.parameters, plain.parameters))


def check_an_overflow_is_skipped_by_all() -> None:
    """One rank's gradient has an infinite element; the steps after it are clean."""
    training = training_of()
    scaler = torch.amp.GradScaler("cpu", init_scale=4.0, growth_interval=1000)
    training.techniques.table.rescale(4.0)
    weights = [one.detach().clone() for one in training.parameters]
    scale = scaler.get_scale()
    training.optimizer.zero_grad()
    loss = torch.stack([(one * one.detach().new_ones(one.shape)).sum() for one in training.parameters]).sum()
    if hvd.rank() == hvd.size() - 1:
        loss = loss + training.parameters[1].flatten()[7] * float("inf")
    scaler.scale(loss).backward()  # type: ignore[no-untyped-call]
    scaler.step(training.optimizer)
    scaler.update()
    assert scaler.get_scale() == scale / 2
    assert all(map(torch.equal, training.parameters, weights))
    for _ in range(2):
        training.optimizer.zero_grad()
        training.backward(scaler=scaler)
        scaler.step(training.optimizer)
        scaler.update()
    assert scaler.get_scale() == scale / 2
    assert all(bool(one.isfinite().all()) for one in training.parameters)
    assert alike([one.detach() for one in training.parameters])


def check_ranks_with_other_settings_get_both_texts() -> None:
    ours = f"power_sgd:rank=1,{FINE}"
    for other in (f"power_sgd:rank=2,{FINE}", f"power_sgd:rank=1,{FINE},seed=1", "csc:keep=0.1"):
        training = Training(ours if hvd.rank() == 0 else other, SIZES)
        with pytest.raises(MismatchError, match="differ between ranks") as raised:
            training.step()
        for text in (ours, other):
            assert repr(hvd.strategies.parse(text).text) in str(raised.value)
        hvd.DistributedOptimizer(training.optimizer, op=hvd.Sum, strategy=ours)  # the cure
        training.step()


def check_a_state_of_another_place_in_the_node_is_refused() -> None:
    training = training_of()
    state = training.strategy.state_dict()
    again = Training(f"power_sgd:rank=1,{FINE}", SIZES)
    index, members = state["in_node"]
    with pytest.raises(ValueError, match=f"rank {index + 1} of {members} in a node"):
        again.strategy.load_state_dict({**state, "in_node": [index + 1, members]})


def check_a_sparse_gradient_is_an_error_on_every_rank() -> None:
    embedding = nn.Embedding(30, 4, sparse=True)
    plain: Any = torch.optim.SGD(embedding.parameters(), lr=1.0)
    optimizer = hvd.DistributedOptimizer(plain, strategy=f"power_sgd:rank=1,{FINE}")
    with pytest.raises((ValueError, hvd.HorovodInternalError), match="sparse_as_dense=True"):
        embedding(torch.tensor([1, 2])).sum().backward()
    optimizer.zero_grad()

"""The strategy TopK on several ranks, of one node and of two: what is sent and kept, and how weights move.

Gradients are small whole numbers, so that sums are exact.
"""

from __future__ import annotations

import warnings
from typing import Any

import pytest
import torch
from torch import nn

import roundelay.torch as hvd
from exact_training import Training, until_buckets
from random_values import normal
from ranks import Check, one_and_more, run_check, two_by_two
from roundelay.errors import MismatchError
from roundelay.torch._internal.nodes import Levels, node_id

THETA = {"ROUNDELAY_THETA": "512"}  # several buckets
SIZES = (70, 300, 5, 128, 64, 33)
FINE = "dense_below=6"


@pytest.mark.parametrize("np", [2, pytest.param(4, marks=pytest.mark.nightly)])
def test_topk(np: int, check: Check) -> None:
    run_check(check, np, env=THETA)


@pytest.mark.slow
@pytest.mark.parametrize("nodes", [2, pytest.param(3, marks=pytest.mark.nightly)])
def test_topk_on_several_nodes(nodes: int, check: Check) -> None:
    run_check(check, 2 * nodes, env=THETA, each=two_by_two(), mpi=False)


@pytest.mark.slow
def test_topk_on_uneven_nodes(check: Check) -> None:
    run_check(check, 4, env=THETA, each=one_and_more(), mpi=False)


@pytest.mark.nightly
def test_topk_on_two_ranks_and_one(check: Check) -> None:
    run_check(check, 3, env=THETA, each=two_by_two(), mpi=False)


def levels_here() -> Levels:
    """The levels of the fabric for tensors of the default device."""
    return Levels.of(hvd.global_process_set, on_gpu=torch.get_default_device().type != "cpu")


def shard(count: int) -> range:
    """The elements of a bucket that belong to this rank."""
    levels = levels_here()
    each = -(-count // levels.members)
    return range(min(count, levels.place * each), min(count, (levels.place + 1) * each))


def kept(training: Training) -> list[torch.Tensor]:
    """What this rank keeps back of each parameter: the first numbers of a bucket's state."""
    found = {id(parameter): torch.zeros_like(parameter) for parameter in training.parameters}
    lossy = [bucket for bucket in training.techniques.table.buckets if bucket.core.technique is not None]
    for bucket, sent in zip(lossy, training.techniques.table.sent(), strict=True):
        count = max(one.stop for one in sent.bucket.ranges)
        own, whole = shard(count), torch.zeros(count)
        assert bucket.core.state is not None
        whole[own.start : own.stop] = bucket.core.state[: 4 * len(own)].view(torch.float32)
        for parameter, place in zip(sent.parameters, sent.bucket.ranges, strict=True):
            found[id(parameter)] = whole[place.start : place.stop]
    return [found[id(parameter)] for parameter in training.parameters]


def check_the_levels() -> None:
    levels = levels_here()
    ranks_of_nodes = hvd.allgather_object(hvd.local_size())
    assert levels.members == min(ranks_of_nodes)
    assert levels.nodes == len(set(hvd.allgather_object(node_id())))
    assert levels.place == hvd.local_rank()


def check_what_is_sent_and_kept_is_what_came() -> None:
    for settings in ("", ",select=radix,index_bits=16", ",momentum=none"):  # SGD's momentum is zero
        training = until_buckets(Training(f"topk:density=0.05,{FINE}{settings}", SIZES))
        for _ in range(50):
            training.step()
            for parameter, given, left in zip(
                training.parameters, training.given, kept(training), strict=True
            ):
                came = hvd.allreduce(torch.stack([given, left]), op=hvd.Sum)
                assert torch.equal(-parameter.detach() + came[1], came[0])
        levels = levels_here()
        assert any(one.any() for one in kept(training)) == (levels.place < levels.members)
        training.check_ranks_agree()
        training.check_all_came()


def check_so_many_are_sent_as_asked() -> None:
    training = until_buckets(Training(f"topk:density=0.05,{FINE},select=radix", SIZES))
    lossy = sum(size for size in SIZES if size >= 6)
    levels = levels_here()
    for _ in range(20):
        training.optimizer.zero_grad()
        training.backward()
        gradients = [one.grad for one in training.parameters if one.grad is not None and one.numel() >= 6]
        sent = sum(int(one.count_nonzero()) for one in gradients)
        assert sent <= levels.nodes * (0.05 * lossy + 1)
        training.optimizer.step()


def check_bytes_that_a_rank_gives_its_fabrics() -> None:
    """In a node the bucket twice, and between nodes the message of the shard."""
    training = until_buckets(Training(f"topk:density=0.05,{FINE}", SIZES))
    levels = levels_here()
    for _ in range(5):
        before = hvd.stats()["technique_called_bytes"]
        training.step()
        called = hvd.stats()["technique_called_bytes"] - before
        inside = between = 0.0
        for sent in training.techniques.table.sent():
            count = max(one.stop for one in sent.bucket.ranges)
            inside += 4 * (count + len(shard(count))) if levels.nodes < hvd.size() else 0
            between += 8 * (0.05 * len(shard(count))) + 4 * 5 if shard(count) else 0
        slack = 64 * len(training.techniques.table.sent())  # alignment, and quotas within one value
        assert abs(called - inside - (between if levels.nodes > 1 else 0)) <= slack


def check_density_1_is_dense_bit_for_bit() -> None:
    def trained(strategy: str) -> list[torch.Tensor]:
        torch.manual_seed(7)
        model = nn.Sequential(nn.Linear(9, 31), nn.Tanh(), nn.Linear(31, 17), nn.Tanh(), nn.Linear(17, 3))
        plain = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9, weight_decay=0.01)
        optimizer = hvd.DistributedOptimizer(plain, model.named_parameters(), strategy=strategy)
        chance = torch.Generator("cpu").manual_seed(hvd.rank())
        for _ in range(9):
            optimizer.zero_grad()
            model(normal(chance, 4, 9)).square().mean().backward()
            optimizer.step()
        return [one.detach() for one in model.parameters()]

    for one, other in zip(trained("dense"), trained(f"topk:density=1,{FINE}"), strict=True):
        assert torch.equal(one.view(torch.int32), other.view(torch.int32))
    sparse = trained(f"topk:density=0.1,{FINE}")
    assert len(set(hvd.allgather_object(str([one.tolist() for one in sparse])))) == 1


def check_local_momentum_follows_the_formulas() -> None:
    """mmt = m * mmt + g; vel += mmt; vel is sent where it is large, and both are cleared there.

    Without masking mmt is not. SGD's momentum, from the dense steps before, goes on as with zero gradients.
    One node: the ranks have one momentum together, and choose by the sum.
    """
    if levels_here().nodes > 1:
        return
    for masking in (1, 0):
        _follow_the_formulas(masking)


def _follow_the_formulas(masking: int) -> None:
    text = f"topk:density=0.1,{FINE},select=radix,masking={masking}"
    training = Training(text, SIZES, momentum=0.5, lr=1.0)
    while not training.techniques.stateful:
        training.step()
    mmt = [torch.zeros(size) for size in SIZES]
    vel = [torch.zeros(size) for size in SIZES]
    for number in range(8):
        weights = [one.detach().clone() for one in training.parameters]
        given = [one.clone() for one in training.given]
        ours = [0.5 * training.optimizer.state[one]["momentum_buffer"] for one in training.parameters]
        training.step()
        for index, size in enumerate(SIZES):
            gradient = hvd.allreduce(training.given[index] - given[index], op=hvd.Sum)
            if size < 6:  # it goes densely, and SGD has its momentum
                continue
            mmt[index] = 0.5 * mmt[index] + gradient
            vel[index] += mmt[index]
            moved = weights[index] - training.parameters[index].detach() - ours[index]
            sent = moved != 0
            assert torch.equal(moved[sent], vel[index][sent]), (number, index)
            if masking:
                mmt[index][sent] = 0.0
            vel[index][sent] = 0.0


def check_a_momentum_that_a_scheduler_changes_is_said_once() -> None:
    training = until_buckets(Training(f"topk:density=0.1,{FINE}", SIZES, momentum=0.5))
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        for momentum in (0.25, 0.75):
            training.optimizer.param_groups[0]["momentum"] = momentum
            training.step()
    said = [str(one.message) for one in caught if "accumulates momentum=0.5" in str(one.message)]
    assert len(said) == int(hvd.rank() == 0)
    training.check_ranks_agree()


def check_clipping_sees_what_is_applied() -> None:
    training = until_buckets(Training(f"topk:density=0.05,{FINE}", SIZES))
    training.optimizer.zero_grad()
    training.backward()
    norm = torch.nn.utils.clip_grad_norm_(training.parameters, 1.0)
    assert len(set(hvd.allgather_object(norm.item()))) == 1
    before = [one.detach().clone() for one in training.parameters]
    training.optimizer.step()
    moved = torch.cat([one.detach() - then for one, then in zip(training.parameters, before, strict=True)])
    assert moved.norm().item() <= 1.001


def check_an_overflow_is_skipped_by_all() -> None:
    for density in (0.05, 1e-9):  # the latter sends nothing
        training = until_buckets(Training(f"topk:density={density},{FINE}", SIZES))
        training.techniques.table.rescale(4.0)
        training.check_an_overflow_is_skipped()
        assert all(one.isfinite().all() for one in [*training.parameters, *kept(training)])
        training.check_ranks_agree()


def check_the_warm_up_is_dense_and_then_less_and_less_is_sent() -> None:
    training = Training(f"topk:density=0.1,{FINE},warmup=6/1+14/0.5", SIZES)
    for number in range(24):
        training.step()
        used = {technique for _, rows in training.techniques.table.traffic() for technique, *_ in rows}
        if number < 6:
            assert used <= {"dense"}
        elif number == 12:
            assert any("density=0.5" in one for one in used)
            assert not any("density=0.1" in one for one in used)
    assert any("density=0.1" in one for one in used)
    training.check_all_came()


def check_a_state_of_another_place_in_the_node_is_refused() -> None:
    training = until_buckets(Training(f"topk:density=0.1,{FINE}", SIZES))
    state = training.strategy.state_dict()
    again = Training(f"topk:density=0.1,{FINE}", SIZES)
    index, members = state["in_node"]
    with pytest.raises(
        ValueError, match=f"rank {index + 1} of {members} in a node, and this is rank {index}"
    ):
        again.strategy.load_state_dict({**state, "in_node": [index + 1, members]})
    again.strategy.load_state_dict(state)
    again.step()


def check_ranks_with_other_settings_get_both_texts() -> None:
    ours = f"topk:density=0.1,{FINE}"
    others = [f"topk:density=0.2,{FINE}", f"topk:density=0.1,{FINE},seed=1", "csc:keep=0.1"]
    for other in others:
        training = Training(ours if hvd.rank() == 0 else other, SIZES)
        with pytest.raises(MismatchError, match="differ between ranks") as raised:
            training.step()
        for text in (ours, other):
            assert repr(hvd.strategies.parse(text).text) in str(raised.value)
        hvd.DistributedOptimizer(training.optimizer, op=hvd.Sum, strategy=ours)  # the cure
        training.step()


def check_a_sparse_gradient_is_an_error_on_every_rank() -> None:
    embedding = nn.Embedding(30, 4, sparse=True)
    plain: Any = torch.optim.SGD(embedding.parameters(), lr=1.0)
    optimizer = hvd.DistributedOptimizer(plain, strategy=f"topk:density=0.5,{FINE}")
    with pytest.raises((ValueError, hvd.HorovodInternalError), match="sparse_as_dense=True"):
        embedding(torch.tensor([1, 2])).sum().backward()
    optimizer.zero_grad()

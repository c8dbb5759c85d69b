"""Process sets: every operation on them, overlapping ones in opposite orders, 1,000 that come and go."""

from __future__ import annotations

import copy
import gc
import os
import pickle
import threading

import pytest
import torch

import roundelay.torch as hvd
from in_time import wait_until
from meeting import PATIENCE_S
from ranks import Check, needs_ranks, run_check


@pytest.mark.parametrize("np", [1, 2, 3, 4])
def test_process_sets(np: int, check: Check) -> None:
    run_check(check, np)


def check_the_global_set() -> None:
    world = hvd.global_process_set
    assert world.process_set_id == 0
    assert world.ranks == list(range(hvd.size()))
    assert (world.size(), world.rank(), world.included()) == (hvd.size(), hvd.rank(), True)
    assert not hvd.remove_process_set(world)
    with pytest.raises(ValueError, match="its id is 0"):
        hvd.add_process_set(range(hvd.size()))


def id_of(process_set: hvd.ProcessSet) -> int | None:
    """Each time anew: a type checker takes it for the same as before."""
    return process_set.process_set_id


@needs_ranks(2)
def check_what_a_set_knows() -> None:
    given = hvd.ProcessSet([hvd.size() - 1])
    assert id_of(given) is None
    assert given.included() == (hvd.rank() == hvd.size() - 1)
    for question in (given.size, given.rank):
        with pytest.raises(ValueError, match="add_process_set"):
            question()
    assert hvd.add_process_set(given) is given
    assert isinstance(given.process_set_id, int)
    assert given.process_set_id > 0
    assert given.size() == 1
    assert given.included() == (hvd.rank() == hvd.size() - 1)
    assert str(given) == f"ProcessSet(process_set_id={given.process_set_id}, ranks=[{hvd.size() - 1}])"
    if given.included():
        assert given.rank() == 0
    else:
        with pytest.raises(ValueError, match=rf"rank {hvd.rank()} is not in process set"):
            given.rank()
    with pytest.raises(ValueError, match=f"its id is {given.process_set_id}"):
        hvd.add_process_set([hvd.size() - 1])
    with pytest.raises(ValueError, match=f"its id is {given.process_set_id}"):
        hvd.add_process_set(given)
    assert hvd.remove_process_set(given) is True
    assert id_of(given) is None
    assert hvd.remove_process_set(given) is False
    hvd.add_process_set(given)
    assert id_of(given) is not None
    hvd.remove_process_set(given)


def check_copies_are_the_set_itself() -> None:
    """So none keeps the id of a set that was removed."""
    world = hvd.global_process_set
    one = hvd.ProcessSet([0])
    before = pickle.dumps(one)
    if hvd.size() > 1:
        hvd.add_process_set(one)
        assert pickle.loads(before) is pickle.loads(pickle.dumps(one)) is one
    for process_set in (world, one):
        assert copy.copy(process_set) is copy.deepcopy([process_set])[0] is process_set
    assert pickle.loads(pickle.dumps(world)) is world
    added = pickle.dumps(one)
    if hvd.size() > 1:
        hvd.remove_process_set(one)
    assert id_of(pickle.loads(added)) is None
    assert pickle.loads(added).ranks == [0]


@needs_ranks(3)
def check_an_optimizer_of_a_removed_set_takes_no_other_one() -> None:
    parameter = torch.nn.Parameter(torch.zeros(3))
    removed = hvd.add_process_set([0, hvd.size() - 1])
    plain = torch.optim.SGD([parameter], lr=1.0)
    optimizer = hvd.DistributedOptimizer(plain, process_set=removed)
    parameter.sum().backward()
    optimizer.step()
    optimizer.zero_grad()
    number = removed.process_set_id
    hvd.remove_process_set(removed)
    another = hvd.add_process_set([0, hvd.size() - 1])
    if removed.ranks.count(hvd.rank()):
        with pytest.raises(ValueError, match=f"process set {number} does not exist or was removed"):
            parameter.sum().backward()
    hvd.remove_process_set(another)


@needs_ranks(2)
def check_every_operation() -> None:
    tail = hvd.add_process_set(range(1, hvd.size()))
    if tail.included():
        count, total = tail.size(), sum(tail.ranks)
        x = torch.full((2,), float(hvd.rank()))
        assert hvd.allreduce(x, op=hvd.Sum, process_set=tail).tolist() == [total] * 2
        assert hvd.allreduce(x, process_set=tail).tolist() == [total / count] * 2
        assert hvd.allreduce_(x.clone(), op=hvd.Max, process_set=tail).tolist() == [hvd.size() - 1.0] * 2
        assert hvd.grouped_allreduce([x, x], op=hvd.Min, process_set=tail)[1].tolist() == [1.0] * 2
        assert hvd.broadcast(x, hvd.size() - 1, process_set=tail).tolist() == [hvd.size() - 1.0] * 2
        assert hvd.allgather(x[:1], process_set=tail).tolist() == tail.ranks
        assert hvd.grouped_allgather([x[:1]], process_set=tail)[0].tolist() == tail.ranks
        output, received = hvd.alltoall(x[:1].expand(count), [1] * count, process_set=tail)
        assert output.tolist() == tail.ranks
        assert received.tolist() == [1] * count
        scattered = hvd.reducescatter(x[:1].expand(count), op=hvd.Sum, process_set=tail)
        assert scattered.tolist() == [total]
        sparse = hvd.sparse_allreduce_async(torch.eye(2).to_sparse(), "eye", hvd.Average, tail)()
        assert torch.equal(sparse.to_dense(), torch.eye(2))
        hvd.barrier(process_set=tail)
        with pytest.raises(ValueError, match=r"root_rank is 0, a world rank"):
            hvd.broadcast(x, 0, process_set=tail)
        assert hvd.join(process_set=tail) in tail.ranks
    else:
        for call in (
            lambda: hvd.allreduce(torch.ones(1), process_set=tail),
            lambda: hvd.barrier(process_set=tail),
            lambda: hvd.join(process_set=tail),
        ):
            with pytest.raises(ValueError, match=r"rank 0 is not in process set \d+ of ranks \[1"):
                call()  # type: ignore[no-untyped-call]
    hvd.remove_process_set(tail)


@needs_ranks(2)
def check_overlapping_sets_in_opposite_orders() -> None:
    """Every pair of ranks is a set; ranks use theirs in different orders, blocking and not."""
    pairs = [(low, high) for high in range(hvd.size()) for low in range(high)]
    if hvd.size() == 2:
        pairs = [(0,), (1,)]  # type: ignore[list-item]
    sets = {pair: hvd.add_process_set(pair) for pair in pairs}
    mine = [pair for pair in pairs if hvd.rank() in pair]
    for turn in range(5):
        order = mine if hvd.rank() % 2 == 0 else mine[::-1]
        handles = {
            pair: hvd.allreduce_async(
                torch.full((turn + 1,), float(hvd.rank())), op=hvd.Sum, process_set=sets[pair]
            )
            for pair in order
        }
        world = hvd.allreduce_async(torch.ones(3), op=hvd.Sum)
        for pair in reversed(order):
            assert hvd.synchronize(handles[pair]).tolist() == [float(sum(pair))] * (turn + 1)
        assert hvd.synchronize(world).tolist() == [hvd.size()] * 3
    for pair in pairs:
        hvd.remove_process_set(sets[pair])


@needs_ranks(2)
def check_a_set_does_not_wait_for_the_world() -> None:
    """An operation of the world that rank 0 has not submitted holds up nothing in the other ranks' set."""
    tail = hvd.add_process_set(range(1, hvd.size()))
    if tail.included():
        world = hvd.allreduce_async(torch.ones(2), name="late", op=hvd.Sum)
        for _ in range(20):
            assert hvd.allreduce(torch.ones(1), op=hvd.Sum, process_set=tail).item() == tail.size()
        hvd.broadcast(torch.ones(1), 1, name="go.on", process_set=tail)
    else:
        world = hvd.allreduce_async(torch.ones(2), name="late", op=hvd.Sum)
    assert hvd.synchronize(world).tolist() == [hvd.size()] * 2
    hvd.remove_process_set(tail)


@needs_ranks(2)
def check_unnamed_operations_after_sets_of_unequal_size() -> None:
    """Each set counts its own: the world's names stay in step where some ranks used a set and others not."""
    tail = hvd.add_process_set(range(1, hvd.size()))
    for turn in range(3):
        if tail.included():
            for _ in range(turn + 1):
                hvd.allreduce(torch.ones(1), process_set=tail)
                hvd.allgather(torch.ones(1), process_set=tail)
        assert hvd.allreduce(torch.ones(1), op=hvd.Sum).item() == hvd.size()
        assert hvd.allgather(torch.ones(1)).numel() == hvd.size()
    hvd.remove_process_set(tail)


@needs_ranks(2)
def check_a_set_is_removed_with_work_in_flight() -> None:
    tail = hvd.add_process_set(range(1, hvd.size()))
    if tail.included():
        handle = hvd.allreduce_async(torch.ones(1000), op=hvd.Sum, process_set=tail)
        hvd.remove_process_set(tail)
        assert bool((hvd.synchronize(handle) == hvd.size() - 1).all())
    else:
        hvd.remove_process_set(tail)


@needs_ranks(3)
def check_what_cannot_complete_fails_when_its_set_is_removed() -> None:
    tail = hvd.add_process_set(range(1, hvd.size()))
    if hvd.rank() == 1:
        handle = hvd.allreduce_async(torch.ones(3), name="alone", process_set=tail)
        hvd.remove_process_set(tail)
        with pytest.raises(hvd.HorovodInternalError, match="alone|removed"):
            hvd.synchronize(handle)
    else:
        hvd.remove_process_set(tail)
    assert hvd.allreduce(torch.ones(1), op=hvd.Sum).item() == hvd.size()


def check_bad_ranks() -> None:
    for ranks in ([], [-1], [0, 0], ["a"], [0.5], [True], "01", 3, None):
        with pytest.raises(ValueError, match="rank"):
            hvd.ProcessSet(ranks)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match=f"ranks 0 to {hvd.size() - 1}"):
        hvd.add_process_set([hvd.size()])

    class Communicator:
        def Get_rank(self) -> int:  # noqa: N802
            return 0

    with pytest.raises(hvd.NotInThisVersionError, match="mpi4py"):
        hvd.ProcessSet(Communicator())  # type: ignore[arg-type]
    assert hvd.ProcessSet(torch.tensor([0])).ranks == [0]  # type: ignore[arg-type]


@needs_ranks(2)
def check_ranks_that_mean_different_sets() -> None:
    with pytest.raises(hvd.HorovodInternalError, match=r"\w"):
        hvd.add_process_set([0] if hvd.rank() == 0 else [1])
    if hvd.rank() == 0:
        with pytest.raises(ValueError, match="differ"):
            hvd.add_process_set([1, 1])
    else:
        with pytest.raises(hvd.HorovodInternalError, match="differ"):
            hvd.add_process_set([1])
    good = hvd.add_process_set([1])
    hvd.remove_process_set(good)


@needs_ranks(3)
def check_threads_add_one_after_the_other() -> None:
    wanted = [[0], [1], [0, 1]]
    added: dict[int, hvd.ProcessSet] = {}
    # Ranks may disagree which is first: the lock keeps a rank's own calls apart, the order is the caller's.
    turn = [threading.Event() for _ in wanted]

    def work(index: int) -> None:
        if index:
            turn[index - 1].wait(30)
        added[index] = hvd.add_process_set(wanted[index])
        turn[index].set()

    threads = [threading.Thread(target=work, args=(index,)) for index in range(len(wanted))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert [added[index].ranks for index in range(3)] == wanted
    for index in range(3):
        hvd.remove_process_set(added[index])


def open_things() -> tuple[int, int]:
    gc.collect()
    return len(os.listdir("/proc/self/fd")), len(os.listdir("/proc/self/task"))


@needs_ranks(2)
def check_a_thousand_cycles_leave_nothing() -> None:
    before = (0, 0)
    for cycle in range(1000):
        one = hvd.add_process_set([0, 1] if hvd.size() > 2 else [0])
        if one.included():
            for name in (None, "cycle"):  # nothing may be left of the set before
                total = hvd.allreduce(torch.ones(1), name=name, op=hvd.Sum, process_set=one)
                assert total.item() == one.size()
        hvd.remove_process_set(one)
        if cycle == 20:
            before = open_things()

    def nothing_left() -> bool:  # the kernel may still list a thread that was joined
        return all(left <= then for left, then in zip(open_things(), before, strict=True))

    wait_until(nothing_left, PATIENCE_S, f"{before} are", open_things)


def check_sets_given_to_init() -> None:
    given, later, alone = hvd.ProcessSet([0]), None, hvd.size() == 1
    everyone = list(range(hvd.size()))
    if hvd.size() > 2:
        later = hvd.add_process_set([0, 1])
    hvd.barrier()
    hvd.shutdown()
    assert later is None or id_of(later) is None
    with pytest.raises(ValueError, match="has not been initialized"):
        given.size()
    if alone:
        hvd.init(process_sets="dynamic")
        return
    hvd.init(process_sets=[given, [1]])
    assert id_of(given) is not None
    hvd.init(process_sets=[given])
    with pytest.raises(ValueError, match="init was called before"):
        hvd.init(process_sets=[hvd.ProcessSet([1])])
    if hvd.rank() == 0:
        assert hvd.allreduce(torch.ones(1), op=hvd.Sum, process_set=given).item() == 1
    hvd.barrier()
    hvd.shutdown()
    assert id_of(given) is None
    for wrong in ("all", 3, [[0, 0]], hvd.ProcessSet([0])):
        with pytest.raises(ValueError, match=r"process_sets|differ"):
            hvd.init(process_sets=wrong)  # type: ignore[arg-type]
    assert not hvd.is_initialized()
    for wrong, text in (([[0], [99]], "cannot be"), ([[0], [0]], "already"), ([everyone], "already")):
        with pytest.raises(ValueError, match=text):
            hvd.init(process_sets=wrong)
        assert not hvd.is_initialized()
    hvd.init(process_sets="dynamic")

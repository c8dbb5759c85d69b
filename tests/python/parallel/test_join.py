"""join: ranks that have no more data, while the others go on; and everything afterwards."""

from __future__ import annotations

import pytest
import torch

import roundelay.torch as hvd
from ranks import Check, needs_ranks, run_check


@pytest.mark.parametrize("np", [1, 2, 3, 4])
def test_join(np: int, check: Check) -> None:
    run_check(check, np)


def check_all_at_once() -> None:
    for device in (-1, 0, True, None):
        last = hvd.join(device)
        assert isinstance(last, int)
        assert 0 <= last < hvd.size()
        assert hvd.allgather(torch.tensor([last])).tolist() == [last] * hvd.size()


def check_uneven_data() -> None:
    """Rank r has r + 1 batches; rank 0 joins first, the last rank works alone in the end."""
    for batch in range(hvd.rank() + 1):
        here = list(range(batch, hvd.size()))  # who still has data
        x = torch.full((3,), float(hvd.rank() + 1))
        total = float(sum(rank + 1 for rank in here))
        assert hvd.allreduce(x, name=f"sum.{batch}", op=hvd.Sum).tolist() == [total] * 3
        average = torch.tensor([total] * 3) / hvd.size()
        assert torch.equal(hvd.allreduce(x, name=f"average.{batch}"), average)
        grouped = hvd.grouped_allreduce([x, x.double(), x.long()], op=hvd.Sum)
        assert [tensor.tolist() for tensor in grouped] == [[total] * 3] * 3
        gathered = hvd.allgather(torch.full((hvd.rank() + 1,), float(hvd.rank())))
        assert gathered.tolist() == [float(rank) for rank in here for _ in range(rank + 1)]
        assert hvd.broadcast(x, hvd.size() - 1).tolist() == [float(hvd.size())] * 3
        assert hvd.allreduce(x, op=hvd.Max).tolist() == [float(hvd.size())] * 3
        assert hvd.allreduce(x, op=hvd.Min).tolist() == [float(here[0] + 1)] * 3
    assert hvd.join() == hvd.size() - 1


def check_unnamed_operations_afterwards() -> None:
    """Ranks have counted differently; the largest count is everybody's."""
    for _ in range(hvd.rank() * 3):
        hvd.allreduce(torch.ones(1))
        hvd.broadcast(torch.ones(1), hvd.size() - 1)
    hvd.join()
    for _ in range(3):
        assert hvd.allreduce(torch.ones(2), op=hvd.Sum).tolist() == [hvd.size()] * 2
        assert hvd.allgather(torch.ones(1)).numel() == hvd.size()
        assert hvd.broadcast(torch.full((1,), float(hvd.rank())), 0).item() == 0
    hvd.barrier()


def check_operations_in_flight_when_joining() -> None:
    """What a rank submitted before its join completes with it."""
    handles = [
        hvd.allreduce_async(torch.full((4,), float(index)), name=f"flight.{index}", op=hvd.Sum)
        for index in range(10)
    ]
    gathered = hvd.allgather_async(torch.full((2,), float(hvd.rank())), name="flight.gather")
    hvd.join()
    for index, handle in enumerate(handles):
        assert hvd.synchronize(handle).tolist() == [float(index) * hvd.size()] * 4
    assert hvd.synchronize(gathered).tolist() == [float(rank) for rank in range(hvd.size()) for _ in range(2)]


@needs_ranks(2)
def check_a_root_that_has_joined() -> None:
    if hvd.rank() > 0:
        with pytest.raises(hvd.HorovodInternalError, match=r"rooted.*\n?.*rank 0|rank 0.*rooted"):
            hvd.broadcast(torch.ones(2), 0, name="rooted")
        assert hvd.allreduce(torch.ones(2), op=hvd.Sum).tolist() == [hvd.size() - 1.0] * 2
    hvd.join()
    assert hvd.broadcast(torch.full((2,), float(hvd.rank())), 0, name="rooted").tolist() == [0, 0]


@needs_ranks(2)
def check_operations_that_need_every_rank() -> None:
    if hvd.rank() > 0:
        x = torch.ones(2 * hvd.size())
        for name, call in {"exchange": hvd.alltoall, "scatter": hvd.reducescatter}.items():
            with pytest.raises(hvd.HorovodInternalError, match=f"'{name}': rank 0 has joined"):
                call(x, name=name)  # type: ignore[operator]
        assert hvd.allreduce(torch.ones(2), op=hvd.Sum).tolist() == [hvd.size() - 1.0] * 2
    hvd.join()
    assert hvd.reducescatter(torch.ones(hvd.size()), name="scatter", op=hvd.Sum).tolist() == [hvd.size()]


@needs_ranks(3)
def check_disagreement_while_a_rank_has_joined() -> None:
    if hvd.rank() > 0:
        with pytest.raises(hvd.HorovodInternalError, match="shapes.differ"):
            hvd.allreduce(torch.ones(1 + hvd.rank()), name="shapes.differ")
        assert hvd.allreduce(torch.ones(2), op=hvd.Sum).tolist() == [hvd.size() - 1.0] * 2
    hvd.join()


@needs_ranks(3)
def check_wrong_call_while_a_rank_has_joined() -> None:
    if hvd.rank() == 1:
        with pytest.raises(ValueError, match="sparse"):
            hvd.allreduce(torch.eye(2).to_sparse())
    elif hvd.rank() > 1:
        with pytest.raises(hvd.HorovodInternalError, match="sparse"):
            hvd.allreduce(torch.eye(2))
    hvd.join()
    assert hvd.allreduce(torch.ones(1), op=hvd.Sum).item() == hvd.size()


def check_large_tensors() -> None:
    x = torch.ones(1 << 20)
    for _ in range(hvd.rank() + 1):
        result = hvd.allreduce(x, name="large", op=hvd.Sum)
        assert 1 <= result[0].item() <= hvd.size()
        assert bool((result == result[0]).all())
    hvd.join()


@needs_ranks(3)
def check_on_a_process_set() -> None:
    tail = hvd.add_process_set(range(1, hvd.size()))
    if tail.included():
        for _ in range(tail.rank() + 1):
            assert 1 <= hvd.allreduce(torch.ones(1), op=hvd.Sum, process_set=tail).item() <= tail.size()
        assert hvd.join(process_set=tail) == hvd.size() - 1
        assert hvd.allreduce(torch.ones(1), op=hvd.Sum, process_set=tail).item() == tail.size()
    assert hvd.allreduce(torch.ones(1), op=hvd.Sum).item() == hvd.size()
    hvd.remove_process_set(tail)


def check_many_joins() -> None:
    for turn in range(30):
        if (hvd.rank() + turn) % 2:
            hvd.allreduce(torch.ones(2))
        hvd.join()
    assert hvd.allreduce(torch.ones(1), op=hvd.Sum).item() == hvd.size()

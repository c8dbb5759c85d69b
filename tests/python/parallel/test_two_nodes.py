"""Four ranks that take themselves for two nodes: the fabric on two levels, through the whole library."""

from __future__ import annotations

import tempfile
from pathlib import Path

import pytest
import torch

import roundelay.torch as hvd
from ranks import Check, mpirun, run_check, two_by_two
from roundelay import _core
from roundelay.timeline import analysis, events
from small_gradients import use_pool

pytestmark = pytest.mark.slow

DTYPES = (
    torch.float64, torch.float32, torch.float16, torch.bfloat16,
    torch.int64, torch.int32, torch.int16, torch.int8, torch.uint8, torch.bool,
)  # fmt: skip
SIZES = (1, 7, 1000, 140_001)


def own(count: int, dtype: torch.dtype, rank: int) -> torch.Tensor:
    """Small whole numbers, whose sums and products are exact in every type."""
    return ((torch.arange(count) * 3 + rank) % 3).to(dtype)


def check_the_fabric_has_two_levels() -> None:
    assert (hvd.local_size(), hvd.cross_size()) == (2, 2)
    between = {"mpi": "mpi", "store": "tcp"}[_core.transports()["bootstrap"]]
    assert _core.transports()["fabric"] == f"shm+{between}"
    assert _core.transports()["channel"] == "shm+tcp"


def check_every_type_and_operation() -> None:
    for dtype in DTYPES:
        for count in SIZES:
            parts = torch.stack([own(count, dtype, rank) for rank in range(hvd.size())])
            wide = parts.to(torch.float64)
            expected = {
                hvd.Sum: wide.sum(0).to(dtype),
                hvd.Min: wide.amin(0).to(dtype),
                hvd.Max: wide.amax(0).to(dtype),
                hvd.Product: wide.prod(0).to(dtype),
            }
            if dtype.is_floating_point:
                expected[hvd.Average] = (wide.sum(0) / hvd.size()).to(dtype)
            for op, want in expected.items():
                got = hvd.allreduce(parts[hvd.rank()], op=op, name=f"{dtype}.{count}.{op}")
                assert torch.equal(got, want), (dtype, count, op)


def check_many_under_way() -> None:
    """Allreduces take two executors in turn, and operations that run alone come between."""
    kinds = (torch.float32, torch.float64)  # these are never fused, so that there are two allreduces
    tensors = [own(140_001 + 7 * i, kinds[i % 2], hvd.rank()) for i in range(12)]
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "timeline.json"  # rank 0's is the one that counts
        hvd.start_timeline(str(path))
        handles = []
        for index, tensor in enumerate(tensors):
            handles.append(hvd.allreduce_async_(tensor, op=hvd.Sum, name=f"many.{index}"))
            if index % 5 == 4:
                handles.append(hvd.broadcast_async_(torch.full((9,), hvd.rank()), 3, name=f"alone.{index}"))
        for handle in handles:
            hvd.synchronize(handle)
        hvd.stop_timeline()
        trace = events.read(path) if hvd.rank() == 0 else None
    for tensor in tensors:
        parts = [own(tensor.numel(), tensor.dtype, rank) for rank in range(hvd.size())]
        assert torch.equal(tensor, torch.stack(parts).sum(0))
    if trace is not None:
        assert trace.spans(0, analysis.SECOND_COLLECTIVE, "allreduce")
        assert not trace.spans(0, analysis.SECOND_COLLECTIVE, "broadcast")
        assert analysis.levels(trace)[0].between > 0
        assert trace.spans(0, analysis.INSIDE[0], "in the node: 2")
        assert trace.spans(0, analysis.BETWEEN[0], "between nodes: 2")


def check_scales() -> None:
    for dtype in (torch.float32, torch.float16, torch.int32):
        ones = torch.full((5000,), 6).to(dtype)
        got = hvd.allreduce(ones, op=hvd.Sum, prescale_factor=0.5, postscale_factor=0.25, name=f"s.{dtype}")
        assert torch.equal(got, torch.full((5000,), 3).to(dtype)), dtype
    large = torch.full((100,), 60000.0, dtype=torch.float16)
    assert torch.equal(hvd.allreduce(large, op=hvd.Average, name="large"), large)


def check_what_goes_flat() -> None:
    rank, size = hvd.rank(), hvd.size()
    assert torch.equal(hvd.broadcast(torch.full((9,), rank), 3, name="b"), torch.full((9,), 3))
    rows = hvd.allgather(torch.full((rank + 1, 2), rank), name="g")
    assert rows[:, 0].tolist() == [r for r in range(size) for _ in range(r + 1)]
    assert hvd.reducescatter(torch.arange(8), op=hvd.Sum, name="r").tolist() == [8 * rank, 8 * rank + 4]
    equal = torch.ones(10)
    assert torch.allclose(hvd.allreduce(equal, op=hvd.Adasum, name="a"), equal)
    assert hvd.allreduce(torch.tensor([100], dtype=torch.int8), op=hvd.Average, name="i").item() == 100


def check_process_sets() -> None:
    # Of one node, of one rank a node, of nodes with different numbers of ranks.
    for ranks in ([0, 1], [1, 2], [0, 2, 3]):
        process_set = hvd.add_process_set(ranks)
        if hvd.rank() in ranks:
            sums = hvd.allreduce(
                torch.full((70000,), float(hvd.rank())), op=hvd.Sum, process_set=process_set, name="set"
            )
            assert torch.equal(sums, torch.full((70000,), float(sum(ranks))))
        hvd.barrier()
        hvd.remove_process_set(process_set)


def check_a_pooled_optimizer_trains_as_one_process() -> None:
    """Gradients of the whole batch's mean, by four ranks and by one."""
    inputs, targets = torch.randn(32, 20), torch.randn(32, 3)

    def trained(share: slice, wrap: bool) -> list[torch.Tensor]:
        torch.manual_seed(1)
        model = torch.nn.Sequential(torch.nn.Linear(20, 50), torch.nn.Tanh(), torch.nn.Linear(50, 3))
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
        if wrap:
            optimizer = hvd.DistributedOptimizer(optimizer, named_parameters=model.named_parameters())
        for _ in range(6):
            optimizer.zero_grad()
            torch.nn.functional.mse_loss(model(inputs[share]), targets[share]).backward()
            optimizer.step()
        return [parameter.detach() for parameter in model.parameters()]

    each = 32 // hvd.size()
    mine = trained(slice(hvd.rank() * each, (hvd.rank() + 1) * each), wrap=True)
    for got, want in zip(mine, trained(slice(None), wrap=False), strict=True):
        assert torch.allclose(got, want, rtol=1e-5, atol=1e-6)
        assert torch.equal(got, hvd.broadcast(got, 0, name="first"))


def check_a_pooled_bucket_is_not_staged() -> None:
    """Not inside its node either, where ranks reach each other's gradients."""
    parameter = torch.nn.Parameter(torch.zeros(3 << 18))
    optimizer = hvd.DistributedOptimizer(torch.optim.SGD([parameter], lr=1.0), op=hvd.Sum)
    use_pool(optimizer, 1)
    hvd.barrier()
    before, steps = hvd.stats(), 5
    for step in range(steps):
        optimizer.zero_grad()
        (parameter * (hvd.rank() + step)).sum().backward()
        optimizer.step()
    after = hvd.stats()
    assert after["bytes"] - before["bytes"] >= steps * (3 << 20)
    assert after["bytes_staged"] - before["bytes_staged"] <= steps * 256  # the notes that optimizers compare
    assert parameter.grad is not None
    assert torch.equal(parameter.grad, torch.full((3 << 18,), 6.0 + 4 * (steps - 1)))
    large = torch.ones(3 << 18)
    hvd.allreduce_(large, name="staged")
    assert hvd.stats()["bytes_staged"] - after["bytes_staged"] >= 3 << 20


def check_a_rank_that_has_joined() -> None:
    if hvd.rank() == 3:
        hvd.join()
        return
    assert torch.equal(hvd.allreduce(torch.ones(1000), op=hvd.Sum, name="j"), torch.full((1000,), 3.0))
    hvd.join()


TIMELINE = {"ROUNDELAY_TIMELINE": "DYNAMIC"}


@pytest.mark.skipif(mpirun() is None, reason="no mpirun")
def test_two_nodes(check: Check) -> None:
    run_check(check, 4, env=TIMELINE, each="ROUNDELAY_NODE_ID=$((OMPI_COMM_WORLD_RANK / 2))")


def test_two_nodes_without_mpi(check: Check) -> None:
    """Each node has a leader, as in a large job."""
    run_check(check, 4, env=TIMELINE | {"ROUNDELAY_FAN_OUT": "1"}, each=two_by_two(), mpi=False)

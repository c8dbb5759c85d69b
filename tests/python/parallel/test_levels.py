"""Four ranks that take themselves for nodes and racks of several shapes: allreduces over levels."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

import roundelay.torch as hvd
from in_time import wait_until
from ranks import Check, one_and_more, output, run_check
from starts import ROUNDELAYRUN, run

pytestmark = pytest.mark.slow

DTYPES = (torch.float64, torch.float32, torch.float16, torch.int64, torch.int8, torch.bool)
REFUSED = Path(__file__).parents[1] / "support" / "refused_init.py"


def own(count: int, dtype: torch.dtype, rank: int) -> torch.Tensor:
    """Small whole numbers, whose sums and products are exact in every type."""
    return ((torch.arange(count) * 3 + rank) % 3).to(dtype)


def check_sums() -> None:
    for dtype in DTYPES:
        for count in (1, 7, 1000, 140_001):
            parts = torch.stack([own(count, dtype, rank) for rank in range(hvd.size())]).to(torch.float64)
            got = hvd.allreduce(own(count, dtype, hvd.rank()), op=hvd.Sum, name=f"sum.{dtype}.{count}")
            assert torch.equal(got, parts.sum(0).to(dtype)), (dtype, count)
            got = hvd.allreduce(own(count, dtype, hvd.rank()), op=hvd.Max, name=f"max.{dtype}.{count}")
            assert torch.equal(got, parts.amax(0).to(dtype)), (dtype, count)


def check_the_bits_do_not_depend_on_the_bucket() -> None:
    torch.manual_seed(hvd.rank())
    numbers = torch.randn(100_003)
    whole = hvd.allreduce(numbers, name="whole")
    piece = hvd.allreduce(numbers[70_001:70_101], name="piece")
    assert torch.equal(whole[70_001:70_101], piece)
    assert torch.equal(whole, hvd.broadcast(whole, 0, name="first"))


def check_large_halves() -> None:
    large = torch.full((100,), 60000.0, dtype=torch.float16)
    got = hvd.allreduce(large, op=hvd.Average, name="large")
    assert torch.allclose(got.float(), large.float(), rtol=1e-3)


def check_many_under_way() -> None:
    tensors = [own(40_001 + 7 * i, (torch.float32, torch.float64)[i % 2], hvd.rank()) for i in range(8)]
    handles = [hvd.allreduce_async_(t, op=hvd.Sum, name=f"many.{i}") for i, t in enumerate(tensors)]
    for handle in handles:
        hvd.synchronize(handle)
    for tensor in tensors:
        parts = [own(tensor.numel(), tensor.dtype, rank) for rank in range(hvd.size())]
        assert torch.equal(tensor, torch.stack(parts).sum(0))


def check_gradients_in_a_pool() -> None:
    parameter = torch.nn.Parameter(torch.zeros(3 << 16))
    optimizer = hvd.DistributedOptimizer(torch.optim.SGD([parameter], lr=1.0), op=hvd.Sum)
    for step in range(6):
        optimizer.zero_grad()
        (parameter * (hvd.rank() + step)).sum().backward()
        optimizer.step()
    assert parameter.grad is not None
    assert torch.equal(parameter.grad, torch.full((3 << 16,), 6.0 + 4 * 5))


def run_over(plan: str, check: Check, each: str) -> None:
    """Runs the check on ranks with these variables, whose allreduces take this plan, as rank 0 logs."""
    run_check(check, 4, env={"ROUNDELAY_LOG_LEVEL": "info"}, each=each, mpi=False)
    wait_until(lambda: "process set 0: allreduces" in output(), 20.0, "no plan is logged", output)
    (line,) = (line for line in output().splitlines() if "process set 0: allreduces" in line)
    assert f"go over {plan}, in chunks" in line


def test_uneven_nodes(check: Check) -> None:
    run_over("3 (shm) x 2 (tcp)", check, one_and_more())


def test_racks_of_nodes_with_one_rank(check: Check) -> None:
    each = "ROUNDELAY_NODE_ID=n$RANK LOCAL_RANK=0 ROUNDELAY_TOPOLOGY=rack=2,node=2"
    run_over("2 (tcp) x 2 (tcp)", check, each)


@pytest.mark.nightly
def test_a_node_cut_in_two(check: Check) -> None:
    run_over("2 (shm) x 2 (shm)", check, "ROUNDELAY_FACTORS=2,2")


def test_factors_that_do_not_fit_are_one_error_on_all_ranks() -> None:
    variables = "ROUNDELAY_NODE_ID=$RANK LOCAL_RANK=0 ROUNDELAY_FACTORS=3"
    words = ["sh", "-c", f"{variables} exec python {REFUSED}"]
    status, output = run([*ROUNDELAYRUN, "-np", "2", "--gloo", *words])
    refused = [line.partition("refused: ")[2] for line in output.splitlines() if "refused: " in line]
    assert status == 0, output
    assert len(refused) == 2, output
    assert set(refused) == {
        "ROUNDELAY_FACTORS=3 does not fit 1 rank per node, 2 nodes: give, from the inside out, factors that "
        "make up each of these numbers"
    }

"""A hook of DDP sends gradients between nodes in 8 bits: nothing is lost, and a skipped step leaves none."""

from __future__ import annotations

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

import roundelay.torch as hvd
from linear_loss import Ledger
from process_groups import world
from ranks import Check, run_check
from roundelay.torch import ddp

TEXT = "quantised:bits=8"
STEPS = 6


def test_two_nodes_of_one_rank(check: Check) -> None:
    run_check(check, 2, each="ROUNDELAY_NODE_ID=$RANK LOCAL_RANK=0", mpi=False)


def check_gradients_arrive_once() -> None:
    with world():
        ledger = Ledger(TEXT)
        for step in range(STEPS):
            ledger.step(step)
        assert all(text.startswith("quantised") for text in ledger.state.techniques()), ledger.state
        assert ledger.keeps_something()
        ledger.check()


def train(net: nn.Module, optimizer: torch.optim.Optimizer) -> None:
    for step in range(STEPS):
        values = torch.Generator().manual_seed(100 * step + hvd.rank())
        optimizer.zero_grad()
        net(torch.randn(8, 64, generator=values)).square().mean().backward()
        optimizer.step()


def check_same_bits_as_distributed_optimizer() -> None:
    with world():
        torch.manual_seed(3)
        wrapped, hooked = nn.Linear(64, 64, bias=False), nn.Linear(64, 64, bias=False)
        hooked.load_state_dict(wrapped.state_dict())
        optimizer = torch.optim.SGD(wrapped.parameters(), lr=0.1)
        hvd.DistributedOptimizer(optimizer, wrapped.named_parameters(), strategy=TEXT)
        net = DistributedDataParallel(hooked)
        net.register_comm_hook(*ddp.hook(TEXT))
        train(wrapped, optimizer)
        train(net, torch.optim.SGD(hooked.parameters(), lr=0.1))
        assert torch.equal(hooked.weight, wrapped.weight)


def check_a_skipped_step_leaves_nothing() -> None:
    """One number of a block overflows on one rank. The others are large, and the other rank rounds them."""
    with world():
        net = DistributedDataParallel(nn.Linear(64, 4, bias=False))
        net.register_comm_hook(*ddp.hook(TEXT))
        optimizer = torch.optim.SGD(net.parameters(), lr=1.0)
        scaler = torch.amp.GradScaler("cpu", init_scale=4.0)
        for step in range(STEPS):
            before = net.module.weight.detach().clone()
            gradient = torch.ones(1, 64)  # of each of the weight's rows
            skipped = step == STEPS - 2
            if skipped:
                gradient *= 1e6
                gradient[0, 7] = torch.inf if dist.get_rank() == 0 else 1e9
            optimizer.zero_grad()
            scaler.scale(net(gradient).sum()).backward()
            scaler.step(optimizer)
            scaler.update()
            torch.testing.assert_close(
                before - net.module.weight.detach(), torch.full((4, 64), float(not skipped))
            )

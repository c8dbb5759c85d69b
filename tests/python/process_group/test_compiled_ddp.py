"""A compiled model under DistributedDataParallel: PyTorch cuts its graph, so its buckets travel early."""

from __future__ import annotations

import pytest
import torch
from torch.distributed.algorithms.ddp_comm_hooks import default_hooks
from torch.nn.parallel import DistributedDataParallel

import roundelay.torch as hvd
from compiled_training import Pieces
from process_groups import world
from ranks import Check, run_check

WIDTH, DEPTH = 512, 4  # a layer has 1 MiB: DDP's smallest bucket there


@pytest.mark.parametrize("np", [2])
def test_compiled_ddp(np: int, check: Check) -> None:
    run_check(check, np)


class Layers(torch.nn.Sequential):
    """Dynamo does not compile frames of torch.nn."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for layer in self:
            x = layer(x)
        return x


def trained(events: list[str], compiled: bool) -> list[torch.Tensor]:
    """Train over the backend, and note when buckets go."""
    torch._dynamo.reset()
    torch.manual_seed(0)
    model = Layers(*(torch.nn.Linear(WIDTH, WIDTH) for _ in range(DEPTH)))
    ddp = DistributedDataParallel(model, bucket_cap_mb=1)
    backend = Pieces(events)

    def noting(group, bucket):  # type: ignore[no-untyped-def]  # DDP would read names of types
        events.append(f"bucket {bucket.index()}")
        return default_hooks.allreduce_hook(group, bucket)

    ddp.register_comm_hook(None, noting)
    run = torch.compile(ddp, backend=backend) if compiled else ddp
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    generator = torch.Generator().manual_seed(hvd.rank())
    for _ in range(4):
        optimizer.zero_grad()
        run(torch.randn(8, WIDTH, generator=generator)).square().mean().backward()
        optimizer.step()
    if compiled:
        assert backend.pieces == DEPTH
    return [parameter.detach() for parameter in model.parameters()]


def check_buckets_go_while_backward_goes_on() -> None:
    events: list[str] = []
    with world():
        found, expected = trained(events, compiled=True), trained([], compiled=False)
    for one, other in zip(found, expected, strict=True):
        torch.testing.assert_close(one, other)
    last_step = events[len(events) - events[::-1].index("forward 0") - 1 :]
    assert last_step.index("bucket 0") < last_step.index("backward 0"), last_step


def check_hvd_compile_refuses_it() -> None:
    with world(), pytest.raises(ValueError, match=r"give DistributedDataParallel to torch\.compile"):
        hvd.compile(DistributedDataParallel(torch.nn.Linear(2, 2)))

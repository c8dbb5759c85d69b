"""A training with Ignite over roundelay, as one rank of two."""

from __future__ import annotations

import ignite.distributed as idist
import torch
import torch.distributed as dist
from ignite.engine import Engine
from torch.nn.parallel import DistributedDataParallel

from roundelay.torch import ddp

# Ignite takes no backend but PyTorch's own by name. It takes the group that there is, but for auto_model().
dist.init_process_group("roundelay")
assert (idist.get_world_size(), idist.get_rank(), idist.backend()) == (2, dist.get_rank(), "roundelay")
plain = torch.nn.Linear(3, 1, bias=False)
torch.nn.init.zeros_(plain.weight)
model = DistributedDataParallel(plain)
state, average = ddp.hook("bf16", named_parameters=plain.named_parameters())
model.register_comm_hook(state, average)
optimizer = idist.auto_optim(torch.optim.SGD(model.parameters(), lr=0.5))


def train(_: Engine, batch: torch.Tensor) -> None:
    """Takes one step."""
    optimizer.zero_grad()
    model(batch).sum().backward()
    optimizer.step()


Engine(train).run([torch.full((1, 3), dist.get_rank() + 1.0)] * 4, max_epochs=1)
assert plain.weight.tolist() == [[-3.0] * 3]  # the average of the gradients is 1.5, the rate 0.5
assert idist.all_reduce(dist.get_rank()) == 1
assert state.techniques() == ["dense:wire=bf16"]
print("trained", dist.get_rank())
dist.destroy_process_group()

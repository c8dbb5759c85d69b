"""Ludwig's Horovod strategy as one rank of two, without Ray. The folder of Ludwig is on PYTHONPATH."""

from __future__ import annotations

import sys
from types import ModuleType, SimpleNamespace
from typing import Any

import torch


class Unused(ModuleType):
    """A module that the strategy imports classes from, for Ray's jobs."""

    __version__ = "2.4.0"

    def __getattr__(self, name: str) -> type:
        if name.startswith("__"):
            raise AttributeError(name)
        return type(name, (), {})


RAY = ("ray", "ray.train", "ray.train.backend", "ray.train.data_parallel_trainer", "ray.train.horovod")
OF_LUDWIG = ("ludwig.modules.optimization_modules", "ludwig.utils.torch_utils")
sys.modules.update({name: Unused(name) for name in (*RAY, *OF_LUDWIG)})
made: Any = sys.modules[OF_LUDWIG[0]]
made.create_optimizer = lambda model, _, rate: torch.optim.SGD(model.parameters(), lr=rate)

from ludwig.distributed import init_dist_strategy  # noqa: E402

strategy = init_dist_strategy("horovod")
rank = strategy.rank()
assert (strategy.size(), strategy.local_size(), strategy.is_available()) == (2, 2, True)
model = torch.nn.Linear(3, 1, bias=False)
torch.nn.init.constant_(model.weight, float(rank))
config = SimpleNamespace(optimizer=None, gradient_accumulation_steps=2)
model, optimizer = strategy.prepare(model, config, 1.0)
strategy.sync_model(model)
strategy.sync_optimizer(optimizer)
for _ in range(2):
    optimizer.zero_grad()
    for _ in range(2):
        model(torch.full((1, 3), rank + 1.0)).sum().backward()
    strategy.wait_optimizer_synced(optimizer)
    with strategy.prepare_optimizer_update(optimizer):
        optimizer.step()
assert model.weight.tolist() == [[-6.0] * 3]
assert strategy.broadcast_object({"rank": rank}) == {"rank": 0}
assert strategy.allreduce(torch.tensor([float(rank)])).tolist() == [0.5]
gathered = strategy.gather_all_tensors_fn()(torch.tensor(rank == 1))
assert [one.tolist() for one in gathered] == [[False], [True]]
strategy.barrier()
strategy.shutdown()
print("trained", rank)

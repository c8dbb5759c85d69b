"""A training with Ray Train over the backend roundelay: two workers, which Ray starts."""

from __future__ import annotations

import sys

import ray
import ray.train
import ray.train.torch
import torch
import torch.distributed as dist


def train() -> None:
    """Trains three weights with four batches, as one worker."""
    model = ray.train.torch.prepare_model(torch.nn.Linear(3, 1, bias=False))
    assert dist.get_backend() == "roundelay"
    model.module.weight.data.zero_()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.5)
    for _ in range(4):
        optimizer.zero_grad()
        model(torch.full((1, 3), dist.get_rank() + 1.0)).sum().backward()  # the gradient is the batch
        optimizer.step()
    assert model.module.weight.tolist() == [[-3.0] * 3]  # their average is 1.5
    ray.train.report({"trained": dist.get_rank()})


ray.init(num_cpus=2, include_dashboard=False)
try:
    ray.train.torch.TorchTrainer(
        train,
        scaling_config=ray.train.ScalingConfig(num_workers=2, use_gpu=False),
        run_config=ray.train.RunConfig(storage_path=sys.argv[1], name="run"),
        torch_config=ray.train.torch.TorchConfig(backend="roundelay"),
    ).fit()
finally:
    ray.shutdown()
print("trained 0 and 1")

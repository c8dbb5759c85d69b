"""Trains the digits classifier of digits.py with weights, gradients and optimizer sharded by PyTorch's FSDP2.

torchrun --nproc-per-node 2 examples/fsdp2.py                    # over Roundelay
torchrun --nproc-per-node 2 examples/fsdp2.py --backend gloo     # over Gloo: nothing else differs
roundelayrun -np 2 python examples/fsdp2.py                      # any launcher will do
"""

from __future__ import annotations

import argparse
import time

import torch
import torch.distributed as dist
from digits import digits, make_model
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard


def main() -> None:
    """Trains, and prints what rank 0 saw."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--backend", default="roundelay", help="of torch.distributed (default: roundelay)")
    parser.add_argument("--epochs", type=int, default=4)
    parser.add_argument("--batch", type=int, default=64, help="images of a step, over all processes")
    arguments = parser.parse_args()

    torch.manual_seed(0)
    torch.set_num_threads(1)
    dist.init_process_group(arguments.backend)  # the only line that knows the backend
    rank, size = dist.get_rank(), dist.get_world_size()
    images, labels, test_images, test_labels = digits()
    model = make_model(16)
    mesh = init_device_mesh("cpu", (size,))
    for layer in model:
        if isinstance(layer, nn.Conv2d | nn.Linear):
            fully_shard(layer, mesh=mesh)
    fully_shard(model, mesh=mesh)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)

    begin, steps = time.perf_counter(), 0
    for epoch in range(arguments.epochs):
        order = torch.randperm(len(images), generator=torch.Generator().manual_seed(epoch))
        for batch in order.split(arguments.batch):
            if len(batch) < size:
                continue
            mine = batch.tensor_split(size)[rank]
            optimizer.zero_grad()
            nn.functional.cross_entropy(model(images[mine]), labels[mine]).backward()
            optimizer.step()
            steps += 1
    seconds = time.perf_counter() - begin
    with torch.no_grad():  # all ranks: each has only a part of the weights
        accuracy = (model(test_images).argmax(1) == test_labels).float().mean().item()
    if rank == 0:
        print(f"test accuracy  {accuracy:.4f}  ({steps} steps in {seconds:.1f} s, {size} processes)")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()

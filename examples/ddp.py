"""Trains the digits classifier of digits.py with PyTorch's own DistributedDataParallel.

torchrun --nproc-per-node 2 examples/ddp.py                      # over Roundelay
torchrun --nproc-per-node 2 examples/ddp.py --backend gloo       # over Gloo: nothing else differs
torchrun --nproc-per-node 2 examples/ddp.py --hook bf16          # gradients travel in a half type
roundelayrun -np 2 python examples/ddp.py                        # any launcher will do
"""

from __future__ import annotations

import argparse
import time

import torch
import torch.distributed as dist
from digits import digits, make_model
from torch import nn
from torch.nn.parallel import DistributedDataParallel

from roundelay.torch.ddp import hook


def main() -> None:
    """Trains, and prints what rank 0 saw."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--backend", default="roundelay", help="of torch.distributed (default: roundelay)")
    parser.add_argument("--hook", help="a strategy for DDP's gradients, such as topk:density=0.05")
    parser.add_argument("--epochs", type=int, default=4)
    parser.add_argument("--batch", type=int, default=64, help="images of a step, over all processes")
    arguments = parser.parse_args()

    torch.manual_seed(0)
    torch.set_num_threads(1)
    dist.init_process_group(arguments.backend)  # the only line that knows the backend
    rank, size = dist.get_rank(), dist.get_world_size()
    images, labels, test_images, test_labels = digits()
    model = DistributedDataParallel(make_model(16), gradient_as_bucket_view=True)
    if arguments.hook:
        model.register_comm_hook(*hook(arguments.hook))
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
    if rank == 0:
        seconds = time.perf_counter() - begin
        with torch.no_grad():
            accuracy = (model.module(test_images).argmax(1) == test_labels).float().mean().item()
        print(f"test accuracy  {accuracy:.4f}  ({steps} steps in {seconds:.1f} s, {size} processes)")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
